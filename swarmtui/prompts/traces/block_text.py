"""Compose prompts from block ids: the same leading ids give the same leading text, of the recorded number of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from random import Random

from swarmtui.prompts.corpus import varied
from swarmtui.prompts.filler_text import Calibration, words_for_tokens

# Blocks begin this many tokens late, for the end of the chat template, which follows the text, and for the error of the
# word count at a boundary.
_TAIL = 12


class BlockText:
    """The text of blocks of one size, as the server counts tokens.

    A prompt is the corpus, with some words of each block exchanged in a way of its own: whatever the blocks
    are, a prompt has the number of tokens that calibration gives for as many words. Where a block begins depends on
    its position only, so that blocks have their recorded size on average in any vocabulary. It begins a few tokens
    late, so that prompts share at least the tokens of their equal blocks: servers cache whole blocks.
    """

    def __init__(self, block_size: int, calibration: Calibration) -> None:
        self.block_size, self._calibration = block_size, calibration
        self._starts = [0]

    def words_before(self, tokens: float) -> int:
        """Return the number of words in the first `tokens` tokens of a prompt, which begins with the chat template."""
        left = tokens - self._calibration.overhead
        return words_for_tokens(left, self._calibration) if left > 0 else 0

    def block_start(self, index: int) -> int:
        while len(self._starts) <= index:
            tail = min(_TAIL, self._calibration.overhead)
            self._starts.append(self.words_before(len(self._starts) * self.block_size + tail))
        return self._starts[index]

    def words_between(self, start: int, end: int, key: str) -> str:
        """Return these words with some of them exchanged by `key`.

        Texts of different keys differ from their first word on, so that they share no more than what is before them.
        """
        return varied(start, end, self._calibration.cycle, Random(key), any_first=True)


class PromptChain:
    """The prompts of one agent: each is the text of the one before up to the first block that differs, and new text."""

    def __init__(self, text: BlockText, key: str, start: str) -> None:
        """`key` selects the text of blocks, `start` is the text before them."""
        self._text, self._key, self._start = text, key, start
        self._prompt = start
        self._ends = array("q")

    def next_prompt(self, keep: int, new: Iterable[int], input_tokens: int, name: str) -> str:
        """Return the prompt with `keep` blocks of the last one and `new` ones; `name` selects the rest of the text.

        Only blocks that are whole in a prompt may be kept in the next. The last may have words beyond the prompt's end.
        """
        del self._ends[keep:]
        words, whole = max(1, self._text.words_before(input_tokens)), input_tokens // self._text.block_size
        parts = [self._prompt[: self._ends[-1]] if keep else self._start]
        length, position = len(parts[0]), self._text.block_start(keep)
        for index, block in enumerate(new, keep):
            end = self._text.block_start(index + 1)
            end = end if index < whole else min(words, end)
            if position < end:
                parts.append(self._text.words_between(position, end, f"{self._key}/{block}"))
                length += len(parts[-1])
                position = end
            self._ends.append(length)
        self._prompt = "".join(parts)
        if position >= words:
            return self._prompt.rsplit(None, position - words)[0]
        rest = self._text.words_between(position, words, f"{self._key}/{name}")
        return (self._prompt + rest).rstrip()
