"""How many words make so many tokens: learnt from the server's own counts, never from a downloaded tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from swarmtui.model.schema import BadInput
from swarmtui.model.workload import RandomText, SharedPrefix, Workload
from swarmtui.prompts.filler_text import WORDS, senseless
from swarmtui.prompts.sampling import PROBE_FROM, nonce, stream

_LEAST_PER_WORD, _MOST_PER_WORD = 0.2, 20.0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """`overhead` is what a prompt costs without its words: chat template, system message, nonce."""

    overhead: float
    tokens_per_word: float
    by: Literal["tokenize", "usage"]


def needs_calibration(workload: Workload) -> bool:
    return isinstance(workload, RandomText | SharedPrefix)


def probe_texts(seed: int, salt: str = "") -> tuple[str, ...]:
    """User messages to be counted by the server, nonce included, sent with the workload's system message if it has one.

    Whole rounds of the word list, so that the mean cost of a word is exact.
    """
    return tuple(
        nonce(PROBE_FROM + rounds, seed, salt) + senseless(rounds * len(WORDS), stream(seed, "probe", rounds))
        for rounds in (1, 4)
    )


def fit(texts: Sequence[str], counts: Sequence[int], by: Literal["tokenize", "usage"]) -> Calibration:
    """The line through what the server counted for the probe texts."""
    words = [len(text.split()) - 1 for text in texts]
    if len(counts) != len(words) or len(set(words)) < 2:
        raise BadInput(f"{len(counts)} prompt token counts for {len(words)} probes", key="calibration")
    mean_words, mean_count = sum(words) / len(words), sum(counts) / len(counts)
    slope = sum((w - mean_words) * (n - mean_count) for w, n in zip(words, counts, strict=True)) / sum(
        (w - mean_words) ** 2 for w in words
    )
    overhead = mean_count - slope * mean_words
    if not _LEAST_PER_WORD <= slope <= _MOST_PER_WORD or overhead < -slope * min(words) / 2:
        seen = ", ".join(f"{n} for {w} words" for w, n in zip(words, counts, strict=True))
        raise BadInput(f"the server's prompt token counts make no sense: {seen}", key="calibration")
    return Calibration(overhead=max(0.0, overhead), tokens_per_word=slope, by=by)


def words_for(tokens: int, calibration: Calibration) -> int:
    """Words of a prompt that is to have `tokens` in all; at least one."""
    return max(1, round((tokens - calibration.overhead) / calibration.tokens_per_word))
