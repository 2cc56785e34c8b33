"""Search for cliffs in virtual time, without the slots or the queue that a server reports.

python -m tests.bench.cliff_search presets [--seeds N] [PRESET …]   every preset: how far the answer is from its slots
python -m tests.bench.cliff_search short [--seeds N]                answers of 8 to 32 tokens on 4, 16 and 64 slots
python -m tests.bench.cliff_search frozen [--seeds N]               a server that stops once: is the cliff another one?
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from random import Random

from swarmtui.analysis.capacity.cliff import find_cliff
from swarmtui.model.session import Level
from swarmtui.sim.presets import list_presets
from tests.seeds.virtual_session import Freeze, simulate_cliff_search, simulate_sweep

SWEEPS = {2: (1, 2, 4, 8), 4: (1, 2, 4, 8), 6: (1, 2, 4, 6, 8, 12), 8: (1, 2, 4, 8, 16), 16: (1, 2, 4, 8, 16)}
SHORT_SLOTS, SHORT_TOKENS = (4, 16, 64), (8, 16, 32)


def calm(levels: Sequence[Level]) -> int:
    """Return the highest level before the cliff; 0 if there is none."""
    cliff = find_cliff(levels)
    return cliff.c_before if cliff else 0


def presets(seeds: int, names: Sequence[str]) -> None:
    print(f"{'preset':24} slots  highest calm level, by seed")
    for preset in list_presets():
        if names and preset.name not in names:
            continue
        slots = preset.slots * preset.replicas
        searched = [simulate_cliff_search(preset.name, "chat", seed=seed) for seed in range(1, seeds + 1)]
        answers, tried = list(map(calm, searched)), max(map(len, searched))
        off = max(abs(answer / slots - 1.0) for answer in answers)
        print(f"{preset.name:24} {slots:5}  {answers}  off {100 * off:.0f} %, {tried} levels at most", flush=True)


def within_one_level(levels: Sequence[Level], slots: int) -> bool:
    """Whether the slots are the highest calm level, or lie between it and one of its neighbours."""
    cliff = find_cliff(levels)
    if cliff is None:
        return False
    tried = sorted(level.c for level in levels)
    before, above = tried.index(cliff.c_before), tried.index(cliff.c)
    return tried[max(0, before - 1)] <= slots <= tried[min(above, len(tried) - 1)]


def short(seeds: int) -> None:
    print("slots  tokens  exact  within one level  levels  highest calm level, by seed")
    for slots in SHORT_SLOTS:
        for tokens in SHORT_TOKENS:
            spec = f"moe-tp1?slots={slots}&output.median={tokens}&output.cv=0.4"
            searched = [simulate_cliff_search(spec, "chat", seed=seed) for seed in range(1, seeds + 1)]
            exact = sum(calm(levels) == slots for levels in searched) / seeds
            near = sum(within_one_level(levels, slots) for levels in searched) / seeds
            tried = max(map(len, searched))
            print(
                f"{slots:5}  {tokens:6}  {exact:5.0%}  {near:16.0%}  {tried:6}  {list(map(calm, searched))}", flush=True
            )


def simulate(slots: int, kind: str, seed: int, freeze: Freeze | None = None) -> tuple[Level, ...]:
    spec = f"moe-tp1?slots={slots}&output.median=100&output.cv=0.5"
    if kind == "search":
        return simulate_cliff_search(spec, "chat", seed=seed, freeze=freeze)
    return simulate_sweep(spec, "chat", SWEEPS[slots], seed=seed, freeze=freeze)


def frozen(seeds: int) -> None:
    print("slots  kind    cliff unchanged  named  stage: C before the cliff, without and with a freeze")
    for slots, planned in SWEEPS.items():
        for kind in ("sweep", "search"):
            changed, named = [], 0
            for seed in range(1, seeds + 1):
                rng = Random(seed)
                healthy = simulate(slots, kind, seed)
                number = rng.randrange(len(healthy) if kind == "search" else len(planned)) + 1
                froze = simulate(slots, kind, seed, Freeze(number, rng.uniform(0.1, 0.9), rng.uniform(3.0, 17.0)))
                named += any(level.silences for level in froze)
                # A level that was measured to confirm a cliff may find the real one.
                if calm(froze) not in (calm(healthy), slots):
                    changed.append(f"{number}: {calm(healthy)}→{calm(froze)}")
            print(f"{slots:5}  {kind:6}  {1 - len(changed) / seeds:15.0%}  {named:5}  {', '.join(changed)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("presets", "short", "frozen"))
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    match given.what:
        case "presets":
            presets(given.seeds, given.presets)
        case "short":
            short(given.seeds)
        case _:
            frozen(given.seeds)


if __name__ == "__main__":
    main()
