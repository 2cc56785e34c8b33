"""Check open-loop load at a share of the server's capacity: send delay, and the distribution of the gaps.

    python -m tests.bench.arrivals [--share 0.8] [--requests 600] [--arrival poisson]

Measures the capacity of a simulated server with all its slots in use, then runs open-loop at that share of it. Reports
the send delay, how far the gaps between requests are from the requested distribution, and TTFT from the scheduled and
from the actual time of sending.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

SERVER = "sim:moe-tp1?speed=4&output.median=60"


def session(folder: Path, *words: str) -> dict[str, Any]:
    sessions = folder / "sessions"
    command = [
        sys.executable, "-m", "swarmtui", "run", "--endpoint", SERVER, "--workload", "chat", "--quiet", "--no-gpu",
        "--session-dir", str(sessions), "--seed", "1", *words,
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    newest = max(sessions.iterdir(), key=lambda path: path.name)
    detail: dict[str, Any] = json.loads((newest / "detail.json").read_bytes())
    return detail


def distance(gaps: list[float], rate: float) -> float:
    """Return the Kolmogorov distance from exponential gaps; times √n, 95 % are below 1.36."""
    cdf = [1.0 - math.exp(-rate * gap) for gap in sorted(gaps)]
    return max(max(abs(p - i / len(cdf)), abs(p - (i + 1) / len(cdf))) for i, p in enumerate(cdf))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def arrivals(share: float, count: int, arrival: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (full,) = session(Path(folder), "--levels", "4", "--requests", "120")["levels"]
        capacity = full["n"] / full["wall_s"]
        rate = share * capacity
        print(
            f"capacity {capacity:.1f} requests/s with all 4 slots in use; "
            f"offered {rate:.1f}/s, {arrival}, {count} requests"
        )
        found = session(Path(folder), "--rate", f"{rate:.2f}", "--arrival", arrival, "--requests", str(count))
    (level,) = found["levels"]
    requests = sorted((r for r in found["requests"] if r["phase"] == "level"), key=lambda r: int(r["t_sched_ns"]))
    delays = [(r["t_sent_ns"] - r["t_sched_ns"]) / 1e6 for r in requests]
    print(
        f"send delay: p50 {quantile(delays, 0.5):.3f} ms, p99 {quantile(delays, 0.99):.3f} ms, max {max(delays):.3f} ms"
    )
    for name in ("sched", "sent") if arrival == "poisson" else ():
        gaps = [(b[f"t_{name}_ns"] - a[f"t_{name}_ns"]) / 1e9 for a, b in pairwise(requests)]
        off = distance(gaps, round(rate, 2))
        fits = "fits" if off * math.sqrt(len(gaps)) < 1.36 else "does not fit"
        print(f"gaps of t_{name}: Kolmogorov distance {off:.4f}, × √n {off * math.sqrt(len(gaps)):.2f}: {fits}")
    due = [(r["t_first_ns"] - r["t_sched_ns"]) / 1e6 for r in requests if r["t_first_ns"]]
    sent = [(r["t_first_ns"] - r["t_sent_ns"]) / 1e6 for r in requests if r["t_first_ns"]]
    print(f"TTFT from scheduled: mean {sum(due) / len(due):.1f} ms, from sent: {sum(sent) / len(sent):.1f} ms")
    arrived, served = level["arrived_per_s"], level["served_per_s"]
    print(f"in flight (mean) {level['c_achieved']:.2f}, arrivals {arrived:.2f}/s, completions {served:.2f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--arrival", choices=["poisson", "constant", "gamma"], default="poisson")
    options = parser.parse_args()
    arrivals(options.share, options.requests, options.arrival)


if __name__ == "__main__":
    main()
