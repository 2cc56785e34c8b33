"""Generate random text of a given number of tokens, calibrated by the server's own counts.

The text is a shuffle of a fixed list of short, common words, each one token in most vocabularies. Texts of n words have
the same words in different order, so that texts of equal length have equal token counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

import msgspec

from swarmtui.model.schema import BadInput
from swarmtui.model.workload import RandomText, SharedPrefix, Workload
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


_MIN_TOKENS_PER_WORD, _MAX_TOKENS_PER_WORD = 0.2, 20.0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """`overhead` is the number of tokens besides the words: chat template, system message, nonce."""

    overhead: float
    tokens_per_word: float
    by: Literal["tokenize", "usage"]


def needs_calibration(workload: Workload) -> bool:
    return isinstance(workload, RandomText | SharedPrefix)


def calibration_texts(seed: int, salt: str = "") -> tuple[str, ...]:
    """Return user messages, with nonce, that the server is to count.

    They are multiples of the whole word list, so that the mean number of tokens per word is exact.
    """
    return tuple(
        nonce(PROBE_NONCE_START + rounds, seed, salt)
        + make_filler(rounds * len(WORDS), random_stream(seed, "probe", rounds))
        for rounds in (1, 4)
    )


def fit_calibration(texts: Sequence[str], counts: Sequence[int], by: Literal["tokenize", "usage"]) -> Calibration:
    """Fit a line through the server's counts for the calibration texts."""
    words = [len(text.split()) - 1 for text in texts]
    if len(counts) != len(words) or len(set(words)) < 2:
        raise BadInput(f"{len(counts)} prompt token counts for {len(words)} texts", key="calibration")
    mean_words, mean_count = sum(words) / len(words), sum(counts) / len(counts)
    slope = sum((w - mean_words) * (n - mean_count) for w, n in zip(words, counts, strict=True)) / sum(
        (w - mean_words) ** 2 for w in words
    )
    overhead = mean_count - slope * mean_words
    if not _MIN_TOKENS_PER_WORD <= slope <= _MAX_TOKENS_PER_WORD or overhead < -slope * min(words) / 2:
        seen = ", ".join(f"{n} for {w} words" for w, n in zip(words, counts, strict=True))
        raise BadInput(f"the server's prompt token counts are implausible: {seen}", key="calibration")
    return Calibration(overhead=max(0.0, overhead), tokens_per_word=slope, by=by)


def words_for_tokens(tokens: int, calibration: Calibration) -> int:
    """Return the number of words for a prompt of `tokens` tokens in all; at least one."""
    return max(1, round((tokens - calibration.overhead) / calibration.tokens_per_word))
