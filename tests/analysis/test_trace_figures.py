"""Figures of replayed traces: jobs, prefix cache, contexts, and TTFT by turn and prompt length."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.traces import reusable_tokens
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.model.journal import StageEnd, StageStart
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import Level, TtftCell
from swarmtui.model.telemetry import DiscoveredServer, ServerState, Telemetry
from swarmtui.model.trace import ReplayedRequest

S = 1_000_000_000


def request(
    at_s: float,
    play: int,
    turn: int,
    *,
    tokens: int = 1000,
    reusable: int = 0,
    cached: int | None = None,
    phase: Phase = "level",
    error: str | None = None,
    skipped: int = 0,
) -> Record:
    """A request of a session of two; its answer of 100 tokens takes two seconds, the first of them to the first."""
    sent = int(at_s * S)
    return Record(
        task=int(10 * at_s) + play, stage=1, c=2, run=1, phase=phase, t_sched_ns=sent, t_sent_ns=sent,
        t_first_ns=sent + S, t_last_ns=sent + 2 * S, t_done_ns=sent + 2 * S, chunks=2, chunk_us=(0, 1_000_000),
        first_tokens=50, tokens_in=tokens + 10, tokens_out=100, token_source="usage", cached_tokens=cached, error=error,
        replayed=ReplayedRequest(
            play=play, session="s", turn=turn, requests=2, skipped=skipped,
            input_tokens=tokens, reusable_tokens=reusable,
        ),
    )  # fmt: skip


STAGES = (StageStart(number=1, t_ns=0, c=2, run=1, phase="level", load="sessions"),)
ENDS = (StageEnd(number=1, t_ns=30 * S, complete=True),)
PLAYED = [
    request(0, 1, 1, skipped=1, phase="preroll"),
    request(1, 2, 0, cached=0),
    request(5, 2, 1, tokens=9000, reusable=960, cached=960),
    request(9, 3, 0, cached=0),
    request(11, 3, 1, tokens=2000, reusable=960, cached=480),
]


def one_level(records: list[Record]) -> Level:
    (level,) = level_figures(records, STAGES, ENDS)
    return level


def test_jobs_contexts_and_hits_of_a_level() -> None:
    level = one_level(PLAYED)
    found = level.replay
    assert found is not None
    # Two whole sessions; a request is half a job, and three were sent in the ten seconds before the last one.
    assert (found.jobs, found.failed, level.job_s.n, level.job_s.mean) == (2, 0, 2, 5.0)
    assert found.jobs_per_h == pytest.approx(1.5 * 360) and found.jobs_per_h_user == pytest.approx(0.75 * 360)
    assert (found.recorded_tokens, found.reusable_tokens, found.cached_tokens) == (13_000, 1920, 1440)
    assert found.fresh_tokens == 13_040 - 1440
    assert found.max_hit_rate == pytest.approx(1920 / 13_000) and found.hit_rate == pytest.approx(1440 / 13_040)
    assert found.hit_rate_by == "answers" and found.prompt_error == pytest.approx(40 / 13_000)
    # From 1 s to 11 s: the pre-roll for 1 s, two contexts of 1,110 for 4 and 2 s, one of 9,110 for 2 s.
    assert found.live_context == pytest.approx((1110 * 1 + 1110 * 4 + 9110 * 2 + 1110 * 2) / 10)
    assert found.ttft == (
        TtftCell(turn=1, context=0, n=2, ttft_s=1.0),
        TtftCell(turn=2, context=0, n=1, ttft_s=1.0),
        TtftCell(turn=2, context=8192, n=1, ttft_s=1.0),
    )


@pytest.mark.parametrize(
    ("sizes", "reusable"),
    [((128,), 2 * 896 + 1920), ((1,), 2 * 960 + 1999), ((16, 16), 2 * 960 + 1984), ((16, 32), 3920), ((None,), 3920)],
)
def test_highest_hit_rate_is_that_of_whole_blocks_of_the_server(sizes: tuple[int | None, ...], reusable: int) -> None:
    """The last token of a prompt is never from the cache."""
    records = [msgspec.structs.replace(one, tokens_in=one.tokens_in - 10) for one in PLAYED if one.tokens_in]
    records.append(msgspec.structs.replace(request(13, 4, 1, tokens=2000, reusable=2000), tokens_in=2000))
    servers = [DiscoveredServer(url="u", block_size=size) for size in sizes]
    (level,) = level_figures(records, STAGES, ENDS, servers=servers)
    found = level.replay
    assert found is not None and (found.recorded_tokens, found.reusable_tokens) == (15_000, reusable)
    assert found.max_hit_rate == reusable / 15_000
    assert found.block_size == (sizes[0] if len(set(sizes)) == 1 else None)


@given(st.integers(1, 256), st.lists(st.tuples(st.integers(2, 20_000), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_cache_that_keeps_all_has_the_highest_hit_rate_whatever_its_blocks(
    size: int, prompts: list[tuple[int, float]]
) -> None:
    """The definition is the same for an engine that caches single tokens and for one that caches blocks of 128."""
    records = []
    for turn, (tokens, share) in enumerate(prompts):
        reusable = round(share * tokens)
        cached = min(reusable, tokens - 1) // size * size
        one = request(4.0 * turn, 2, turn, tokens=tokens, reusable=reusable, cached=cached)
        records.append(msgspec.structs.replace(one, tokens_in=tokens))
    (level,) = level_figures(records, STAGES, ENDS, servers=[DiscoveredServer(url="u", block_size=size)])
    found = level.replay
    assert found is not None and found.hit_rate is not None and found.max_hit_rate is not None
    assert found.block_size == size
    assert (
        found.hit_rate
        <= found.max_hit_rate
        <= found.hit_rate
        + sum(
            max(4, size)
            for tokens, share in prompts
            if (round(share * tokens) + 4) // size > round(share * tokens) // size
        )
        / sum(tokens for tokens, _ in prompts)
        + 1e-9
    )


def test_blocks_of_a_text_that_the_server_counts_differently() -> None:
    replayed = ReplayedRequest(play=1, session="s", turn=1, input_tokens=853, reusable_tokens=768)
    assert [reusable_tokens(replayed, tokens, 128) for tokens in (1342, 853, 852, None)] == [732, 768, 768, 768]


def test_failed_sessions_are_no_jobs() -> None:
    found = one_level([*PLAYED[:-1], request(11, 3, 1, error="http_500")]).replay
    assert found is not None and (found.jobs, found.failed) == (1, 1)


def test_hit_rate_by_the_counters_of_the_server() -> None:
    """97 % of the possible hits happened between the samples; this share is also assumed for the measured requests."""
    records = [request(at, 2, turn, reusable=480 * turn) for at, turn in ((1, 0), (5, 1))]
    records.append(request(9, 2, 2, reusable=960, phase="filler", error=CANCELLED))

    def sample(at_s: float, queries: float, hits: float) -> Telemetry:
        state = ServerState(engine="vLLM", url="u", cache_queries=queries, cache_hits=hits)
        return Telemetry(t_ns=int(at_s * S), servers=(state,))

    samples = [sample(0, 100, 100), sample(3, 2000, 100), sample(10, 2500, 700), sample(20, 4000, 1500)]
    samples[0] = sample(-1, 100, 100)
    (level,) = add_machine_figures([one_level(records)], STAGES, ENDS, samples, records)
    found = level.replay
    assert found is not None and found.hit_rate_by == "server"
    assert found.max_hit_rate == pytest.approx(480 / 2000)
    assert found.hit_rate == pytest.approx(480 / 2000 * 1400 / 1440)
    assert (found.cached_tokens, found.fresh_tokens) == (471, 1549)


def test_counters_that_do_not_move_are_no_hit_rate() -> None:
    """A server without a prefix cache counts no queries."""
    idle = ServerState(engine="vLLM", url="u", cache_queries=0.0, cache_hits=0.0)
    samples = [Telemetry(t_ns=at * S, servers=(idle,)) for at in (1, 20)]
    records = [request(at, 2, turn) for at, turn in ((1, 0), (5, 1), (9, 2))]
    (level,) = add_machine_figures([one_level(records)], STAGES, ENDS, samples, records)
    assert level.replay is not None
    assert (level.replay.hit_rate, level.replay.cached_tokens, level.replay.fresh_tokens) == (None, None, None)


def test_other_loads_have_no_replay_figures() -> None:
    (level,) = level_figures([Record(task=1, stage=1, c=2, run=1)], STAGES, ENDS)
    assert level.replay is None
