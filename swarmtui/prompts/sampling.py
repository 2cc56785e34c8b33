"""Everything that is drawn: the same for the same seed, on any machine and with any Python.

Only `Random.random()` is used, whose sequence Python guarantees; the shuffles and distributions are built on it here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from random import Random
from typing import TypeVar

from swarmtui.model.workload import ByLevel, Cycle, Fixed, Length, Lognormal, Normal, Uniform

T = TypeVar("T")

_PAIRS = tuple(f"{digit}{letter}" for digit in "0123456789" for letter in "abcdefghijklmnopqrstuvwxyz")
_NONCES = len(_PAIRS) ** 4
_STEP = 2_654_435_761  # a prime that does not divide _NONCES, so that no two numbers below that give the same nonce
WARMUP_FROM = _NONCES // 2
PROBE_FROM = _NONCES - 1000


def stream(*parts: object) -> Random:
    """A source of chance of its own for each use, so that one draw more in one place changes nothing in another."""
    return Random("/".join(map(str, parts)))


def nonce(number: int, seed: int, salt: str) -> str:
    """Digits and letters in turn: tokenizers split between the two, so that each nonce is as many tokens."""
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


def spread(types: Sequence[str], rng: Random) -> list[int]:
    """A shuffle with every type spread evenly over it, so that a short run gets the same mixture as a long one."""
    totals, seen = Counter(types), Counter[str]()
    keys = []
    for index in shuffled(range(len(types)), rng):
        kind = types[index]
        keys.append(((seen[kind] + rng.random()) / totals[kind], index))
        seen[kind] += 1
    return [index for _, index in sorted(keys)]


def length(wanted: Length, rng: Random, index: int, c: int, position: int) -> int:
    match wanted:
        case Fixed():
            return wanted.value
        case Uniform():
            return wanted.low + int(rng.random() * (wanted.high - wanted.low + 1))
        case Normal():
            return _within(wanted.mean + wanted.sd * normal(rng), wanted.low, wanted.high)
        case Lognormal():
            sigma = math.sqrt(math.log1p(wanted.cv**2))
            return _within(wanted.median * math.exp(sigma * normal(rng)), wanted.low, wanted.high)
        case Cycle():
            return wanted.values[index % len(wanted.values)]
        case ByLevel():
            shares = wanted.shares.get(str(c))  # a level without a row has tasks of full length
            return max(1, round(wanted.tokens * shares[position % c])) if shares else wanted.tokens
        case _:
            return wanted


def normal(rng: Random) -> float:
    """Box and Muller."""
    radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    return radius * math.cos(math.tau * rng.random())


def _within(value: float, low: int, high: int | None) -> int:
    whole = max(low, round(value))
    return whole if high is None else min(whole, high)
