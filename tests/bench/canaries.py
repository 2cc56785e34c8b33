"""Count in how many runs of 400 requests with canaries at 5 % a proxy is found that corrupts 5 % of the answers.

`python -m tests.bench.canaries [RUNS]` runs `swarmtui run` through the proxy, with and without corruption.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.cli.programs import open_sandbox
from tests.cli.test_canaries import Forgetful, run_through_proxy


def main(runs: int) -> None:
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
