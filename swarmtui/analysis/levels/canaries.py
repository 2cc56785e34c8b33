"""Compare the answers to canary questions under load with those at C=1, and find degenerate answers.

Two tests per level, which share an error rate of 5 % with those of all other levels: whether fewer canaries pass than
at C=1, and whether more answers of all requests are degenerate than at the level C=1 (Fisher's exact test). Models
differ in how many of their answers are degenerate, so without that level the second question has no answer. With the
five answers that C=1 has by default, only a level in which most answers are degenerate differs from none of five.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import comb, sqrt
from statistics import median

import msgspec

from swarmtui.model.answer_check import PASSES
from swarmtui.model.findings import Finding
from swarmtui.model.record import Record
from swarmtui.model.session import CanaryFigures, Level
from swarmtui.numbers import percent

_ALPHA = 0.05
_Z = 1.96
# A model that passes a smaller share of the canaries at C=1 knows too little for a comparison.
_MIN_REFERENCE = 0.5


def with_canaries(
    levels: Sequence[Level], under_load: Sequence[Sequence[Record]], alone: Sequence[Record]
) -> list[Level]:
    reference = {record.type: record for record in _answered(alone)}
    if not reference:
        return list(levels)
    single = next((level for level in levels if level.c == 1 and level.rate is None), None)
    return [
        _with_figures(level, list(_answered(records)), reference, single, len(levels))
        for level, records in zip(levels, under_load, strict=True)
    ]


def _answered(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the canaries that were answered: a failed request is counted as an error, not as a wrong answer."""
    return (r for r in records if r.phase == "canary" and r.ok and r.verdict is not None)


def _with_figures(
    level: Level, records: list[Record], reference: dict[str, Record], single: Level | None, levels: int
) -> Level:
    passed = sum(record.verdict in PASSES for record in records)
    alone = sum(record.verdict in PASSES for record in reference.values())
    equal_chars = [_equal_chars(record, reference.get(record.type)) for record in records]
    compared = [chars for chars in equal_chars if chars is not None]
    diverged = [chars for chars in compared if chars >= 0]
    low, high = wilson_interval(passed, len(records))
    figures = CanaryFigures(
        n=len(records),
        passed=passed,
        pass_low=low,
        pass_high=high,
        alone_n=len(reference),
        alone_passed=alone,
        applicable=alone >= _MIN_REFERENCE * len(reference),
        compared=len(compared),
        diverged=len(diverged),
        diverged_after=median(diverged) if diverged else None,
    )
    answers = (level.degenerate, level.ok)
    at_one = (single.degenerate, single.ok) if single and single is not level else None
    findings = tuple(canary_findings(figures, answers, at_one, level.name, _ALPHA / (2 * levels)))
    return msgspec.structs.replace(level, canaries=figures, flags=(*level.flags, *findings))


def canary_findings(
    figures: CanaryFigures, answers: tuple[int, int], at_one: tuple[int, int] | None, name: str, alpha: float
) -> Iterator[Finding]:
    """Yield what the canaries of a level show; each of the two tests has the error rate `alpha`.

    `answers` has how many answers of the level are degenerate, and of how many; `at_one` those of the level C=1.
    """
    n, passed, alone_n, alone = figures.n, figures.passed, figures.alone_n, figures.alone_passed
    if not figures.applicable:
        text = f"canaries are not applicable: alone, the model answers {alone} of {alone_n} questions"
        yield Finding(code="canaries_not_applicable", text=text)
        return
    if n:
        yield Finding(code="canaries", text=_describe(figures))
    if n and fisher_p(alone, alone_n, passed, n) < alpha:
        change = f"{percent(alone / alone_n)} → {percent(passed / n)}"
        yield Finding(code="answers_worse", text=f"answers got worse: {change} at {name}")
    if at_one is None or not at_one[1] or not answers[1]:
        return
    (degenerate, of), (before, of_before) = answers, at_one
    if fisher_p(of_before - before, of_before, of - degenerate, of) < alpha:
        share = f"{percent(degenerate / of)} of answers are empty, loops or garbage at {name}"
        text = f"answers got worse: {share}, {percent(before / of_before)} at C=1"
        yield Finding(code="answers_degenerate", text=text)


def _describe(figures: CanaryFigures) -> str:
    text = (
        f"{figures.passed} of {figures.n} canaries pass ({percent(figures.pass_low)} to {percent(figures.pass_high)})"
    )
    text += f", alone {figures.alone_passed} of {figures.alone_n}"
    if figures.compared:
        text += f"; {figures.compared - figures.diverged} of {figures.compared} answers are those of C=1"
    if figures.diverged_after is not None:
        text += f", the others differ after {figures.diverged_after:g} characters (median)"
    return text


def _equal_chars(record: Record, reference: Record | None) -> int | None:
    """Return where an answer differs from its reference; -1 if nowhere, None if the texts were not kept."""
    if reference is None or record.text is None or reference.text is None:
        return None
    if record.text == reference.text:
        return -1
    pairs = enumerate(zip(record.text, reference.text, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(record.text), len(reference.text)))


def wilson_interval(passed: int, n: int) -> tuple[float | None, float | None]:
    """Return Wilson's 95 % interval of a share."""
    if not n:
        return None, None
    share, z2 = passed / n, _Z * _Z
    centre, half = share + z2 / (2 * n), _Z * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))


def fisher_p(alone_passed: int, alone_n: int, passed: int, n: int) -> float:
    """Return the probability that `n` pass at most `passed` times, if load makes no difference."""
    total, failed = alone_n + n, alone_n - alone_passed + n - passed
    # Counted by failures, as these are few: as many as seen under load, or more.
    ways = sum(comb(failed, k) * comb(total - failed, n - k) for k in range(n - passed, min(n, failed) + 1))
    return ways / comb(total, n)
