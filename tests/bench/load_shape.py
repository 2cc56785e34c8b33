"""Compare closed levels of the default size with long ones, in virtual time: `python -m tests.bench.load_shape`.

For each workload and C: the seconds of load, the bias and the root mean square error of steady, the bias of stream and
TTFT over many seeds, each before (commit de0e7ee: 4C requests, all of them answered) and now; the half-width of the
steady rate, and how often it covers the truth. Then the same for a sweep over 1, 2, 4 and 8. `--seeds`, `--workloads`
and `--levels` choose less, `--requests` and `--precision` another length of the levels.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.model.session import Level
from swarmtui.sessions.store import LoadedSession, summarise
from tests.seeds.virtual_session import simulate_journal

LEVELS = (1, 2, 4, 8, 16, 32, 64)
SWEEP = (1, 2, 4, 8)
FIGURES = ("steady", "stream", "TTFT mean", "TTFT median")


class Shape(NamedTuple):
    """A workload on the simulator: lengths of answers and prompts decide how streams fall into step."""

    simulator: str
    workload: str
    given: dict[str, Any]


class Measured(NamedTuple):
    """The levels of many seeds at one C: errors are relative to a long level."""

    load_s: float
    steady_bias: float
    steady_rmse: float
    stream_bias: float
    ttft_bias: float
    ttft_median_bias: float


SHAPES = {
    "cv0.5": Shape("moe-tp1?slots=64&output.median=250&output.cv=0.5", "chat", {}),
    "cv1.0": Shape("moe-tp1?slots=64&output.median=250&output.cv=1.0", "chat", {}),
    "cv1.5": Shape("moe-tp1?slots=64&output.median=250&output.cv=1.5", "chat", {}),
    "fixed 1k/256": Shape("moe-tp1?slots=64", "random-1k-1k", {"max_tokens": 256}),
    "fixed 8k/128": Shape("moe-tp1?slots=64", "long-prefill", {}),
    "8-32 tokens": Shape("moe-tp1?slots=64&output.median=16&output.cv=0.4", "chat", {}),
    # A tenth of the requests fail at once, and the last token of three tenths of the answers is in no chunk.
    "errors, EOS": Shape(
        "moe-tp1?slots=64&output.median=250&output.cv=0.5&failures.http_500=0.1", "chat", {"eos": 0.3}
    ),
}

# The version before, commit de0e7ee, with the same workloads, seeds and truth.
BEFORE: dict[str, dict[int, Measured]] = {}


def figures(level: Level) -> tuple[float, ...]:
    found = (level.out_tps_steady, level.per_stream_tps.mean, level.ttft_s.mean, level.ttft_s.median)
    return tuple(value or 0.0 for value in found)


def simulate(
    c: int, seed: int, requests: str | int | None = None, shape: Shape = SHAPES["cv0.5"], **load: Any
) -> tuple[Level, float]:
    """Return a level, and the seconds that its stage took."""
    journal = simulate_journal(
        shape.simulator, shape.workload, seed=seed, levels=(c,), requests=requests, warmup=1, **shape.given, **load
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


def measure(found: Sequence[tuple[Level, float]], truth: tuple[float, ...]) -> Measured:
    levels = [level for level, _ in found]
    errors = [[value / true - 1 for value, true in zip(figures(one), truth, strict=True)] for one in levels]
    steady, *others = zip(*errors, strict=True)
    return Measured(
        statistics.fmean(load_s for _, load_s in found),
        statistics.fmean(steady),
        statistics.fmean(error * error for error in steady) ** 0.5,
        *map(statistics.fmean, others),
    )


def cells(one: Measured | None) -> str:
    if one is None:
        return f"{'–':>7} {'–':>17} {'–':>8} {'–':>17}"
    steady = f"{one.steady_bias:+8.2%} /{one.steady_rmse:6.2%}"
    return (
        f"{one.load_s:>7.1f} {steady:>17} {one.stream_bias:>+8.2%} {one.ttft_bias:>+8.2%} {one.ttft_median_bias:>+8.2%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--workloads", default=";".join(SHAPES), help="names, separated by ;")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--long", type=int, default=600, help="requests of the levels that are taken for the truth")
    parser.add_argument("--requests")
    parser.add_argument("--precision", default="")
    given = parser.parse_args()
    head = f"{'load s':>7} {'steady bias / RMSE':>17} {'stream':>8} {'TTFT':>8} {'median':>8}"
    print(f"{'':<16} {'before':^51} {'now':^51}\n{'workload':<13}{'C':>3} {head} {head} {'± mean':>7} covers  flags")
    sums: dict[str, tuple[list[Measured], list[Measured]]] = {}
    for name in given.workloads.split(";"):
        for c in map(int, given.levels.split(",")):
            truth, shape = long_run(c, given.long, SHAPES[name]), SHAPES[name]
            chosen = {"precision": given.precision} if given.precision else {}
            found = [simulate(c, 1000 * c + seed, given.requests, shape, **chosen) for seed in range(given.seeds)]
            levels, now, before = [level for level, _ in found], measure(found, truth), BEFORE.get(name, {}).get(c)
            half_widths = [(one.out_tps_steady_hw or 0.0, (one.out_tps_steady or 0.0) - truth[0]) for one in levels]
            covered = statistics.fmean(abs(off) <= half for half, off in half_widths)
            mean = statistics.fmean(half for half, _ in half_widths) / truth[0]
            in_step = statistics.fmean(any(flag.code == "synchronised" for flag in one.flags) for one in levels)
            flags = f"synchronised {in_step:.0%}" if in_step else ""
            row = f"{cells(before)} {cells(now)} {mean:>7.2%} {covered:>6.0%}  {flags}"
            print(f"{name:<13}{c:>3} {row}", flush=True)
            if c in SWEEP and before is not None:
                for side, one in zip(sums.setdefault(name, ([], [])), (before, now), strict=True):
                    side.append(one)
    print("\nlevels 1, 2, 4, 8")
    print(f"{'workload':<13} {'before s':>9} {'now s':>7} {'share':>6} {'RMSE before':>12} {'now':>7}")
    for name, sides in sums.items():
        (was_s, is_s), (was, now_rmse) = (
            [sum(one.load_s for one in side) for side in sides],
            [max(one.steady_rmse for one in side) for side in sides],
        )
        print(f"{name:<13} {was_s:>9.1f} {is_s:>7.1f} {is_s / was_s:>6.0%} {was:>12.2%} {now_rmse:>7.2%}")


if __name__ == "__main__":
    main()
