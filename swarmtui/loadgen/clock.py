"""One clock: monotonic nanoseconds. The kernel stamps what it receives in wall-clock time; this translates."""

from __future__ import annotations

import socket
import struct
import time

# Not named in Python's socket module; the value of SO_TIMESTAMPNS_OLD on all 64-bit Linux architectures but sparc.
_SO_TIMESTAMPNS = 35

ANCILLARY_BYTES = socket.CMSG_SPACE(16)
read_timespec = struct.Struct("=qq").unpack

# A smaller change of the offset is the clock being slewed; a larger one is somebody setting it.
_STEP_NS = 1_000_000

# It is measured ten times a second, and what is read came a moment ago: a stamp from outside is looked at twice.
_NEAR_NS = 150_000_000

# For so long after a step, stamps of both clocks may still be read.
_UNSETTLED_NS = 1_000_000_000

monotonic_ns = time.perf_counter_ns


class KernelClock:
    """Holds the distance between wall-clock and monotonic time, measured again and again.

    A kernel stamp less `offset` is monotonic; between `low` and `high` it needs no second look.
    `newest` is the last stamp that was read, in monotonic time.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.newest = 0
        self._stepped = 0
        self.offset = self._measure()
        self._settle()

    def measure_again(self) -> None:
        offset = self._measure()
        stepped = abs(offset - self.offset) > _STEP_NS
        self.offset = offset
        self._settle()
        if stepped:
            self.steps += 1
            self._stepped = self._now

    def second_look(self, t: int) -> int:
        """A stamp from before or after its time: the clock was set since we measured it, or the reader slept."""
        before = self.offset
        self.measure_again()
        t += before - self.offset
        unsettled = self.steps and self._now - self._stepped < _UNSETTLED_NS
        return self._now if t > self._now or (unsettled and t < self.low) else t

    def _settle(self) -> None:
        self._now = monotonic_ns()
        self.low, self.high = self._now - _NEAR_NS, self._now + _NEAR_NS

    @staticmethod
    def _measure() -> int:
        """The tightest of a few brackets: a read that was interrupted in the middle has a wide one."""
        best, offset = 1 << 62, 0
        for _ in range(5):
            before = monotonic_ns()
            wall = time.time_ns()
            after = monotonic_ns()
            if after - before < best:
                best, offset = after - before, wall - (before + after) // 2
        return offset


def ask_for_stamps(sock: socket.socket) -> bool:
    """Whether the kernel will stamp what this socket receives."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
