"""When requests of an open loop are due: drawn ahead, the same for the same seed, whatever the server does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from swarmtui.model.plan import Arrival
from swarmtui.prompts.sampling import normal, stream


def arrivals(rate: float, arrival: Arrival, burst: float, *parts: object) -> Iterator[float]:
    """Seconds from the beginning, without an end; `burst` is the squared coefficient of variation of gamma gaps."""
    rng = stream("arrivals", *parts)
    at = 0.0
    while True:
        at += _gap(arrival, burst, rng) / rate
        yield at


def _gap(arrival: Arrival, burst: float, rng: Random) -> float:
    """One on average."""
    if arrival == "constant":
        return 1.0
    if arrival == "poisson":
        return -math.log(1.0 - rng.random())
    return _gamma(1.0 / burst, rng) * burst


def _gamma(shape: float, rng: Random) -> float:
    """Marsaglia and Tsang; below 1 by the next higher shape."""
    if shape < 1.0:
        higher = _gamma(shape + 1.0, rng)
        return higher * math.pow(1.0 - rng.random(), 1.0 / shape)
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(rng)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v
