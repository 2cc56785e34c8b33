"""Count the finished requests of each worker in a file in memory, which outlives the workers and the session process.

The client that starts a session creates the file, and hands its descriptor down: to the session process, and by that to
the workers on this host. Whatever is killed, the client can say how many finished requests are not saved.
"""

from __future__ import annotations

import os
from contextlib import suppress

VARIABLE = "SWARMTUI_FINISHED_FD"
_BYTES = 8


def create() -> int:
    return os.memfd_create("swarmtui-finished")


def inherited() -> int | None:
    """Return the descriptor that this process was started with."""
    given = os.environ.get(VARIABLE, "")
    return int(given) if given.isdigit() else None


def write_count(fd: int, worker: int, finished: int) -> None:
    with suppress(OSError):
        os.pwrite(fd, finished.to_bytes(_BYTES), worker * _BYTES)


def read_total(fd: int | None) -> int:
    """Return how many requests the workers have finished; 0 without a file."""
    with suppress(OSError):
        data = os.pread(fd, os.fstat(fd).st_size, 0) if fd is not None else b""
        return sum(int.from_bytes(data[at : at + _BYTES]) for at in range(0, len(data), _BYTES))
    return 0
