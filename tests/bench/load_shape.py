"""Compare closed levels of the default size with long ones, in virtual time: `python -m tests.bench.load_shape`.

For each workload and C: the seconds of load, the bias and the root mean square error of steady, stream and TTFT over
many seeds, and how often the half-width of the steady rate covers the truth. `--seeds`, `--workloads` and `--levels`
choose less.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.model.session import Level
from swarmtui.sessions.store import LoadedSession, summarise
from tests.seeds.virtual_session import simulate_journal

LEVELS = (1, 2, 4, 8, 16, 64)
FIGURES = ("steady", "stream", "TTFT mean", "TTFT median")


class Shape(NamedTuple):
    """A workload on the simulator: lengths of answers and prompts decide how streams fall into step."""

    simulator: str
    workload: str
    given: dict[str, Any]


SHAPES = {
    "cv0.5": Shape("moe-tp1?slots=64&output.median=100&output.cv=0.5", "chat", {}),
    "cv1.0": Shape("moe-tp1?slots=64&output.median=100&output.cv=1.0", "chat", {}),
    "cv1.5": Shape("moe-tp1?slots=64&output.median=100&output.cv=1.5", "chat", {}),
    "short": Shape("moe-tp1?slots=64&output.median=16&output.cv=0.4", "chat", {}),
    "fixed 1k/256": Shape("moe-tp1?slots=64", "random-1k-1k", {"max_tokens": 256}),
    "fixed 8k/128": Shape("moe-tp1?slots=64", "long-prefill", {}),
    "queue": Shape("moe-tp1?slots=4&output.median=100&output.cv=0.5", "chat", {}),
}


def figures(level: Level) -> tuple[float, ...]:
    found = (level.out_tps_steady, level.per_stream_tps.mean, level.ttft_s.mean, level.ttft_s.median)
    return tuple(value or 0.0 for value in found)


def simulate(
    c: int, seed: int, requests: str | int | None = None, shape: Shape = SHAPES["cv0.5"]
) -> tuple[Level, float]:
    """Return a level, and the seconds that its stage took."""
    journal = simulate_journal(
        shape.simulator, shape.workload, seed=seed, levels=(c,), requests=requests, warmup=1, **shape.given
    )
    (level,) = summarise(LoadedSession(directory=Path("virtual"), journal=journal)).levels
    start = next(stage for stage in journal.stages if stage.phase == "level")
    end = next(end for end in journal.ends if end.number == start.number)
    return level, (end.t_ns - start.t_ns) / 1e9


def simulate_level(
    c: int, seed: int, requests: str | int | None = None, shape: Shape = SHAPES["cv0.5"]
) -> tuple[float, ...]:
    return figures(simulate(c, seed, requests, shape)[0])


def long_run(c: int, requests: int = 2000, shape: Shape = SHAPES["cv0.5"]) -> tuple[float, ...]:
    """Return the mean of two long levels, which hardly differ."""
    counted = max(requests, 40 * c)
    return tuple(map(statistics.fmean, zip(*(simulate_level(c, seed, counted, shape) for seed in (1, 2)), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workloads", default=",".join(SHAPES))
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--long", type=int, default=600, help="requests of the levels that are taken for the truth")
    given = parser.parse_args()
    cells = " ".join(f"{name + ' bias / RMSE':>24}" for name in FIGURES)
    print(f"{'workload':<13}{'C':>3} {'load s':>7} {cells} {'± mean':>7} covers")
    for name in given.workloads.split(","):
        for c in map(int, given.levels.split(",")):
            truth = long_run(c, given.long, SHAPES[name])
            found = [simulate(c, 1000 * c + seed, shape=SHAPES[name]) for seed in range(given.seeds)]
            levels, seconds = [level for level, _ in found], statistics.fmean(load_s for _, load_s in found)
            errors = [[value / true - 1 for value, true in zip(figures(one), truth, strict=True)] for one in levels]
            row = " ".join(
                f"{statistics.fmean(column):>+14.2%} / {statistics.fmean(e * e for e in column) ** 0.5:6.2%}"
                for column in zip(*errors, strict=True)
            )
            half_widths = [(one.out_tps_steady_hw or 0.0, (one.out_tps_steady or 0.0) - truth[0]) for one in levels]
            covered = statistics.fmean(abs(off) <= half for half, off in half_widths)
            mean = statistics.fmean(half for half, _ in half_widths) / truth[0]
            print(f"{name:<13}{c:>3} {seconds:>7.1f} {row} {mean:>7.2%} {covered:>6.0%}", flush=True)


if __name__ == "__main__":
    main()
