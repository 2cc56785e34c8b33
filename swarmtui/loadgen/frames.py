"""Make the frames of a worker: count its agents at each tick, and measure the read lag and the CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from time import perf_counter_ns

from swarmtui.loadgen.agent import Agent
from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.model.plan import Timeouts
from swarmtui.model.worker_protocol import StreamRow

_FRAME_NS = 100_000_000
# With more agents than this, a frame takes as many times longer, up to a limit: the cost of their rows does not grow.
_AGENTS_PER_FRAME = 256
_MAX_FRAME_NS = 500_000_000
# A frame is made of this many agents at a time, with reads in between.
_AGENTS_AT_ONCE = 64
# Above this many chunks per second the loop sleeps before each poll. Sleeping and reading together take a fraction of
# the gap between two chunks of a stream, so that both do not end up in one read.
_POLL_DELAY_RATE = 2_000
_GAP_FRACTION = 4
_MAX_POLL_DELAY_S = 0.004


class LoopLag:
    """Tracks how long the newest chunk of each poll had been in the kernel before it was read."""

    # A p99 needs at least a hundred samples; with a thousand, one outlier does not decide it.
    SAMPLES = 1000

    def __init__(self) -> None:
        self._new: list[int] = []
        self._previous: list[int] = []

    def add(self, lag_ns: int) -> None:
        self._new.append(lag_ns)

    def p99_ns(self) -> int:
        """Return the p99 of all samples since the last call, filled up with earlier ones; 0 without samples."""
        samples = (self._previous + self._new)[-max(self.SAMPLES, len(self._new)) :]
        self._new, self._previous = [], samples[-self.SAMPLES :]
        return sorted(samples)[len(samples) * 99 // 100] if samples else 0


class AgentRows:
    """Counts the agents and collects the rows that changed, some agents at a time: reading must not wait for all."""

    def __init__(self, agents: list[Agent], now: int, *, timeouts: Timeouts | None, with_rows: bool) -> None:
        self._left = iter(agents)
        self._timeouts = timeouts
        self.t_ns, self.with_rows = now, with_rows
        self.in_flight = self.waiting = self.measured = self.chunks = 0
        self.rows: list[StreamRow] = []

    def add(self, count: int) -> bool:
        """Check the timeouts of the next agents and add them; return whether more are left."""
        seen = 0
        for agent in islice(self._left, count):
            seen += 1
            if self._timeouts is not None:
                agent.check_timeouts(self.t_ns, self._timeouts)
            if agent.busy:
                self.in_flight += 1
                self.waiting += agent.waiting
                self.measured += agent.measured
            if self.with_rows and (row := agent.row_if_changed()) is not None:
                self.rows.append(row)
                self.chunks += row.chunks
        return seen == count


class FrameTimer:
    """Calls `on_frame` with the rows of the agents, the lag in ms and the CPU time in ns, about ten times per second.

    Each tick also checks the timeouts of all requests and sets the poll delay. No frame is made while `can_send`
    returns false.
    """

    def __init__(
        self,
        loop: EventLoop,
        clock: KernelClock,
        agents: list[Agent],
        can_send: Callable[[], bool],
        on_frame: Callable[[AgentRows, float, int], None],
    ) -> None:
        self._loop, self._clock, self._agents = loop, clock, agents
        self._can_send, self._on_frame = can_send, on_frame
        self._timeouts: Timeouts | None = None
        self._rows: AgentRows | None = None
        self._lag, self._last_stamp = LoopLag(), 0
        self._cpu_ns, self._last_tick, self._was_suspended = time.process_time_ns(), perf_counter_ns(), False
        loop.after_reads = self._record_lag
        loop.call_at(self._last_tick + _FRAME_NS, self._tick)

    def start(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts

    def _record_lag(self) -> None:
        """Record how long the last chunk of a poll waited in the kernel."""
        stamp = self._clock.last_stamp
        if stamp != self._last_stamp:
            self._last_stamp = stamp
            self._lag.add(perf_counter_ns() - stamp)

    def _tick(self) -> None:
        now = perf_counter_ns()
        frame_ns = min(_MAX_FRAME_NS, _FRAME_NS * max(1, -(-len(self._agents) // _AGENTS_PER_FRAME)))
        self._loop.call_at(now + frame_ns, self._tick)
        self._clock.resync()
        if self._timeouts is None or self._rows is not None:
            return
        # After a suspension, read what has arrived before timeouts are checked: suspended time must not end a stream.
        self._was_suspended = now - self._last_tick > 5 * frame_ns and not self._was_suspended
        timeouts = None if self._was_suspended else self._timeouts
        self._rows = AgentRows(self._agents, now, timeouts=timeouts, with_rows=self._can_send())
        self._continue()

    def _continue(self) -> None:
        """Add the next agents to the rows, and pass them on when they are complete."""
        assert self._rows is not None
        if self._rows.add(_AGENTS_AT_ONCE):
            self._loop.call_soon(self._continue)
            return
        rows, self._rows = self._rows, None
        lag_ms, cpu_ns = self._lag.p99_ns() / 1e6, time.process_time_ns()
        elapsed_ns = rows.t_ns - self._last_tick
        self._loop.poll_delay_s = poll_delay_s(
            rows.in_flight, rows.chunks * 1e9 / elapsed_ns, (cpu_ns - self._cpu_ns) / elapsed_ns
        )
        self._cpu_ns, self._last_tick = cpu_ns, rows.t_ns
        if rows.with_rows:
            self._on_frame(rows, lag_ms, cpu_ns)


def poll_delay_s(streams: int, rate: float, cpu_share: float) -> float:
    """Return how long to sleep before each poll, given the chunks per second and the share of a core in use.

    What arrives during the sleep and while it is read is read next: the busier the worker, the shorter the sleep.
    """
    if rate < _POLL_DELAY_RATE:
        return 0.0
    return min(_MAX_POLL_DELAY_S, streams / rate / _GAP_FRACTION * max(0.0, 1 - cpu_share))
