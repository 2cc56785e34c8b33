"""Compose prompts from block ids: the same leading ids give the same leading text, of the recorded number of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import lru_cache
from hashlib import shake_128

from swarmtui.prompts.filler_text import WORDS, Calibration, words_for_tokens

_RUN, _ORDERS = 8, 64
# The runs of longer texts are not kept.
_LONG = 512


class BlockText:
    """The text of blocks of one size, as the server counts tokens.

    A prompt is the word list again and again, with the words of each block in an order of its own: whatever the blocks
    are, a prompt has the number of tokens that calibration gives for as many words. Where a block begins depends on
    its position only, so that blocks have their recorded size on average in any vocabulary.
    """

    def __init__(self, block_size: int, calibration: Calibration) -> None:
        self._block_size, self._calibration = block_size, calibration
        self._starts = [0]

    def words_before(self, tokens: int) -> int:
        """Return the number of words in the first `tokens` tokens of a prompt, which begins with the chat template."""
        left = tokens - self._calibration.overhead
        return words_for_tokens(left, self._calibration) if left > 0 else 0

    def block_start(self, index: int) -> int:
        while len(self._starts) <= index:
            self._starts.append(self.words_before(len(self._starts) * self._block_size))
        return self._starts[index]


def shuffled_words(start: int, end: int, key: bytes) -> str:
    """Return the words of the list from `start` to `end`, which may be beyond its length, shuffled by `key`.

    Each run of a few words has one of several orders, which are kept: long prompts are made of them in milliseconds.
    """
    find = _kept_runs if end - start <= _LONG else _runs
    runs = find(start % len(WORDS), end - start)
    draws = shake_128(key).digest(len(runs))
    return " ".join([orders[draw % _ORDERS] for orders, draw in zip(runs, draws, strict=True)])


def _runs(start: int, length: int) -> tuple[tuple[str, ...], ...]:
    """Return the orders of each run."""
    return tuple(_orders((start + at) % len(WORDS), min(_RUN, length - at)) for at in range(0, length, _RUN))


_kept_runs = lru_cache(maxsize=1 << 12)(_runs)


@lru_cache(maxsize=1 << 10)
def _orders(start: int, length: int) -> tuple[str, ...]:
    words = (WORDS + WORDS)[start : start + length]
    keys = (shake_128(f"{start}/{length}/{order}".encode()).digest(length) for order in range(_ORDERS))
    return tuple(" ".join([word for _, word in sorted(zip(key, words, strict=True))]) for key in keys)


class PromptChain:
    """The prompts of one agent: each is the text of the one before up to the first block that differs, and new text."""

    def __init__(self, text: BlockText, key: str, start: str) -> None:
        """`key` selects the text of blocks, `start` is the text before them."""
        self._text, self._key, self._start = text, key, start
        self._prompt = start
        self._ends = array("q")

    def next_prompt(self, keep: int, new: Iterable[int], input_tokens: int, name: str) -> str:
        """Return the prompt with `keep` blocks of the last one and `new` ones; `name` selects the rest of the text."""
        del self._ends[keep:]
        words = max(1, self._text.words_before(input_tokens))
        parts = [self._prompt[: self._ends[-1]] if keep else self._start]
        length, index = len(parts[0]), keep
        for block in new:
            start, end = (min(words, self._text.block_start(position)) for position in (index, index + 1))
            if start < end:
                parts.append(shuffled_words(start, end, f"{self._key}/{block}".encode()) + " ")
                length += len(parts[-1])
            self._ends.append(length)
            index += 1
        self._prompt = "".join(parts)
        known = min(words, self._text.block_start(index))
        rest = shuffled_words(known, words, f"{self._key}/{name}".encode()) if known < words else ""
        return (self._prompt + rest).rstrip()
