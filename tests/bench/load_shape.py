"""Compare closed levels of the default size with long ones, in virtual time: `python -m tests.bench.load_shape`.

For each workload and C: the seconds of load, bias / root mean square error of steady, stream and TTFT over many seeds,
each a sweep over all C, before (commit de0e7ee: 4C requests, all of them answered) and now; the half-width of the
steady rate, how often it covers the truth, and which goal is missed. Then seconds and error of the levels 1, 2, 4
and 8, with the standard error of the error.

A whole table takes about a quarter of an hour of one core. `--store FILE` keeps what was simulated, so that it can be
interrupted and continued with the same code. `--seeds`, `--workloads` and `--levels` choose less; `--requests` and
`--precision` another length of the levels, `--long` that of the truth, `--jobs` the processes.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from swarmtui.model.session import Level
from swarmtui.sessions.store import LoadedSession, summarise
from tests.seeds.virtual_session import simulate_journal

LEVELS = (1, 2, 4, 8, 16, 32, 64)
SWEEP = (1, 2, 4, 8)
LONG_SEEDS = (1, 2)
FIGURES = ("steady", "stream", "TTFT mean", "TTFT median")

# Goals: the bias of short answers at C=64, of TTFT with equal lengths, and of everything else.
SHORT_BIAS, FIXED_TTFT_BIAS, BIAS = 0.025, 0.05, 0.015
COVERAGE = 0.90, 0.98
# A half-width of no more than this share is small enough whatever it covers: few figures are printed to more digits.
SMALL = 0.005
# Seconds of load against the version before, and the error of steady that is always allowed.
SECONDS, RMSE = 0.6, 0.015


class Shape(NamedTuple):
    """A workload on the simulator: lengths of answers and prompts decide how streams fall into step."""

    simulator: str
    workload: str
    given: dict[str, Any]
    # Seeds for each one that was asked for: equal answers hardly differ, and few short ones differ much.
    seeds: float = 1.0


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
    "fixed 1k/256": Shape("moe-tp1?slots=64", "random-1k-1k", {"max_tokens": 256}, 0.3),
    "fixed 8k/128": Shape("moe-tp1?slots=64", "long-prefill", {}, 0.3),
    "8-32 tokens": Shape("moe-tp1?slots=64&output.median=16&output.cv=0.4", "chat", {}, 5.0),
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


def long_run(c: int, requests: int = 2000, shape: Shape = SHAPES["cv0.5"], each: int = 40) -> tuple[float, ...]:
    """Return the mean of two long levels, which hardly differ; each agent has at least so many requests."""
    return mean_figures([figures(simulate(c, seed, max(requests, each * c), shape)[0]) for seed in (1, 2)])


def mean_figures(found: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(statistics.fmean, zip(*found, strict=True)))


class Job(NamedTuple):
    """Levels to simulate, one after the other; long ones are the truth."""

    workload: str
    levels: tuple[int, ...]
    seed: int
    requests: str | int | None
    precision: str

    def run(self) -> list[Found]:
        load = {"precision": self.precision} if self.precision else {}
        return [
            Found(
                level.c,
                seconds,
                figures(level),
                level.out_tps_steady_hw,
                any(flag.code == "synchronised" for flag in level.flags),
            )
            for level, seconds in simulate_sweep(self.levels, self.seed, self.requests, SHAPES[self.workload], **load)
        ]


class Found(NamedTuple):
    """Figures of one simulated level."""

    c: int
    load_s: float
    figures: tuple[float, ...]
    half_width: float | None
    synchronised: bool


class Kept(NamedTuple):
    """A line of a store."""

    job: Job
    found: list[Found]


class Store:
    """Keeps what jobs found in a file, one line each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if path and path.exists() else []
        self._known = dict(msgspec.json.decode(line, type=Kept) for line in lines)

    def run(self, pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Found]]]:
        missing = [job for job in jobs if job not in self._known]
        for job, found in zip(missing, pool.map(Job.run, missing), strict=True):
            self._known[job] = found
            if self._path:
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(Kept(job, found)) + b"\n")
        for job in jobs:
            yield job, self._known[job]


class Cell(NamedTuple):
    """A workload at one C: now, and before if that is known."""

    c: int
    before: Measured | None
    now: Measured
    stream_rmse: float
    ttft_rmse: float
    half_width: float | None
    covers: float | None
    synchronised: float

    @property
    def row(self) -> str:
        now, before = self.now, f"{'–':>6} {'–':>17} {'–':>8} {'–':>8}"
        if self.before is not None:
            one = self.before
            steady = both(one.steady_bias, one.steady_rmse)
            before = f"{one.load_s:>6.1f} {steady} {one.stream_bias:>+8.2%} {one.ttft_bias:>+8.2%}"
        width = f"{'–':>7} {'–':>6}" if self.half_width is None else f"{self.half_width:>7.2%} {self.covers:>6.0%}"
        return (
            f"{self.c:>3} {before}  {now.load_s:>6.1f} {both(now.steady_bias, now.steady_rmse)} "
            f"{both(now.stream_bias, self.stream_rmse)} {both(now.ttft_bias, self.ttft_rmse)} "
            f"{now.ttft_median_bias:>+8.2%} {width}"
        )

    def remarks(self, workload: str) -> Iterator[str]:
        """Say which goals are missed, and why one does not apply."""
        fixed, short = workload.startswith("fixed"), workload == "8-32 tokens" and self.c == 64
        limit = SHORT_BIAS if short else BIAS
        yield from (
            f"{name} bias"
            for name, bias in (("steady", self.now.steady_bias), ("stream", self.now.stream_bias))
            if abs(bias) > limit
        )
        if abs(self.now.ttft_bias) > (FIXED_TTFT_BIAS if fixed else limit) and not (fixed and self.synchronised > 0.5):
            yield "TTFT bias"
        if self.synchronised:
            yield f"synchronised {self.synchronised:.0%}"
        if self.covers is not None and self.half_width is not None:
            if self.covers < COVERAGE[0]:
                yield "covers too little"
            elif self.covers > COVERAGE[1]:
                yield "small" if self.half_width <= SMALL else "covers too much"


def both(bias: float, rmse: float) -> str:
    return f"{bias:>+8.2%} /{rmse:>7.2%}"


def rmse(errors: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(error * error for error in errors))


def measure(c: int, before: Measured | None, found: Sequence[Found], truth: tuple[float, ...]) -> Cell:
    errors = [[value / true - 1 for value, true in zip(one.figures, truth, strict=True)] for one in found]
    steady, stream, ttft, median = zip(*errors, strict=True)
    widths = [(one.half_width, one.figures[0] - truth[0]) for one in found if one.half_width is not None]
    return Cell(
        c=c,
        before=before,
        now=Measured(
            statistics.fmean(one.load_s for one in found),
            statistics.fmean(steady),
            rmse(steady),
            *map(statistics.fmean, (stream, ttft, median)),
        ),
        stream_rmse=rmse(stream),
        ttft_rmse=rmse(ttft),
        half_width=statistics.fmean(half for half, _ in widths) / truth[0] if widths else None,
        covers=statistics.fmean(abs(off) <= half for half, off in widths) if widths else None,
        synchronised=statistics.fmean(one.synchronised for one in found),
    )


def print_workload(
    name: str, levels: Sequence[int], given: argparse.Namespace, store: Store, pool: ProcessPoolExecutor
) -> list[Cell]:
    """Simulate a workload, long levels first, and print a row for each C."""
    seeds = max(1, round(given.seeds * SHAPES[name].seeds))
    requests = round(given.long * max(1.0, SHAPES[name].seeds))
    long = [Job(name, (c,), seed, max(requests, 40 * c), "") for c in levels for seed in LONG_SEEDS]
    sweeps = [Job(name, tuple(levels), 1000 + seed, given.requests, given.precision) for seed in range(seeds)]
    truths = {c: mean_figures([one.figures for one in found]) for c, found in by_level(store.run(pool, long))}
    cells = [
        measure(c, BEFORE.get(name, {}).get(c), found, truths[c]) for c, found in by_level(store.run(pool, sweeps))
    ]
    for cell in cells:
        print(f"{name:<13}{cell.row}  {', '.join(cell.remarks(name))}", flush=True)
    return cells


def by_level(found: Iterator[tuple[Job, list[Found]]]) -> list[tuple[int, list[Found]]]:
    levels: dict[int, list[Found]] = {}
    for _, several in found:
        for one in several:
            levels.setdefault(one.c, []).append(one)
    return sorted(levels.items())


def print_sweep(name: str, cells: Sequence[Cell], seeds: int) -> None:
    """Print seconds and error of the levels 1, 2, 4 and 8, before and now."""
    pairs = [(cell.before, cell.now) for cell in cells if cell.c in SWEEP and cell.before is not None]
    if not pairs:
        return
    was_s, is_s = (sum(one.load_s for one in side if one) for side in zip(*pairs, strict=True))
    was, now = (max(one.steady_rmse for one in side if one) for side in zip(*pairs, strict=True))
    missed = [
        *(["seconds"] if is_s > SECONDS * was_s else []),
        *(["RMSE"] if now > max(was, RMSE) else []),
    ]
    error = f"{now:>7.2%} ± {now / (2 * seeds) ** 0.5:.2%}"
    print(f"{name:<13} {was_s:>9.1f} {is_s:>7.1f} {is_s / was_s:>6.0%} {was:>12.2%} {error}  {', '.join(missed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="sweeps; fewer of equal answers, more of short ones")
    parser.add_argument("--workloads", default=";".join(SHAPES), help="names, separated by ;")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--long", type=int, default=600, help="requests of the levels that are taken for the truth")
    parser.add_argument("--requests")
    parser.add_argument("--precision", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    names, counts = given.workloads.split(";"), [int(c) for c in given.levels.split(",")]
    store, steady = Store(given.store), f"{'steady':>17}"
    print(f"{'':<16} {'before':^42}  now, bias / RMSE")
    print(
        f"{'workload':<13}{'C':>3} {'load s':>6} {steady} {'stream':>8} {'TTFT':>8}  {'load s':>6} {steady} "
        f"{'stream':>17} {'TTFT':>17} {'median':>8} {'± mean':>7} covers  missed goals, remarks",
        flush=True,
    )
    with ProcessPoolExecutor(given.jobs) as pool:
        cells = {name: print_workload(name, counts, given, store, pool) for name in names}
    print(f"small: a half-width of at most {SMALL:.1%} may cover more than {COVERAGE[1]:.0%}")
    print("\nlevels 1, 2, 4, 8")
    print(f"{'workload':<13} {'before s':>9} {'now s':>7} {'share':>6} {'RMSE before':>12} {'now':>7} ± standard error")
    for name, found in cells.items():
        print_sweep(name, found, max(1, round(given.seeds * SHAPES[name].seeds)))


if __name__ == "__main__":
    main()
