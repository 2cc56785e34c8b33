"""Where the time of requests and jobs goes: parts that add up, whatever servers report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.analysis.machine.waterfall import waterfall
from swarmtui.model.record import EngineTimings, Record, Waterfall
from swarmtui.model.session import Level
from swarmtui.model.trace import ReplayedRequest
from swarmtui.report.figure_tables import time_table
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage


def reported(sent: float, first: float, last: float, queue: float, prefill: float, **fields: Any) -> Record:
    """A request whose server reports its time in the queue and that of its prefill, all in milliseconds."""
    return request(
        sent, [first, last], engine=EngineTimings(queue_s=queue / 1e3), engine_prefill_s=prefill / 1e3,
        t_headers_ns=BOOT_NS + round(sent * MS), **fields,
    )  # fmt: skip


def parts(found: Waterfall | None) -> dict[str, float]:
    assert found is not None
    return {name: round(1e3 * value, 3) for name, value in found.known_parts}


def test_a_request_with_all_parts() -> None:
    found = waterfall([reported(0, 1000, 3000, 300, 600)])
    assert parts(found) == {"queue": 300, "prefill": 600, "recomputed": 0, "decode": 2000, "client": 100}


def test_what_the_server_does_not_report_is_the_wait_for_the_first_token() -> None:
    assert parts(waterfall([request(0, [1000, 3000])])) == {"first token": 1000, "decode": 2000}
    queued = request(0, [1000, 3000], engine=EngineTimings(queue_s=0.4))
    assert parts(waterfall([queued])) == {"queue": 400, "first token": 600, "decode": 2000}
    assert waterfall([request(0, [], error="reset")]) is None


def test_a_prompt_that_was_evicted_is_read_again() -> None:
    """Of 1,000 prompt tokens 800 were sent before, and 200 of them are still in the cache."""
    replayed = ReplayedRequest(play=1, session="s", turn=1, requests=2, input_tokens=1000, reusable_tokens=800)
    record = reported(0, 800, 900, 0, 800, replayed=replayed, tokens_in=1000, cached_tokens=200)
    assert parts(waterfall([record])) == {"queue": 0, "prefill": 200, "recomputed": 600, "decode": 100, "client": 0}
    unknown = msgspec.structs.replace(record, cached_tokens=None)
    assert "recomputed" not in parts(waterfall([unknown]))
    preempted = msgspec.structs.replace(
        record, engine=EngineTimings(queue_s=0.0, computed_tokens=1600, local_cached_tokens=800)
    )
    assert parts(waterfall([preempted]))["recomputed"] == pytest.approx(800 * 1400 / 1600)


def test_second_turn_of_a_conversation_computes_again_what_the_cache_has_lost() -> None:
    first = reported(0, 100, 200, 0, 100, task=3, turn=0, turns=2, tokens_in=60, tokens=40)
    second = reported(
        210, 410, 500, 0, 200, task=3, turn=1, turns=2, tokens_in=200, cached_tokens=0, t_sched_ns=BOOT_NS + 205 * MS
    )
    assert parts(waterfall([first, second])) == {
        "queue": 0, "prefill": 200, "recomputed": 100, "decode": 190, "client": 10,
    }  # fmt: skip


def test_pauses_of_a_recorded_session_are_tools_and_late_sends_the_clients() -> None:
    plays = [ReplayedRequest(play=1, session="s", turn=turn, requests=2, input_tokens=10) for turn in (0, 1)]
    first = request(0, [100, 200], replayed=plays[0])
    second = request(900, [1000, 1100], replayed=plays[1], t_sched_ns=BOOT_NS + 880 * MS)
    job = {"first token": 200, "decode": 200, "tools": 680, "client": 20}
    assert parts(waterfall([first, second])) == job
    # An agent adds up the same, one request after the other.
    alone, following = waterfall([first]), waterfall([second], before=first)
    assert Counter(parts(alone)) + Counter(parts(following)) == job


def test_requests_at_the_same_time_share_it() -> None:
    one = request(0, [100, 300])
    other = request(100, [200, 400])
    assert parts(waterfall([one, other])) == {"first token": 150, "decode": 250}


MOMENTS = st.floats(0.001, 5000)


@st.composite
def requests(draw: st.DrawFn) -> Record:
    sent = draw(st.floats(0, 10_000))
    ttft, decode = draw(MOMENTS), draw(MOMENTS)
    known = draw(st.sampled_from(["nothing", "queue", "both", "headers"]))
    queue, prefill = draw(st.floats(0, 1.04)) * ttft, draw(st.floats(0, 1)) * ttft
    at = sent + (draw(st.floats(0, 1)) * ttft if known == "headers" else 0.0)
    return request(
        sent, [sent + ttft, sent + ttft + decode], tokens_in=draw(st.integers(1, 5000)),
        t_sched_ns=BOOT_NS + round((sent - draw(st.floats(0, 100))) * MS), t_headers_ns=BOOT_NS + round(at * MS),
        engine=EngineTimings(queue_s=queue / 1e3) if known in ("queue", "both") else None,
        engine_prefill_s=prefill / 1e3 if known in ("both", "headers") else None,
        cached_tokens=draw(st.none() | st.integers(0, 5000)),
        replayed=draw(st.none() | st.builds(
            ReplayedRequest, play=st.just(1), session=st.just("s"), turn=st.just(0),
            input_tokens=st.integers(1, 5000), reusable_tokens=st.integers(0, 5000),
        )),
    )  # fmt: skip


@given(requests())
def test_parts_add_up_to_e2e(record: Record) -> None:
    found = waterfall([record])
    assert found is not None and record.e2e_s is not None
    assert found.total_s == pytest.approx(record.e2e_s, rel=1e-6, abs=1e-8)
    assert all(value >= 0.0 for _, value in found.known_parts)


@given(st.lists(requests(), min_size=1, max_size=8))
def test_parts_of_a_job_add_up_to_its_time(records: list[Record]) -> None:
    found = waterfall(records)
    assert found is not None
    span_ns = max(r.t_last_ns or 0 for r in records) - min(r.t_sent_ns or 0 for r in records)
    assert found.total_s == pytest.approx(span_ns / 1e9, rel=1e-6, abs=1e-8)
    assert all(value >= 0.0 for _, value in found.known_parts)


def measured(records: list[Record]) -> Level:
    stages, ends = [stage(1, 1)], [end(1)]
    (level,) = add_machine_figures(level_figures(records, stages, ends), stages, ends, (), records)
    return level


def test_level_has_the_mean_of_its_requests_or_of_its_whole_jobs() -> None:
    alone = [reported(at, at + 1000, at + 3000, 300, 600, task=at) for at in (0, 5000)]
    found = measured(alone).waterfall
    assert found is not None and (found.n, found.per) == (2, "request") and parts(found)["prefill"] == 600
    turns = [(0, 7), (1, 7), (0, 8)]
    talk = [
        reported(4000 * at, 4000 * at + 1000, 4000 * at + 3000, 0, 900, task=task, turn=turn, turns=2, cached_tokens=0)
        for at, (turn, task) in enumerate(turns)
    ]
    level = measured(talk)
    found = level.waterfall
    # The second conversation has not ended.
    assert found is not None and (found.n, found.per) == (1, "job") and level.job_s.mean == 7.0
    assert found.total_s == pytest.approx(7.0) and parts(found)["decode"] == 4000
    note = time_table([level]).note
    assert "mean time of a job" in note and "decode is 57 %" in note


def test_no_table_if_only_the_first_token_is_known() -> None:
    assert not time_table([measured([request(0, [1000, 3000])])]).rows
