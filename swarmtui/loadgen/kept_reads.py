"""Keep the reads of a connection until several can be parsed together."""

from __future__ import annotations

from itertools import cycle
from typing import Any

# So many reads are parsed together.
_READS = 32
# The first ones wait for a part of that, which differs between streams: those that started together would otherwise all
# have to be parsed in the same moment.
_first_limits = cycle(range(_READS // 8, 2 * _READS + 1, _READS // 8))

# A larger read has many events, and is parsed at once.
KEPT_BYTES = 1024


class KeptReads(list[Any]):
    """When each read that waits arrived, and its data, alternately.

    A read waits if it ends with `end`, until the list is as long as `limit`. With many streams, nearly all data in
    memory has left the processor's caches since the last read of its stream. This list is all that a read touches.
    """

    __slots__ = ("end", "limit")

    def __init__(self) -> None:
        super().__init__()
        self.end: bytes | tuple[()] = ()
        self.limit = 0

    @property
    def reads(self) -> int:
        return len(self) // 2

    @property
    def last_ns(self) -> int:
        """When the last read arrived."""
        t: int = self[-2]
        return t

    def keep(self, end: bytes | None) -> None:
        """Keep reads that end so from now on; with None, keep no reads."""
        if end is None:
            self.end = ()
        elif self.end != end:
            self.end, self.limit = end, next(_first_limits)

    def take(self) -> tuple[list[bytes], list[int]]:
        """Remove and return the reads and when they arrived."""
        reads, times = self[1::2], self[::2]
        self.clear()
        self.limit = 2 * _READS
        return reads, times
