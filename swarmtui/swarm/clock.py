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

monotonic_ns = time.perf_counter_ns


class KernelClock:
    """Holds the distance between wall-clock and monotonic time, measured again and again.

    A kernel stamp less `offset` is monotonic. `newest` is the last stamp that was read, in monotonic time.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.newest = 0
        self.offset = self._measure()

    def measure_again(self) -> None:
        offset = self._measure()
        if abs(offset - self.offset) > _STEP_NS:
            self.steps += 1
        self.offset = offset

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
