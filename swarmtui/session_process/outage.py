"""A server that goes away in mid-run: noticed, told in the journal, and waited for with a countdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from swarmtui.analysis.machine.server_counters import change
from swarmtui.model import client_protocol as said
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.session_process.live_state import Board

# Streams that a dying server cuts off, and what those meet that come after it.
_CUT = ("reset", "closed_early")
_CLOSED = ("refused", "unreachable", "connect_timeout")

_LOOK_S = 1.0
_COUNT_S = 0.25


class Absence:
    """Pauses the run when no stream reaches the server any more, and goes on when it `answers`; a pause spoils its
    level, so that level is begun again. `patience_s` of zero: a server that went away ends the run.

    One that came back with other flags is another server: `differs` says in what, and its figures would not belong to
    this session, so that it ends.
    """

    def __init__(
        self,
        board: Board,
        ledger: Ledger,
        obey: Callable[[said.Command], None],
        answers: Callable[[], bool],
        differs: Callable[[], str],
        patience_s: float,
    ) -> None:
        self._board, self._ledger, self._obey = board, ledger, obey
        self._answers, self._differs, self._patience_s = answers, differs, patience_s
        self._lost = 0
        self._waiting: asyncio.Task[None] | None = None
        self._servers: tuple[ServerState, ...] = ()
        self.restarted = False
        self.verdict = ""
        self.changed = ""

    def look(self, seen: Telemetry) -> None:
        """A counter that fell back tells of a restart that no stream met."""
        found = change(self._servers, seen.servers)
        if found is not None and found.restarted:
            self._ledger.note("server_restarted", "a counter of its metrics fell back")
            self.restarted = True
        self._servers = seen.servers or self._servers

    def finish(self, record: Record) -> None:
        """Gone is who cuts off or refuses all streams, one after another, and answers none between."""
        if record.error == CANCELLED or self._waiting is not None or self.verdict:
            return
        self._lost = self._lost + 1 if record.error in (*_CUT, *_CLOSED) else 0
        if record.error in _CLOSED and self._lost >= max(2, record.c) and record.phase == "level":
            self._waiting = asyncio.create_task(self._wait(record))

    async def _wait(self, record: Record) -> None:
        what = f"the server went away at C={record.c} ({record.error})"
        self._ledger.note("server_gone", f"{what}: {record.error_detail}")
        begun = time.monotonic()
        if self._patience_s:
            self._obey(said.Pause())
            if await self._is_back(what, begun, begun + self._patience_s):
                away = f"after {time.monotonic() - begun:.0f} s"
                self.changed = await asyncio.to_thread(self._differs)
                if self.changed:
                    self._ledger.note("server_changed", f"{away}: {self.changed}")
                    self._obey(said.Stop(grace_s=0.0))
                    return
                self._ledger.note("server_back", f"{away}; C={record.c} is begun again")
                self._lost, self._waiting = 0, None
                self._obey(said.Resume())
                return
            what += f", and was not back within {self._patience_s:g} s"
        self.verdict = what
        self._obey(said.Stop(grace_s=0.0))

    async def _is_back(self, what: str, begun: float, until: float) -> bool:
        """Looks at it in a thread: one that does not answer at all must not stop the countdown."""
        loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        looking = loop.run_in_executor(pool, self._answers)
        looked = time.monotonic()
        try:
            while (now := time.monotonic()) < until:
                self._board.down_s = now - begun
                self._board.note = f"{what}; waiting for it, {until - now:.0f} s left"
                if looking.done():
                    if looking.result():
                        return True
                    if now - looked >= _LOOK_S:
                        looking, looked = loop.run_in_executor(pool, self._answers), now
                await asyncio.sleep(_COUNT_S)
            return False
        finally:
            self._board.note, self._board.down_s = "", None
            pool.shutdown(wait=False)
