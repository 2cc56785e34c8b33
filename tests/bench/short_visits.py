"""Do the short visits of a search find what long levels find, in virtual time?

python -m tests.bench.short_visits levels [--slots N] [--seeds N]
    visits of a few requests against a long level, for each workload and C: the share of first tokens within the p90 of
    the long level, and their mean, with standard errors
python -m tests.bench.short_visits quick [--seeds A-B] [SIMULATOR]
    how often `swarmtui quick` answers how many agents
python -m tests.bench.short_visits ranges [--seeds A-B]
    servers with a queue, with and without visits that differ: how often the range of `swarmtui quick` contains the
    truth, which is the most agents that keep the SLO in many long levels, and the answer of the next search
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from swarmtui.analysis.limits.slo import DEFAULT_SLO, SloTally, parse_slo
from swarmtui.client.plan_builder import QUICK_MAX_TOKENS
from swarmtui.model.findings import Capacity
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


# Servers with a queue: answers of equal and of different length, many and few agents for each slot.
QUEUES = {
    "equal answers": "moe-tp1?step_ms.a=3&step_ms.c=0.05&prefill_tps=20000&output.cv=0.2",
    "answers of CV 1": "moe-tp1?step_ms.a=3&step_ms.c=0.05&prefill_tps=20000&output.median=60&output.cv=1.0",
    "long answers": "moe-tp1",
    "16 slots": "moe-tp1?slots=16&step_ms.c=0.4&prefill_tps=20000&output.median=60&output.cv=1.0",
}
# By how much the step time of visits differs, as a share.
DIFFER = (0.0, 0.1)
# Levels of so many requests, with so many seeds, find the truth.
TRUTH_REQUESTS, TRUTH_SEEDS = 150, range(5000, 5020)


def keeps(simulator: str, c: int) -> bool:
    slo, tallies = parse_slo(DEFAULT_SLO), list[SloTally]()
    for seed in TRUTH_SEEDS:
        journal = simulate_journal(
            simulator, "coding", seed=seed, levels=(c,), requests=TRUTH_REQUESTS, max_tokens=QUICK_MAX_TOKENS
        )
        tallies.append(SloTally(slo, [record for record in journal.records if record.c == c]))
    counts = [[tally.counts[number] for tally in tallies] for number in range(len(slo.conditions))]
    return all(
        sum(good for good, _ in of) >= condition.share * sum(n for _, n in of)
        for of, condition in zip(counts, slo.conditions, strict=True)
    )


def truth_near(simulator: str, c: int) -> int:
    """Return the most agents that keep the SLO, looked for around C."""
    while c and not keeps(simulator, c):
        c -= 1
    while keeps(simulator, c + 1):
        c += 1
    return c


def _range_row(seeds: range, server: tuple[str, float]) -> str:
    name, differ = server
    simulator = f"{QUEUES[name]}{'&' if '?' in QUEUES[name] else '?'}noise.run_cv={differ}"
    found = [_search(simulator, seed) for seed in seeds]
    truth = truth_near(simulator, round(statistics.fmean(one.agents for one in found)))
    holds = [_holds(one, truth) for one in found]
    repeats = [_holds(one, other.agents) for one, other in pairwise(found)]
    width = statistics.fmean((one.high or math.inf) - one.low for one in found)
    answers = [one.agents for one in found]
    return (
        f"{name:<16} {differ:>6.0%} {truth:>6} {statistics.fmean(answers):>7.1f} ± {statistics.stdev(answers):<4.1f} "
        f"{statistics.fmean(holds):>6.0%} {statistics.fmean(repeats):>7.0%} {width:>6.1f} "
        f"{statistics.fmean(one.low > truth for one in found):>9.0%} "
        f"{statistics.fmean(one.high is not None and one.high < truth for one in found):>9.0%}"
    )


def _holds(found: Capacity, agents: int) -> bool:
    return found.low <= agents <= (math.inf if found.high is None else found.high)


def _search(simulator: str, seed: int) -> Capacity:
    return simulate_quick(simulator, seed=seed)


def print_ranges(seeds: range, pool: ProcessPoolExecutor) -> None:
    print(f"{len(seeds)} searches each; in percent, the ranges that hold the truth, and the answer of the next search")
    print(f"{'server':<16} {'differ':>6} {'truth':>6} {'answers':>14} {'truth':>6} {'repeat':>7} {'width':>6} "
          f"{'too high':>9} {'too low':>9}")  # fmt: skip
    for row in pool.map(partial(_range_row, seeds), [(name, differ) for name in QUEUES for differ in DIFFER]):
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("levels", "quick", "ranges"))
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
        elif given.what == "ranges":
            print_ranges(seeds, pool)
        else:
            print_quick(given.simulator, seeds, pool)


if __name__ == "__main__":
    main()
