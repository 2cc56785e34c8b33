"""Detect a server that goes away during a run, and wait for it to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from swarmtui.analysis.machine.server_counters import counter_change
from swarmtui.model import client_protocol
from swarmtui.model.record import CANCELLED, LEVEL_PHASES, Record
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.live_state import LiveState

# Errors of streams that a dying server cuts off, and of connections to a server that is gone.
_CUT_OFF = ("reset", "closed_early")
_NO_SERVER = ("refused", "unreachable", "connect_timeout")

_MIN_ERRORS = 2

_CHECK_S = 1.0
_COUNTDOWN_S = 0.25


class Outage:
    """Pauses the run when the server is gone, and resumes it when the server responds again.

    The server is gone when as many requests in a row as there are streams, and at least two, were cut off or could not
    connect, the last of them at connecting. The level is then run again. With a `timeout_s` of zero the run ends. A
    server that comes back with other flags ends the run too: its figures would not belong to this session.
    `failure` or `changes` say so.
    """

    def __init__(
        self,
        state: LiveState,
        journal: JournalQueue,
        handle_command: Callable[[client_protocol.ClientCommand], None],
        responds: Callable[[], bool],
        describe_changes: Callable[[], str],
        timeout_s: float,
    ) -> None:
        self._state, self._journal, self._handle_command = state, journal, handle_command
        self._responds, self._describe_changes, self._timeout_s = responds, describe_changes, timeout_s
        self._errors_in_a_row = 0
        self._waiting: asyncio.Task[None] | None = None
        self._servers: tuple[ServerState, ...] = ()
        self.restarted = False
        self.failure = ""
        self.changes = ""

    def check_counters(self, telemetry: Telemetry) -> None:
        """Detect a restart between two requests: the counters of the server start again at zero."""
        change = counter_change(self._servers, telemetry.servers)
        if change is not None and change.restarted:
            self._journal.log_event("server_restarted", "a counter of its metrics decreased")
            self.restarted = True
        self._servers = telemetry.servers or self._servers

    def add_record(self, record: Record) -> None:
        if record.error == CANCELLED or self._waiting is not None or self.failure:
            return
        self._errors_in_a_row = self._errors_in_a_row + 1 if record.error in (*_CUT_OFF, *_NO_SERVER) else 0
        enough = self._errors_in_a_row >= max(_MIN_ERRORS, record.c)
        if enough and record.error in _NO_SERVER and record.phase in LEVEL_PHASES:
            self._waiting = asyncio.create_task(self._handle_outage(record))

    async def _handle_outage(self, record: Record) -> None:
        problem = f"the server went away at C={record.c} ({record.error})"
        self._journal.log_event("server_gone", f"{problem}: {record.error_detail}")
        started = time.monotonic()
        if self._timeout_s:
            self._handle_command(client_protocol.Pause())
            if await self._wait_for_server(problem, started):
                await self._handle_return(record, started)
                return
            problem += f", and was not back within {self._timeout_s:g} s"
        self.failure = problem
        self._handle_command(client_protocol.Stop(grace_s=0.0))

    async def _handle_return(self, record: Record, started: float) -> None:
        after = f"after {time.monotonic() - started:.0f} s"
        self.changes = await asyncio.to_thread(self._describe_changes)
        if self.changes:
            self._journal.log_event("server_changed", f"{after}: {self.changes}")
            self._handle_command(client_protocol.Stop(grace_s=0.0))
            return
        self._journal.log_event("server_back", f"{after}; C={record.c} starts again")
        self._errors_in_a_row, self._waiting = 0, None
        self._handle_command(client_protocol.Resume())

    async def _wait_for_server(self, problem: str, started: float) -> bool:
        """Check the server in a thread, so that one that does not answer does not stop the countdown."""
        loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        checking, checked = loop.run_in_executor(pool, self._responds), time.monotonic()
        deadline = started + self._timeout_s
        try:
            while (now := time.monotonic()) < deadline:
                self._state.outage_s = now - started
                self._state.note = f"{problem}; waiting for it, {deadline - now:.0f} s left"
                if checking.done():
                    if checking.result():
                        return True
                    if now - checked >= _CHECK_S:
                        checking, checked = loop.run_in_executor(pool, self._responds), now
                await asyncio.sleep(_COUNTDOWN_S)
            return False
        finally:
            self._state.note, self._state.outage_s = "", None
            pool.shutdown(wait=False)
