"""Take the screenshots of the README from recorded sessions: an SVG and a PNG of each screen.

    python screenshots/make.py

PNGs need cairosvg; without it only the SVGs are written.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len

os.environ["TEXTUAL_ANIMATIONS"] = "none"

HERE = Path(__file__).parent
# A sweep over two nodes of a private Ray cluster.
HOSTS = HERE / "two-hosts.jsonl"
RECORDED = HERE.parent / "tests" / "tui" / "recorded"

sys.path.insert(0, str(HERE.parent))

from swarmtui.client import catalogue  # noqa: E402
from swarmtui.model.telemetry import DiscoveredServer  # noqa: E402
from swarmtui.sessions.replay import open_replay  # noqa: E402
from swarmtui.sessions.store import write_summary  # noqa: E402
from swarmtui.tui.app import SwarmApp  # noqa: E402
from swarmtui.tui.frame_source import ReplaySource  # noqa: E402

END_S = 1_000.0
WIDTH = 1200
# The width of a cell in the SVG.
CELL = 12.2


def no_servers(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
    """Replace discovery, so that no server of this host is shown."""
    return ()


def main() -> None:
    catalogue.discover_servers = no_servers
    first, second = sorted(path.name for path in RECORDED.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        # Show no settings and sessions of the user.
        os.environ |= {f"XDG_{name}_HOME": folder for name in ("DATA", "CONFIG", "STATE")}
        root = Path(folder) / "sessions"
        shutil.copytree(RECORDED, root)
        hosts = Path(folder) / "hosts"
        (hosts / HOSTS.stem).mkdir(parents=True)
        shutil.copy(HOSTS, hosts / HOSTS.stem / "journal.jsonl")
        for session in (root / first, root / second, hosts / HOSTS.stem):
            write_summary(session)
        shots = [
            take(root, "setup", (120, 40), None, 0.0, ()),
            take(root, "live-80x24", (80, 24), first, 10.0, ()),
            take(root, "live-120x40", (120, 40), first, 15.0, ()),
            take(root, "live-200x60", (200, 60), second, 13.0, ()),
            take(root, "curve", (120, 40), second, END_S, ("5",)),
            take(root, "stream", (120, 40), first, 9.3, ("enter",)),
            take(hosts, "hosts", (120, 40), HOSTS.stem, 18.0, ()),
            take(root, "help", (120, 40), first, 0.0, (), live_help=True),
            take(root, "compare", (120, 40), first, 0.0, ("L", "m", "m", "c")),
        ]
        for shot in shots:
            asyncio.run(shot)


async def take(
    root: Path,
    name: str,
    size: tuple[int, int],
    session: str | None,
    at_s: float,
    keys: Sequence[str],
    live_help: bool = False,
) -> None:
    source = ReplaySource(open_replay(root, session), hz=4.0) if session else None
    app = SwarmApp(source=source, session_root=root)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        if source is not None:
            source.playing = False
            source.seek(at_s)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.5)
        if source is not None:
            # Play for a moment, so that sparklines have data.
            source.seek(at_s)
            source.playing = at_s < source.length_s
            await pilot.pause(1.0)
            source.playing = False
        if live_help:
            # The help key would list the keys of a replay.
            app.open_screen("help", app.keys, "live")
        await pilot.pause(1.0)
        svg = with_local_font(app.export_screenshot(title="swarmtui", simplify=True))
    path = HERE / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    try:
        import cairosvg
    except ImportError:
        return
    png = str(path.with_suffix(".png"))
    cairosvg.svg2png(bytestring=position_characters(svg).encode(), write_to=png, output_width=WIDTH)


def with_local_font(svg: str) -> str:
    """Use an installed font rather than one from the web."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "DejaVu Sans Mono, monospace")


def position_characters(svg: str) -> str:
    """Position each character by itself: cairosvg ignores textLength, and long texts would leave the grid."""

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
