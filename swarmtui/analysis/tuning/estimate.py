"""Estimate the score of any configuration from all starts of a tune together.

One start is off by several percent. Each of them says something about every value that it had, so that all together
know the effect of a value several times better than the one start that tried it first. The scores are a Gaussian
process: each knob adds its part, near values of an ordered knob have similar parts, and two knobs together may differ a
little from their sum. The sizes of effects and of chance are those that make the measured scores likeliest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import exp, fsum, hypot, log, sqrt
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from swarmtui.analysis.tuning.space import SearchSpace
from swarmtui.model.tuning import Flags, Value

# Standard deviations among which the likeliest are chosen, of the effect of a knob and of a start by chance; the usual
# ones; and how far others are from these, as a logarithm.
_EFFECTS, _CHANCES = (0.05, 0.1, 0.2, 0.4), (0.01, 0.02, 0.03, 0.05, 0.08, 0.13)
_USUAL_EFFECT, _USUAL_CHANCE, _APART = 0.12, 0.04, 0.9
# The variance of the level of all, of two knobs together, and of a configuration as such, in parts of that of a knob.
_LEVEL, _TOGETHER, _ALONE = 4.0, 0.02, 0.01
# How much less alike the effects of both ends of a ladder are, as a logarithm.
_END_TO_END = 1.0
# Flags that bring less than this are left as they are in the command.
_NO_MORE = 0.01
_NORMAL = NormalDist()


class Scored(NamedTuple):
    """The score of a start, and as how many starts of the screening it counts."""

    flags: Flags
    score: float
    weight: float


class ScoreEstimate(NamedTuple):
    """The score of a configuration, and its standard error."""

    score: float
    error: float


class _Fit(NamedTuple):
    """How likely the scores are with an effect and a chance; the Cholesky factor of their covariance, and weights."""

    likely: float
    effect: float
    chance: float
    factor: list[list[float]]
    weights: list[float]


class ScoreModel:
    """The scores of all configurations of a space, by those that were started."""

    def __init__(self, space: SearchSpace, starts: Sequence[Scored]) -> None:
        self._space = space
        self._values, self._alike = dict[str, list[Value | None]](), list[list[list[float]]]()
        knobs = {knob.name: knob for knob in space.knobs}
        for name in dict.fromkeys((*knobs, *(name for start in starts for name in start.flags))):
            ladder = space.ladder(knobs[name]) if name in knobs else ()
            # What the user added may have other values; null is what the server chooses by itself.
            others = {value for start in starts if (value := space.value(start.flags, name)) not in ladder} | {None}
            self._values[name] = [*ladder, *sorted(others, key=str)]
            in_order = len(ladder) if name in knobs and knobs[name].ordered else 0
            self._alike.append(_alike(len(self._values[name]), in_order))
        self._places = [self._place(start.flags) for start in starts]
        self._mean = fsum(start.score * start.weight for start in starts) / fsum(start.weight for start in starts)
        scores = [start.score - self._mean for start in starts]
        shared = [[self._shared(a, b) for b in self._places[: i + 1]] for i, a in enumerate(self._places)]
        fits = (
            _fit(shared, [start.weight for start in starts], scores, effect, chance)
            for effect, chance in product(_EFFECTS, _CHANCES)
        )
        self._fit = max(fits, key=lambda fit: fit.likely)

    def _place(self, flags: Flags) -> list[int]:
        return [values.index(self._space.value(flags, name)) for name, values in self._values.items()]

    def _shared(self, a: list[int], b: list[int]) -> float:
        """Return the covariance of two configurations, in parts of the variance of a knob."""
        parts = [table[x][y] for table, x, y in zip(self._alike, a, b, strict=True)]
        total = fsum(parts)
        pairs = (total * total - _dot(parts, parts)) / 2.0
        return _LEVEL + total + _TOGETHER * pairs + _ALONE * (a == b)

    def estimate(self, flags: Flags) -> ScoreEstimate:
        place, scale = self._place(flags), self._fit.effect**2
        row = [scale * self._shared(place, other) for other in self._places]
        known = _solve(self._fit.factor, row)
        variance = scale * self._shared(place, place) - _dot(known, known)
        return ScoreEstimate(self._mean + _dot(row, self._fit.weights), sqrt(max(0.0, variance)))

    def simplest_best(self, flags: Sequence[Flags]) -> Flags:
        """Return the configuration with the fewest changes among those that are not noticeably behind the best."""
        scored = [(self.estimate(each).score, each) for each in flags]
        enough = max(score for score, _ in scored) - _NO_MORE
        return min(((len(each), -score, each) for score, each in scored if score >= enough), key=lambda one: one[:2])[2]

    def promise(self, flags: Flags, best: float) -> float:
        """Return by how much one more start is expected to raise the best score, and is not chance."""
        found = self.estimate(flags)
        if not found.error:
            return 0.0
        far = (found.score - best) / found.error
        gain = found.error * (far * _NORMAL.cdf(far) + _NORMAL.pdf(far))
        chance = self._fit.chance / hypot(self._fit.chance, found.error)
        return gain * (1.0 - chance)


def _alike(values: int, in_order: int) -> list[list[float]]:
    """Return how alike the effects of two values of a knob are; the first are in order."""
    apart = _END_TO_END / max(1, in_order - 1)
    return [
        [1.0 if a == b else exp(-apart * abs(a - b)) if max(a, b) < in_order else 0.0 for b in range(values)]
        for a in range(values)
    ]


def _dot(a: Iterable[float], b: Iterable[float]) -> float:
    return fsum(map(mul, a, b))


def _fit(
    shared: list[list[float]], weights: Sequence[float], scores: Sequence[float], effect: float, chance: float
) -> _Fit:
    factor: list[list[float]] = []
    for i, covariances in enumerate(shared):
        row: list[float] = []
        for upper, covariance in zip(factor, covariances, strict=False):
            row.append((effect**2 * covariance - _dot(row, upper)) / upper[-1])
        own = effect**2 * covariances[-1] + chance**2 / weights[i]
        factor.append([*row, sqrt(own - _dot(row, row))])
    half = _solve(factor, scores)
    usual = (log(effect / _USUAL_EFFECT) ** 2 + log(chance / _USUAL_CHANCE) ** 2) / _APART**2
    likely = -(_dot(half, half) + usual) / 2.0 - fsum(log(row[-1]) for row in factor)
    solution = list(half)
    for i in reversed(range(len(solution))):
        solution[i] /= factor[i][i]
        for j in range(i):
            solution[j] -= factor[i][j] * solution[i]
    return _Fit(likely, effect, chance, factor, solution)


def _solve(factor: list[list[float]], right: Sequence[float]) -> list[float]:
    """Solve a triangular system."""
    found: list[float] = []
    for row, value in zip(factor, right, strict=True):
        found.append((value - _dot(found, row)) / row[-1])
    return found
