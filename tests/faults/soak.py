"""Run `swarmtui run` for a long time with the app attached, and judge whether memory and figures stay constant.

    python -m tests.faults.soak --minutes 60 --c 64                      # an hour
    python -m tests.faults.soak --requests 100000 --c 256 --speed 20     # many requests
    python -m tests.faults.soak --minutes 12 --c 16 --leak 200           # the verdict must be "failed"
    python -m tests.faults.soak --minutes 3                              # does it work? errors and open files only

Each minute: resident MB and open files of client, session process, worker and app, and the size of the journal. Every
five minutes: latencies of the requests that ended in them, from the journal. The verdict, and the exit code, compare
the time after minute 5 in parts: the memory of each process within 3 %, at most five open files more, median TTFT and
tok/s per stream of an unchanging server within 3 %, and no error. `--leak KB` makes the session process keep that much
memory per request, to see that the verdict notices. Without --url a simulator is started, `--speed` times faster than
the machine it simulates.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.stats import median, spread
from swarmtui.model.journal import RequestEntry
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Summary
from swarmtui.sessions.journal import JOURNAL, decode_line
from tests.bench.engine import process_tree
from tests.bench.terminal import AppScreen

_INTERVAL_S = 60.0
_FIGURES_EVERY = 5
_TOKENS = 200
_SIM = "moe-tp1"

# The first minutes are start-up, not growth.
_START_UP = 5
_MAX_CHANGE = 0.03
_MORE_FILES = 5

# Started by Python in every child process that has its directory on PYTHONPATH.
_LEAK = """
import os, sys
if "swarmtui.session_process" in sys.orig_argv:
    import swarmtui.session_process.live_levels as levels
    kept, add = [], levels.LevelRecords.add
    def leak(self, record):
        kept.append(os.urandom({size}))
        add(self, record)
    levels.LevelRecords.add = leak
"""


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


class Window(NamedTuple):
    """The requests that ended within one minute."""

    ttft_s: float
    stream_tps: float


def soak(options: argparse.Namespace) -> bool:
    """Return whether the memory of every process and the figures stayed constant."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = options.url or stack.enter_context(simulator(f"{_SIM}?slots={options.c}&speed={options.speed:g}"))
        sessions = folder / "sessions"
        for name in ("sessions", "run", "data", "config", "state", "leak"):
            (folder / name).mkdir(mode=0o700)
        environment = {
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        if options.leak:
            (folder / "leak" / "sitecustomize.py").write_text(_LEAK.format(size=options.leak << 10))
            environment["PYTHONPATH"] = f"{folder / 'leak'}:{Path.cwd()}"
        length = ("--requests", str(options.requests)) if options.requests else ("--duration", f"{options.minutes:g}m")
        command = [
            sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--levels", str(options.c), "--max-tokens",
            str(_TOKENS), *length, "--warmup", "none", "--quiet", "--no-gpu", "--session-dir", str(sessions),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | environment)
        while not (found := list(sessions.glob(f"*/{JOURNAL}"))) and process.poll() is None:
            time.sleep(0.1)
        time.sleep(2.0)
        app = AppScreen(["attach", "--session-dir", str(sessions)], None, 120, 40, environment)
        reader = threading.Thread(target=app.read, args=(time.monotonic() + 86_400,), daemon=True)
        reader.start()
        memory, files, windows, errors = _watch(process, app, found[0])
        print(f"exit code {process.returncode}; journal {found[0].stat().st_size / 1e6:.1f} MB", flush=True)
        app.end()
        _figures(found[0].parent)
    short = options.requests is None and options.minutes < _START_UP + 3
    problems = judge_soak(memory, files, windows, errors, short=short) + ([] if not process.returncode else ["exit"])
    print("passed" if not problems else "failed: " + "; ".join(problems))
    return not problems


@contextmanager
def simulator(spec: str) -> Iterator[str]:
    command = [sys.executable, "-m", "swarmtui.sim", spec, "--watch-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _watch(
    process: subprocess.Popen[bytes], app: AppScreen, journal: Path
) -> tuple[dict[str, list[float]], dict[str, list[int]], list[Window], Counter[str]]:
    memory: defaultdict[str, list[float]] = defaultdict(list)
    files: defaultdict[str, list[int]] = defaultdict(list)
    tail, minute, started = JournalTail(journal), 0, time.monotonic()
    windows: list[Window] = []
    errors: Counter[str] = Counter()
    recent: list[Record] = []
    while True:
        try:
            process.wait(max(0.0, started + (minute + 1) * _INTERVAL_S - time.monotonic()))
            break
        except subprocess.TimeoutExpired:
            minute += 1
        sizes = _sizes(process.pid, app.process.pid)
        if any(name.startswith("worker") for name in sizes):
            # Without a worker the session is being saved, which is not part of the run.
            for name, (size, opened) in sizes.items():
                memory[name].append(size)
                files[name].append(opened)
        records = tail.read_new()
        errors.update(record.error for record in records if record.error and record.error != CANCELLED)
        ttft = median(record.ttft_s for record in records if record.ttft_s is not None)
        rate = median(record.decode_tps for record in records if record.decode_tps is not None)
        if ttft is not None and rate is not None:
            windows.append(Window(ttft, rate))
        shown = "  ".join(f"{name} {size:.1f}, {opened}" for name, (size, opened) in sizes.items())
        print(f"minute {minute:3}  MB, files: {shown}  journal {journal.stat().st_size / 1e6:.1f}", flush=True)
        recent += records
        if minute % _FIGURES_EVERY == 0:
            _latencies(minute, recent)
            recent = []
    return memory, files, windows, errors


def _sizes(run: int, app: int) -> dict[str, tuple[float, int]]:
    """Return the resident MB and the number of open files of each process."""
    found = {}
    for pid in (*process_tree(run), app):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            opened = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:
            continue
        part = "app" if pid == app else "client" if pid == run else words[words.index("-m") + 1].rpartition(".")[2]
        if part != "compute_levels":
            name = part if part not in found else f"{part} {pid}"
            found[name] = (pages * os.sysconf("SC_PAGE_SIZE") / 1e6, opened)
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
        f"tok/s per stream p50 {_ms(rate.p50)}; {gaps.n + len(ok)} chunks",
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


def judge_soak(
    memory: dict[str, list[float]],
    files: dict[str, list[int]],
    windows: list[Window],
    errors: Counter[str],
    *,
    short: bool = False,
) -> list[str]:
    """Return what changed by more than 3 % after start-up, and which files stay open; samples are one per minute.

    A `short` run need only have samples of every process.
    """
    series = {f"memory of {name}, MB": values for name, values in memory.items()} | {
        "TTFT, s": [window.ttft_s for window in windows],
        "tok/s per stream": [window.stream_tps for window in windows],
    }
    problems = [f"{count} × {error}" for error, count in errors.items()]
    for name, counts in files.items():
        if counts[_START_UP:] and counts[-1] > max(counts[:_START_UP]) + _MORE_FILES:
            problems.append(f"open files of {name}: {max(counts[:_START_UP])} → {counts[-1]}")
    if short:
        return (
            problems + [f"no {name}" for name, values in series.items() if not values] + ["no process"] * (not memory)
        )
    for name, values in series.items():
        settled = values[_START_UP:]
        if len(settled) < 2:
            problems.append(f"{name}: {len(values)} minutes are too few")
            continue
        part = max(1, len(settled) // 5)
        first, last = sum(settled[:part]) / part, sum(settled[-part:]) / part
        change = f"{name}: {first:.4g} → {last:.4g} ({100 * (last / first - 1):+.1f} %), highest {max(values):.4g}"
        print(change)
        if abs(last / first - 1) > _MAX_CHANGE:
            problems.append(change)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--c", type=int, default=64)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--leak", type=int, default=0, metavar="KB")
    parser.add_argument("--url")
    return 0 if soak(parser.parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
