"""Compare a run over two nodes of a private Ray cluster with a run of this host; needs the extra `ray`.

python -m tests.bench.hosts [accuracy|tokens|start|round_trip]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from swarmtui.model.journal import ClockEntry
from swarmtui.model.record import Record
from swarmtui.sessions.journal import Journal, read_entries, read_journal
from tests.bench.engine import ACCURACY_HEAD, errors_row, quantile, truth

HOSTS = {"one host": ("--workers", "2"), "two hosts": ("--hosts", "local:2")}

_BARRIER = """
kind = "prompts"
name = "barrier"
prompts = [{{ text = "Say something." }}]
[load]
mode = "barrier"
serial = "none"
levels = [{c}]
runs = 4
"""


@contextmanager
def session(folder: Path, url: str, *words: str) -> Iterator[tuple[Path, Journal]]:
    command = [sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--seed", "1", "--quiet", *words]
    subprocess.run([*command, "--session-dir", str(folder / "sessions")], stdout=subprocess.DEVNULL, check=True)
    (directory,) = (entry for entry in (folder / "sessions").iterdir() if entry.is_dir())
    yield directory, read_journal(directory)


def measured(journal: Journal) -> list[Record]:
    return [record for record in journal.records if record.ok]


def accuracy() -> None:
    print("\nAccuracy: paced server; client − server in ms\n")
    print(ACCURACY_HEAD)
    for c, rate, count in ((4, 170, 340), (64, 50, 150)):
        for name, hosts in HOSTS.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                with (
                    truth(folder, "--ttft-ms=200", f"--itl-ms={1000 / rate}") as url,
                    session(
                        folder, url, "--levels", f"{c}", "--requests", f"{2 * c}", "--max-tokens", f"{count}", *hosts
                    ) as (directory, journal),
                ):
                    pass
                print(f"| {name}, {c} × {rate} | {errors_row(measured(journal), folder, None)} |", flush=True)
                clocks = [e.clock for e in read_entries(directory / "journal.jsonl")[0] if isinstance(e, ClockEntry)]
                if clocks:
                    bounds = sorted(clock.bound_ns / 1e6 for clock in clocks)
                    off = max(abs(clock.offset_ns) for clock in clocks) / 1e6
                    print(f"  clock bounds {bounds[0]:.3f}–{bounds[-1]:.3f} ms, offsets up to {off:.3f} ms (true: 0)")


def tokens() -> None:
    print("\nTokens: the same plan and seed on the simulator\n")
    found = {}
    for name, hosts in HOSTS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            session(Path(folder), "sim:moe-tp1?speed=5", "--levels", "2,8", "--runs", "2", *hosts) as (_, journal),
        ):
            records = [record for record in measured(journal) if record.phase == "level"]
            found[name] = {record.key: (record.tokens_in, record.tokens_out) for record in records}
            print(
                f"{name}: {len(records)} requests, {sum(record.tokens_out or 0 for record in records):,} output tokens"
            )
    one, two = found.values()
    different = [pair for pair in zip(one, two, strict=True) if pair[0] != pair[1]]
    print(f"different: {different[:3]}" if different else "all requests have equal tokens")


def start() -> None:
    print(
        "\nStart of a barrier: when requests were sent, and arrived at the server; ms between the workers, of 4 runs\n"
    )
    print("| C | | sent: first to first | arrived: first to first | median to median | first to last of all |")
    print("| --: | --- | --- | --- | --- | --- |")
    for c in (8, 64, 256):
        for name, hosts in HOSTS.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                workload = folder / "barrier.toml"
                workload.write_text(_BARRIER.format(c=c))
                with (
                    truth(folder, "--ttft-ms=200", "--itl-ms=20") as url,
                    session(folder, url, "--workload", str(workload), "--max-tokens", "50", *hosts) as (_, journal),
                ):
                    pass
                lines = [line.split("\t") for line in (folder / "requests.tsv").read_text().splitlines()]
                arrived = {int(seq): int(t_byte) / 1e6 for seq, t_byte, *_ in lines}
                runs: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
                sent: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
                for record in measured(journal):
                    if record.phase == "level":
                        runs[record.run][record.agent % 2].append(arrived[int(record.id.split("-")[1])])
                        sent[record.run][record.agent % 2].append((record.t_sent_ns or 0) / 1e6)
                starts, firsts, medians, spans = [], [], [], []
                for run, workers in runs.items():
                    earlier, later = sorted(min(times) for times in sent[run].values())
                    starts.append(later - earlier)
                    one, two = workers.values()
                    firsts.append(abs(min(one) - min(two)))
                    medians.append(abs(median(one) - median(two)))
                    spans.append(max(one + two) - min(one + two))
                cells = (" ".join(f"{value:.2f}" for value in values) for values in (starts, firsts, medians, spans))
                print(f"| {c} | {name} | {' | '.join(cells)} |", flush=True)


def round_trip() -> None:
    """A Ray actor call, and a message over a socket that the actor opened."""
    import asyncio

    from swarmtui.hosts.pool import HostPool
    from swarmtui.hosts.ray_cluster import PrivateCluster

    print("\nRound trip to an actor of a private cluster, ms: shortest, median, p99 of 500\n")

    async def by_socket() -> list[float]:
        pool = HostPool("local:1", lambda link, how: None)
        try:
            await pool.start()
            return [2e-6 * (await pool.links[0].measure_clock(1)).bound_ns for _ in range(500)]
        finally:
            await pool.close()

    _print_times("socket", asyncio.run(by_socket()))
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        cluster = PrivateCluster(1, folder)
        import ray

        ray.init(address=cluster.address, log_to_driver=False)

        class Clock:
            def now(self) -> int:
                return time.perf_counter_ns()

        clock = ray.remote(num_cpus=0)(Clock).remote()
        times = []
        for _ in range(500):
            sent = time.perf_counter_ns()
            ray.get(clock.now.remote())
            times.append((time.perf_counter_ns() - sent) / 1e6)
            time.sleep(0.01)
        _print_times("actor call", times)
        ray.shutdown()
        cluster.end()


def _print_times(name: str, times: list[float]) -> None:
    print(f"{name}: {min(times):.3f}  {median(times):.3f}  {quantile(times, 0.99):.3f}", flush=True)


if __name__ == "__main__":
    parts = {"accuracy": accuracy, "tokens": tokens, "start": start, "round_trip": round_trip}
    for part in sys.argv[1:] or parts:
        parts[part]()
