"""How long a worker waits before it reads what has arrived."""

from __future__ import annotations

import socket
import time

import pytest

from swarmtui.loadgen.clock import monotonic_ns
from swarmtui.loadgen.event_loop import READ, EventLoop
from swarmtui.loadgen.poll_period import PollPeriod


def test_period_is_a_fraction_of_the_gap_between_chunks() -> None:
    assert PollPeriod().next_s(streams=1000, chunks=20_000, coalesced=0, elapsed_s=0.2) == pytest.approx(0.01 / 6)
    assert PollPeriod().next_s(streams=1000, chunks=2_000, coalesced=0, elapsed_s=0.2) == 0.003
    assert PollPeriod().next_s(streams=4, chunks=136, coalesced=0, elapsed_s=0.2) == 0.0


def test_period_shrinks_while_chunks_coalesce_and_grows_back() -> None:
    period = PollPeriod()
    shrunk = [period.next_s(1000, 10_000, coalesced, 0.2) for coalesced in (0, 50, 50, 50)]
    assert shrunk == sorted(shrunk, reverse=True) and shrunk[-1] < 0.0005
    grown = [period.next_s(1000, 10_000, 0, 0.2) for _ in range(10)]
    assert grown == sorted(grown) and grown[-1] == 0.003


def test_timer_is_not_delayed_by_the_period() -> None:
    loop, fired = EventLoop(), list[int]()
    loop.poll_period_s = 60.0

    def fire() -> None:
        fired.append(monotonic_ns())
        loop.stop()

    loop.call_at(monotonic_ns() + 20_000_000, fire)
    loop.run()
    assert fired


def test_sockets_are_read_once_per_period() -> None:
    loop, reads = EventLoop(), list[int]()
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def on_read(events: int) -> None:
            reads.append(len(ours.recv(100)))
            theirs.send(b"x")
            if len(reads) == 3:
                loop.stop()

        loop.add_fd(ours.fileno(), READ, on_read)
        loop.poll_period_s = 0.01
        theirs.send(b"x")
        started = time.monotonic()
        loop.run()
        assert time.monotonic() - started >= 0.02
    assert reads == [1, 1, 1]
