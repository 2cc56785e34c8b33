"""The prefix cache of one replica: the blocks of tokens that it has computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


def block_hashes(pieces: Sequence[str], size: int) -> tuple[int, ...]:
    """Return one hash for each full block, which covers all tokens before it: equal hashes mean equal prefixes."""
    hashes: list[int] = []
    chain = 0
    for start in range(0, len(pieces) - size + 1, size):
        chain = hash((chain, tuple(pieces[start : start + size])))
        hashes.append(chain)
    return tuple(hashes)


class PrefixCache:
    """Blocks by hash; the least recently used is evicted first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int]) -> int:
        """Return the number of cached blocks from the start."""
        known = 0
        for block in blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            known += 1
        return known

    def add(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
