"""Live figures of a replayed trace."""

from __future__ import annotations

from swarmtui.model.record import Record
from swarmtui.model.telemetry import DiscoveredServer, ServerState
from swarmtui.model.trace import ReplayedRequest
from swarmtui.state.counts import TraceCounts


def answer(
    play: int, *, cached: int | None = None, subagent: int = 0, error: str | None = None, requests: int = 3
) -> Record:
    replayed = ReplayedRequest(
        play=play, session="s", turn=0, subagent=subagent, requests=requests, skipped=1, input_tokens=1000,
        reusable_tokens=600,
    )  # fmt: skip
    return Record(task=play, tokens_in=1000, tokens_out=10, cached_tokens=cached, error=error, replayed=replayed)


def test_sessions_contexts_and_hits_are_counted() -> None:
    counts = TraceCounts()
    assert counts.view() is None
    for record in (answer(1, cached=400), answer(2, cached=500, subagent=1), answer(1, cached=600), Record(task=9)):
        counts.add(record)
    view = counts.view()
    assert view is not None
    assert (view.jobs, view.context) == (1, 1010)
    assert (view.hit_rate, view.max_hit_rate) == (0.5, 0.6)
    view = counts.view([DiscoveredServer(url="", block_size=128)])
    assert view is not None and view.max_hit_rate == 0.512
    counts.add(answer(2, error="reset"))
    counts.add(answer(2, cached=0))
    view = counts.view()
    assert view is not None and (view.jobs, view.context) == (1, 0)


def test_ended_subagents_and_abandoned_sessions_have_no_context() -> None:
    counts = TraceCounts()

    def context(*answers: tuple[int, int]) -> int:
        for play, subagent in answers:
            counts.add(answer(play, subagent=subagent, requests=9))
        view = counts.view()
        assert view is not None
        return view.context

    assert context((1, 0), (1, 1), (1, 2), (2, 0)) == 4 * 1010
    assert context((1, 0)) == 2 * 1010
    counts.end_plays([1, 3])
    assert context((1, 0), (3, 0)) == 1010


def test_hit_rate_of_a_server_whose_answers_do_not_tell() -> None:
    counts = TraceCounts()
    for t_ns, queries, hits in ((0, 100.0, 0.0), (10**9, 1100.0, 800.0)):
        counts.add_sample(t_ns, [ServerState(engine="vLLM", cache_queries=queries, cache_hits=hits)])
    counts.add(answer(1))
    view = counts.view()
    assert view is not None and view.hit_rate == 0.8
