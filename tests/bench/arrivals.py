"""Check open-loop load at a share of the server's capacity: send delay, and the distribution of the gaps.

    python -m tests.bench.arrivals [--share 0.8] [--requests 600] [--arrival poisson]
    python -m tests.bench.arrivals verdicts [--seeds N]

The first measures the capacity of a simulated server with all its slots in use, then runs open-loop at that share of
it. Reports the send delay, how far the gaps between requests are from the requested distribution, and TTFT from the
scheduled and from the actual time of sending. The second counts verdicts in virtual time, for shares of the capacity
below and above 1: how often a server is said to keep up, and how often requests are said to pile up.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from swarmtui.analysis.capacity.scaling import keeps_up, piles_up
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.model.journal import StageEnd, StageStart
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.prompts.sampling import arrival_times
from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.presets import Preset, parse_spec

SERVER = "sim:moe-tp1?speed=4&output.median=60"
# Servers with few and with many slots, and what part of their capacity is offered.
VIRTUAL = ("moe-tp1?slots=4", "moe-tp1?slots=32")
SHARES = (0.7, 0.9, 1.1, 1.5)
COUNTS = (100, 400)
MEDIAN, CV, PROMPT = 60, 0.5, 50
BACKLOG = 2000


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


def serve(preset: Preset, times: Sequence[float], seed: int) -> list[Job]:
    """Return the requests that arrive at these times, in virtual time, with answers of random length."""
    rng, engine, jobs = Random(seed), BatchingEngine(preset, seed), []
    sigma = math.sqrt(math.log1p(CV**2))
    for number, at in enumerate(times):
        while (step_end := engine.next_end() or math.inf) <= at:
            list(engine.advance(step_end))
        job = Job(number, PROMPT, max(1, round(MEDIAN * math.exp(sigma * rng.gauss(0.0, 1.0)))))
        engine.submit(job, at)
        jobs.append(job)
    list(engine.advance(math.inf))
    return jobs


def open_level(jobs: Sequence[Job], rate: float) -> Level:
    """Return the level of an open loop whose requests took these times."""

    def ns(seconds: float | None) -> int | None:
        return None if seconds is None else round(1e9 * seconds)

    records = [
        Record(
            task=job.number, stage=1, c=512, run=1, t_sched_ns=ns(job.arrived), t_sent_ns=ns(job.arrived),
            t_first_ns=ns(job.first_token), t_last_ns=ns(job.last_token), t_done_ns=ns(job.last_token), chunks=2,
            chunk_us=(0, round(1e6 * ((job.last_token or 0.0) - (job.first_token or 0.0)))), first_tokens=1,
            tokens_in=job.prompt_tokens, tokens_out=job.output_tokens, token_source="usage",
        )
        for job in jobs
    ]  # fmt: skip
    stage = StageStart(number=1, t_ns=0, c=512, run=1, phase="level", load="open", rate=rate)
    end = StageEnd(number=1, t_ns=max(record.t_done_ns or 0 for record in records), complete=True)
    (level,) = level_figures(records, [stage], [end])
    return level


def verdicts(seeds: int) -> None:
    print("server              offered  arrivals  keeps up  unsure  behind  piles up  goal")
    for spec in VIRTUAL:
        preset, _ = parse_spec(spec)
        ends = sorted(job.last_token or 0.0 for job in serve(preset, [0.0] * BACKLOG, 0))
        capacity = (BACKLOG // 2) / (ends[BACKLOG * 3 // 4] - ends[BACKLOG // 4])
        for share in SHARES:
            for count in COUNTS:
                rate = share * capacity
                levels = [
                    open_level(serve(preset, arrival_times(rate, "poisson", 1.0, count, seed, 1), seed), rate)
                    for seed in range(seeds)
                ]
                found = [keeps_up(level) for level in levels]
                piled = sum(map(piles_up, levels)) / seeds
                figures = "".join(f"{found.count(word) / seeds:>8.1%}" for word in (True, None, False))
                goal = "piles up ≤ 5 %" if share < 1 else ""
                print(f"{spec:<18} {share:>8.2f}  {count:>8}  {figures}  {piled:>8.1%}  {goal}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["verdicts"])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--arrival", choices=["poisson", "constant", "gamma"], default="poisson")
    options = parser.parse_args()
    if options.what == "verdicts":
        verdicts(options.seeds)
        return
    arrivals(options.share, options.requests, options.arrival)


if __name__ == "__main__":
    main()
