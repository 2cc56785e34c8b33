"""Search the cliff of every preset in virtual time, and print how far the answer is from its slots.

python -m tests.bench.cliff_search [SEEDS [PRESET …]]
"""

from __future__ import annotations

import sys

from swarmtui.analysis.capacity.cliff import find_cliff
from swarmtui.sim.presets import list_presets
from tests.seeds.virtual_session import simulate_cliff_search

WORKLOAD = "chat"


def main(seeds: int, names: list[str]) -> None:
    print(f"{'preset':24} slots  highest calm level, by seed")
    for preset in list_presets():
        if names and preset.name not in names:
            continue
        slots, answers, tried = preset.slots * preset.replicas, [], []
        for seed in range(1, seeds + 1):
            levels = simulate_cliff_search(preset.name, WORKLOAD, seed=seed)
            cliff = find_cliff(levels)
            answers.append(cliff.c_before if cliff else 0)
            tried.append(len(levels))
        off = max(abs(answer / slots - 1.0) for answer in answers)
        print(f"{preset.name:24} {slots:5}  {answers}  off {100 * off:.0f} %, {max(tried)} levels at most", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:])
