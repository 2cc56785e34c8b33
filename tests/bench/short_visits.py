"""Do the short visits of a search find what long levels find, in virtual time?

python -m tests.bench.short_visits levels [--slots N] [--seeds N]
    visits of a few requests against a long level, for each workload and C: the share of first tokens within the p90 of
    the long level, and their mean, with standard errors
python -m tests.bench.short_visits quick [--seeds A-B] [SIMULATOR]
    how often `swarmtui quick` answers how many agents
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from swarmtui.client.plan_builder import QUICK_MAX_TOKENS
from swarmtui.model.record import Record
from tests.seeds.virtual_session import simulate_journal, simulate_quick

# Requests of a visit that shows at 20 % that nine of ten are in time, and those of a long level.
VISIT, LONG = 16, 800
LONG_SEEDS = range(1, 3)


class Shape(NamedTuple):
    """A workload on the simulator."""

    simulator: str
    workload: str
    given: dict[str, Any]


SHAPES = {
    "coding, 128 tokens": Shape("moe-tp1?slots={slots}", "coding", {"max_tokens": QUICK_MAX_TOKENS}),
    "chat, 128 tokens": Shape("moe-tp1?slots={slots}", "chat", {"max_tokens": QUICK_MAX_TOKENS}),
    "CV 0.2": Shape("moe-tp1?slots={slots}&output.median=120&output.cv=0.2", "chat", {}),
    "CV 0.5": Shape("moe-tp1?slots={slots}&output.median=120&output.cv=0.5", "chat", {}),
    "CV 1.0": Shape("moe-tp1?slots={slots}&output.median=120&output.cv=1.0", "chat", {}),
    "8-32 tokens": Shape("moe-tp1?slots={slots}&output.median=16&output.cv=0.4", "chat", {}),
}


class Waits(NamedTuple):
    """Times to first token of one level, and the waiting times of requests that have none yet."""

    first_s: tuple[float, ...]
    unfinished_s: tuple[float, ...]

    def share_within(self, limit_s: float) -> float:
        """Return the share in time; a request without a token counts once it has waited longer."""
        good = sum(value <= limit_s for value in self.first_s)
        return good / (len(self.first_s) + sum(value > limit_s for value in self.unfinished_s))


def waits(records: Sequence[Record], c: int) -> Waits:
    of_level = [record for record in records if record.c == c and record.phase in ("level", "unfinished")]
    first: list[float] = []
    unfinished: list[float] = []
    for record in of_level:
        until = record.t_done_ns if record.t_first_ns is None else record.t_first_ns
        assert record.t_sent_ns is not None and until is not None
        (unfinished if record.t_first_ns is None else first).append((until - record.t_sent_ns) / 1e9)
    return Waits(tuple(first), tuple(unfinished))


def visit(shape: Shape, slots: int, c: int, requests: int, seed: int) -> Waits:
    """Simulate a level after two small ones: a search knows the lengths of answers by then."""
    spec = shape.simulator.format(slots=slots)
    levels = tuple(sorted({1, 2, c}))
    journal = simulate_journal(spec, shape.workload, seed=seed, levels=levels, requests=requests, **shape.given)
    return waits(journal.records, c)


def one_cell(name: str, slots: int, c: int, seeds: int) -> str:
    shape = SHAPES[name]
    long = [visit(shape, slots, c, LONG, seed) for seed in LONG_SEEDS]
    limit_s = statistics.quantiles([value for one in long for value in one.first_s], n=10)[-1]
    mean_s = statistics.fmean(value for one in long for value in one.first_s)
    share = statistics.fmean(one.share_within(limit_s) for one in long)
    short = [visit(shape, slots, c, max(VISIT, c // 2) + c, 1000 + seed) for seed in range(seeds)]
    shares = [one.share_within(limit_s) for one in short]
    means = [statistics.fmean(one.first_s) / mean_s - 1 for one in short]
    return (
        f"{name:<20} {c:>3} {mean_s:>7.2f} {limit_s:>7.2f} {100 * share:>7.1f} {100 * statistics.fmean(shares):>7.1f} "
        f"{100 * (statistics.fmean(shares) - share):>+7.1f} ± {100 * error(shares):.1f} "
        f"{statistics.fmean(means):>+8.1%} ± {error(means):.1%}"
    )


def error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def print_levels(slots: int, seeds: int, names: Sequence[str], pool: ProcessPoolExecutor) -> None:
    levels = sorted({slots, slots + 1, slots * 3 // 2, 2 * slots})
    print(f"{slots} slots; limit: p90 of long levels; points and mean: {seeds} visits against them, ± standard error")
    print(
        f"{'workload':<20} {'C':>3} {'mean s':>7} {'limit s':>7} {'long %':>7} {'visit %':>7} {'points':>7}  mean TTFT"
    )
    cells = [(name, c) for name in names for c in levels]
    for row in pool.map(partial(_cell, slots, seeds), cells):
        print(row, flush=True)


def _cell(slots: int, seeds: int, cell: tuple[str, int]) -> str:
    return one_cell(cell[0], slots, cell[1], seeds)


def print_quick(simulator: str, seeds: range, pool: ProcessPoolExecutor) -> None:
    found = Counter(pool.map(partial(_quick, simulator), seeds))
    print(f"{simulator}: {len(seeds)} searches")
    for agents, times in sorted(found.items()):
        print(f"{agents:>5} agents: {times}")


def _quick(simulator: str, seed: int) -> int:
    return simulate_quick(simulator, seed=seed).agents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("levels", "quick"))
    parser.add_argument("simulator", nargs="?", default="moe-tp1")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seeds", default="0-39", help="a number of seeds, or the first and the last")
    parser.add_argument("--workloads", default=";".join(SHAPES), help="names, separated by ;")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    first, _, last = given.seeds.rpartition("-")
    seeds = range(int(first), int(last) + 1) if first else range(int(last))
    with ProcessPoolExecutor(given.jobs) as pool:
        if given.what == "levels":
            print_levels(given.slots, len(seeds), given.workloads.split(";"), pool)
        else:
            print_quick(given.simulator, seeds, pool)


if __name__ == "__main__":
    main()
