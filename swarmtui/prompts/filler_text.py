"""Generate text of a given number of tokens, calibrated by the server's own counts.

Texts of n words have the same words: the corpus again and again, its paragraphs in another order, and words that can
stand in each other's place exchanged. So texts of equal length have equal token counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Literal

import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.workload import RandomText, SharedPrefix, Trace, Workload
from swarmtui.prompts.corpus import PARAGRAPHS, WORDS, passage
from swarmtui.prompts.sampling import PROBE_NONCE_START, nonce, random_stream, shuffled

# The first words of the corpus are counted up to these numbers.
_PARTS: tuple[int, ...] = (*range(8, 64, 8), *range(64, 288, 16))
# Between them, words have tokens in proportion to their pieces: most vocabularies split texts into these, or further.
_PIECES = re.compile(r"[^\W\d_]{1,8}|\d|[^\w\s]|_|\n\s*")
_PIECES_BEFORE = tuple(accumulate((len(_PIECES.findall(word.text)) for word in WORDS), initial=0))
_MIN_TOKENS_PER_WORD, _MAX_TOKENS_PER_WORD = 0.2, 20.0


def make_filler(count: int, rng: Random) -> str:
    rounds, rest = divmod(count, len(WORDS))
    whole, begun = list(PARAGRAPHS) * rounds, WORDS[:rest]
    for paragraph in PARAGRAPHS:
        if len(paragraph) > len(begun):
            break
        whole.append(paragraph)
        begun = begun[len(paragraph) :]
    words = [word for paragraph in shuffled(whole, rng) for word in paragraph]
    return passage((*words, *begun)).exchanged(rng).rstrip()


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A fit of tokens to words; `overhead` is the number of other tokens: chat template, system message, nonce.

    `tokens_per_word` is the mean over the whole corpus, `parts` the tokens of its first 16, 32 … words: words differ,
    and so does the beginning of the corpus from the whole.
    """

    overhead: float
    tokens_per_word: float
    by: Literal["tokenize", "usage"]
    parts: tuple[float, ...] = ()


def needs_calibration(workload: Workload) -> bool:
    return isinstance(workload, RandomText | SharedPrefix | Trace)


def calibration_texts(seed: int, salt: str = "") -> tuple[str, ...]:
    """Return user messages, with nonce, that the server is to count.

    The last two are the whole corpus once and twice, for the overhead and the mean number of tokens per word; those
    before them are parts of it.
    """
    return tuple(
        nonce(PROBE_NONCE_START + count, seed, salt) + make_filler(count, random_stream(seed, "probe", count))
        for count in (*_PARTS, len(WORDS), 2 * len(WORDS))
    )


def fit_calibration(texts: Sequence[str], counts: Sequence[int], by: Literal["tokenize", "usage"]) -> Calibration:
    """Fit the server's counts for the calibration texts: a line through the last two, then the parts."""
    if len(counts) != len(texts) or len(texts) < 2:
        raise BadInput(f"{len(counts)} prompt token counts for {len(texts)} texts", key="calibration")
    (words, count), (more_words, more_count) = [
        (len(text.split()) - 1, count) for text, count in zip(texts[-2:], counts[-2:], strict=True)
    ]
    slope = (more_count - count) / (more_words - words)
    overhead = count - slope * words
    if not _MIN_TOKENS_PER_WORD <= slope <= _MAX_TOKENS_PER_WORD or overhead < -slope * words / 2:
        seen = f"{count} for {words} words, {more_count} for {more_words} words"
        raise BadInput(f"the server's prompt token counts are implausible: {seen}", key="calibration")
    overhead = max(0.0, overhead)
    parts = tuple(part - overhead for part in counts[:-2])
    rising = all(a < b for a, b in pairwise((0.0, *parts, slope * len(WORDS))))
    return Calibration(overhead=overhead, tokens_per_word=slope, by=by, parts=parts if rising else ())


def words_for_prompt(tokens: int, calibration: Calibration) -> int:
    """Return the number of words for a prompt of `tokens` tokens in all; at least one."""
    return words_for_tokens(tokens - calibration.overhead, calibration)


def words_for_tokens(tokens: float, calibration: Calibration) -> int:
    """Return the number of words that have `tokens` tokens by themselves; at least one."""
    corpus_tokens = calibration.tokens_per_word * len(WORDS)
    rounds, rest = divmod(max(0.0, tokens), corpus_tokens)
    known = (0.0, *calibration.parts, corpus_tokens)
    counts = (0, *_PARTS[: len(calibration.parts)], len(WORDS))
    part = max(0, bisect_left(known, rest) - 1)
    share = (rest - known[part]) / (known[part + 1] - known[part])
    first, last = counts[part : part + 2]
    if not calibration.parts:
        return max(1, round(rounds * len(WORDS) + share * last))
    pieces = _PIECES_BEFORE[first] + share * (_PIECES_BEFORE[last] - _PIECES_BEFORE[first])
    words = min(range(first, last + 1), key=lambda count: abs(_PIECES_BEFORE[count] - pieces))
    return max(1, round(rounds) * len(WORDS) + words)
