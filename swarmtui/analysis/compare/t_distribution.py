"""Student's t distribution, and the incomplete beta function behind it, exact to about 1e-12 without scipy."""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p

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
