"""Measure the screens that are not live: bytes to the terminal and CPU time to open one, move its cursor and filter.

python -m tests.bench.screens                  # 3,000 sessions, 120×40
python -m tests.bench.screens --sessions 200 --size 80x24
unshare -rn python -m tests.bench.screens setup  # where no server is found
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from swarmtui.experiments.store import add_change
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.session_tags import Series
from swarmtui.model.tuning import LoggedChange
from swarmtui.sessions.store import write_summary
from tests.bench.terminal import AppScreen
from tests.experiments.tune_builders import FOUR, ONE, SLOTS, done, tune_status, write_tune_directory
from tests.sessions.session_builders import full_session, write_session

START = datetime(2026, 9, 1, tzinfo=UTC)
QUIET_S, LONGEST_S, MOVES = 0.5, 60.0, 20
# The key that opens a screen, what it shows then, and what is typed to filter or fill in a field.
SCREENS = {
    "setup": ("", "New benchmark", "1\thttp://box:8000"),
    "sessions": ("L", "newest first", "/probe"),
    "log": ("T", "tuning log", ""),
    "probes": ("H", "smoothed", "/qwen"),
    "tunes": ("U", "newest first", ""),
}


def write_data(root: Path, sessions: int) -> None:
    """Write sessions of which every tenth is a probe, 40 changes and 40 tunes."""
    for number in range(sessions):
        at = START + timedelta(minutes=20 * number)
        name = f"{at:%Y%m%d-%H%M%S}-{number % 65536:04x}"
        series = Series(kind="probe", name="http://box:8000") if number % 10 == 0 else None
        fields = {"label": f"label {number}", "created": at.isoformat()} | ({"series": series} if series else {})
        model = ("qwen3", "gemma", "很长的模型")[number % 3]
        endpoints = (Endpoint(url="http://box:8000", model=model),)
        write_summary(write_session(root / name, full_session(name, endpoints=endpoints, **fields)))
    change = LoggedChange(
        number=0, created=START.isoformat(), before="", after="", what="", effect="C=4: +3.0 %, faster (p = 0.029)",
        verdict="faster", change=0.03,
    )  # fmt: skip
    for number in range(40):
        after, what = f"session {number}", f"--max-num-seqs {number} → {number + 1}"
        add_change(root, msgspec.structs.replace(change, after=after, what=what))
        directory = root / ".tuning" / f"tune-{number}"
        write_tune_directory(directory, SLOTS, [done(ONE, 100.0), done(FOUR, 250.0)], tune_status(ended="stopped"))


def settle(screen: AppScreen) -> int:
    """Read until the app is quiet; return the bytes that it wrote."""
    before, until = sum(screen.seconds.values()), time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        read = sum(screen.seconds.values())
        screen.read(time.monotonic() + QUIET_S)
        if sum(screen.seconds.values()) == read:
            break
    return sum(screen.seconds.values()) - before


def step(screen: AppScreen, *keys: str) -> str:
    cpu, written = screen.cpu_s(), 0
    for key in keys:
        screen.press(key.encode())
        written += settle(screen)
    return f"{written:7,} B {screen.cpu_s() - cpu:5.2f} s"


def measure(name: str, root: Path, columns: int, rows: int) -> None:
    key, shown, typed = SCREENS[name]
    with tempfile.TemporaryDirectory() as state:
        environment = {f"XDG_{kind}_HOME": state for kind in ("STATE", "CONFIG", "DATA")}
        screen = AppScreen(["--session-dir", str(root)], None, columns, rows, environment)
        try:
            screen.read(screen.started + LONGEST_S, b"New benchmark")
            settle(screen)
            opened = f"{sum(screen.seconds.values()):7,} B {screen.cpu_s():5.2f} s"
            if key:
                cpu, before = screen.cpu_s(), sum(screen.seconds.values())
                screen.output = b""
                screen.press(key.encode())
                screen.read(time.monotonic() + LONGEST_S, shown.encode())
                settle(screen)
                opened = f"{sum(screen.seconds.values()) - before:7,} B {screen.cpu_s() - cpu:5.2f} s"
            moved = step(screen, *"j" * MOVES)
            filtered = step(screen, *typed) if typed else ""
        finally:
            screen.end()
    print(f"{name:9} open {opened}   {MOVES} moves {moved}   typed {typed!r:20} {filtered}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=3_000)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--root", type=Path, help="a directory to write the data to, or one that has it")
    parser.add_argument("screens", nargs="*", default=list(SCREENS))
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        root = options.root or Path(folder)
        if not (root / ".tuning").is_dir():
            write_data(root, options.sessions)
        for name in options.screens:
            measure(name, root, columns, rows)


if __name__ == "__main__":
    main()
