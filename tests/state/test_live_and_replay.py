"""The frames of a session and of its replay agree, for every load mode, wherever the journal has what they need.

A session runs in this process, with its worker and a simulator in processes of their own. Whenever a frame of the
worker arrives, the frame that clients would get is kept. Then the journal is replayed.

- What is counted is exactly the same, after the same number of finished requests: a record reaches the session process
  some time after the request has ended, so that a replay may be ahead of it, and never behind.
- What is in flight differs at most by the requests that began or ended between the worker's frame and that of the
  replay, at most one step (0.125 s) and one frame of the worker apart; more on a busy machine.
- The windows of rates begin and end with frames, and a worker counts some chunks late, since it reads several before
  it parses them. Rates may differ by the chunks that arrived so close to the ends of the windows, and by two per
  stream. They are not compared while the record of an answer is on its way, with the last chunks of it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
from pathlib import Path

import msgspec
import pytest

from swarmtui.analysis.levels.figures import level_figures, level_readings
from swarmtui.model.client_protocol import Frame
from swarmtui.model.load import Barrier, Closed, Dag, Load, Mixed, Open, Ramp, Sessions, Swarm
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Level
from swarmtui.model.telemetry import QualityLine
from swarmtui.model.worker_protocol import WorkerFrame
from swarmtui.processes.spawn import start_worker
from swarmtui.session_process.main import SessionProcess
from swarmtui.sessions.replay import Replay, open_replay
from swarmtui.sessions.store import load_session
from swarmtui.state import session_state
from swarmtui.state.session_state import SessionState
from tests.cli.programs import open_sandbox

SECOND = 1_000_000_000
STEP_NS = SECOND // 8
# A worker parses what it has read at the latest after this time without a chunk, and then waits for its next frame.
LATE_NS = SECOND // 5

LOADS: dict[str, tuple[Load, str, str]] = {
    "closed": (Closed(levels=(1, 3), requests=6, warmup=1), "chat", "sim:moe-tp1?speed=4"),
    "barrier": (Barrier(levels=(3,), warmup=0), "chat", "sim:moe-tp1?speed=4"),
    "swarm": (Swarm(agents=4, warmup=0), "chat", "sim:moe-tp1?speed=4"),
    "open": (Open(rate=6.0, requests=16, streams=16, warmup=0), "chat", "sim:moe-tp1?speed=4"),
    "ramp": (Ramp(to=4, every="1.2s", warmup=0), "chat", "sim:moe-tp1?speed=8"),
    "mixed": (Mixed(levels=(1, 2, 3), warmup=0), "s4-mixed-fastapi", "sim:moe-tp1?speed=4"),
    "dag": (Dag(size=14, warmup=0), "orchestrator-dag", "sim:moe-tp1?speed=10"),
    "sessions": (Sessions(levels=(2,), sessions=3, warmup=0, time_scale=200.0), "agents", "sim:moe-tp1?speed=50"),
}

# Equal after the same number of finished requests in the same stage.
COUNTED = (
    "c", "run", "runs", "load", "rate", "steered", "done", "errors", "error_counts", "coalesced_chunks",
    "tokens_per_chunk", "tasks", "search_result",
)  # fmt: skip
# Lines of the measurement quality that need records and levels only.
FROM_RECORDS = {"turnaround", "in_flight", "token_source", "coalesced_chunks", "connections", "send_delay"}
NOT_IN_A_JOURNAL = ("lag_ms", "worker_cpu", "clock_steps", "left_s")


class RecordedRun:
    """The frames of a session while it ran, and its replay."""

    def __init__(self, frames: dict[int, Frame], replay: Replay, root: Path) -> None:
        self.frames, self.replay, self.root = list(frames.values()), replay, root
        self._known_ns = {frame.t_ns: known_ns for known_ns, frame in frames.items()}
        self.journal = load_session(root, "last").journal
        self.t0_ns = self.journal.head.session.t0_ns
        steps = int(replay.length_s * SECOND) // STEP_NS
        self.replayed = [replay.frame_at(step * STEP_NS / SECOND) for step in range(steps + 1)]
        self.replayed.append(replay.frame_at(replay.length_s))
        self.chunks_ns = sorted(t_ns for record in self.journal.records for t_ns in record.chunk_times_ns())
        self.first_ns = sorted(r.t_first_ns for r in self.journal.records if r.t_first_ns is not None)
        self.changes_ns = sorted(
            t_ns for record in self.journal.records for t_ns in (record.t_sent_ns, record.left_ns) if t_ns is not None
        )
        self.times_ns = {
            (record.agent, record.task, record.t_sent_ns): record.chunk_times_ns() for record in self.journal.records
        }

    def at(self, frame: Frame) -> Frame:
        """Return the replayed frame of the same moment, at most one step before it."""
        return self.replayed[min(len(self.replayed) - 1, (frame.t_ns - self.t0_ns) // STEP_NS)]

    def known_at(self, frame: Frame) -> Frame:
        """Return the replayed frame that follows the moment at which the session process had this one."""
        return self.replayed[min(len(self.replayed) - 1, (self._known_ns[frame.t_ns] - self.t0_ns) // STEP_NS + 1)]

    def counted_alike(self, frame: Frame) -> list[Frame]:
        """Return the replayed frames after as many finished requests, in the same stage."""
        return [
            other
            for other in self.replayed
            if (other.finished, other.c, other.run, other.status) == (frame.finished, frame.c, frame.run, frame.status)
        ]

    def chunks_between(self, start_ns: int, end_ns: int) -> int:
        return count(self.chunks_ns, start_ns, end_ns)


def run_session(request: RunRequest, monkeypatch: pytest.MonkeyPatch) -> dict[int, Frame]:
    """Run a session; return its frames by the time at which they were known."""
    frames: dict[int, Frame] = {}
    apply_frame = SessionState.apply_frame

    def keep(state: SessionState, worker: int, frame: WorkerFrame) -> None:
        apply_frame(state, worker, frame)
        frames[time.perf_counter_ns()] = state.frame(frame.t_ns, rows=True)

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            await SessionProcess(request, start_worker()).run(reader, writer)

    with monkeypatch.context() as patched:
        patched.setattr(SessionState, "apply_frame", keep)
        asyncio.run(run())
    return frames


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Plan, str, str], RecordedRun]]:
    with open_sandbox(tmp_path) as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        root = sandbox.sessions
        # In both, judge the quality for each frame: it is otherwise up to a second old.
        monkeypatch.setattr(session_state, "_JUDGED_NS", 0)

        def run(plan: Plan, workload: str, url: str) -> RecordedRun:
            request = RunRequest(endpoints=(url,), workload=workload, plan=plan, session_root=str(root))
            frames = run_session(request, monkeypatch)
            return RecordedRun(frames, open_replay(root, "last"), root)

        yield run


@pytest.mark.parametrize("name", LOADS)
def test_replay_shows_what_the_session_showed(name: str, record: Callable[[Plan, str, str], RecordedRun]) -> None:
    load, workload, url = LOADS[name]
    recorded = record(Plan(load=load, max_tokens=120, seed=1, workers=1), workload, url)
    frames = [frame for frame in recorded.frames if frame.status in ("warming up", "running")]
    assert frames and recorded.journal.records
    check_counts(recorded, frames)
    check_streams(recorded, frames)
    check_rates(recorded, frames)
    levels = {level.key for frame in recorded.replayed for level in (*frame.provisional, *frame.levels)}
    assert all(level.key in levels for frame in frames for level in frame.provisional)
    for frame in recorded.replayed:
        assert [getattr(frame, name) for name in NOT_IN_A_JOURNAL] == [None] * len(NOT_IN_A_JOURNAL)
    assert all(frame.lag_ms is not None and frame.clock_steps is not None for frame in frames)


def test_replay_shows_the_verdicts_that_the_session_showed(
    record: Callable[[Plan, str, str], RecordedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those in doubt, and wherever it begins: every second visit is disturbed, by what is in no journal."""
    disturbed = cycle((True, False))
    monkeypatch.setattr(SessionState, "is_disturbed", lambda state, now: next(disturbed))
    monkeypatch.setattr(SessionState, "was_disturbed", False)
    load = Closed(levels=(1,), warmup=0)
    plan = Plan(goal="capacity", slo="ttft=1ms", max_c=4, alpha=0.2, budget_s=10.0, load=load, max_tokens=20, workers=1)
    recorded = record(plan, "chat", "sim:moe-tp1?speed=2")

    live, replayed = (
        [frame.search for frame in frames if frame.search] for frames in (recorded.frames, recorded.replayed)
    )
    assert [level.state for level in live[-1].levels[:2]] == ["unsure", "missed"]
    assert all(search in replayed for search in live)
    moment = [frame for frame in recorded.replayed if frame.search == live[-1]][-1]
    assert open_replay(recorded.root, "last").frame_at(moment.elapsed_s).search == live[-1]


def check_counts(recorded: RecordedRun, frames: list[Frame]) -> None:
    # The last frame of a replay has those of the summary, with energy.
    journal, rates = recorded.journal, recorded.journal.head.session.plan.load.serial_rates
    readings = level_readings(journal.telemetry)
    last = level_figures(journal.records, journal.stages, journal.ends, rates, journal.servers, readings)
    compared, levels = 0, [*(without_host(other.levels) for other in recorded.replayed), without_host(last)]
    for frame in frames:
        assert without_host(frame.levels) in levels, frame.elapsed_s
        assert frame.finished <= recorded.known_at(frame).finished
        alike = recorded.counted_alike(frame)
        for other in alike:
            for name in COUNTED:
                assert getattr(other, name) == getattr(frame, name), (name, frame.elapsed_s)
        if alike:
            compared += 1
            assert frame.trace is None or frame.trace.jobs in [other.trace.jobs for other in alike if other.trace]
            for other in alike:
                assert other.levels != frame.levels or from_records(other) == from_records(frame), frame.elapsed_s
    assert compared > 0


def without_host(levels: Sequence[Level]) -> list[Level]:
    """How busy the host was is known by the samples so far, of which a live level may have one more or less."""
    return [msgspec.structs.replace(level, host=None, flags=()) for level in levels]


def from_records(frame: Frame) -> list[QualityLine]:
    return [line for line in frame.quality if line.code in FROM_RECORDS]


def count(times_ns: Sequence[int], start_ns: int, end_ns: int) -> int:
    return bisect_right(times_ns, end_ns) - bisect_right(times_ns, start_ns)


def check_streams(recorded: RecordedRun, frames: list[Frame]) -> None:
    for before, frame in pairwise(frames):
        other = recorded.at(frame)
        # From the older of the two frames to the newer one.
        start_ns, end_ns = min(before.t_ns, other.t_ns) - LATE_NS, frame.t_ns + LATE_NS
        changed, first = (count(times, start_ns, end_ns) for times in (recorded.changes_ns, recorded.first_ns))
        assert abs(frame.in_flight - other.in_flight) <= changed, frame.elapsed_s
        assert abs(frame.waiting - other.waiting) <= changed + first, frame.elapsed_s
        # In a ramp, a first token that arrives when C changes may count at the one C or at the other.
        if not first and not changed and frame.finished == other.finished and not frame.steered:
            assert frame.ttft_s == pytest.approx(other.ttft_s, abs=1e-5), frame.elapsed_s
        rows = {(row.agent, row.task, row.t_sent_ns): row for row in other.rows}
        for row in frame.rows:
            same = rows.get((row.agent, row.task, row.t_sent_ns))
            if same is not None and row.task >= 0:
                times = recorded.times_ns[row.agent, row.task, row.t_sent_ns]
                assert abs(row.total - same.total) <= count(times, other.t_ns - LATE_NS, frame.t_ns + LATE_NS) + 1
                assert row.ttft_s is None or same.ttft_s is None or row.ttft_s == pytest.approx(same.ttft_s, abs=1e-5)


def check_rates(recorded: RecordedRun, frames: list[Frame]) -> None:
    live_ns, replay_ns = ([frame.t_ns for frame in found] for found in (frames, recorded.replayed))
    for frame in frames:
        other = recorded.at(frame)
        if frame.out_tps is None or other.out_tps is None or frame.finished != other.finished:
            continue
        windows = [window(times, found.t_ns) for times, found in ((live_ns, frame), (replay_ns, other))]
        starts_ns, ends_ns = zip(*windows, strict=True)
        near = [recorded.chunks_between(min(edges) - LATE_NS, max(edges) + LATE_NS) for edges in (starts_ns, ends_ns)]
        shortest_s = min(end_ns - start_ns for start_ns, end_ns in windows) / SECOND
        longest_s = max(end_ns - start_ns for start_ns, end_ns in windows) / SECOND
        if not shortest_s:
            continue  # it is the first frame
        chunks = sum(near) + 2 * max(frame.in_flight, other.in_flight) + 2
        allowed = chunks * frame.tokens_per_chunk / shortest_s + other.out_tps * (longest_s / shortest_s - 1.0)
        assert abs(frame.out_tps - other.out_tps) <= allowed, frame.elapsed_s
        if frame.per_stream_tps is not None and other.per_stream_tps is not None and frame.c == other.c:
            # Over the last ten seconds in this stage, whose ends may differ.
            stage_ns = max(start.t_ns for start in recorded.journal.stages if start.t_ns <= frame.t_ns)
            begin_ns = max(stage_ns, other.t_ns - 10 * SECOND)
            late = near[1] + recorded.chunks_between(begin_ns - LATE_NS, begin_ns + LATE_NS)
            late += 2 * max(frame.in_flight, other.in_flight) + 2
            share = late / max(1, recorded.chunks_between(begin_ns, other.t_ns) - late)
            assert frame.per_stream_tps == pytest.approx(other.per_stream_tps, rel=2 * share), frame.elapsed_s


def window(times_ns: Sequence[int], t_ns: int) -> tuple[int, int]:
    """Return the first and the last frame of the window of a rate."""
    last = bisect_right(times_ns, t_ns) - 1
    return times_ns[max(0, bisect_right(times_ns, times_ns[last] - SECOND) - 1)], times_ns[last]
