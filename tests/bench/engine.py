"""The engine's two tables: what a streamed event costs, beside the usual clients; and how exact the stamps are.

    python -m tests.bench.engine [cost] [accuracy] [watched] [whole]      (all four without a word)

cost: one worker against a server that writes as fast as it can. accuracy: one worker against a paced server that logs
when it wrote each token. watched: the same held against the journal of `swarmtui run`, without and with the app
attached to it in a terminal of 120 × 40. whole: `swarmtui run` as a person starts it, the CPU and memory of all its
processes.
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

from swarmtui.model.record import Record
from swarmtui.sessions.journal import read_journal
from tests.bench.harness import drive, tasks
from tests.bench.terminal import Screen

_ACCURACY_HEAD = """\
| streams × tok/s | tokens | stamp p99 | ITL p99 | TTFT p50 | TTFT p99 | rate, worst | µs/event | shared |
| --- | --- | --: | --: | --: | --: | --: | --: | --: |"""


@contextmanager
def truth(folder: Path, *words: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.truth", str(folder), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.wait(30)


def cost() -> None:
    print("\nCost: server as fast as it can; CPU µs per streamed event, and events a second\n")
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
    print("\nAccuracy: paced server; client − server, ms; CPU of the worker\n")
    print(_ACCURACY_HEAD)
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
            name = f"{c} × {rate}{f', {per_chunk} a chunk' if per_chunk > 1 else ''}{', TLS' if tls else ''}"
            print(f"| {name} | {_held(load.records, Path(folder), load.cpu_s)} |", flush=True)


def _certificate(folder: Path, authority: Path) -> Path:
    """The server's own, signed by an authority that is made up for this run."""
    ca, path = trustme.CA(), folder / "server.pem"
    ca.cert_pem.write_to_path(authority)
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(path)
    return path


def watched() -> None:
    print("\nWatched: `swarmtui run` on the paced server, without and with the app attached at 120 × 40\n")
    print(_ACCURACY_HEAD)
    for c, rate, count in ((4, 170, 680), (64, 50, 300), (256, 50, 300), (1000, 50, 300)):
        for app in (False, True):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                with truth(folder, "--ttft-ms=200", f"--itl-ms={1000 / rate}") as url:
                    _run(url, c, 2 * c, count, folder / "sessions", app)
                (session,) = (entry for entry in (folder / "sessions").iterdir() if entry.is_dir())
                records = list(read_journal(session).records)
                name = f"{c} × {rate}{', app open' if app else ''}"
                print(f"| {name} | {_held(records, folder, None)} |", flush=True)


def _run(url: str, c: int, requests: int, max_tokens: int, place: Path, app: bool) -> None:
    words = f"run --endpoint {url} --levels {c} --requests {requests} --max-tokens {max_tokens} --warmup none --quiet"
    command = [sys.executable, "-m", "swarmtui", *words.split(), "--session-dir", str(place)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        if app:
            time.sleep(1.0)
            screen = Screen(["attach", "--session-dir", str(place)], None, 120, 40)
            while process.poll() is None:
                screen.read(time.monotonic() + 0.2)
            screen.end()


def _held(records: list[Record], folder: Path, cpu_s: float | None) -> str:
    """The client's figures against what the server wrote down."""
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
    shared = sum(r.shared_reads for r in records) / sum(r.chunks for r in records)
    exact = "all equal" if equal == len(records) else f"{len(records) - equal} WRONG"
    return (
        f"{exact} | {_at(stamps, 0.99):.4f} | {_at(gaps, 0.99):.4f} | {_at(ttfts, 0.5):.3f} | {_at(ttfts, 0.99):.3f} | "
        f"{max(rates):.3%} | {f'{cpu_s / len(stamps) * 1e6:.1f}' if cpu_s else '–'} | {shared:.2%}"
    )


def _at(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * q))]


def whole() -> None:
    print("\nThe whole: `swarmtui run`, 256 streams × 50 tok/s × 100 tokens, all processes\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sessions").mkdir()
        with truth(Path(folder), "--ttft-ms=200", "--itl-ms=20") as url:
            command = [
                sys.executable,
                "-m",
                "swarmtui",
                "run",
                "--endpoint",
                url,
                "--levels",
                "256",
                "--max-tokens",
                "100",
            ]
            command += ["--warmup", "none", "--quiet", "--session-dir", f"{folder}/sessions"]
            begun = time.perf_counter_ns()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                cpu, peak = _follow(process)
        first = min(int(line.split("\t")[1]) for line in (Path(folder) / "requests.tsv").read_text().splitlines())
    started = (first - begun) / 1e9
    print(f"first request after {started:.2f} s; CPU {cpu:.2f} s for 102,400 tokens; at most {peak / 1e6:.0f} MB")


def _follow(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """CPU seconds and the largest sum of resident memory of a process and all below it."""
    peak, cpu = 0.0, defaultdict[int, float](float)
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    while process.poll() is None:
        memory = 0
        for pid in _tree(process.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
            except OSError:
                continue
            cpu[pid] = max(cpu[pid], (int(fields[11]) + int(fields[12])) / tick)
        peak = max(peak, memory)
        time.sleep(0.05)
    return sum(cpu.values()), peak


def _tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(below for child in children for below in _tree(int(child)))]


if __name__ == "__main__":
    parts = {"cost": cost, "accuracy": accuracy, "watched": watched, "whole": whole}
    for part in sys.argv[1:] or parts:
        parts[part]()
