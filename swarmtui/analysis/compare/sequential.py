"""Decide when to stop an A/B test, and what its runs show so far.

The runs are evaluated only when both sides have 4, 6, 8, 12, 16, 24, 32 or 48 of them. Each of these checkpoints has
an alpha fixed in advance: 2.9 % at the first, then at each checkpoint half of what remains of 5 %. The alphas sum to
less than 5 %, so the chance of claiming a difference that does not exist stays below 5 %, however often the test is
evaluated and whenever it is stopped. A claim is made if the t interval at the alpha of the checkpoint excludes 0; the
runs are interleaved, so this interval includes the spread between sessions, and what lasts from one run to the next
disturbs both sides alike: correlation makes false claims rarer, and is not corrected for.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from swarmtui.analysis.compare.verdicts import (
    ALPHA,
    EQUIVALENT,
    Interval,
    Verdict,
    VerdictWord,
    change_text,
    compare_replicates,
    detectable_change,
)
from swarmtui.model.tuning import Side
from swarmtui.numbers import short_percent

CHECKPOINTS = (4, 6, 8, 12, 16, 24, 32, 48)
_FIRST_ALPHA = 2 / 70


class Decision(Verdict, frozen=True, kw_only=True):
    """The result at one checkpoint; `done` means that more runs are not needed, or not worth their time.

    `n` are the runs of each side, `alpha` is the significance level of this checkpoint. `needed` is how many runs of
    each side detect a change of `detect` at the observed spread.
    """

    done: bool
    n: int
    alpha: float
    spread: float


def alpha_at(n: int) -> float:
    """The significance level of the checkpoint at n runs of each side."""
    remaining, alpha = ALPHA, _FIRST_ALPHA
    for checkpoint in CHECKPOINTS:
        if checkpoint == n:
            return alpha
        remaining -= alpha
        alpha = remaining / 2
    raise ValueError(f"no checkpoint at {n} runs")


def detectable_at(n: int, spread: float) -> float:
    """The smallest change that the checkpoint at n runs of each side detects with 80 % power."""
    return detectable_change(spread, n, n, alpha_at(n))


def runs_needed(spread: float, detect: float) -> int | None:
    """Runs of each side that detect a change of `detect`; None if the last checkpoint would not."""
    return next((n for n in CHECKPOINTS if detectable_at(n, spread) <= detect), None)


def evaluate(
    a: Sequence[float],
    b: Sequence[float],
    *,
    detect: float = EQUIVALENT,
    max_runs: int = CHECKPOINTS[-1],
    better: Literal["higher", "lower"] = "higher",
    doubted: bool = False,
) -> Decision:
    """Evaluate a checkpoint, with equally many runs of both sides; changes smaller than `detect` are the same.

    The test is done at a verdict, after `max_runs` of each side, or if `detect` would have been found with 80 % power.
    If the runs are `doubted`, it ends as early, but without a verdict: more runs would not take the doubt away.
    """
    n = len(a)
    alpha = alpha_at(n)
    if n != len(b) or min(*a, *b) <= 0:
        raise ValueError("A and B need equally many runs, all above zero")
    evidence = compare_replicates(a, b)
    assert evidence.estimate is not None and evidence.spread is not None
    estimate, spread = evidence.estimate, evidence.spread
    interval = estimate.interval(alpha)
    word: VerdictWord = "not sure yet"
    if -detect <= interval.low and interval.high <= detect:
        word = "same"
    elif not interval.low <= 0.0 <= interval.high:
        word = "faster" if (estimate.middle > 0) == (better == "higher") else "slower"
    needed = runs_needed(spread, detect) if spread > 0 else n
    after = next((checkpoint for checkpoint in CHECKPOINTS if checkpoint > n), None)
    enough = needed is not None and n >= needed
    done = word != "not sure yet" or after is None or after > max_runs or enough
    if doubted:
        word = "not sure yet"
    detail = _detail(word, n, interval, detect, needed, enough, doubted=doubted)
    return Decision(
        word=word, done=done, n=n, n_a=n, n_b=n, alpha=alpha, detect=detect, change=interval.middle, interval=interval,
        p=estimate.p, spread=spread, needed=needed, detail=detail, sentence=f"{word}: {detail}",
    )  # fmt: skip


def interleaved_sides(count: int, seed: int) -> list[Side]:
    """ABBA or BAAB, drawn for each block of four, so that a linear drift affects both sides equally."""
    random = Random(seed)
    order: list[Side] = []
    while len(order) < count:
        order += ["A", "B", "B", "A"] if random.random() < 0.5 else ["B", "A", "A", "B"]
    return order[:count]


def _detail(
    word: VerdictWord, n: int, interval: Interval, detect: float, needed: int | None, enough: bool, *, doubted: bool
) -> str:
    """`+5.1 % (95 % sure: +3.2 % to +7.0 %; 4 v 4 runs)`"""
    sure = word != "not sure yet"
    verdict = change_text(interval.middle, interval, f"{n} v {n} runs", sure=sure)
    target = short_percent(detect, 2)
    if word == "same":
        return f"{verdict}: within ±{target}"
    if sure or doubted:
        return verdict
    if enough:
        return f"{verdict}: a difference of {target} would very likely have been seen"
    last = CHECKPOINTS[-1]
    need = f"{needed} v {needed}" if needed is not None else f"more than {last} v {last}"
    return f"{verdict}: {need} runs would very likely show {target}"
