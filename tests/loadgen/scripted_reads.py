"""A connection that reads what a test says, at the times that it says."""

from __future__ import annotations

import struct
from typing import Any

from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import Connection
from swarmtui.loadgen.event_loop import READ, EventLoop


class _AnyTime(KernelClock):
    """Accepts all stamps, which are monotonic already."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.low, self.high = 0, -1, 1 << 62


class ScriptedConnection(Connection):
    """Is open from the start, and discards what is sent. If `single`, each read is delivered alone."""

    def __init__(self, loop: EventLoop, *, single: bool = False) -> None:
        super().__init__(loop, _AnyTime(), [], "", None)
        self.open = True
        self._single = single
        self._recvmsg = self._next_read
        self._unread, self._t_ns = b"", 0

    def keep_reads(self, end: bytes | None) -> None:
        super().keep_reads(None if self._single else end)

    def send(self, data: bytes) -> None:
        pass

    def receive(self, t_ns: int, data: bytes) -> None:
        self._unread, self._t_ns = data, t_ns
        self._on_ready(READ)
        while self._unread and self.user is not None:
            self._on_ready(READ)

    def end(self) -> None:
        """Receive the end of the connection."""
        self.receive(0, b"")

    def _next_read(self, buffers: list[Any], ancillary_bytes: int) -> tuple[int, list[Any], int, None]:
        before = len(self._unread)
        for buffer in buffers:
            size = min(len(buffer), len(self._unread))
            buffer[:size] = self._unread[:size]
            self._unread = self._unread[size:]
        stamp = struct.pack("=qq", *divmod(self._t_ns, 1_000_000_000))
        return before - len(self._unread), [(0, 0, stamp)] if before else [], 0, None
