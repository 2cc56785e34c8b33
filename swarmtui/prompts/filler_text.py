"""Generate text of a given number of tokens, calibrated by the server's own counts.

Texts of n words have the same words: the beginning of the corpus, its passages in another order, and a few words in
each other's places. So texts of equal length have equal token counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, inf
from random import Random
from typing import Literal

import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.workload import ByLevel, Cycle, Fixed, Length, RandomText, SharedPrefix, Trace, Workload
from swarmtui.prompts.corpus import corpus, varied
from swarmtui.prompts.sampling import PROBE_NONCE_START, nonce, random_stream, shuffled

# The first words of the corpus are counted up to these numbers, and up to the end of the passage after them.
_PARTS: tuple[int, ...] = (*range(8, 64, 8), *range(64, 224, 16))
# Between them, words have tokens in proportion to their pieces: most vocabularies split texts into these, or further.
_PIECES = re.compile(r"[^\W\d_]{1,8}|\d|[^\w\s]|_|\n\s*")
_MIN_TOKENS_PER_WORD, _MAX_TOKENS_PER_WORD = 0.2, 20.0
# Later words are counted in steps of this many, or of this share of the words before them.
_STEP, _STEP_SHARE = 64, 0.03
# A text by itself may have tokens more, such as one for its beginning.
_MAX_EXTRA = 2


def make_filler(count: int, rng: Random, cycle: int, start: int = 0) -> str:
    """Return `count` words of the corpus from `start` on; the first `cycle` of them are repeated again and again."""
    end = start + count
    ends = (
        number * cycle + passage_end
        for number in range(start // cycle, end // cycle + 1)
        for passage_end in corpus().ends
        if passage_end <= cycle
    )
    bounds = [start, *(at for at in ends if start < at < end)]
    *whole, last = pairwise((*bounds, end))
    return "".join(varied(*part, cycle, rng) for part in (*shuffled(whole, rng), last)).rstrip()


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of text; `overhead` is the number of other tokens: chat template, system message, nonce.

    `known` are the tokens of the first n words of the corpus: (n, tokens), in order. A longer text is the last of these
    beginnings again and again.
    """

    overhead: float
    by: Literal["tokenize", "usage"]
    known: tuple[tuple[int, float], ...]

    @property
    def cycle(self) -> int:
        return self.known[-1][0]


def estimated_calibration(overhead: float = 16.0, tokens_per_word: float = 1.8) -> Calibration:
    """Return a calibration without counts of a server."""
    size = len(corpus().words)
    known = tuple((words, words * tokens_per_word) for words in (*range(_STEP, size, _STEP), size))
    return Calibration(overhead=overhead, by="usage", known=known)


def needs_calibration(workload: Workload) -> bool:
    return isinstance(workload, RandomText | SharedPrefix | Trace)


def calibration_texts(seed: int, salt: str = "") -> tuple[str, ...]:
    """Return user messages, with nonce, that the server is to count.

    The last two are the first passages once and twice, for the overhead and their tokens; those before them are parts
    of them.
    """
    cycle = next(end for end in corpus().ends if end > _PARTS[-1])
    return tuple(
        nonce(PROBE_NONCE_START + count, seed, salt) + make_filler(count, random_stream(seed, "probe", count), cycle)
        for count in (*_PARTS, cycle, 2 * cycle)
    )


def fit_calibration(texts: Sequence[str], counts: Sequence[int], by: Literal["tokenize", "usage"]) -> Calibration:
    """Fit the server's counts for the calibration texts: a line through the last two, then the parts."""
    if len(counts) != len(texts) or len(texts) < 2:
        raise BadInput(f"{len(counts)} prompt token counts for {len(texts)} texts", key="calibration")
    (words, count), (more_words, more_count) = [
        (len(text.split()) - 1, count) for text, count in zip(texts[-2:], counts[-2:], strict=True)
    ]
    tokens, overhead = float(more_count - count), 2.0 * count - more_count
    if not _MIN_TOKENS_PER_WORD <= tokens / words <= _MAX_TOKENS_PER_WORD or overhead < -tokens / 2:
        seen = f"{count} for {words} words, {more_count} for {more_words} words"
        raise BadInput(f"the server's prompt token counts are implausible: {seen}", key="calibration")
    overhead = max(0.0, overhead)
    parts = [(part, count - overhead) for part, count in zip(_PARTS, counts[:-2], strict=False)]
    known = (*parts, (words, tokens))
    rising = all(a < b for (_, a), (_, b) in pairwise(((0, 0.0), *known)))
    return Calibration(overhead=overhead, by=by, known=known if rising else known[-1:])


def extend_calibration(found: Calibration, count: Callable[[str], float | None], longest: float) -> Calibration:
    """Count more of the corpus, as much as prompts of up to `longest` tokens need.

    `count` returns the tokens of a text by itself. If it cannot, or if these are not those that the text has in a
    prompt, the calibration is returned as it is.
    """
    at, tokens = found.known[-1]
    if tokens >= longest:
        return found
    again = 0.0
    for start in range(0, at, _STEP):
        if (more := count(_text(start, min(at, start + _STEP)))) is None:
            return found
        again += more
    extra = round((again - tokens) / ceil(at / _STEP))
    if abs(extra) > _MAX_EXTRA:
        return found
    known, size = list(found.known), len(corpus().words)
    while at < size and tokens < longest:
        end = min(size, at + max(_STEP, int(_STEP_SHARE * at)))
        more = count(_text(at, end))
        if more is None or more <= extra:
            break
        at, tokens = end, tokens + more - extra
        known.append((at, tokens))
    return msgspec.structs.replace(found, known=tuple(known))


def _text(start: int, end: int) -> str:
    """Return words as tokenizers split them: with the space before, and without that after them."""
    words = corpus().words
    return " " * (start > 0 and words[start - 1][-1] == " ") + "".join(words[start:end]).removesuffix(" ")


def longest_prompt(workload: Workload) -> float:
    """Return the most tokens of generated text in a prompt, infinite if that is not limited."""
    if not isinstance(workload, RandomText | SharedPrefix):
        return inf
    prefix = workload.prefix_tokens if isinstance(workload, SharedPrefix) else 0
    return prefix + _longest(workload.input_tokens)


def _longest(length: Length) -> float:
    match length:
        case int():
            return length
        case Fixed():
            return length.value
        case Cycle():
            return max(length.values)
        case ByLevel():
            return length.tokens
        case _:
            return inf if length.high is None else length.high


def words_for_prompt(tokens: int, calibration: Calibration, start: tuple[int, float] = (0, 0.0)) -> int:
    """Return the number of words for a prompt of `tokens` tokens in all; at least one.

    `start` is a known place, after as many words and tokens of the corpus.
    """
    words, before = start
    return max(1, words_for_tokens(before + tokens - calibration.overhead, calibration) - words)


def words_for_tokens(tokens: float, calibration: Calibration) -> int:
    """Return the number of words that have `tokens` tokens by themselves; at least one."""
    known = ((0, 0.0), *calibration.known)
    rounds, rest = divmod(max(0.0, tokens), known[-1][1])
    at = bisect_right(known, rest, key=lambda one: one[1])
    (first, before), (last, after) = known[at - 1 : at + 1]
    pieces = _pieces_between(first, last)
    wanted = (rest - before) / (after - before) * pieces[-1]
    words = bisect_left(pieces, wanted)
    if words and wanted - pieces[words - 1] <= pieces[words] - wanted:
        words -= 1
    return max(1, int(rounds) * calibration.cycle + first + words)


@lru_cache(maxsize=1024)
def _pieces_between(first: int, last: int) -> tuple[int, ...]:
    return tuple(accumulate((len(_PIECES.findall(word)) for word in corpus().words[first:last]), initial=0))
