"""Compare closed levels of the default size with long ones, in virtual time: `python -m tests.bench.load_shape`.

Prints the bias of each figure over many seeds, and the spread of single levels. Answers differ in length (CV 0.5).
"""

from __future__ import annotations

import statistics
import sys

from swarmtui.model.session import Level
from tests.seeds.virtual_session import simulate_session

SIMULATOR = "moe-tp1?slots=64&output.median=100&output.cv=0.5"
LEVELS = (1, 4, 8, 16, 50)
DEFAULT = "4C"
FIGURES = ("steady", "stream", "TTFT mean", "TTFT median")


def figures(level: Level) -> tuple[float, ...]:
    found = (level.out_tps_steady, level.per_stream_tps.mean, level.ttft_s.mean, level.ttft_s.median)
    return tuple(value or 0.0 for value in found)


def simulate_level(c: int, seed: int, requests: str | int = DEFAULT) -> tuple[float, ...]:
    (level,) = simulate_session(SIMULATOR, "chat", seed=seed, levels=(c,), requests=requests, warmup=1).levels
    return figures(level)


def long_run(c: int, requests: int = 2000) -> tuple[float, ...]:
    """Return the mean of two long levels, which hardly differ."""
    counted = max(requests, 40 * c)
    return tuple(map(statistics.fmean, zip(*(simulate_level(c, seed, counted) for seed in (1, 2)), strict=True)))


def main(seeds: int) -> None:
    print(f"{'C':>3} " + " ".join(f"{name + ' bias, spread':>26}" for name in FIGURES))
    for c in LEVELS:
        truth = long_run(c)
        short = list(zip(*(simulate_level(c, 1000 * c + seed) for seed in range(seeds)), strict=True))
        cells = []
        for values, true in zip(short, truth, strict=True):
            spread = statistics.stdev(values) / true
            bias = statistics.fmean(values) / true - 1
            cells.append(f"{bias:+11.2%} ±{spread / seeds**0.5:6.2%} {spread:6.2%}")
        print(f"{c:3} " + " ".join(cells), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
