"""Compare closed levels of the default size with long ones, in virtual time: `python -m tests.bench.load_shape`.

For each workload and C: the seconds of load, the bias and the root mean square error of steady, the bias of stream and
TTFT over many seeds, each a sweep over all C, before (commit de0e7ee: 4C requests, all of them answered) and now; the
half-width of the steady rate, and how often it covers the truth. Then seconds and error of the levels 1, 2, 4 and 8,
with the standard error of the error. `--seeds`, `--workloads` and `--levels` choose less, `--requests` and
`--precision` another length of the levels, `--long` that of the truth, `--jobs` the processes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.model.session import Level
from swarmtui.sessions.store import LoadedSession, summarise
from tests.seeds.virtual_session import simulate_journal

LEVELS = (1, 2, 4, 8, 16, 32, 64)
SWEEP = (1, 2, 4, 8)
LONG_SEEDS = (1, 2)
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

# The version before, commit de0e7ee, with the same workloads: 24 seeds, steady of 8-32 tokens up to C=8 of 200.
BEFORE: dict[str, dict[int, Measured]] = {
    "cv0.5": {
        1: Measured(8.4, -0.0001, 0.0012, 0.0, -0.0039, -0.0045),
        2: Measured(10.8, -0.0012, 0.0024, -0.0003, 0.0036, 0.0000),
        4: Measured(15.8, -0.0009, 0.0019, -0.0002, 0.0012, -0.0019),
        8: Measured(26.1, -0.0004, 0.0018, -0.0001, 0.0018, -0.0012),
        16: Measured(48.2, 0.0003, 0.0012, 0.0002, 0.0002, -0.0001),
        32: Measured(94.8, 0.0001, 0.0008, -0.0001, 0.0003, 0.0006),
        64: Measured(192.0, 0.0002, 0.0007, 0.0, 0.0002, 0.0017),
    },
    "cv1.0": {
        1: Measured(10.4, -0.0007, 0.0021, 0.0, -0.0039, -0.0045),
        2: Measured(13.6, -0.0024, 0.0040, -0.0006, 0.0032, 0.0000),
        4: Measured(20.8, -0.0013, 0.0028, -0.0005, -0.0013, -0.0029),
        8: Measured(39.0, -0.0009, 0.0023, -0.0004, -0.0055, -0.0015),
        16: Measured(75.5, 0.0, 0.0016, 0.0, 0.0007, -0.0002),
        32: Measured(160.4, -0.0004, 0.0011, -0.0003, 0.0005, 0.0002),
        64: Measured(382.5, -0.0003, 0.0009, -0.0002, 0.0004, 0.0005),
    },
    "cv1.5": {
        1: Measured(12.9, -0.0012, 0.0029, 0.0, -0.0039, -0.0045),
        2: Measured(17.8, -0.0033, 0.0050, -0.0008, 0.0040, 0.0000),
        4: Measured(28.4, -0.0020, 0.0035, -0.0008, 0.0017, -0.0025),
        8: Measured(60.3, -0.0016, 0.0031, -0.0007, 0.0004, -0.0013),
        16: Measured(117.9, -0.0007, 0.0018, -0.0003, -0.0014, -0.0003),
        32: Measured(272.0, -0.0014, 0.0018, -0.0007, 0.0003, 0.0),
        64: Measured(725.6, -0.0014, 0.0017, -0.0006, 0.0012, 0.0004),
    },
    "fixed 1k/256": {
        1: Measured(8.5, 0.0, 0.0000, 0.0, 0.0000, 0.0000),
        2: Measured(11.2, -0.0002, 0.0002, 0.0429, 0.4622, 0.4622),
        4: Measured(17.0, -0.0330, 0.0330, 0.0458, 0.7872, 0.8959),
        8: Measured(28.5, -0.0486, 0.0486, 0.0613, 1.7072, 1.6768),
        16: Measured(51.5, -0.0678, 0.0678, 0.0535, 2.3047, 2.2507),
        32: Measured(98.1, -0.0758, 0.0758, 0.0326, 2.2471, 1.8425),
        64: Measured(192.1, -0.0741, 0.0741, 0.0163, 1.5644, 2.0696),
    },
    "fixed 8k/128": {
        1: Measured(10.7, 0.0, 0.0000, 0.0000, 0.0, 0.0),
        2: Measured(19.9, -0.1059, 0.1059, -0.0002, -0.0003, -0.0003),
        4: Measured(38.0, -0.1385, 0.1385, 0.0672, 0.2388, 0.2401),
        8: Measured(74.8, -0.1459, 0.1459, 0.0461, 0.3492, 0.4623),
        16: Measured(148.6, -0.1062, 0.1062, 0.0000, 0.0, 0.0000),
        32: Measured(297.4, -0.0025, 0.0025, 0.0002, 0.0177, 0.0000),
        64: Measured(550.8, 0.0004, 0.0004, 0.0001, -0.0004, 0.0000),
    },
    "8-32 tokens": {
        1: Measured(0.6, -0.0025, 0.0181, 0.0, -0.0039, -0.0045),
        2: Measured(0.8, -0.0062, 0.0234, -0.0036, -0.0068, -0.0002),
        4: Measured(1.1, -0.0064, 0.0190, -0.0015, 0.0070, 0.0306),
        8: Measured(1.9, -0.0037, 0.0157, -0.0008, 0.0009, -0.0060),
        16: Measured(3.6, 0.0038, 0.0146, 0.0023, -0.0011, -0.0030),
        32: Measured(7.0, 0.0023, 0.0101, -0.0016, 0.0012, 0.0063),
        64: Measured(14.0, 0.0051, 0.0084, -0.0010, 0.0004, -0.0029),
    },
    "errors, EOS": {
        1: Measured(7.9, -0.0020, 0.0076, 0.0, -0.0139, -0.0090),
        2: Measured(9.9, -0.0012, 0.0034, -0.0002, 0.0026, 0.0015),
        4: Measured(14.5, -0.0002, 0.0021, -0.0002, -0.0017, 0.0030),
        8: Measured(23.3, 0.0005, 0.0017, 0.0, 0.0026, 0.0018),
        16: Measured(44.4, -0.0004, 0.0011, 0.0004, 0.0277, -0.0001),
        32: Measured(88.4, -0.0017, 0.0019, 0.0001, 0.0463, 0.0008),
        64: Measured(179.1, -0.0023, 0.0024, 0.0002, 0.0567, 0.0011),
    },
}


def figures(level: Level) -> tuple[float, ...]:
    found = (level.out_tps_steady, level.per_stream_tps.mean, level.ttft_s.mean, level.ttft_s.median)
    return tuple(value or 0.0 for value in found)


def simulate(
    c: int, seed: int, requests: str | int | None = None, shape: Shape = SHAPES["cv0.5"], **load: Any
) -> tuple[Level, float]:
    """Return a level, and the seconds that its stage took."""
    (found,) = simulate_sweep((c,), seed, requests, shape, **load)
    return found


def simulate_sweep(
    levels: tuple[int, ...], seed: int, requests: str | int | None, shape: Shape, **load: Any
) -> list[tuple[Level, float]]:
    """Return the levels of a sweep, and the seconds that each stage took."""
    journal = simulate_journal(
        shape.simulator, shape.workload, seed=seed, levels=levels, requests=requests, warmup=1, **shape.given, **load
    )
    found = summarise(LoadedSession(directory=Path("virtual"), journal=journal)).levels
    ends = {end.number: end.t_ns for end in journal.ends}
    seconds = {stage.c: (ends[stage.number] - stage.t_ns) / 1e9 for stage in journal.stages if stage.phase == "level"}
    return [(level, seconds[level.c]) for level in found]


def simulate_level(
    c: int, seed: int, requests: str | int | None = None, shape: Shape = SHAPES["cv0.5"]
) -> tuple[float, ...]:
    return figures(simulate(c, seed, requests, shape)[0])


def long_run(c: int, requests: int = 2000, shape: Shape = SHAPES["cv0.5"]) -> tuple[float, ...]:
    """Return the mean of two long levels, which hardly differ."""
    return mean_figures([simulate(c, seed, max(requests, 40 * c), shape) for seed in (1, 2)])


def mean_figures(found: Sequence[tuple[Level, float]]) -> tuple[float, ...]:
    return tuple(map(statistics.fmean, zip(*(figures(level) for level, _ in found), strict=True)))


class Job(NamedTuple):
    """Levels to simulate, one after the other; long ones are the truth."""

    workload: str
    levels: tuple[int, ...]
    seed: int
    requests: str | int | None
    precision: str

    def run(self) -> list[tuple[Level, float]]:
        load = {"precision": self.precision} if self.precision else {}
        return simulate_sweep(self.levels, self.seed, self.requests, SHAPES[self.workload], **load)


def simulate_all(
    names: Sequence[str], levels: Sequence[int], given: argparse.Namespace
) -> dict[Job, list[tuple[Level, float]]]:
    """Simulate the levels, the longest first."""
    jobs = [
        Job(name, (c,), seed, max(given.long, 40 * c), "") for name in names for c in levels for seed in LONG_SEEDS
    ] + [
        Job(name, tuple(levels), 1000 + seed, given.requests, given.precision)
        for name in names
        for seed in range(given.seeds)
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        return dict(zip(jobs, pool.map(Job.run, jobs), strict=True))


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
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    names, counts = given.workloads.split(";"), [int(c) for c in given.levels.split(",")]
    simulated = simulate_all(names, counts, given)
    head = f"{'load s':>7} {'steady bias / RMSE':>17} {'stream':>8} {'TTFT':>8} {'median':>8}"
    print(f"{'':<16} {'before':^51} {'now':^51}\n{'workload':<13}{'C':>3} {head} {head} {'± mean':>7} covers  flags")
    sums: dict[str, tuple[list[Measured], list[Measured]]] = {}
    for name in names:
        for c in counts:
            of = [(job, one) for job, found in simulated.items() if job.workload == name for one in found]
            truth = mean_figures([one for job, one in of if job.seed in LONG_SEEDS and one[0].c == c])
            found = [one for job, one in of if job.seed not in LONG_SEEDS and one[0].c == c]
            levels, now, before = [level for level, _ in found], measure(found, truth), BEFORE.get(name, {}).get(c)
            half_widths = [
                (one.out_tps_steady_hw, (one.out_tps_steady or 0.0) - truth[0])
                for one in levels
                if one.out_tps_steady_hw is not None
            ] or [(0.0, 0.0)]
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
    print(f"{'workload':<13} {'before s':>9} {'now s':>7} {'share':>6} {'RMSE before':>12} {'now':>7} ± standard error")
    for name, sides in sums.items():
        (was_s, is_s), (was, now_rmse) = (
            [sum(one.load_s for one in side) for side in sides],
            [max(one.steady_rmse for one in side) for side in sides],
        )
        error = now_rmse / (2 * given.seeds) ** 0.5
        print(f"{name:<13} {was_s:>9.1f} {is_s:>7.1f} {is_s / was_s:>6.0%} {was:>12.2%} {now_rmse:>7.2%} ± {error:.2%}")


if __name__ == "__main__":
    main()
