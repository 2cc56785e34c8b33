"""A connection that reads what a test says, at the times that it says."""

from __future__ import annotations

from typing import Any, NoReturn

from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.event_loop import EventLoop

_LARGEST_READ = 4096


def _no_socket(*arguments: Any) -> NoReturn:
    raise AssertionError("only the test reads")


class ScriptedConnection(Connection):
    """Is open from the start, and discards what is sent. If `single`, each read is delivered alone."""

    def __init__(self, loop: EventLoop, *, single: bool = False) -> None:
        super().__init__(loop, KernelClock(), [], "", None)
        self.open = True
        self.kept.attach(self, _no_socket)
        self._single = single

    def keep_reads(self, end: bytes | None) -> None:
        super().keep_reads(None if self._single else end)

    def send(self, data: bytes) -> None:
        pass

    def receive(self, t_ns: int, data: bytes) -> None:
        for start in range(0, len(data), _LARGEST_READ):
            if self.user is not None:
                self.kept.received(t_ns, data[start : start + _LARGEST_READ])

    def end(self) -> None:
        """Receive the end of the connection."""
        self.on_eof()
