"""Traces that are longer than the context of a server: what fits is kept as it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.model.plan import TooLong
from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession, requests_of
from swarmtui.prompts.traces.agentperf import TextRequest
from swarmtui.prompts.traces.recordings import Recordings, make_recording
from swarmtui.prompts.traces.window import Window, describe_too_long


def request(tokens: int, *, answer: int = 10, subagents: tuple[SubAgent, ...] = ()) -> TraceRequest:
    blocks = tuple(range(-(-tokens // 64)))
    return TraceRequest(input_tokens=tokens, output_tokens=answer, blocks=blocks, subagents=subagents, think_s=1.0)


def session(*requests: TraceRequest, after: tuple[SubAgent, ...] = ()) -> TraceSession:
    return TraceSession(id="one", requests=requests, subagents=after)


def test_requests_that_do_not_fit_are_counted() -> None:
    # Prompts are exact to 2 %: 990 + 10 tokens may be more than 1,000 on the server.
    sessions = [session(request(100), request(990), request(3000)), session(request(980))]
    text = describe_too_long(sessions, 1000, None)
    assert "3 of 4 requests" in text and "1,000 tokens" in text and "3,010" in text
    assert "--too-long skip" in text and "--too-long truncate" in text


def test_skipped_requests_leave_the_others_and_their_sub_agents() -> None:
    helper = SubAgent(at_s=0.0, requests=(request(50), request(5000)))
    long = SubAgent(at_s=0.0, requests=(request(5000),))
    fitted = Window(1000, "skip").fit(
        session(request(100), request(2000, subagents=(helper, long)), request(300), after=(long,))
    )
    assert [kept.input_tokens for kept in fitted.requests] == [100, 300]
    # Those of the request that is left out end before the one after it.
    (agent,) = fitted.requests[1].subagents
    assert [kept.input_tokens for kept in agent.requests] == [50] and not fitted.subagents
    assert [made.after for made in make_recording(fitted).requests] == [(), (0,), (1,)]


def test_truncated_requests_keep_their_beginning_and_their_answer() -> None:
    long = request(5000, answer=200)
    (kept,) = Window(1000, "truncate").fit(session(long)).requests
    assert kept.output_tokens == 200 and kept.input_tokens + 200 <= 1000
    assert kept.blocks == long.blocks[: len(kept.blocks)] and (len(kept.blocks) - 1) * 64 < kept.input_tokens


def test_an_answer_longer_than_the_window_is_shortened_too() -> None:
    (kept,) = Window(1000, "truncate").fit(session(request(400, answer=5000))).requests
    assert kept.input_tokens == 400 and kept.output_tokens <= 500


def test_recorded_text_is_left_out_rather_than_cut() -> None:
    text = TextRequest(input_tokens=5000, output_tokens=10, messages=())
    assert [kept.input_tokens for kept in Window(1000, "truncate").fit(session(text, request(100))).requests] == [100]


@given(st.lists(st.integers(1, 4000), max_size=8), st.integers(64, 4000), st.sampled_from(["skip", "truncate"]))
def test_whatever_is_left_fits(lengths: list[int], window: int, how: TooLong) -> None:
    fitted = Window(window, how).fit(session(*map(request, lengths)))
    assert all(kept.input_tokens + kept.output_tokens <= window for kept in requests_of(fitted))
    assert how == "skip" or len(fitted.requests) == len(lengths)


@pytest.mark.parametrize(("how", "count"), [("skip", 1), ("truncate", 2)])
def test_a_session_without_a_fitting_request_is_not_played(tmp_path: Path, how: TooLong, count: int) -> None:
    for name, tokens in (("a", 5000), ("b", 200)):
        rows = [{"t": 0.0, "type": "s", "in": tokens, "out": 10, "hash_ids": list(range(tokens // 64))}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"id": name, "requests": rows}))
    found = Recordings([tmp_path], Window(1000, how))
    assert len(found) == count
    assert all(made.input_tokens <= 1000 for number in range(count) for made in found[number].requests)
