"""Distributions for tests of means, without scipy: Student's t, and the studentized range for Tukey's comparison."""

from __future__ import annotations

from functools import lru_cache
from math import cos, erf, exp, inf, lgamma, log, log1p, pi, sqrt

_STEPS = 300
_TINY = 1e-300


def t_cdf(t: float, df: float) -> float:
    """Return the probability below `t`; `df` need not be whole (Welch)."""
    square = t * t
    if square < df:  # keeps the digits near the middle
        half = 0.5 * incomplete_beta(0.5, df / 2, square / (df + square))
        return 0.5 + half if t > 0 else 0.5 - half
    tail = 0.5 * incomplete_beta(df / 2, 0.5, df / (df + square))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """Invert `t_cdf` by bisection."""
    if not 0.0 < p < 1.0:
        return inf if p >= 1.0 else -inf
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        high *= 2.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if t_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, from the continued fraction that converges faster."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction with Lentz's method."""
    c = 1.0
    d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1.0 / _nonzero(1.0 + part * d)
            c = _nonzero(1.0 + part / c)
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


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
