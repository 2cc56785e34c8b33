"""Generate random text of a given number of tokens, calibrated by the server's own counts.

The text is a shuffle of a fixed list of short, common words, each one token in most vocabularies. Texts of n words have
the same words in different order, so texts of equal length have equal token counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Literal

import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.workload import RandomText, SharedPrefix, Trace, Workload
from swarmtui.prompts.sampling import PROBE_NONCE_START, nonce, random_stream, shuffled

_THREE = """
act age air arm art bag bed box boy car cat cup day dog ear egg end eye far fly hat ice job key leg map oil red sea
sky sun top
"""

_FOUR = """
area baby back ball bank base bird blue boat body book busy call card case city club coat cold cook copy cost dark date
desk door east edge face farm film fire fish five flag food game gift gold hair half hand head hill home hour idea iron
join king lake lamp land life line list mail milk moon move name park road shop
"""

_FIVE = """
about after beach black board bread build chair clean clock dance dream early earth field floor fruit glass grass green
heart horse house light lunch money music night north paper river stone
"""

WORDS = tuple(
    word
    for group in zip(_THREE.split(), _FOUR.split()[::2], _FIVE.split(), _FOUR.split()[1::2], strict=True)
    for word in group
)
"""Each group of four has sixteen letters, so that a part of the list has nearly its share of the tokens."""


def make_filler(count: int, rng: Random) -> str:
    rounds, rest = divmod(count, len(WORDS))
    return " ".join(shuffled(WORDS * rounds + WORDS[:rest], rng))


# Words between two counts of the list's parts; the length of the list is a multiple of it.
_PART = 16
_MIN_TOKENS_PER_WORD, _MAX_TOKENS_PER_WORD = 0.2, 20.0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A fit of tokens to words; `overhead` is the number of other tokens: chat template, system message, nonce.

    `tokens_per_word` is the mean over the whole list, `parts` the tokens of its first 16, 32 … words: in a small
    vocabulary words differ, and so does the beginning of the list from the whole.
    """

    overhead: float
    tokens_per_word: float
    by: Literal["tokenize", "usage"]
    parts: tuple[float, ...] = ()


def needs_calibration(workload: Workload) -> bool:
    return isinstance(workload, RandomText | SharedPrefix | Trace)


def calibration_texts(seed: int, salt: str = "") -> tuple[str, ...]:
    """Return user messages, with nonce, that the server is to count.

    The last two are multiples of the whole word list, for the overhead and the mean number of tokens per word; those
    before them are parts of it.
    """
    return tuple(
        nonce(PROBE_NONCE_START + count, seed, salt) + make_filler(count, random_stream(seed, "probe", count))
        for count in (*range(_PART, len(WORDS), _PART), len(WORDS), 4 * len(WORDS))
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
    list_tokens = calibration.tokens_per_word * len(WORDS)
    rounds, rest = divmod(max(0.0, tokens), list_tokens)
    known = (0.0, *calibration.parts, list_tokens)
    step = len(WORDS) / (len(known) - 1)
    part = max(0, bisect_left(known, rest) - 1)
    words = step * (part + (rest - known[part]) / (known[part + 1] - known[part]))
    return max(1, round(rounds * len(WORDS) + words))
