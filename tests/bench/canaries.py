"""Count how often degenerate answers are noticed: by simulation, and in runs through a proxy that corrupts answers.

`python -m tests.bench.canaries [RUNS]` draws answers at C=1 and under load, and prints how often load is blamed; with
RUNS it also makes as many runs of 400 requests per level, with canaries at 5 %, through a proxy that corrupts 5 % or
none of the answers of C=8.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

from swarmtui.analysis.levels.canaries import canary_findings
from swarmtui.model.session import CanaryFigures
from tests.cli.programs import open_sandbox
from tests.cli.test_canaries import Forgetful, run_through_proxy


def print_simulated(trials: int = 500) -> None:
    """A level of 400 answers beside n at C=1, of which a server that works returns a share that is degenerate."""
    alone = CanaryFigures(n=20, passed=20, pass_low=None, pass_high=None, alone_n=20, alone_passed=20, applicable=True)
    print(f"{'degenerate at C=1 → under load':<34}" + "".join(f"{f'n={n} at C=1':>16}" for n in (5, 20, 100, 400)))
    for usual, loaded in ((0.0, 0.0), (0.005, 0.005), (0.02, 0.02), (0.1, 0.1), (0.0, 0.05), (0.02, 0.1)):
        cells = []
        for n in (5, 20, 100, 400):
            random, alarms = Random(1), 0
            for _ in range(trials):
                drawn = [sum(random.random() < share for _ in range(of)) for of, share in ((400, loaded), (n, usual))]
                found = canary_findings(alone, (drawn[0], 400), (drawn[1], n), "C=8", 0.025)
                alarms += any(finding.code == "answers_degenerate" for finding in found)
            cells.append(f"{100 * alarms / trials:>14.1f} %")
        demand = "≤ 2.5 %" if usual == loaded else "found"
        print(f"{f'{usual:.1%} → {loaded:.1%}':<34}" + "".join(cells) + f"   {demand}", flush=True)


def main(runs: int) -> None:
    print_simulated()
    for share in (0.05, 0.0):
        alarms = 0
        for seed in range(runs):
            with (
                tempfile.TemporaryDirectory() as folder,
                open_sandbox(Path(folder)) as sandbox,
                Forgetful(10**9) as knows,
            ):
                proxy, text = run_through_proxy(sandbox, knows, share, seed, requests=400, canaries="5%")
            alarms += "answers got worse" in text
            corrupted = f"{proxy.corrupted} of {proxy.answers} answers corrupted"
            print(f"share {share:.0%}, run {seed + 1}: {corrupted}; {alarms} alarms so far", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
