"""Measure the load generator: the cost of a streamed event, compared with common clients, and the accuracy of stamps.

    python -m tests.bench.engine [cost] [accuracy] [apis] [attached] [processes]      (all by default)

cost: one worker and a server that writes as fast as it can. accuracy: one worker and a paced server that logs when it
wrote each token. apis: both for each API that names its responses, which Ollama's does not. attached: the accuracy of
`swarmtui run`, without and with the app attached in a terminal of 120 × 40. processes: CPU and memory of all processes
of `swarmtui run`.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import trustme

from swarmtui.model.endpoint import PATHS
from swarmtui.model.record import Record
from swarmtui.sessions.journal import read_journal
from tests.bench.harness import drive, tasks
from tests.bench.terminal import AppScreen

ACCURACY_HEAD = """\
| streams × tok/s | token counts | stamp p99 | ITL p99 | TTFT p50 | TTFT p99 | max rate error | µs/event | coalesced |
| --- | --- | --: | --: | --: | --: | --: | --: | --: |"""


@contextmanager
def truth(folder: Path, *words: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.truth", str(folder), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(30)


def cost() -> None:
    print("\nCost: unpaced server; CPU µs per streamed event, and events/s\n")
    print("| client | " + " | ".join(f"C={c}" for c in (16, 64, 256, 1024)) + " |")
    print("| --- | --: | --: | --: | --: |")
    for kind in ("httpx", "httpx+aiohttp", "swarmtui worker"):
        cells = []
        for c in (16, 64, 256, 1024):
            with tempfile.TemporaryDirectory() as folder, truth(Path(folder), "--ttft-ms=0", "--itl-ms=0") as url:
                if kind == "swarmtui worker":
                    load = drive(url, c, tasks(c, 600_000 // c))
                    found = {"cpu_s": load.cpu_s, "wall_s": load.wall_s, "events": sum(r.chunks for r in load.records)}
                else:
                    words = [sys.executable, "-m", "tests.bench.clients", kind, url, str(c), str(40_000 // c)]
                    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
            cells.append(f"{found['cpu_s'] / found['events'] * 1e6:.1f} µs, {found['events'] / found['wall_s']:,.0f}/s")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


def accuracy() -> None:
    print("\nAccuracy: paced server; client − server in ms; CPU of the worker\n")
    print(ACCURACY_HEAD)
    for c, rate, count, per_chunk, tls in (
        (4, 170, 340, 1, False),
        (64, 50, 100, 1, False),
        (64, 400, 800, 8, False),
        (256, 50, 100, 1, False),
        (1000, 50, 100, 1, False),
        (4, 170, 340, 1, True),
        (64, 50, 100, 1, True),
        (256, 50, 100, 1, True),
    ):
        itl = 1000 / rate * per_chunk
        with tempfile.TemporaryDirectory() as folder:
            words = ["--ttft-ms=200", f"--itl-ms={itl}", f"--per-chunk={per_chunk}"]
            authority = Path(folder) / "authority.pem" if tls else None
            if authority:
                words.append(f"--certificate={_certificate(Path(folder), authority)}")
            with truth(Path(folder), *words) as url:
                load = drive(
                    url, c, tasks(4 * c if c < 256 else 2 * c, count), ca_file=str(authority) if authority else None
                )
            name = f"{c} × {rate}{f', {per_chunk} per chunk' if per_chunk > 1 else ''}{', TLS' if tls else ''}"
            print(f"| {name} | {errors_row(load.records, Path(folder), load.cpu_s)} |", flush=True)


def apis() -> None:
    print("\nAPIs: CPU per event at C=64 with an unpaced server; accuracy at 64 × 50 tok/s\n")
    print(f"{ACCURACY_HEAD.replace('streams × tok/s', 'API').replace('µs/event', 'µs/event unpaced')}")
    for dialect in (name for name in PATHS if name != "ollama"):
        with tempfile.TemporaryDirectory() as folder:
            with truth(Path(folder), "--ttft-ms=0", "--itl-ms=0") as url:
                cost = drive(url, 64, tasks(64, 4_000), dialect=dialect)
            events = sum(record.chunks for record in cost.records)
            with truth(Path(folder), "--ttft-ms=200", "--itl-ms=20") as url:
                load = drive(url, 64, tasks(256, 100), dialect=dialect)
            *cells, _, coalesced = errors_row(load.records, Path(folder), None).split(" | ")
            print(f"| {dialect} | {' | '.join([*cells, f'{cost.cpu_s / events * 1e6:.1f}', coalesced])} |", flush=True)


def _certificate(folder: Path, authority: Path) -> Path:
    """Return a server certificate, signed by an authority created for this run."""
    ca, path = trustme.CA(), folder / "server.pem"
    ca.cert_pem.write_to_path(authority)
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(path)
    return path


def attached() -> None:
    print("\nAttached: `swarmtui run` on the paced server, without and with the app at 120 × 40\n")
    print(ACCURACY_HEAD)
    for c, rate, count in ((4, 170, 680), (64, 50, 300), (256, 50, 300), (1000, 50, 300)):
        for app in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                folder = Path(directory)
                with truth(folder, "--ttft-ms=200", f"--itl-ms={1000 / rate}") as url:
                    _run(url, c, 2 * c, count, folder / "sessions", app)
                (session,) = (entry for entry in (folder / "sessions").iterdir() if entry.is_dir())
                # Fillers are cancelled at the end of a level, before the server has logged them.
                records = [record for record in read_journal(session).records if record.ok]
                label = f"{c} × {rate}{', app attached' if app else ''}"
                print(f"| {label} | {errors_row(records, folder, None)} |", flush=True)


def _run(url: str, c: int, requests: int, max_tokens: int, directory: Path, app: bool) -> None:
    words = f"run --endpoint {url} --levels {c} --requests {requests} --max-tokens {max_tokens} --warmup none --quiet"
    command = [sys.executable, "-m", "swarmtui", *words.split(), "--session-dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        if app:
            time.sleep(1.0)
            screen = AppScreen(["attach", "--session-dir", str(directory)], None, 120, 40)
            while process.poll() is None:
                screen.read(time.monotonic() + 0.2)
            screen.end()


def errors_row(records: list[Record], folder: Path, cpu_s: float | None) -> str:
    """Compare the client's figures with the server's logs; return the cells of a row."""
    requests = {}
    for line in (folder / "requests.tsv").read_text().splitlines():
        seq, *times = map(int, line.split("\t"))
        requests[seq] = times
    written: defaultdict[int, list[int]] = defaultdict(list)
    for seq, _, t in struct.iter_unpack("=IIq", (folder / "tokens.bin").read_bytes()):
        written[seq].append(t)
    stamps, gaps, ttfts, rates, equal = [], [], [], [], 0
    for record in records:
        seq = int(record.id.split("-")[1])
        t_byte, t_first, t_last, tokens = requests[seq]
        equal += record.tokens_out == tokens
        truth_times = sorted(set(written[seq]))
        errors = [(ours - theirs) / 1e6 for ours, theirs in zip(record.chunk_times_ns(), truth_times, strict=True)]
        stamps += errors
        gaps += [abs(after - before) for before, after in pairwise(errors)]
        assert record.ttft_s is not None and record.decode_tps is not None
        ttfts.append(record.ttft_s * 1e3 - (t_first - t_byte) / 1e6)
        first = written[seq].count(truth_times[0])
        rates.append(abs(record.decode_tps / ((tokens - first) / ((t_last - t_first) / 1e9)) - 1))
    coalesced = sum(r.coalesced_chunks for r in records) / sum(r.chunks for r in records)
    exact = "all equal" if equal == len(records) else f"{len(records) - equal} WRONG"
    return (
        f"{exact} | {quantile(stamps, 0.99):.4f} | {quantile(gaps, 0.99):.4f} | "
        f"{quantile(ttfts, 0.5):.3f} | {quantile(ttfts, 0.99):.3f} | "
        f"{max(rates):.3%} | {f'{cpu_s / len(stamps) * 1e6:.1f}' if cpu_s else '–'} | {coalesced:.2%}"
    )


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * q))]


def processes() -> None:
    print("\nProcesses: `swarmtui run`, 256 streams × 50 tok/s × 100 tokens\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sessions").mkdir()
        with truth(Path(folder), "--ttft-ms=200", "--itl-ms=20") as url:
            command = [
                sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--levels", "256", "--max-tokens", "100",
                "--warmup", "none", "--quiet", "--session-dir", f"{folder}/sessions",
            ]  # fmt: skip
            started = time.perf_counter_ns()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                cpu, peak = _measure_processes(process)
        first = min(int(line.split("\t")[1]) for line in (Path(folder) / "requests.tsv").read_text().splitlines())
    delay = (first - started) / 1e9
    print(f"first request after {delay:.2f} s; CPU {cpu:.2f} s for 102,400 tokens; peak {peak / 1e6:.0f} MB")


def _measure_processes(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Return the CPU seconds and the peak resident memory of a process tree."""
    peak, cpu = 0.0, defaultdict[int, float](float)
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    while process.poll() is None:
        memory = 0
        for pid in process_tree(process.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
            except OSError:
                continue
            cpu[pid] = max(cpu[pid], (int(fields[11]) + int(fields[12])) / tick)
        peak = max(peak, memory)
        time.sleep(0.05)
    return sum(cpu.values()), peak


def process_tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(below for child in children for below in process_tree(int(child)))]


if __name__ == "__main__":
    parts = {"cost": cost, "accuracy": accuracy, "apis": apis, "attached": attached, "processes": processes}
    for part in sys.argv[1:] or parts:
        parts[part]()
