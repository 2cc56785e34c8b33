"""Measure the replay of traces: start, send delay, memory, prompt lengths, cache hits; and stamps beside large bodies.

    python -m tests.bench.traces [replay] [bodies]      (both by default)

replay: 400 sessions whose prompts grow from 20,000 to 100,000 tokens, played against the simulator. bodies: one worker
with 64 streams of 50 tok/s and bodies of 1 MB, and a server that logs when it wrote each token.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil

from swarmtui.model.trace import TraceRequest, TraceSession
from swarmtui.prompts.sampling import random_stream
from swarmtui.prompts.traces.weka import BLOCK_SIZE, weka_json
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.store import load_session, summarise
from tests.bench.engine import ACCURACY_HEAD, errors_row, process_tree, quantile, truth
from tests.bench.harness import drive, tasks

TRACES = 400
SERVER = "sim:agents-large-kv?speed=10"
MEGABYTE = 1 << 20


def made_session(number: int) -> TraceSession:
    rng, tokens, requests = random_stream("bench", number), 20_000, []
    for turn in range(40):
        requests.append(
            TraceRequest(
                input_tokens=tokens,
                output_tokens=50 + int(rng.random() * 300),
                at_s=20.0 * turn,
                took_s=5.0,
                think_s=2.0 + 8.0 * rng.random(),
                blocks=tuple(range(tokens // BLOCK_SIZE)),
            )
        )
        tokens += 500 + int(rng.random() * 3_000)
    return TraceSession(id=f"made-{number}", requests=tuple(requests))


def replay() -> None:
    print(f"\nReplay: {TRACES} sessions, prompts of 20,000 to 100,000 tokens, {SERVER}, 30 s each\n")
    print("| C | first request | send delay p50 | p99 | max | prompt error | hit rate | at most | memory |")
    print("| --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "traces").mkdir()
        for number in range(TRACES):
            (folder / "traces" / f"{number:03}.json").write_bytes(weka_json(made_session(number)))
        for c in (1, 8, 64):
            print(f"| {c} | {_replay_row(folder, c)} |", flush=True)


def _replay_row(folder: Path, c: int) -> str:
    sessions = folder / f"c{c}"
    command = [
        sys.executable, "-m", "swarmtui", "run", "--endpoint", SERVER, "--workload", str(folder / "traces"), "--quiet",
        "--levels", str(c), "--duration", "30s", "--warmup", "none", "--session-dir", str(sessions),
    ]  # fmt: skip
    started = time.perf_counter_ns()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        memory = _peak_memory(process)
    records = [record for record in read_journal(next(sessions.iterdir())).records if record.t_sent_ns is not None]
    (level,) = summarise(load_session(sessions, "last")).levels
    first_s = (min(record.t_sent_ns or 0 for record in records) - started) / 1e9
    delays = [1e3 * (record.send_delay_s or 0.0) for record in records if record.replayed is not None]
    found = level.replay
    assert found is not None
    return (
        f"{first_s:.2f} s | {quantile(delays, 0.5):.2f} ms | {quantile(delays, 0.99):.2f} ms | {max(delays):.1f} ms | "
        f"{100 * (found.prompt_error or 0):+.3f} % | {100 * (found.hit_rate or 0):.2f} % | "
        f"{100 * (found.max_hit_rate or 0):.2f} % | {memory / 1e6:.0f} MB"
    )


def _peak_memory(process: subprocess.Popen[bytes]) -> int:
    """Return the largest memory of all processes but the simulator."""
    peak = 0
    while process.poll() is None:
        total = 0
        for pid in process_tree(process.pid):
            try:
                one = psutil.Process(pid)
                total += 0 if any("swarmtui.sim" in word for word in one.cmdline()) else one.memory_info().rss
            except psutil.Error:
                pass
        peak = max(peak, total)
        time.sleep(0.1)
    return peak


def bodies() -> None:
    print("\nBodies: 64 streams × 50 tok/s; client − server in ms; CPU of the worker\n")
    print(ACCURACY_HEAD.replace("streams × tok/s", "body"))
    for name, size in (("small", 0), ("1 MB", MEGABYTE)):
        with tempfile.TemporaryDirectory() as folder:
            # Answers of different lengths, so that later requests are not sent in step, as those of agents are not.
            jobs = [
                msgspec.structs.replace(
                    task,
                    max_tokens=50 + task.id * 37 % 150,
                    messages=tuple(msgspec.structs.replace(m, content=m.content + "x" * size) for m in task.messages),
                )
                for task in tasks(192, 0)
            ]
            with truth(Path(folder), "--ttft-ms=200", "--itl-ms=20") as url:
                found = drive(url, 64, jobs)
            print(f"| {name} | {errors_row(found.records, Path(folder), found.cpu_s)} |", flush=True)


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["replay", "bodies"]
    for part in chosen:
        {"replay": replay, "bodies": bodies}[part]()
