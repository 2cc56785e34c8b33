"""Receive with io_uring, in this process."""

from __future__ import annotations

import os
import socket

import pytest

from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.kept_reads import KeptReads
from swarmtui.loadgen.receive_ring import ReceiveRing


class Socket:
    """One end of a connection, which stops the loop with what it got."""

    def __init__(self, loop: EventLoop) -> None:
        self.other, self.ours = socket.socketpair()
        self.fd = self.ours.fileno()
        self.kept = KeptReads()
        self.got: list[bytes | int] = []
        self._loop = loop

    def received(self, t: int | None, data: bytes) -> None:
        self.got.append(data)
        self._loop.stop()

    def receive_failed(self, code: int) -> None:
        self.got.append(code)
        self._loop.stop()

    def deliver(self) -> None:
        self.received(self.kept[-2], self.kept[-1])


def test_receive_that_could_not_be_submitted_is_not_submitted_later() -> None:
    """Its file descriptor may then be that of another connection, from which it would receive."""
    loop = EventLoop()
    try:
        ring = ReceiveRing(loop, KernelClock())
    except OSError:
        pytest.skip("no io_uring")
    first, second = Socket(loop), Socket(loop)
    ring_fd, ring._fd = ring._fd, first.fd  # not a ring
    ring.add(first)
    loop.run()
    assert [type(got) for got in first.got] == [int]
    ring._fd = ring_fd
    os.dup2(second.fd, first.ours.detach())
    ring.add(second)
    second.other.close()
    loop.run()
    os.close(first.fd)
    assert (second.got, len(first.got)) == ([b""], 1)
