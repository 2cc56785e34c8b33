"""Count the false alarms of the CI action: run its script on two equal simulators again and again.

python -m tests.bench.action --times 100 --speed 50
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.faults.soak import simulator

SCRIPT = Path(__file__).parents[2] / ".github" / "actions" / "bench" / "compare.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--speed", type=float, default=50.0)
    options = parser.parse_args()
    codes: Counter[int] = Counter()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        base, head = (stack.enter_context(simulator(f"moe-tp1?speed={options.speed:g}&seed={n}")) for n in (1, 2))
        environment = os.environ | {
            "BASE": base, "HEAD": head, "LEVEL": "4", "MAX_RUNS": "6", "REQUESTS": "8", "MAX_TOKENS": "64",
            "XDG_DATA_HOME": folder, "GITHUB_STEP_SUMMARY": f"{folder}/summary", "GITHUB_OUTPUT": f"{folder}/output",
        }  # fmt: skip
        for n in range(1, options.times + 1):
            ran = subprocess.run([sys.executable, SCRIPT], env=environment, stderr=subprocess.DEVNULL, check=False)
            codes[ran.returncode] += 1
            print(f"{n}: {dict(codes)}", flush=True)
        verdicts = Counter(Path(folder, "output").read_text().split("\n")[:-1])
    print(f"false alarms: {codes[1]} of {options.times} ({codes[1] / options.times:.1%}); {dict(verdicts)}")
    return 0 if codes[1] <= 0.05 * options.times and not set(codes) - {0, 1} else 1


if __name__ == "__main__":
    sys.exit(main())
