"""Detect a server that goes away or restarts during a run, and wait for it to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from swarmtui.analysis.machine.server_counters import counters_reset
from swarmtui.model.record import LEVEL_PHASES, Record
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.steering import Steering
from swarmtui.state.session_state import SessionState

# Errors of streams that a dying server cuts off, and of connections to a server that is gone.
_CUT_OFF = ("reset", "closed_early")
_NO_SERVER = ("refused", "unreachable", "connect_timeout")
_MIN_ERRORS = 2
_CHECK_S = 1.0
_COUNTDOWN_S = 0.25
# Without streams that broke, decreased counters mean a restart if they stay low for this many samples.
_CONFIRMING_SAMPLES = 8
# Counters that began again are below this share of what they were.
_BEGAN_AGAIN = 0.5
# A server that could not be read for this long, and then counts from the start, was away. Samples are a second apart.
_AWAY_NS = 5_000_000_000
# Counters that grow this many times as fast as ever before have jumped: they are those of another server.
_JUMP = 3.0
# A stream breaks some time before a sample shows that the server's counters started again.
_BROKEN_BEFORE_NS = 2_000_000_000


class _Decrease(NamedTuple):
    """Counters that are lower than `before`, which was read at `since_ns`; `restarted`: so low that they began at 0."""

    before: tuple[ServerState, ...]
    since_ns: int
    seen_ns: int
    restarted: bool


class ServerEvents:
    """Notices restarts of the server, and several servers behind one URL."""

    def __init__(self, journal: JournalQueue) -> None:
        self._journal = journal
        self._broken_ns: int | None = None
        self._refused = False
        self._servers: tuple[ServerState, ...] = ()
        self._read_ns = 0
        self._decrease: _Decrease | None = None
        self._samples_since = 0
        self._most_per_ns = 0.0
        self._several_servers = False

    def add_record(self, record: Record) -> None:
        if record.error in (*_CUT_OFF, *_NO_SERVER):
            self._broken_ns = record.t_done_ns or time.perf_counter_ns()
            self._refused |= record.error == "refused"

    def add_sample(self, telemetry: Telemetry) -> None:
        """Detect decreased counters: of a server that restarted, or of another server behind the same URL.

        Behind a load balancer they soon jump back, and down again. After a restart streams have broken, the server
        could not be reached for a time, or counters stay low; they then grow no faster than before. A server that was
        away and refused connections restarted, even if it has counted more than before since then.
        """
        servers, read_ns = telemetry.servers, telemetry.servers_read_ns
        if not servers or read_ns == self._read_ns or self._several_servers:
            return
        away_ns = read_ns - self._read_ns
        if self._servers and self._refused and away_ns >= _AWAY_NS:
            self._log_restart("it refused connections", self._broken_ns)
            self._servers = ()
        self._refused, grown = False, _output_tokens(servers) - _output_tokens(self._servers)
        if _is_lower(self._servers, servers):
            restarted = _is_lower(self._servers, servers, _BEGAN_AGAIN)
            if (before := self._decrease) is not None and not (restarted and before.restarted):
                self._find_several()
                return
            self.finish()
            self._decrease, self._samples_since = _Decrease(self._servers, self._read_ns, read_ns, restarted), 0
            if restarted and away_ns >= _AWAY_NS:
                self.finish()
        jumped = grown >= _JUMP * self._most_per_ns * away_ns
        if self._servers and self._decrease is None and away_ns > 0:
            self._most_per_ns = max(self._most_per_ns, grown / away_ns)
        self._servers, self._read_ns = servers, read_ns
        if (decrease := self._decrease) is None:
            return
        self._samples_since += 1
        if self._streams_broke(decrease) or self._samples_since > _CONFIRMING_SAMPLES:
            self.finish()
        elif not _is_lower(decrease.before, servers):
            if jumped or not decrease.restarted:
                self._find_several()
            else:
                self.finish()

    def finish(self) -> None:
        """Log a restart if counters decreased and did not jump back, at the time when the streams broke."""
        if (decrease := self._decrease) is not None:
            when_ns = self._broken_ns if self._streams_broke(decrease) else decrease.seen_ns
            self._log_restart("a counter of its metrics decreased", when_ns)

    def _streams_broke(self, decrease: _Decrease) -> bool:
        """Whether streams broke as well; replicas have counted about as much as each other, and did not restart."""
        broken_ns = self._broken_ns
        return decrease.restarted and broken_ns is not None and broken_ns > decrease.since_ns - _BROKEN_BEFORE_NS

    def _log_restart(self, why: str, when_ns: int | None) -> None:
        self._journal.log_event("server_restarted", why, t_ns=when_ns)
        self._decrease = None

    def _find_several(self) -> None:
        self._several_servers, self._decrease = True, None
        self._journal.log_event("several_servers", "counters jump: several servers answer at the metrics URL")


def _output_tokens(servers: tuple[ServerState, ...]) -> float:
    return sum(state.output_tokens or 0.0 for state in servers)


def _is_lower(before: tuple[ServerState, ...], after: tuple[ServerState, ...], share: float = 1.0) -> bool:
    """Whether a server has a counter below this share of what it was."""
    known = {state.url: state for state in before}
    return any(counters_reset(known[state.url], state, share) for state in after if state.url in known)


class Outage:
    """Pauses the run when the server is gone, and resumes it when the server responds again.

    The server counts as gone when C requests in a row, at least two, were cut off or could not connect, and the last of
    them could not connect. When it is back, the level is run again. With a `timeout_s` of zero the run ends instead. It
    also ends if the server comes back with other flags: its figures would not belong to this session. `failure` or
    `changes` then say why.
    """

    def __init__(
        self,
        state: SessionState,
        journal: JournalQueue,
        steering: Steering,
        responds: Callable[[], bool],
        describe_changes: Callable[[], str],
        timeout_s: float,
    ) -> None:
        self._state, self._journal, self._steering = state, journal, steering
        self._responds, self._describe_changes, self._timeout_s = responds, describe_changes, timeout_s
        self._errors_in_a_row, self._last_error_ns = 0, 0
        self._waiting: asyncio.Task[None] | None = None
        self.failure = ""
        self.changes = ""

    def add_record(self, record: Record) -> None:
        if record.cancelled or self._waiting is not None or self.failure:
            return
        if record.error in (*_CUT_OFF, *_NO_SERVER):
            self._errors_in_a_row, self._last_error_ns = self._errors_in_a_row + 1, record.left_ns
        elif record.left_ns > self._last_error_ns:
            # An answer that ended earlier may come later, since it was checked.
            self._errors_in_a_row = 0
        enough = self._errors_in_a_row >= max(_MIN_ERRORS, record.c)
        if enough and record.error in _NO_SERVER and record.phase in LEVEL_PHASES:
            self._waiting = asyncio.create_task(self._handle_outage(record))

    async def _handle_outage(self, record: Record) -> None:
        problem = f"the server went away at C={record.c} ({record.error})"
        self._journal.log_event("server_gone", f"{problem}: {record.error_detail}")
        started = time.monotonic()
        if self._timeout_s:
            self._steering.pause()
            if await self._wait_for_server(problem, started):
                await self._handle_return(record, started)
                return
            problem += f", and was not back within {self._timeout_s:g} s"
        self.failure = problem
        self._steering.stop(grace_s=0.0)

    async def _handle_return(self, record: Record, started: float) -> None:
        after = f"after {time.monotonic() - started:.0f} s"
        self.changes = await asyncio.to_thread(self._describe_changes)
        if self.changes:
            self._journal.log_event("server_changed", f"{after}: {self.changes}")
            self._steering.stop(grace_s=0.0)
            return
        self._journal.log_event("server_back", f"{after}; C={record.c} starts again")
        self._errors_in_a_row, self._waiting = 0, None
        self._steering.end_pause()

    async def _wait_for_server(self, problem: str, started: float) -> bool:
        """Check the server in a thread, so that one that does not answer does not stop the countdown."""
        loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        checking, checked = loop.run_in_executor(pool, self._responds), time.monotonic()
        deadline = started + self._timeout_s
        try:
            while (now := time.monotonic()) < deadline:
                self._state.note = f"{problem}; waiting for it, {deadline - now:.0f} s left"
                if checking.done():
                    if checking.result():
                        return True
                    if now - checked >= _CHECK_S:
                        checking, checked = loop.run_in_executor(pool, self._responds), now
                await asyncio.sleep(_COUNTDOWN_S)
            return False
        finally:
            self._state.note = ""
            pool.shutdown(wait=False)
