"""How often comparisons, tunes and probes claim what is not there, and find what is: `python -m tests.bench.verdicts`.

Everything is drawn from lognormal distributions with fixed seeds; `--trials N` sets the number of draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import exp, log
from random import Random

from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.compare.probe_history import ProbeResult, probe_history
from swarmtui.analysis.compare.sequential import CHECKPOINTS, Decision, evaluate
from swarmtui.analysis.compare.sessions import Pair, compare_pair
from swarmtui.experiments.ab import interleaved_sides
from swarmtui.experiments.effects import summarise_tune
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import Summary
from swarmtui.model.tuning import Start, TuneFile
from tests.analysis.level_builders import level, summary

CLAIMS = ("faster", "slower")
LEVELS = (1, 2, 4, 8)
WEEK = 7 * 24


def session(
    random: Random, name: str, cv: float, *, change: float = 0.0, runs: int = 4, shared: float = 0.0, seed: int = 0
) -> Summary:
    """Draw a session with four levels; `shared` is the spread between sessions, which all its runs have in common."""
    levels = []
    luck = random.gauss(0, shared)
    for c in LEVELS:
        rates = [100.0 * c * (1 + change) * exp(luck + random.gauss(0, cv)) for _ in range(runs)]
        levels.append(level(c, tps=runs / sum(1 / rate for rate in rates), runs=rates))
    return summary(levels, name, plan=Plan(load=Closed(runs=runs), seed=seed))


class Count:
    """Counts claims over trials: any claim, claims at every level, and claims whose printed interval holds 0."""

    def __init__(self) -> None:
        self.trials = self.any = self.all = self.contradictory = 0

    def add(self, pair: Pair) -> None:
        found = [row.verdict for row in pair.rows if row.verdict]
        claims = [one for one in found if one.word in CLAIMS]
        self.trials += 1
        self.any += bool(claims)
        self.all += len(claims) == len(found)
        self.contradictory += any(one.interval is None or one.interval.low <= 0 <= one.interval.high for one in claims)

    def show(self, name: str, demand: str) -> None:
        any_claim, at_all = 100 * self.any / self.trials, 100 * self.all / self.trials
        print(f"{name:<62}{any_claim:>9.1f} %{at_all:>10.1f} %{self.contradictory:>8}   {demand}")


def comparisons(trials: int) -> Iterator[tuple[str, Count, str]]:
    for cv in (0.01, 0.03):
        for same_seed in (False, True):
            random, count = Random(1), Count()
            for _ in range(trials):
                b = session(random, "b", cv, seed=0 if same_seed else 1)
                count.add(compare_pair(session(random, "a", cv), b))
            yield f"equal sessions, CV {cv:.0%}{', same seed' if same_seed else ''}", count, "any ≤ 5 %"
    random, count = Random(2), Count()
    for _ in range(trials):
        count.add(compare_pair(session(random, "a", 0.01), session(random, "b", 0.01, change=0.05, seed=1)))
    yield "+5 % at CV 1 %", count, "any ≥ 95 %"
    for known in (0, 4, 8):
        random, count = Random(3), Count()
        for _ in range(trials):
            history = [session(random, f"0{k}", 0.01, shared=0.01) for k in range(known)]
            a, b = session(random, "a", 0.01, shared=0.01), session(random, "b", 0.01, shared=0.01, seed=1)
            count.add(compare_pair(a, b, history=history))
        demand = "any ≤ 5 %" if known else "these sessions do differ"
        yield f"session spread = run spread = 1 %, {known} earlier sessions", count, demand
    random, count = Random(4), Count()
    for _ in range(trials // 4):
        sides = [pool([session(random, f"{k}", 0.01, runs=1, shared=0.01) for k in range(4)]) for _ in "ab"]
        count.add(compare_pair(*sides))
    yield "equal, 4 v 4 sessions of one run pooled, spread 1 %", count, "any ≤ 5 %"


def ab_test(random: Random, change: float, cv: float) -> Decision:
    values: dict[str, list[float]] = {"A": [], "B": []}
    for side in interleaved_sides(2 * CHECKPOINTS[-1], random.randrange(1000)):
        values[side].append(100 * exp(random.gauss(0, cv)) * (1 + (change if side == "B" else 0)))
        n = len(values["A"])
        if n == len(values["B"]) and n in CHECKPOINTS:
            found = evaluate(values["A"], values["B"], max_runs=16)
            if found.done:
                return found
    raise AssertionError("the last checkpoint is always done")


def print_ab(trials: int) -> None:
    for change, cv, demand in ((0.0, 0.01, "≤ 5 %"), (0.0, 0.03, "≤ 5 %"), (0.05, 0.01, "≥ 95 %")):
        random = Random(5)
        found = [ab_test(random, change, cv) for _ in range(trials)]
        claims = [one for one in found if one.word in CLAIMS]
        wrong = sum(one.interval is None or one.interval.low <= 0 <= one.interval.high for one in claims)
        share = 100 * len(claims) / trials
        print(f"{f'ab: {change:+.0%} at CV {cv:.0%}':<62}{share:>9.1f} %{'':>12}{wrong:>8}   claims {demand}")


def print_tune(trials: int) -> None:
    """Screen equal configurations with a start each, restart the best three, and count who is called behind."""
    for cells in (8, 30):
        for spread in (0.0, 0.005, 0.01):
            random, behind = Random(6), 0
            file = TuneFile(command="x {port}", grid={"--n": tuple(range(cells))})
            for _ in range(trials):
                screens = [one_start(random, n, 0, spread) for n in range(cells)]
                best = sorted(screens, key=lambda start: -(start.out_tps or 0.0))[:3]
                restarts = [one_start(random, int(start.flags["--n"]), k, spread) for start in best for k in (1, 2, 3)]
                behind += "behind" in summarise_tune(file, [*screens, *restarts]).standings
            name = f"tune: {cells} equal configurations, run CV 1 %, start CV {spread:.1%}"
            print(f"{name:<62}{100 * behind / trials:>9.1f} %{'':>20}   one behind ≤ 5 %")


def one_start(random: Random, n: int, number: int, spread: float) -> Start:
    runs = [100 * exp(random.gauss(0, 0.01)) for _ in range(4)]
    return Start(flags={"--n": n}, round=number, out_tps=exp(random.gauss(0, spread)) * sum(runs) / len(runs))


def probes(random: Random, n: int, log_rate: float = 0.0, slope: float = 0.0, first: int = 0) -> list[ProbeResult]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        ProbeResult(
            id=str(first + k),
            created=(start + timedelta(hours=first + k)).isoformat(),
            runs=(100 * exp(log_rate + random.gauss(0, 0.01)) * (1 + slope * k),),
        )
        for k in range(n)
    ]


def flags(found: list[ProbeResult]) -> list[bool]:
    return [state is not None and state.drifted for state in probe_history(found).drift]


def print_probes(trials: int) -> None:
    for week in (1, 2, 5):
        random = Random(7)
        flagged = sum(sum(flags(probes(random, week * WEEK))[-WEEK:]) for _ in range(trials))
        print(f"{f'probe: flags in stationary week {week}, hourly':<62}{flagged / trials:>9.2f}{'':>22}   ≤ 0.6")
    for weeks in (1, 4):
        random, delays = Random(8), []
        for _ in range(trials):
            calm = probes(random, weeks * WEEK)
            found = flags([*calm, *probes(random, 12, log(0.97), first=len(calm))])[-12:]
            delays.append(found.index(True) + 1 if True in found else 99)
        by = ", ".join(f"{k}: {100 * sum(delay <= k for delay in delays) / trials:.0f} %" for k in (2, 3, 4, 5, 6))
        print(f"{f'probe: −3 % step after {weeks} weeks, flagged by probe':<62} {by}   by 3 ≥ 95 %")
    random = Random(9)
    ended = sum(flags(probes(random, WEEK, slope=-0.1 / WEEK))[-1] for _ in range(trials))
    print(f"{'probe: slow −10 % over a week, flagged at its end':<62}{100 * ended / trials:>9.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    print(f"{'4 levels × 4 runs':<62}{'any claim':>11}{'all levels':>12}{'holds 0':>8}   demand")
    for name, count, demand in comparisons(trials):
        count.show(name, demand)
    print_ab(trials)
    print_tune(trials)
    print_probes(max(1, trials // 10))


if __name__ == "__main__":
    main()
