"""Take the pictures of the README: run sessions on the simulator, replay them, and draw what the app shows.

The sessions take a few minutes; those in the directory RECORDED are used again. Each picture is an SVG and a PNG;
`recording.svg` is animated.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import resvg_py
from rich.cells import cell_len
from textual.pilot import Pilot

os.environ |= {"TEXTUAL_ANIMATIONS": "none", "COLORTERM": "truecolor", "TERM": "xterm-256color"}

HERE = Path(__file__).resolve().parent
# A sweep over two nodes of a private Ray cluster.
HOSTS = HERE / "two-hosts.jsonl"

sys.path.insert(0, str(HERE.parent))

from recording import Recording, Shot  # noqa: E402

from swarmtui.client import catalogue  # noqa: E402
from swarmtui.model.config import Config  # noqa: E402
from swarmtui.model.telemetry import DiscoveredServer  # noqa: E402
from swarmtui.sessions.replay import open_replay  # noqa: E402
from swarmtui.sessions.store import write_summary  # noqa: E402
from swarmtui.tui.app import SwarmApp  # noqa: E402
from swarmtui.tui.frame_source import ReplaySource  # noqa: E402
from swarmtui.tui.screens import make_screen  # noqa: E402

END_S = 100_000.0
WIDTH = 1200
FRAMES = 20
# The width of a cell in the SVG.
CELL = 12.2
_OUTPUT = "speed=2&output.median=90"
_SEARCH = ("--seed", "7", "--keep-text", "--max-agents", "128")
_SWEEP = ("--levels", "1,2,4,8,16,32", "--requests", "3C", "--runs", "1", "--seed", "7", "--keep-text")
# Command, endpoint and options of the sessions, by their label.
RUNS = {
    "how many agents, 8 slots": (
        "capacity", f"sim:moe-tp1?slots=8&{_OUTPUT}", *_SEARCH, "--server-flags", "--max-num-seqs 8",
    ),
    "how many agents": (
        "capacity", f"sim:moe-tp1?slots=16&{_OUTPUT}", *_SEARCH, "--server-flags", "--max-num-seqs 16",
    ),
    "8 slots": ("run", f"sim:moe-tp1?slots=8&{_OUTPUT}", *_SWEEP, "--server-flags", "--max-num-seqs 8"),
    "16 slots": ("run", f"sim:moe-tp1?slots=16&{_OUTPUT}", *_SWEEP, "--server-flags", "--max-num-seqs 16"),
    "two GPUs": (
        "run", f"sim:moe-tp2-nvlink?slots=16&{_OUTPUT}", *_SWEEP,
        "--server-flags", "--max-num-seqs 16 --tensor-parallel-size 2",
    ),
    "64 agents": (
        "run", "sim:b70-swarm?speed=4", "--levels", "64", "--requests", "1C", "--warmup", "1", "--seed", "7",
        "--keep-text",
    ),
}  # fmt: skip
SESSIONS, TUNED = "sessions", "tuned"
TUNE = """\
name = "slots and replicas"
command = "swarmtui sim moe-tp1 --speed=10 --port={port}"
[grid]
"--slots" = [4, 8, 16]
"--replicas" = [1, 2]
[plan]
levels = [4, 16]
requests = "2C"
max_tokens = 64
warmup = 1
runs = 4
"""
FOUND = (
    DiscoveredServer(
        url="http://127.0.0.1:8000", engine="vLLM", version="0.11.0", models=("Qwen3-Coder-30B-A3B-Instruct-AWQ",),
        slots=16, context=65_536, pid=4242,
        flags={"max-num-seqs": "16", "gpu-memory-utilization": "0.92", "enable-prefix-caching": "true"},
    ),
    DiscoveredServer(
        url="http://127.0.0.1:8080", engine="llama.cpp", version="b6715", models=("gpt-oss-20b-mxfp4.gguf",), slots=4,
        context=32_768, pid=4711, flags={"parallel": "4", "ctx-size": "32768", "flash-attn": "true"},
    ),
)  # fmt: skip


def found_servers(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
    """Replace discovery, so that no server of this host is shown."""
    return FOUND


def record(folder: Path) -> dict[str, str]:
    """Run the sessions that are missing, and the tune; return the ids by label."""
    names, sessions = folder / "names.txt", folder / SESSIONS
    known = dict(line.split("=", 1) for line in names.read_text().splitlines()) if names.exists() else {}
    for label, (command, endpoint, *options) in RUNS.items():
        if label not in known:
            before = set(sessions.glob("2*"))
            options += ["--label", label, "--quiet", "--session-dir", str(sessions)]
            swarmtui(command, "--endpoint", endpoint, *options)
            (session,) = set(sessions.glob("2*")) - before
            known[label] = session.name
            names.write_text("".join(f"{label}={name}\n" for label, name in known.items()))
    if not (folder / TUNED).exists():
        grid = folder / "tune.toml"
        grid.write_text(TUNE)
        swarmtui("tune", str(grid), "--yes", "--session-dir", str(folder / TUNED))
    return known


def swarmtui(*arguments: str) -> None:
    # The command of the tune is found beside this Python.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "swarmtui", *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=os.environ | {"PATH": path})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", nargs="?", type=Path, metavar="RECORDED", help="where sessions are kept")
    options = parser.parse_args()
    catalogue.discover_servers = found_servers
    with tempfile.TemporaryDirectory() as folder:
        # Show no settings and sessions of the user.
        os.environ |= {f"XDG_{name}_HOME": folder for name in ("DATA", "CONFIG", "STATE")}
        recorded = options.recorded or Path(folder)
        recorded.mkdir(parents=True, exist_ok=True)
        # Relative paths, so that pictures do not show those of this machine.
        os.chdir(recorded)
        ids = record(Path())
        root, hosts = Path(SESSIONS), Path(folder) / "hosts"
        (hosts / HOSTS.stem).mkdir(parents=True)
        shutil.copy(HOSTS, hosts / HOSTS.stem / "journal.jsonl")
        write_summary(hosts / HOSTS.stem)
        (tune,) = Path(TUNED, ".tuning").iterdir()
        before, search = ids["how many agents, 8 slots"], ids["how many agents"]
        sixteen, many = ids["16 slots"], ids["64 agents"]
        in_search = open_replay(root, search).length_s * 0.6
        in_level = level_time(root, sixteen, 16)
        asyncio.run(animate(root, search, before))
        for shot in (
            take(root, "setup", (120, 40), None, 0.0, ()),
            take(root, "live-80x24", (80, 24), search, in_search, ()),
            take(root, "live-120x40", (120, 40), search, in_search, ()),
            take(root, "live-light-120x40", (120, 40), search, in_search, (), theme="swarm-light"),
            take(root, "live-200x60", (200, 60), search, in_search, ()),
            take(root, "heat-map", (120, 40), many, level_time(root, many, 64), ()),
            take(root, "result", (120, 40), search, END_S, ()),
            take(root, "curve", (120, 40), search, END_S, ("1", "1")),
            take(root, "stream", (120, 40), sixteen, in_level, ("enter",)),
            take(hosts, "hosts", (120, 40), HOSTS.stem, 22.0, ()),
            take(root, "help", (120, 40), sixteen, 0.0, (), live_help=True),
            take(root, "sessions", (120, 40), None, 0.0, ("L", "G", "m", "k")),
            take(root, "compare", (120, 40), None, 0.0, (), compared=(before, search)),
            take(Path(TUNED), "tune", (120, 40), None, 0.0, (), tune=tune),
        ):
            asyncio.run(shot)


def level_time(root: Path, session: str, c: int) -> float:
    """Return a moment in the middle of a level, in seconds since the start of the session."""
    replay = open_replay(root, session)
    moments = [second / 2 for second in range(int(2 * replay.length_s))]
    times = [at for at in moments if (frame := replay.frame_at(at)).c == c and frame.status == "running"]
    return times[len(times) * 2 // 3]


def run_screen(app: SwarmApp, root: Path, session: str) -> ReplaySource:
    """Show a saved session as it looked while it ran."""
    source = ReplaySource(open_replay(root, session), hz=4.0)
    source.playing = False
    app.push_screen(make_screen("run", source, None))
    return source


async def take(
    root: Path,
    name: str,
    size: tuple[int, int],
    session: str | None,
    at_s: float,
    keys: Sequence[str],
    live_help: bool = False,
    tune: Path | None = None,
    theme: str = "swarm",
    compared: Sequence[str] = (),
) -> None:
    app = SwarmApp(session_root=root, tune=tune, config=Config(theme=theme))
    async with app.run_test(size=size) as pilot:
        await pilot.pause(1.0)
        source = run_screen(app, root, session) if session else None
        await pilot.pause(0.5)
        if source is not None:
            # A few moments before, so that sparklines have data.
            await seek(pilot, source, at_s)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.5)
        if compared:
            await app.open_comparison(root, list(compared))
        if live_help:
            app.open_screen("help", app.keys.actions("live"))
        await pilot.pause(1.0)
        svg = with_local_font(app.export_screenshot(title="swarmtui", simplify=True))
    write(name, svg)


async def seek(pilot: Pilot[Any], source: ReplaySource, at_s: float) -> None:
    for before in range(8, -1, -1):
        source.seek(max(0.0, min(at_s, source.length_s) - before / 4))
        await pilot.pause(0.02)


async def animate(root: Path, session: str, before: str) -> None:
    """Record the way from setup through a search to its answer, and whether a change since `before` helped."""
    app = SwarmApp(session_root=root)
    shots: list[Shot] = []

    def shoot(seconds: float) -> None:
        shots.append(Shot(app.screen._compositor.render_strips(), seconds))

    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause(1.5)
        shoot(2.0)
        source = run_screen(app, root, session)
        await pilot.pause(0.5)
        for number in range(FRAMES):
            source.seek(source.length_s * number / FRAMES)
            await pilot.pause(0.15)
            shoot(0.5)
        source.seek(source.length_s)
        await pilot.pause(1.0)
        shoot(4.0)
        await app.open_comparison(root, [before, session])
        await pilot.pause(1.5)
        shoot(4.0)
    recording = Recording().svg(shots)
    (HERE / "recording.svg").write_text(recording, encoding="utf-8")


def write(name: str, svg: str) -> None:
    path = HERE / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    png = resvg_py.svg_to_bytes(svg_string=position_characters(svg), width=WIDTH)
    path.with_suffix(".png").write_bytes(bytes(png))


def with_local_font(svg: str) -> str:
    """Use an installed font rather than one from the web."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "DejaVu Sans Mono, monospace")


def position_characters(svg: str) -> str:
    """Position each character by itself: one from another font would move those after it."""

    def split(found: re.Match[str]) -> str:
        before, x, after, text = found.groups()
        texts = []
        at = 0
        for char in html.unescape(text):
            if not char.isspace():
                left = float(x) + CELL * at
                texts.append(f'<text{before}x="{left:g}"{after}>{html.escape(char)}</text>')
            at += cell_len(char)
        return "".join(texts)

    return re.sub(r'<text((?: [a-z-]+="[^"]*")* )x="([\d.]+)"([^>]*textLength[^>]*)>([^<]*)</text>', split, svg)


if __name__ == "__main__":
    main()
