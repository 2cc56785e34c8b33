"""The KV cache of one replica: blocks of prompts that requests share, and the tokens that belong to one request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

CACHE_TOKENS = 1 << 20  # what a cache without a limit keeps after its requests have ended


def block_hashes(pieces: Sequence[str], size: int) -> tuple[int, ...]:
    """Return one hash for each full block, which covers all tokens before it: equal hashes mean equal prefixes."""
    hashes: list[int] = []
    chain = 0
    for start in range(0, len(pieces) - size + 1, size):
        chain = hash((chain, tuple(pieces[start : start + size])))
        hashes.append(chain)
    return tuple(hashes)


class KvPool:
    """Blocks by hash. Those that no request uses are kept until their room is needed, least recently used first."""

    def __init__(self, room: int | None, block_size: int) -> None:
        self._size = block_size
        self._room = room
        self._kept = room or CACHE_TOKENS
        self._users: dict[int, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._private = 0
        self.changes = 0  # how often the blocks in use have changed

    @property
    def used_tokens(self) -> int:
        """Tokens that running requests need; a shared block counts once."""
        return (len(self._users) - len(self._unused)) * self._size + self._private

    def fits(self, tokens: int, blocks: Sequence[int] = ()) -> bool:
        """Return whether a request of this size fits beside the running ones, if it shares what they hold of it."""
        if self._room is None or self.used_tokens + tokens <= self._room:
            return True
        shared = 0
        for block in blocks:
            if not self._users.get(block):
                break
            shared += 1
        return self.used_tokens + tokens - shared * self._size <= self._room

    def acquire(self, tokens: int, blocks: Sequence[int]) -> int:
        """Add a request with those of its leading blocks that are cached; return how many these are."""
        users, unused = self._users, self._unused
        held = 0
        for block in blocks:
            count = users.get(block)
            if count is None:
                break
            if not count:
                del unused[block]
            users[block] = count + 1
            held += 1
        self._private += tokens - held * self._size
        self.changes += 1
        self._evict()
        return held

    def share(self, blocks: Sequence[int]) -> None:
        """Make blocks that a request has computed available to others."""
        users, unused = self._users, self._unused
        for block in blocks:
            count = users.get(block, 0)
            if not count:
                unused.pop(block, None)
            users[block] = count + 1
        self._private -= len(blocks) * self._size
        self.changes += 1
        self._evict()

    def grow(self, tokens: int) -> None:
        self._private += tokens
        self._evict()

    def release(self, tokens: int, blocks: Sequence[int]) -> None:
        """Remove a request that holds `blocks`. The end of its prompt will be evicted before the start."""
        users, unused = self._users, self._unused
        for block in reversed(blocks):
            count = users[block] = users[block] - 1
            if not count:
                unused[block] = None
        self._private -= tokens - len(blocks) * self._size
        self.changes += 1
        self._evict()

    def _evict(self) -> None:
        over = len(self._users) * self._size + self._private - self._kept
        while over > 0 and self._unused:
            block, _ = self._unused.popitem(last=False)
            del self._users[block]
            over -= self._size
