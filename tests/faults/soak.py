"""Run `swarmtui run` for a long time with the app attached, and report the memory of all processes each minute.

    python -m tests.faults.soak [--minutes 5] [--c 64] [--url URL]

Each minute: resident MB of client, session process, worker and app, and the size of the journal. Every five minutes:
latencies of the requests that ended in them, from the journal. At the end: the growth of memory in percent.
Without --url the benchmark's own server is started, with the first token after 200 ms and one every 20 ms. It keeps
every token in memory, so that runs of an hour need another endpoint.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import msgspec

from swarmtui.analysis.levels.stats import spread
from swarmtui.model.record import Record
from swarmtui.model.session import RequestEntry, Summary
from swarmtui.sessions.journal import JOURNAL, decode_line
from tests.bench.engine import process_tree, truth
from tests.bench.terminal import AppScreen

_INTERVAL_S = 60.0
_FIGURES_EVERY = 5
_TOKENS = 200

# The first minutes are start-up, not growth.
_START_UP = 2
_MAX_GROWTH = 0.05


class JournalTail:
    """Reads the requests added to a journal since the last call."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def read_new(self) -> list[Record]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        entries = map(decode_line, whole.splitlines())
        return [entry.record for entry in entries if isinstance(entry, RequestEntry)]


def soak(minutes: float, c: int, url: str | None) -> bool:
    """Return whether the memory of every process stayed constant."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if url is None:
            url = stack.enter_context(truth(folder, "--ttft-ms=200", "--itl-ms=20"))
        sessions = folder / "sessions"
        for name in ("sessions", "run", "data", "config", "state"):
            (folder / name).mkdir(mode=0o700)
        directories = {
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        command = [
            sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--levels", str(c), "--max-tokens",
            str(_TOKENS), "--duration", f"{minutes:g}m", "--warmup", "none", "--quiet", "--no-gpu",
            "--session-dir", str(sessions),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | directories)
        while not (found := list(sessions.glob(f"*/{JOURNAL}"))) and process.poll() is None:
            time.sleep(0.1)
        time.sleep(2.0)
        app = AppScreen(["attach", "--session-dir", str(sessions)], None, 120, 40, directories)
        reader = threading.Thread(target=app.read, args=(time.monotonic() + 60 * minutes + 3600,), daemon=True)
        reader.start()
        memory = _watch(process, app, found[0])
        print(f"exit code {process.returncode}; journal {found[0].stat().st_size / 1e6:.1f} MB", flush=True)
        app.end()
        _figures(found[0].parent)
    return _is_constant(memory)


def _watch(process: subprocess.Popen[bytes], app: AppScreen, journal: Path) -> dict[str, list[float]]:
    memory: defaultdict[str, list[float]] = defaultdict(list)
    tail, minute, started = JournalTail(journal), 0, time.monotonic()
    while True:
        try:
            process.wait(max(0.0, started + (minute + 1) * _INTERVAL_S - time.monotonic()))
            break
        except subprocess.TimeoutExpired:
            minute += 1
        sizes = _memory_mb(process.pid, app.process.pid)
        if any(name.startswith("worker") for name in sizes):
            # Without a worker the session is being saved, which is not part of the run.
            for name, size in sizes.items():
                memory[name].append(size)
        shown = "  ".join(f"{name} {size:.1f}" for name, size in sizes.items())
        print(f"minute {minute:3}  MB: {shown}  journal {journal.stat().st_size / 1e6:.1f}", flush=True)
        if minute % _FIGURES_EVERY == 0:
            _latencies(minute, tail.read_new())
    return memory


def _memory_mb(run: int, app: int) -> dict[str, float]:
    """Return the resident MB of each process."""
    found = {}
    for pid in (*process_tree(run), app):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
        part = "app" if pid == app else "client" if pid == run else words[words.index("-m") + 1].rpartition(".")[2]
        if part != "compute_levels":
            found[part if part not in found else f"{part} {pid}"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return found


def _latencies(minute: int, records: list[Record]) -> None:
    ok = [record for record in records if record.ok]
    if not ok:
        print(f"  to minute {minute}: no request finished")
        return
    ttft = spread([record.ttft_s * 1e3 for record in ok if record.ttft_s is not None])
    rate = spread([record.decode_tps for record in ok if record.decode_tps is not None])
    gaps = spread([gap / 1e3 for record in ok for gap in record.chunk_us[1:]])
    stall = max((record.longest_gap_us or 0 for record in ok), default=0) / 1e3
    errors = dict(Counter(record.error for record in records if record.error))
    print(
        f"  to minute {minute}: {len(ok)} ok, errors {errors}; TTFT ms p50 {_ms(ttft.p50)} p99 {_ms(ttft.p99)}; "
        f"gap ms mean {_ms(gaps.mean)} p50 {_ms(gaps.p50)} p99 {_ms(gaps.p99)}, longest {stall:.1f}; "
        f"tok/s per stream {_ms(rate.mean)}; {gaps.n + len(ok)} chunks",
        flush=True,
    )


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _figures(directory: Path) -> None:
    summary = msgspec.json.decode((directory / "detail.json").read_bytes(), type=Summary)
    for level in summary.levels:
        print(
            f"C={level.c}: {level.n} requests, errors {level.error_counts}, "
            f"in flight (mean) {level.c_achieved or 0:.1f}, "
            f"{level.out_tps_steady or 0:,.1f} tok/s steady, {level.out_tps_wall or 0:,.1f} wall"
        )
        print("  flags:", *level.flags, sep="\n    ")
    print("  measurement quality:", *(f"{t.name} {t.state} ({t.value})" for t in summary.quality), sep="\n    ")
    print("  events:", *(f"{event.name}: {event.detail}" for event in summary.events), sep="\n    ")


def _is_constant(memory: dict[str, list[float]]) -> bool:
    """Compare the mean memory of the first and the last fifth of the time after start-up."""
    constant = True
    for name, values in memory.items():
        settled = values[_START_UP:]
        part = max(1, len(settled) // 5)
        if len(settled) < 2:
            continue
        first, last = sum(settled[:part]) / part, sum(settled[-part:]) / part
        growth = last / first - 1
        constant = constant and abs(growth) <= _MAX_GROWTH
        result = "constant" if abs(growth) <= _MAX_GROWTH else "GROWS"
        print(f"{name}: {first:.1f} → {last:.1f} MB ({100 * growth:+.1f} %), peak {max(values):.1f}: {result}")
    return constant


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--c", type=int, default=64)
    parser.add_argument("--url")
    options = parser.parse_args()
    return 0 if soak(options.minutes, options.c, options.url) else 1


if __name__ == "__main__":
    sys.exit(main())
