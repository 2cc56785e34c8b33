"""How often comparisons, tunes and probes claim what is not there, and find what is: `python -m tests.bench.verdicts`.

Everything is drawn with fixed seeds: normal deviations, the tails of Student's t with 3 degrees of freedom, 2 %
outliers of eight standard deviations, deviations of which a share (AR) lasts into the next run, and one side that
varies three times as much. `--trials N` sets the number of draws; `compare`, `ab`, `tune`, `probe` and `tradeoff`
(what the runs of a single level can tell, by our rule and by the best there can be) select a part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import exp, log, sqrt
from random import Random

from swarmtui.analysis.compare.correlation import assumed_correlation, positions, variance_factor
from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.compare.probe_history import ProbeResult, probe_history
from swarmtui.analysis.compare.sequential import CHECKPOINTS, Decision, evaluate, interleaved_sides
from swarmtui.analysis.compare.sessions import Pair, compare_pair
from swarmtui.analysis.compare.verdicts import compare_replicates, decide
from swarmtui.experiments.effects import summarise_tune
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import Summary
from swarmtui.model.tuning import Start, TuneFile
from tests.analysis.level_builders import level, summary

CLAIMS = ("faster", "slower")
LEVELS = (1, 2, 4, 8)
WEEK = 7 * 24
KINDS = ("Gauss", "t3", "2 % outliers", "AR 0.3", "AR 0.5", "AR 0.7", "spread ×3")


def deviations(random: Random, n: int, kind: str) -> Iterator[float]:
    """Draw n deviations in the order of time, with a standard deviation of 1 (without the outliers)."""
    rho = float(kind[3:]) if kind.startswith("AR ") else 0.0
    value = random.gauss(0, 1)
    for _ in range(n):
        if kind == "t3":
            value = random.gauss(0, 1) / sqrt(sum(random.gauss(0, 1) ** 2 for _ in range(3)))
        yield value - (8.0 if kind == "2 % outliers" and random.random() < 0.02 else 0.0)
        value = rho * value + sqrt(1 - rho**2) * random.gauss(0, 1)


def session(
    random: Random,
    name: str,
    cv: float,
    *,
    change: float = 0.0,
    runs: int = 4,
    shared: float = 0.0,
    seed: int = 0,
    kind: str = "Gauss",
    levels: tuple[int, ...] = LEVELS,
) -> Summary:
    """Draw a session; `shared` is the spread between sessions, which all its runs have in common."""
    luck, apart = random.gauss(0, shared), list(deviations(random, runs * len(levels), kind))
    found = []
    for number, c in enumerate(levels):
        at = positions(number, len(levels), range(1, runs + 1), runs > 1)
        rates = [100.0 * c * (1 + change) * exp(luck + cv * apart[position]) for position in at]
        found.append(level(c, tps=runs / sum(1 / rate for rate in rates), runs=rates))
    return summary(found, name, plan=Plan(load=Closed(levels=levels, runs=runs), seed=seed))


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
        show(name, f"{any_claim:>9.1f} %{at_all:>10.1f} %{self.contradictory:>8}", demand)


def show(name: str, figures: str, demand: str) -> None:
    print(f"{name:<66}{figures:<30} {demand}", flush=True)


def print_compare(trials: int) -> None:
    show("compare", f"{'any claim':>11}{'all levels':>12}{'holds 0':>8}", "demand")
    for levels, runs in ((LEVELS, 4), (LEVELS, 8), ((2, 4), 4), ((2, 4, 8), 4), ((4,), 4), ((4,), 6), ((4,), 8)):
        size = f"{len(levels)} × {runs}"
        for kind in (*KINDS, "AR 0.95"):
            random, count = Random(1), Count()
            wider = 3 if kind == "spread ×3" else 1
            for _ in range(trials):
                a = session(random, "a", 0.03, kind=kind, runs=runs, levels=levels)
                b = session(random, "b", 0.03 * wider, kind=kind, runs=runs, levels=levels, seed=1)
                count.add(compare_pair(a, b))
            count.show(f"equal sessions, {size}, {kind}", "" if kind == "AR 0.95" else "any ≤ 5 %")
        for kind in ("Gauss", "AR 0.5"):
            random, count = Random(2), Count()
            for _ in range(trials):
                a = session(random, "a", 0.01, kind=kind, runs=runs, levels=levels)
                b = session(random, "b", 0.01, kind=kind, runs=runs, levels=levels, change=0.05, seed=1)
                count.add(compare_pair(a, b))
            demand = "most: no rule finds more than 73 %" if size == "1 × 4" else "any ≥ 95 %"
            count.show(f"+5 % at CV 1 %, {size}, {kind}", demand)
    for cv in (0.01, 0.03):
        random, count = Random(1), Count()
        for _ in range(trials):
            count.add(compare_pair(session(random, "a", cv), session(random, "b", cv)))
        count.show(f"equal sessions, 4 × 4, CV {cv:.0%}, same seed", "any ≤ 5 %")
    for known in (0, 4, 8):
        random, count = Random(3), Count()
        for _ in range(trials // 2):
            history = [session(random, f"0{k}", 0.01, shared=0.01) for k in range(known)]
            a, b = session(random, "a", 0.01, shared=0.01), session(random, "b", 0.01, shared=0.01, seed=1)
            count.add(compare_pair(a, b, history=history))
        demand = "any ≤ 5 %" if known else "these sessions do differ"
        count.show(f"session spread = run spread = 1 %, {known} earlier sessions", demand)
    random, count = Random(4), Count()
    for _ in range(trials // 4):
        sides = [pool([session(random, f"{k}", 0.01, runs=1, shared=0.01) for k in range(4)]) for _ in "ab"]
        count.add(compare_pair(*sides))
    count.show("equal, 4 v 4 sessions of one run pooled, spread 1 %", "any ≤ 5 %")


def print_tradeoff(trials: int) -> None:
    """Print how often runs of one level show a change of five standard deviations, by our rule and by the best one.

    Both claim at most 5 % of equal sides whose runs correlate by 0.7; the runs that show a change are independent. The
    best rule knows both correlations and the change: by Neyman and Pearson, it claims where the data are most likely
    with the change, compared with equal sides. No other rule that ignores the unit and the level of values finds more.
    """
    show("tradeoff: one level, runs of each side", f"{'AR 0.5':>9}{'AR 0.7':>9}{'+5 %':>9}{'best':>9}", "")
    for runs in (4, 5, 6, 8):
        rho = assumed_correlation(1, runs, 0.0)
        factors = (variance_factor(range(runs), rho),) * 2
        found, likelihoods = [], []
        for kind, change in (("AR 0.5", 0.0), ("AR 0.7", 0.0), ("Gauss", 5.0)):
            random, claims, ratios = Random(10), 0, []
            for _ in range(trials):
                a, b = (list(deviations(random, runs, kind)) for _ in "ab")
                b = [value + change for value in b]
                evidence = compare_replicates(*([exp(0.01 * v) for v in side] for side in (a, b)), factors=factors)
                claims += decide(evidence, alpha=0.05, claim="sessions").word in CLAIMS
                ratios.append(likelihood_ratio(a, b, 5.0, 0.7))
            found.append(f"{100 * claims / trials:>7.1f} %")
            likelihoods.append(sorted(ratios))
        limit = likelihoods[1][int(0.95 * trials)]
        found.append(f"{100 * sum(ratio > limit for ratio in likelihoods[2]) / trials:>7.1f} %")
        show(f"tradeoff: {runs} v {runs}", "".join(found), "≤ 5 %, ≤ 5 %, near the best")


def likelihood_ratio(a: list[float], b: list[float], change: float, rho: float) -> float:
    """Return the log of how likely independent runs with a change of ± `change` are, to equal ones correlated by ρ.

    Both likelihoods are those of the data without their level and unit, so that a constant is left out.
    """

    def squares(rho: float) -> tuple[float, float, float]:
        """Return the squared length of the data without their mean, that of the change, and their product."""
        sums, within, weight = [], 0.0, 0.0
        for side in (a, b):
            steps = [(side[0], 1.0)] + [
                ((after - rho * before) / sqrt(1 - rho**2), (1 - rho) / sqrt(1 - rho**2))
                for before, after in pairwise(side)
            ]
            within += sum(value * value for value, _ in steps)
            weight = sum(one * one for _, one in steps)
            sums.append(sum(value * one for value, one in steps))
        return within - sum(sums) ** 2 / (2 * weight), weight / 2, (sums[1] - sums[0]) / 2

    independent, of_change, product = squares(0.0)
    correlated = squares(rho)[0]
    freedom, mean = 2 * len(a) - 1, change * abs(product) / sqrt(independent)
    grid = [k / 20 for k in range(1, 400)]
    density = sum(u ** (freedom - 1) * exp(-u * u / 2) * (exp(u * mean) + exp(-u * mean)) for u in grid)
    return log(density) - change**2 * of_change / 2 - freedom / 2 * log(independent / correlated)


def ab_test(random: Random, change: float, cv: float, kind: str) -> Decision:
    values: dict[str, list[float]] = {"A": [], "B": []}
    apart = deviations(random, 2 * CHECKPOINTS[-1], kind)
    for side, deviation in zip(interleaved_sides(2 * CHECKPOINTS[-1], random.randrange(1000)), apart, strict=True):
        wider = 3 if kind == "spread ×3" and side == "B" else 1
        values[side].append(100 * exp(cv * wider * deviation) * (1 + (change if side == "B" else 0)))
        n = len(values["A"])
        if n == len(values["B"]) and n in CHECKPOINTS:
            found = evaluate(values["A"], values["B"], max_runs=16)
            if found.done:
                return found
    raise AssertionError("the last checkpoint is always done")


def print_ab(trials: int) -> None:
    rows = [*((0.0, 0.03, kind) for kind in KINDS), (0.0, 0.01, "Gauss"), (0.05, 0.01, "Gauss"), (0.05, 0.01, "AR 0.5")]
    for change, cv, kind in rows:
        random = Random(5)
        found = [ab_test(random, change, cv, kind) for _ in range(trials)]
        claims = [one for one in found if one.word in CLAIMS]
        wrong = sum(one.interval is None or one.interval.low <= 0 <= one.interval.high for one in claims)
        figures = f"{100 * len(claims) / trials:>9.1f} %{'':>12}{wrong:>8}"
        show(f"ab: {change:+.0%} at CV {cv:.0%}, {kind}", figures, f"claims {'≥ 95 %' if change else '≤ 5 %'}")


def print_tune(trials: int) -> None:
    """Screen equal configurations with a start each, restart the best three, and count who is called behind."""
    for cells, kind, spread in (
        *((8, kind, 0.005) for kind in KINDS), (8, "Gauss", 0.0), (8, "Gauss", 0.01), (30, "Gauss", 0.005),
    ):  # fmt: skip
        random, behind = Random(6), 0
        file = TuneFile(command="x {port}", grid={"--n": tuple(range(cells))})
        for _ in range(trials):
            shared = deviations(random, cells + 9, kind)
            screens = [one_start(random, n, 0, spread, kind, next(shared)) for n in range(cells)]
            best = [start.flags["--n"] for start in sorted(screens, key=lambda start: -(start.out_tps or 0.0))[:3]]
            restarts = [
                one_start(random, int(n), k, spread, kind, next(shared))
                for k in (1, 2, 3)
                for n in random.sample(best, 3)
            ]
            behind += "behind" in summarise_tune(file, [*screens, *restarts]).standings
        name = f"tune: {cells} equal configurations, run CV 1 %, start CV {spread:.1%}, {kind}"
        show(name, f"{100 * behind / trials:>9.1f} %", "one behind ≤ 5 %")


def one_start(random: Random, n: int, number: int, spread: float, kind: str, shared: float) -> Start:
    """Draw a start with four runs; the spread of every third configuration may be larger."""
    wider = 3 if kind == "spread ×3" and n % 3 == 0 else 1
    runs = [100 * exp(wider * random.gauss(0, 0.01)) for _ in range(4)]
    return Start(flags={"--n": n}, round=number, out_tps=exp(wider * spread * shared) * sum(runs) / len(runs))


def probes(
    random: Random, n: int, change: Callable[[int], float] = lambda k: 0.0, kind: str = "Gauss"
) -> list[ProbeResult]:
    """Draw hourly probes with a CV of 1 %; `change` is the log of the change at each."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        ProbeResult(
            id=str(k),
            created=(start + timedelta(hours=k)).isoformat(),
            runs=(100 * exp(0.01 * deviation + change(k)),),
        )
        for k, deviation in enumerate(deviations(random, n, kind))
    ]


def flags(found: list[ProbeResult]) -> list[bool]:
    return [state is not None and state.drifted for state in probe_history(found).drift]


def print_probes(trials: int) -> None:
    for week in (1, 2):
        for kind in KINDS[:-1]:
            random = Random(7)
            flagged = sum(sum(flags(probes(random, week * WEEK, kind=kind))[-WEEK:]) for _ in range(trials))
            show(f"probe: flags in stationary week {week}, hourly, {kind}", f"{flagged / trials:>9.2f}", "≤ 0.6")
    for weeks in (1, 2):
        random, delays, calm = Random(8), [], weeks * WEEK
        for _ in range(2 * trials):
            found = flags(probes(random, calm + 6, lambda k: log(0.97) if k >= calm else 0.0))[-6:]  # noqa: B023
            delays.append(found.index(True) + 1 if True in found else 99)
        by = ", ".join(f"{k}: {100 * sum(delay <= k for delay in delays) / len(delays):.0f} %" for k in (2, 3, 4, 5))
        show(f"probe: −3 % step after {weeks} weeks, flagged by probe", f" {by}", "by 3 ≥ 95 %")
    for weeks in (0, 1):
        random, calm = Random(9), weeks * WEEK
        decline = [
            flags(probes(random, calm + WEEK, lambda k: log(1 - 0.1 * max(0, k - calm) / WEEK)))[-1]  # noqa: B023
            for _ in range(max(1, trials // 4))
        ]
        name = f"probe: slow −10 % over a week, after {weeks} stationary ones, at its end"
        show(name, f"{100 * sum(decline) / len(decline):>9.1f} %", "≥ 95 %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=["compare", "ab", "tune", "probe", "tradeoff"])
    parser.add_argument("--trials", type=int, default=2000)
    given = parser.parse_args()
    for name, part, share in (
        ("compare", print_compare, 1), ("ab", print_ab, 1), ("tune", print_tune, 1), ("probe", print_probes, 10),
        ("tradeoff", print_tradeoff, 1),
    ):  # fmt: skip
        if not given.part or name in given.part:
            part(max(1, given.trials // share))


if __name__ == "__main__":
    main()
