"""What is held against the figures while a run goes on, and what of it is left for the verdict at its end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarmtui.model.record import Record
from swarmtui.model.telemetry import Gpu, ServerState, Telemetry, Trust
from swarmtui.session_process.quality_monitor import Doubts
from swarmtui.session_process.waits import Waits
from swarmtui.session_process.watched_stream import Watching
from tests.analysis.made_levels import level

SECOND = 1_000_000_000


def seen(at_s: float, gpus: tuple[Gpu, ...] = (), **server: Any) -> Telemetry:
    t_ns = round(at_s * SECOND)
    state = ServerState(engine="vLLM", url="http://here/metrics", **server)
    return Telemetry(t_ns=t_ns, servers_t_ns=t_ns, servers=(state,), gpus=gpus)


def line(doubts: Doubts, name: str, *, ended: bool = True) -> Trust | None:
    return next((found for found in doubts.lines((), ended=ended) if found.name == name), None)


def test_a_stranger_who_left_before_the_end_is_in_the_verdict() -> None:
    doubts = Doubts(cold_promised=False)
    for at, there in enumerate([4, 4, 9, 9, 9, 9, 4, 4, 4, 4]):
        doubts.look(seen(at, running=float(there), waiting=0.0), 4)
    now, verdict = line(doubts, "others on the server", ended=False), line(doubts, "others on the server")
    assert now is not None and (now.state, now.value) == ("ok", "0 beside our 4")
    assert verdict is not None and (verdict.state, verdict.value) == ("wrong", "5 beside our 4")


def test_requests_that_ended_since_the_server_was_asked_are_no_strangers() -> None:
    doubts = Doubts(cold_promised=False)
    for at in range(6):
        asked = seen(at, running=16.0, waiting=0.0)
        doubts.look(asked, 16)
        doubts.look(Telemetry(t_ns=asked.t_ns + SECOND // 2, servers_t_ns=asked.t_ns, servers=asked.servers), 2)
    found = line(doubts, "others on the server")
    assert found is not None and found.state == "ok"


def test_a_server_that_counts_its_cache_hits_is_asked_where_answers_do_not_say() -> None:
    doubts = Doubts(cold_promised=True)
    doubts.before(seen(0, cache_queries=1000.0, cache_hits=900.0))
    doubts.look(seen(1, cache_queries=2000.0, cache_hits=900.0), 1)
    cold = line(doubts, "cold cache")
    assert cold is not None and (cold.state, cold.value) == ("ok", "0 % from the cache")
    doubts.look(seen(2, cache_queries=3000.0, cache_hits=1700.0), 1)
    warm = line(doubts, "cold cache")
    assert warm is not None and warm.state == "wrong" and warm.value.startswith("40")


def test_preemptions_are_those_of_this_run() -> None:
    doubts = Doubts(cold_promised=False)
    doubts.before(seen(0, preemptions=7.0))
    doubts.look(seen(1, preemptions=7.0), 1)
    calm = line(doubts, "preemptions")
    assert calm is not None and (calm.state, calm.value) == ("ok", "0")
    doubts.look(seen(2, preemptions=9.0), 1)
    full = line(doubts, "preemptions")
    assert full is not None and (full.state, full.value) == ("doubtful", "2")


def test_reasons_for_lowered_clocks_are_kept_and_clocks_that_people_set_are_none() -> None:
    doubts = Doubts(cold_promised=False)
    card: dict[str, Any] = {"uuid": "GPU-1", "index": 0, "name": "card"}
    for at, reasons in enumerate([("application clocks",)] * 8 + [("thermal",)] * 2):
        doubts.look(Telemetry(t_ns=at, gpus=(Gpu(**card, throttle=reasons),)), 1)
    doubts.look(Telemetry(t_ns=99, gpus=(Gpu(**card, throttle=()),)), 0)
    found = line(doubts, "throttling")
    assert found is not None and (found.state, found.value) == ("wrong", "20 % of the time thermal")


@pytest.mark.parametrize(
    "finish",
    [Doubts(cold_promised=False).finish, Waits().finish, Watching().finish],
    ids=["doubts", "waits", "watching"],
)
def test_what_is_remembered_of_requests_does_not_grow_with_their_answers(finish: Callable[[Record], None]) -> None:
    tracemalloc.start()
    for task in range(512):
        gaps = tuple(range(1000 + task, 3000 + task))
        finish(Record(task=task, agent=task, chunks=len(gaps), chunk_us=gaps, text="x" * (20_000 + task)))
    remembered, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert remembered < 4_000_000


def test_in_an_open_loop_nobody_holds_c() -> None:
    held = level(8, c_achieved=4.0)
    arriving = msgspec.structs.replace(held, rate=2.0, load="open")
    names = [[found.name for found in Doubts(cold_promised=False).lines((one,))] for one in (held, arriving)]
    assert "achieved C" in names[0] and "achieved C" not in names[1]
