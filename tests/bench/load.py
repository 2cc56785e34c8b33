"""Run `swarmtui run` with many streams against a paced server that logs its times.

    python -m tests.bench.load thousand [--url URL]     1,000 streams × 50 tok/s for 60 s
    python -m tests.bench.load idle [--url URL]         4,000 streams × 1 tok/s for 60 s

Reports errors, coalesced chunks, measurement quality, how far stamps are from the server's, and the growth of each
process's memory. Without --url the benchmark's own server is started, which uses as much CPU as the client. Stamps are
not compared with those of another server, which must be paced alike. For long runs: `python -m tests.faults.soak`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import msgspec

from swarmtui.model.session import Summary
from swarmtui.sessions.journal import read_journal
from tests.bench.engine import process_tree, quantile, truth

KINDS = {
    "thousand": ("1000", "200", "20", "500", "60s"),
    "idle": ("4000", "1000", "1000", "20", "60s"),
}


def load(kind: str, url: str | None) -> None:
    c, ttft_ms, itl_ms, tokens, duration = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        sessions = Path(folder) / "sessions"
        sessions.mkdir()
        own = truth(Path(folder), f"--ttft-ms={ttft_ms}", f"--itl-ms={itl_ms}")
        with nullcontext(url) if url else own as url:
            command = [
                sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--levels", c, "--max-tokens", tokens,
                "--duration", duration, "--warmup", "none", "--quiet", "--no-gpu", "--session-dir", str(sessions),
            ]  # fmt: skip
            started = time.monotonic()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                memory = _memory(process)
            took = time.monotonic() - started
        print(
            f"{kind}: C={c}, one token every {itl_ms} ms, {duration}: exit code {process.returncode} after {took:.0f} s"
        )
        (directory,) = sessions.iterdir()
        _figures(directory, _server_times(Path(folder) / "requests.tsv"))
        _memory_growth(memory)
        print(f"journal {(directory / 'journal.jsonl').stat().st_size / 1e6:.1f} MB")


def _memory(process: subprocess.Popen[bytes]) -> dict[str, list[float]]:
    """Return the resident MB of each process, sampled once per second."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    while process.poll() is None:
        for pid in process_tree(process.pid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
            name = words[words.index("-m") + 1] if "-m" in words else str(pid)
            found[f"{name} {pid}"].append(pages * 4096 / 1e6)
        time.sleep(1.0)
    return found


def _memory_growth(memory: dict[str, list[float]]) -> None:
    for name, values in memory.items():
        if len(values) >= 20:
            # Starting and saving are not part of the run.
            part = max(1, len(values) // 10)
            early, late = values[part : 2 * part], values[-2 * part : -part]
            first, last = sum(early) / len(early), sum(late) / len(late)
            print(f"{name}: {first:.1f} → {last:.1f} MB ({100 * (last / first - 1):+.1f} %), peak {max(values):.1f}")


def _server_times(log: Path) -> dict[str, tuple[int, int]]:
    """Return when the server wrote the first and the last token of each response, if it logged that."""
    rows = [line.split("\t") for line in log.read_text().splitlines() if line] if log.exists() else []
    return {f"gen-{int(row[0]):08d}": (int(row[2]), int(row[3])) for row in rows}


def _figures(directory: Path, written: dict[str, tuple[int, int]]) -> None:
    summary = msgspec.json.decode((directory / "detail.json").read_bytes(), type=Summary)
    for level in summary.levels:
        print(
            f"{level.n} requests, errors {level.error_counts}, in flight (mean) {level.c_achieved:.1f}, "
            f"{level.out_tps_steady or 0:,.0f} tok/s steady, coalesced {100 * (level.coalesced_chunks or 0):.3g} %"
        )
        print("  flags:", *level.flags, sep="\n    ")
    print("  measurement quality:", *(f"{t.name} {t.state} ({t.value})" for t in summary.quality), sep="\n    ")
    records = [record for record in read_journal(directory).records if record.ok]
    logged = [record for record in records if record.id in written]
    firsts = [abs((r.t_first_ns or 0) - written[r.id][0]) / 1e6 for r in logged]
    lasts = [abs((r.t_last_ns or 0) - written[r.id][1]) / 1e6 for r in logged]
    for name, values in (("first", firsts), ("last", lasts)):
        if values:
            print(
                f"{name} token, client − server: p50 {quantile(values, 0.5):.3f} ms, "
                f"p99 {quantile(values, 0.99):.3f} ms"
            )
    half = len(records) // 2
    rates = [r.decode_tps or 0.0 for r in sorted(records, key=lambda r: r.t_sent_ns or 0)]
    if half:
        early, late = sum(rates[:half]) / half, sum(rates[half:]) / len(rates[half:])
        print(f"decode tok/s, first half {early:.3f}, second half {late:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--url")
    options = parser.parse_args()
    load(options.kind, options.url)


if __name__ == "__main__":
    main()
