"""Random draws that depend only on the seed, not on the machine or the version of Python.

They are built on `Random.random()`, the only method whose sequence Python guarantees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from random import Random
from typing import TypeVar

from swarmtui.model.load import Arrival
from swarmtui.model.workload import ByLevel, Cycle, Fixed, Length, Lognormal, Normal, Uniform

T = TypeVar("T")
_PAIRS = tuple(f"{digit}{letter}" for digit in "0123456789" for letter in "abcdefghijklmnopqrstuvwxyz")
_NONCES = len(_PAIRS) ** 4
_STEP = 2_654_435_761  # a prime that does not divide _NONCES, so that no two numbers below that give the same nonce
WARMUP_NONCE_START = _NONCES // 2
PROBE_NONCE_START = _NONCES - 1000


def random_stream(*parts: object) -> Random:
    """Return a separate generator for each use, so that an additional draw in one place changes no other."""
    return Random("/".join(map(str, parts)))


def nonce(number: int, seed: int, salt: str) -> str:
    """Return alternating digits and letters: tokenizers split between them, so all nonces have equally many tokens."""
    offset = int.from_bytes(sha256(f"{seed}/{salt}".encode()).digest()[:8], "big")
    left = (number * _STEP + offset) % _NONCES
    pairs = []
    for _ in range(4):
        left, pair = divmod(left, len(_PAIRS))
        pairs.append(_PAIRS[pair])
    return f"[{''.join(pairs)}] "


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    mixed = list(items)
    draw = rng.random
    for last in range(len(mixed) - 1, 0, -1):
        other = int(draw() * (last + 1))
        mixed[last], mixed[other] = mixed[other], mixed[last]
    return mixed


def shuffle_balanced(types: Sequence[str], rng: Random) -> list[int]:
    """Shuffle with each type spread evenly, so that a short run gets the same mixture as a long one."""
    totals, seen = Counter(types), Counter[str]()
    keys = []
    for index in shuffled(range(len(types)), rng):
        kind = types[index]
        keys.append(((seen[kind] + rng.random()) / totals[kind], index))
        seen[kind] += 1
    return [index for _, index in sorted(keys)]


def draw_length(distribution: Length, rng: Random, index: int, c: int, position: int) -> int:
    match distribution:
        case Fixed():
            return distribution.value
        case Uniform():
            return distribution.low + int(rng.random() * (distribution.high - distribution.low + 1))
        case Normal():
            return _within(distribution.mean + distribution.sd * draw_normal(rng), distribution.low, distribution.high)
        case Lognormal():
            sigma = math.sqrt(math.log1p(distribution.cv**2))
            return _within(
                distribution.median * math.exp(sigma * draw_normal(rng)), distribution.low, distribution.high
            )
        case Cycle():
            return distribution.values[index % len(distribution.values)]
        case ByLevel():
            shares = distribution.shares.get(str(c))  # a level without a row gets tasks of full length
            return max(1, round(distribution.tokens * shares[position % c])) if shares else distribution.tokens
        case _:
            return distribution


def draw_normal(rng: Random) -> float:
    """Box–Muller transform."""
    radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    return radius * math.cos(math.tau * rng.random())


def _within(value: float, low: int, high: int | None) -> int:
    whole = max(low, round(value))
    return whole if high is None else min(whole, high)


def arrival_times(rate: float, arrival: Arrival, burst: float, count: int, *parts: object) -> list[float]:
    """Return the times at which open-loop requests are due, in seconds from the start.

    They are drawn under the condition that `count` arrive in exactly `count / rate` seconds: without it, 100 Poisson
    arrivals would have a rate that is off by 10 %. `burst` is the squared coefficient of variation of gamma gaps.
    """
    rng = random_stream("arrivals", *parts)
    *times, end = accumulate(_gap(arrival, burst, rng) for _ in range(count + 1))
    # Regular arrivals are at whole multiples of the gap: the last of them is due when the time is up.
    scale = count / rate / (times[-1] if arrival == "constant" and times else end)
    return [scale * at for at in times]


def _gap(arrival: Arrival, burst: float, rng: Random) -> float:
    """Draw a gap with a mean of 1."""
    if arrival == "constant":
        return 1.0
    if arrival == "poisson":
        return -math.log(1.0 - rng.random())
    return _gamma(1.0 / burst, rng) * burst


def _gamma(shape: float, rng: Random) -> float:
    """Marsaglia and Tsang's method; a shape below 1 is reduced to the next higher one."""
    if shape < 1.0:
        higher = _gamma(shape + 1.0, rng)
        return higher * math.pow(1.0 - rng.random(), 1.0 / shape)
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = draw_normal(rng)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v
