"""Quantiles of the studentized range, for Tukey's comparison of many configurations.

The distribution is that of the range of `k` standard normal values over an independent estimate of their standard
deviation with `df` degrees of freedom. Both integrals use Gauss–Legendre nodes; quantiles are exact to about 1e-9.
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, erf, exp, lgamma, log, pi, sqrt

_NODES = 24
_LOW, _HIGH, _PARTS = -7.0, 8.0, 4  # where the largest of k normal values can be


@lru_cache(maxsize=1)
def _legendre() -> tuple[tuple[float, float], ...]:
    """Return nodes and weights of Gauss–Legendre quadrature on −1 to 1, by Newton's method."""
    found = []
    for index in range(_NODES):
        x = cos(pi * (index + 0.75) / (_NODES + 0.5))
        while True:
            before, value = 1.0, x
            for n in range(2, _NODES + 1):
                before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
            slope = _NODES * (x * value - before) / (x * x - 1)
            x -= value / slope
            if abs(value / slope) < 1e-15:
                break
        found.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(found)


def _quadrature(low: float, high: float, parts: int) -> list[tuple[float, float]]:
    """Return points and weights over an interval that is divided into equal parts."""
    half = (high - low) / parts / 2
    middles = [low + (2 * part + 1) * half for part in range(parts)]
    return [(middle + x * half, weight * half) for middle in middles for x, weight in _legendre()]


def _normal_cdf(x: float) -> float:
    return 0.5 * (1.0 + erf(x / sqrt(2)))


@lru_cache(maxsize=1)
def _largest_values() -> tuple[tuple[float, float, float], ...]:
    """Return values z of the largest of the normal values, their weights with the density at z, and the cdf at z."""
    points = _quadrature(_LOW, _HIGH, _PARTS)
    return tuple((z, weight * exp(-z * z / 2) / sqrt(2 * pi), _normal_cdf(z)) for z, weight in points)


def _range_cdf(width: float, k: int) -> float:
    """Return the probability that the range of k standard normal values is at most `width`."""
    return k * sum(weight * (below - _normal_cdf(z - width)) ** (k - 1) for z, weight, below in _largest_values())


@lru_cache(maxsize=64)
def _scales(df: int) -> tuple[tuple[float, float], ...]:
    """Return values of the estimated standard deviation, and their weights with its density."""
    spread = 1 / sqrt(2 * df)
    low, high = (1 - 8 * spread, 1 + 8 * spread) if df > 4 else (0.0, 6.0)
    front = log(2) + df / 2 * log(df / 2) - lgamma(df / 2)
    points = _quadrature(max(1e-9, low), high, 3)
    return tuple((s, weight * exp(front + (df - 1) * log(s) - df * s * s / 2)) for s, weight in points)


def studentized_range_cdf(q: float, k: int, df: int) -> float:
    return sum(weight * _range_cdf(q * s, k) for s, weight in _scales(df))


@lru_cache(maxsize=256)
def studentized_range_quantile(p: float, k: int, df: int) -> float:
    """Invert the distribution for `p` of at least one half, at least two values and two degrees of freedom."""
    low, high = 0.0, 4.0
    while studentized_range_cdf(high, k, df) < p:
        low, high = high, 2 * high
    f_low, f_high = studentized_range_cdf(low, k, df) - p, studentized_range_cdf(high, k, df) - p
    while abs(high - low) > 1e-10 * high:  # the Illinois variant of the secant method
        middle = high - f_high * (high - low) / (f_high - f_low)
        f_middle = studentized_range_cdf(middle, k, df) - p
        if abs(f_middle) < 1e-13:
            return middle
        if (f_middle < 0) == (f_high < 0):
            f_low /= 2
        else:
            low, f_low = high, f_high
        high, f_high = middle, f_middle
    return high
