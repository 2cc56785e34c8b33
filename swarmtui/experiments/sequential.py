"""When to stop an A/B comparison, and what may be said then.

The stopping rule: the runs are looked at only when both sides have 4, 6, 8, 12, 16, 24, 32 and 48 of them. Each look
has a permutation test of its own, and may be wrong with the chance that is set for it beforehand: 2/70 at the first
look, the least that 4 v 4 can have, then at each look half of what is left of 5 %. The chances add up to less than
5 %, so a difference that is not there is claimed in fewer than one comparison in twenty, however often one looks and
whenever one gives up. Intervals are made with the same chances, so that they hold all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, expm1, fsum, log, sqrt
from typing import Literal

from swarmtui.analysis.compare.intervals import Interval, deviation
from swarmtui.analysis.compare.student import t_quantile
from swarmtui.analysis.compare.verdicts import ALPHA, EQUIVALENT, POWER, Word, permutation_p
from swarmtui.model.schema import Stored
from swarmtui.text import signed

LOOKS = (4, 6, 8, 12, 16, 24, 32, 48)
_FIRST = 2 / comb(8, 4)
# With few values a permutation test finds a little less than the t test from which the power is worked out.
_SLACK = 1.1


class Decision(Stored, frozen=True, kw_only=True):
    """What is known at a look; `done` says that more runs would not change it, or are not worth it.

    `alpha` is the chance of this look. `needed` is the number of runs on each side that `detect` takes, at this spread.
    """

    word: Word
    done: bool
    n: int
    alpha: float
    detect: float
    change: float | None = None
    interval: Interval | None = None
    p: float | None = None
    spread: float | None = None
    needed: int | None = None
    sentence: str


def alpha_at(n: int) -> float:
    """The chance of a wrong claim at the look with n runs on each side."""
    left, chance = ALPHA, _FIRST
    for look in LOOKS:
        if look == n:
            return chance
        left -= chance
        chance = left / 2
    raise ValueError(f"there is no look at {n} runs")


def next_look(n: int) -> int | None:
    return next((look for look in LOOKS if look > n), None)


def detectable_at(n: int, spread: float) -> float:
    """The smallest change that the look at n runs each finds four times in five."""
    ways = comb(2 * n, n)
    attainable = 2 * int(alpha_at(n) * ways / 2 + 1e-9) / ways
    steps = t_quantile(1 - attainable / 2, 2 * n - 2) + t_quantile(POWER, 2 * n - 2)
    return expm1(_SLACK * steps * spread * sqrt(2 / n))


def runs_needed(spread: float, detect: float) -> int | None:
    """On each side; None where even the last look would not find it."""
    return next((n for n in LOOKS if detectable_at(n, spread) <= detect), None)


def decide(
    a: Sequence[float],
    b: Sequence[float],
    *,
    detect: float = EQUIVALENT,
    most: int = LOOKS[-1],
    better: Literal["higher", "lower"] = "higher",
) -> Decision:
    """At a look: as many runs of A as of B. `detect` is the change that matters; smaller ones are equivalent.

    It is over with a verdict, with `most` runs on each side, or when `detect` would have been found four times in five.
    """
    n = len(a)
    alpha = alpha_at(n)
    if n != len(b) or min(*a, *b) <= 0:
        raise ValueError("as many runs of A as of B, all above nought")
    x, y = [log(value) for value in a], [log(value) for value in b]
    middle = fsum(y) / n - fsum(x) / n
    spread = sqrt((deviation(x) ** 2 + deviation(y) ** 2) / 2)
    half = t_quantile(1 - alpha / 2, 2 * n - 2) * spread * sqrt(2 / n)
    interval = Interval(middle=expm1(middle), low=expm1(middle - half), high=expm1(middle + half))
    p = permutation_p(x, y)
    word: Word = "undecided"
    if -detect <= interval.low and interval.high <= detect:
        word = "equivalent"
    elif p <= alpha * (1 + 1e-9):
        word = "faster" if (middle > 0) == (better == "higher") else "slower"
    needed = runs_needed(spread, detect) if spread > 0 else n
    after = next_look(n)
    enough = needed is not None and n >= needed
    done = word != "undecided" or after is None or after > most or enough
    change = expm1(middle)
    return Decision(
        word=word, done=done, n=n, alpha=alpha, detect=detect, change=change, interval=interval, p=p, spread=spread,
        needed=needed, sentence=_sentence(word, done, n, change, interval, p, detect, needed, enough),
    )  # fmt: skip


def _sentence(
    word: Word, done: bool, n: int, change: float, interval: Interval, p: float, detect: float, needed: int | None,
    enough: bool,
) -> str:  # fmt: skip
    """`faster: +5.1 % (4 v 4 runs, p = 0.029; +3.2 % to +7.0 %)`"""
    said = f"{word}: {signed(change)} ({n} v {n} runs, p = {p:.2g}; {signed(interval.low)} to {signed(interval.high)})"
    if word == "equivalent":
        return f"{said}: within ±{_percent(detect)}"
    if word != "undecided":
        return said
    if enough and done:
        return f"{said}: a difference of {_percent(detect)} would have been found four times in five"
    need = f"{needed} v {needed} runs" if needed is not None else f"more than {LOOKS[-1]} v {LOOKS[-1]} runs"
    return f"{said}: to find {_percent(detect)} four times in five takes {need}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
