"""Ask a real server how many agents it carries, and check the answer by direct runs a minute later.

python -m tests.real.quick --endpoint http://127.0.0.1:8080 [--rounds 10] [--wait 60] [--requests 100]

A round is right if the answer keeps the SLO in a direct run, and the first level above its range misses it. The table
has a row for each round, with the share of requests that kept the SLO at both levels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple


class Direct(NamedTuple):
    """The outcome of a direct run at a level: how many requests kept the SLO, and the p90 of their first tokens."""

    c: int
    good: int
    n: int
    kept: bool
    ttft_p90_s: float | None

    def __str__(self) -> str:
        p90 = "–" if self.ttft_p90_s is None else f"{self.ttft_p90_s:.2f} s"
        return f"{self.c}: {self.good} of {self.n}, p90 {p90}, {'kept' if self.kept else 'missed'}"


def swarmtui(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "swarmtui", *words, "--json", "--quiet"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def direct_runs(options: argparse.Namespace, slo: str, levels: list[int]) -> list[Direct]:
    found = swarmtui(
        "run", "--endpoint", options.endpoint, "--levels", ",".join(map(str, levels)), "--requests",
        str(options.requests), "--max-tokens", "128", "--slo", slo, "--session-dir", options.directory,
    )  # fmt: skip
    p90 = {level["c"]: level["ttft_s"]["p90"] for level in found["levels"]}
    return [
        Direct(row["c"], row["good"], row["n"], row["good"] >= 0.9 * row["n"], p90[row["c"]])
        for row in found["goodput"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--wait", type=float, default=60.0, help="seconds between the search and the direct runs")
    parser.add_argument("--requests", type=int, default=100, help="of each direct run")
    options = parser.parse_args()
    options.directory = mkdtemp(prefix="swarmtui-quick-")
    right = 0
    print(
        "| round | answer | took | quality | direct runs | right |\n| --: | --- | --: | --- | --- | --- |", flush=True
    )
    for number in range(1, options.rounds + 1):
        started = time.monotonic()
        found = swarmtui("quick", options.endpoint, "--session-dir", options.directory)
        took, answer = time.monotonic() - started, found["answer"]
        time.sleep(options.wait)
        levels = [answer["agents"], answer["high"] + 1] if answer["agents"] and answer["high"] else []
        direct = direct_runs(options, answer["slo"], levels) if levels else []
        good = len(direct) == 2 and direct[0].kept and not direct[1].kept
        right += good
        said = f"{answer['agents']} ({answer['low']}–{answer['high']})"
        runs = "; ".join(map(str, direct))
        print(
            f"| {number} | {said} | {took:.0f} s | {answer['quality']} | {runs} | {'yes' if good else 'no'} |",
            flush=True,
        )
    print(f"\n{right} of {options.rounds} right; the sessions are in {Path(options.directory)}")


if __name__ == "__main__":
    main()
