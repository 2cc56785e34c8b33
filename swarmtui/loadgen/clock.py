"""Convert the kernel's wall-clock receive timestamps to monotonic nanoseconds."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from time import perf_counter_ns

# Missing from the socket module; the value of SO_TIMESTAMPNS_OLD on all 64-bit Linux architectures except sparc.
_SO_TIMESTAMPNS = 35
ANCILLARY_BYTES = socket.CMSG_SPACE(16)
unpack_timespec = struct.Struct("=qq").unpack

# A smaller change of the offset is slewing; a larger one means that the clock was set.
_STEP_NS = 1_000_000
# The offset is measured ten times per second, and data is read soon after arrival: a stamp further away is rechecked.
_NEAR_NS = 150_000_000
# Stamps from before a step may still be read for this long.
_SETTLE_NS = 1_000_000_000


class KernelClock:
    """Keeps the offset between wall-clock and monotonic time up to date.

    A kernel stamp minus `offset` is monotonic; between `low` and `high` it needs no recheck. `last_stamp` is the last
    stamp read, in monotonic time. `steps` counts how often the wall clock was set.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.last_stamp = 0
        self._last_step = 0
        self.offset = self._measure()
        self._set_bounds()

    def resync(self) -> None:
        offset = self._measure()
        stepped = abs(offset - self.offset) > _STEP_NS
        self.offset = offset
        self._set_bounds()
        if stepped:
            self.steps += 1
            self._last_step = self._now

    def recheck(self, t: int) -> int:
        """Correct a stamp outside the expected range: the clock was set, or the process was suspended."""
        previous = self.offset
        self.resync()
        t += previous - self.offset
        unsettled = self.steps and self._now - self._last_step < _SETTLE_NS
        return self._now if t > self._now or (unsettled and t < self.low) else t

    def _set_bounds(self) -> None:
        self._now = perf_counter_ns()
        self.low, self.high = self._now - _NEAR_NS, self._now + _NEAR_NS

    @staticmethod
    def _measure() -> int:
        """Use the tightest of five brackets: an interrupted one is wide."""
        best, offset = 1 << 62, 0
        for _ in range(5):
            before = perf_counter_ns()
            wall = time.time_ns()
            after = perf_counter_ns()
            if after - before < best:
                best, offset = after - before, wall - (before + after) // 2
        return offset


def enable_kernel_stamps(sock: socket.socket) -> None:
    """Ask the kernel to stamp what this socket receives."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
