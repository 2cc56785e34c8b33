"""Search for flags on simulated servers whose best configuration is known, in virtual time.

python -m tests.bench.tuner [--seeds N] [--first-seed N] [--budget MINUTES] [--noise CV] [--rugged] [--agents]

Half of the landscapes have knobs without any effect: what is claimed there is false. The others have four to six
knobs: ordered ones with a best value or an end to their rise, switches, pairs that help or hinder each other (by up to
12 %, steadily; with `rugged` each pair of values by up to 15 %, at random), and values that crash. A start differs from
the next by `noise`, and a measurement with half of the requests by as much again. Each search has the same budget: it
gives its configuration, or keeps the command. With `agents` the objective is the capacity, as short searches find it:
the last level that was kept while C was doubled, with all requests that or half as much again.

tuner        the planner of `swarmtui tune --auto`: its claim is that of the A/B test
optuna + ab  what Optuna's TPE chooses instead of the stages, then the same restarts and A/B test; if it is installed
random + ab  random configurations instead of the stages, then the same restarts and A/B test
random       random configurations, the best start is claimed if it is 2 % above the command, as other tools do
grid         each configuration once, whatever the time, the best start claimed likewise
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice, product
from random import Random
from statistics import fmean, quantiles
from typing import NamedTuple

from swarmtui.analysis.tuning.planner import plan_tune
from swarmtui.analysis.tuning.space import Machine, SearchSpace, make_space
from swarmtui.analysis.tuning.steps import SearchRules
from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import Knob
from swarmtui.model.tuning import Flags, Start, Value, configuration_key

START_S, MEASURE_S, SHARE = 6.0, 24.0, 0.5
BASE = 100.0


class Landscape(NamedTuple):
    """The true tok/s of each configuration; 0 crashes."""

    engine: Engine
    space: SearchSpace
    truth: dict[str, float]
    noise: float
    tps_per_agent: float = 0.0

    def value(self, flags: Flags) -> float:
        return self.truth[configuration_key(flags)]

    @property
    def best(self) -> float:
        return max(self.truth.values())


def make_landscape(seed: int, noise: float, *, flat: bool, rugged: bool = False) -> Landscape:
    rng = Random(seed)
    knobs = [
        Knob(name="--slots", stage="slots", values=(1, 2, 4, 8, 16, 32), default=4, moves=("slots",),
             takes_memory=True),
        Knob(name="--batch", stage="slots", values=(256, 512, 1024, 2048), default=1024, moves=("prefill",),
             takes_memory=True),
        Knob(name="--threads", stage="parallelism", values=(1, 2, 4, 8), default=2, moves=("compute",)),
        Knob(name="--attention", stage="cache", values=("a", "b", "c"), default="a", moves=("bandwidth",)),
        Knob(name="--cache", stage="cache", values=(True, False), default=True, moves=("prefill",)),
        Knob(name="--draft", stage="speculation", values=(0, 2, 4, 8), default=0, moves=("bandwidth",)),
    ]  # fmt: skip
    kept = sorted(rng.sample(range(len(knobs)), rng.randint(4, len(knobs))))
    engine = Engine()
    engine.name, engine.knobs = "bench", tuple(knobs[at] for at in kept)
    space = make_space(engine, ("server",), machine=Machine(gpus=1, cores=8))
    effects = {knob.name: _effect(rng, space.ladder(knob)) for knob in space.knobs}
    pair = rng.sample([knob.name for knob in space.knobs], 2)
    together = _together(rng, *(tuple(effects[name]) for name in pair), rugged=rugged)
    crash = rng.choice([knob for knob in space.knobs if knob.ordered])
    crashing = {space.ladder(crash)[-1]} if rng.random() < 0.7 else set[Value]()
    truth = {}
    for values in product(*(space.ladder(knob) for knob in space.knobs)):
        chosen = dict(zip(effects, values, strict=True))
        flags = {name: value for name, value in chosen.items() if value != space.baseline[name]}
        logs = sum(effects[name][value] for name, value in chosen.items())
        logs += together[chosen[pair[0]], chosen[pair[1]]]
        crashes = chosen[crash.name] in crashing and crash.name in flags
        truth[configuration_key(flags)] = 0.0 if crashes else BASE if flat else BASE * math.exp(logs)
    return Landscape(engine, space, truth, noise, Random(f"agents {seed}").uniform(3.0, 8.0))


def _together(
    rng: Random, a: tuple[Value, ...], b: tuple[Value, ...], *, rugged: bool
) -> dict[tuple[Value, Value], float]:
    """What two knobs do together: more of one makes more of the other better, or worse; any value if `rugged`."""
    slope = rng.uniform(-0.5, 0.5)
    return {
        (x, y): rng.uniform(-0.15, 0.15)
        if rugged
        else slope * (at / (len(a) - 1) - 0.5) * (beside / (len(b) - 1) - 0.5) + rng.uniform(-0.01, 0.01)
        for at, x in enumerate(a)
        for beside, y in enumerate(b)
    }


def _effect(rng: Random, ladder: tuple[Value, ...]) -> dict[Value, float]:
    """A peak or a rise that ends, for numbers; anything for others; a third of the knobs does nothing."""
    size = 0.0 if rng.random() < 1 / 3 else rng.uniform(0.05, 0.6)
    last, peak = len(ladder) - 1, rng.randrange(len(ladder))
    if not isinstance(ladder[0], int) or isinstance(ladder[0], bool):
        return {value: size * rng.uniform(-0.5, 0.5) for value in ladder}
    if rng.random() < 0.5:
        return {value: -size * (abs(at - peak) / last) for at, value in enumerate(ladder)}
    return {value: size * min(at, peak) / last for at, value in enumerate(ladder)}


class Server:
    """Starts configurations and measures them."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._landscape, self._rng = landscape, Random(seed)
        # A stream of its own, so that the throughputs are the same with any objective.
        self._capacities = Random(f"capacities {seed}")
        self.starts: list[Start] = []

    @property
    def seconds(self) -> float:
        return sum(start.took_s or 0.0 for start in self.starts)

    def start(self, flags: Flags, step: str, side: str | None = None) -> Start:
        true = self._landscape.value(flags)
        full = step != "screen"
        if not true:
            found = Start(
                flags=flags, step=step, side=side, state="broken", reason="exited with code 1",  # type: ignore[arg-type]
                log=("CUDA out of memory",), took_s=START_S,
            )  # fmt: skip
        else:
            noise = self._landscape.noise
            spread = math.hypot(noise, 0.0 if full else noise)
            agents, above = _capacity(
                true * math.exp(self._capacities.gauss(0.0, spread)) / self._landscape.tps_per_agent, full
            )
            found = Start(
                flags=flags, step=step, side=side, out_tps=true * math.exp(self._rng.gauss(0.0, spread)),  # type: ignore[arg-type]
                start_s=START_S, took_s=START_S + MEASURE_S * (1.0 if full else SHARE),
                agents=agents, agents_low=agents, agents_high=above - 1,
            )  # fmt: skip
        self.starts.append(found)
        return found


def _capacity(true: float, full: bool) -> tuple[int, int]:
    """Return the highest level that a short search finds to be kept, and the first that it finds to be missed."""
    kept = 1
    while 2 * kept <= true:
        kept *= 2
    if not full or kept < 2:
        return kept, 2 * kept
    return (3 * kept // 2, 2 * kept) if 3 * kept // 2 <= true else (kept, 3 * kept // 2)


class Found(NamedTuple):
    flags: Flags
    claimed: bool
    starts: int
    seconds: float


Searcher = Callable[[Landscape, SearchRules, int], Found]


def tuner(landscape: Landscape, rules: SearchRules, seed: int) -> Found:
    server = Server(landscape, seed)
    while (progress := plan_tune(landscape.space, rules, server.starts)).ask is not None:
        server.start(progress.ask.flags, progress.ask.step, progress.ask.side)
    claimed = progress.decision is not None and progress.decision.word == "faster"
    return Found(progress.winner or {} if claimed else {}, claimed, len(server.starts), server.seconds)


def random_and_ab(landscape: Landscape, rules: SearchRules, seed: int) -> Found:
    """Let the planner rank and confirm what was drawn: its space has no knobs of its own."""
    server, order = Server(landscape, seed), _random_order(landscape, seed)
    reserved = (rules.finalists * rules.restarts + 8) * (START_S + MEASURE_S)
    screens = int((rules.budget_s - reserved) / (START_S + SHARE * MEASURE_S)) - 1
    added = list(islice(order, max(0, screens)))
    space = landscape.space
    bare = SearchSpace(engine=space.engine, words=space.words, knobs=(), baseline=space.baseline)
    while (progress := plan_tune(bare, rules, server.starts, added)).ask is not None:
        server.start(progress.ask.flags, progress.ask.step, progress.ask.side)
    claimed = progress.decision is not None and progress.decision.word == "faster"
    return Found(progress.winner or {} if claimed else {}, claimed, len(server.starts), server.seconds)


def optuna_and_ab(landscape: Landscape, rules: SearchRules, seed: int) -> Found:
    """Let Optuna's TPE choose what is screened, from the command on; then rank and confirm as the planner does."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space, server = landscape.space, Server(landscape, seed)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8))
    study.enqueue_trial({knob.name: space.ladder(knob).index(space.baseline[knob.name]) for knob in space.knobs})
    reserved = (rules.finalists * rules.restarts + 8) * (START_S + MEASURE_S)
    known: dict[str, Start] = {}
    while server.seconds + reserved + START_S + SHARE * MEASURE_S <= rules.budget_s and len(study.trials) < 300:
        trial = study.ask()
        chosen = {
            knob.name: space.ladder(knob)[trial.suggest_int(knob.name, 0, len(space.ladder(knob)) - 1)]
            for knob in space.knobs
        }
        flags = space.normalised(chosen)
        key = configuration_key(flags)
        if key not in known:
            known[key] = server.start(flags, "screen")
        study.tell(trial, known[key].out_tps or 0.0)
    added = [start.flags for start in server.starts if start.flags]
    bare = SearchSpace(engine=space.engine, words=space.words, knobs=(), baseline=space.baseline)
    while (progress := plan_tune(bare, rules, server.starts, added)).ask is not None:
        server.start(progress.ask.flags, progress.ask.step, progress.ask.side)
    claimed = progress.decision is not None and progress.decision.word == "faster"
    return Found(progress.winner or {} if claimed else {}, claimed, len(server.starts), server.seconds)


def random_search(landscape: Landscape, rules: SearchRules, seed: int) -> Found:
    return _best_start(landscape, _random_order(landscape, seed), rules.budget_s, seed)


def grid(landscape: Landscape, rules: SearchRules, seed: int) -> Found:
    return _best_start(landscape, _random_order(landscape, seed), math.inf, seed)


def _best_start(landscape: Landscape, order: Iterator[Flags], budget_s: float, seed: int) -> Found:
    server = Server(landscape, seed)
    base = server.start({}, "restart").out_tps or 0.0
    while server.seconds + START_S + MEASURE_S <= budget_s and (flags := next(order, None)) is not None:
        server.start(flags, "restart")
    best = max(server.starts, key=lambda start: start.out_tps or 0.0)
    claimed = (best.out_tps or 0.0) > 1.02 * base
    return Found(best.flags if claimed else {}, claimed, len(server.starts), server.seconds)


def _random_order(landscape: Landscape, seed: int) -> Iterator[Flags]:
    ladders = [(knob.name, landscape.space.ladder(knob)) for knob in landscape.space.knobs]
    every = [
        {
            name: value
            for (name, _), value in zip(ladders, values, strict=True)
            if value != landscape.space.baseline[name]
        }
        for values in product(*(ladder for _, ladder in ladders))
    ]
    Random(f"order {seed}").shuffle(every)
    return iter([flags for flags in every if flags])


SEARCHERS: dict[str, Searcher] = {
    "tuner": tuner, "optuna + ab": optuna_and_ab, "random + ab": random_and_ab, "random": random_search, "grid": grid,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="landscapes of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="landscapes that the planner was not written with")
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--rugged", action="store_true", help="pairs of values that belong together at random")
    parser.add_argument("--agents", action="store_true", help="optimise the capacity, as a short search finds it")
    parser.add_argument("--only", default="", choices=["", *SEARCHERS])
    options = parser.parse_args()
    rules = SearchRules(
        objective="agents" if options.agents else "out_tps", budget_s=60.0 * options.budget, share=SHARE
    )
    print(f"{options.seeds} landscapes of each kind, noise {options.noise:.0%}, budget {options.budget:g} min")
    print(
        "| search | regret mean | p90 | within 5 % | gain claimed | starts | share of grid | minutes | false claims |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for name, searcher in SEARCHERS.items():
        if (options.only and name != options.only) or (name == "optuna + ab" and find_spec("optuna") is None):
            continue
        regrets, starts, shares, minutes, gains = [], [], [], [], 0
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            landscape = make_landscape(seed, options.noise, flat=False, rugged=options.rugged)
            found = searcher(landscape, rules, seed)
            regrets.append(1.0 - landscape.value(found.flags) / landscape.best)
            starts.append(found.starts)
            shares.append(found.starts / len(landscape.truth))
            minutes.append(found.seconds / 60.0)
            gains += found.claimed
        false = 0
        for seed in range(options.first_seed + 1000, options.first_seed + 1000 + options.seeds):
            false += searcher(make_landscape(seed, options.noise, flat=True), rules, seed).claimed
        p90 = quantiles(regrets, n=10)[-1]
        within = sum(regret <= 0.05 for regret in regrets) / len(regrets)
        print(
            f"| {name} | {fmean(regrets):.1%} | {p90:.1%} | {within:.0%} | {gains} | {fmean(starts):.1f} | "
            f"{fmean(shares):.0%} | {fmean(minutes):.1f} | {false} of {options.seeds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
