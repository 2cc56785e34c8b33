"""Makes the pictures of README from recorded sessions: an SVG and a PNG of each screen.

    python screenshots/make.py

PNGs need cairosvg; without it only the SVGs are made.
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
RECORDED = HERE.parent / "tests" / "tui" / "recorded"

sys.path.insert(0, str(HERE.parent))

from swarmtui.client import catalogue  # noqa: E402
from swarmtui.model.telemetry import Discovered  # noqa: E402
from swarmtui.sessions.replay import open_replay  # noqa: E402
from swarmtui.sessions.store import write_summary  # noqa: E402
from swarmtui.tui.app import SwarmApp  # noqa: E402
from swarmtui.tui.frame_source import Past  # noqa: E402
from swarmtui.tui.help import HelpScreen  # noqa: E402

END_S = 1_000.0
WIDTH = 1200
# The width of a character in the SVG of a terminal.
CELL = 12.2


def nobody(timeout_s: float = 1.0) -> tuple[Discovered, ...]:
    """What runs on the host of whoever makes the pictures is nobody's business."""
    return ()


def main() -> None:
    catalogue.servers_here = nobody
    first, second = sorted(path.name for path in RECORDED.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        # No servers, no choices and no sessions of the person who makes them.
        os.environ |= {f"XDG_{name}_HOME": folder for name in ("DATA", "CONFIG", "STATE")}
        root = Path(folder) / "sessions"
        shutil.copytree(RECORDED, root)
        for name in (first, second):
            write_summary(root / name)
        shots = [
            take(root, "setup", (120, 40), None, 0.0, ()),
            take(root, "live-80x24", (80, 24), first, 10.0, ()),
            take(root, "live-120x40", (120, 40), first, 15.0, ()),
            take(root, "live-200x60", (200, 60), second, 13.0, ()),
            take(root, "curve", (120, 40), second, END_S, ("5",)),
            take(root, "stream", (120, 40), first, 9.3, ("enter",)),
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
    source = Past(open_replay(root, session), hz=4.0) if session else None
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
            # A moment of life, so that what is drawn over time has something to draw.
            source.seek(at_s)
            source.playing = at_s < source.length_s
            await pilot.pause(1.0)
            source.playing = False
        if live_help:
            # Of a recorded session it would tell the keys of a replay.
            app.push_screen(HelpScreen(app.keys, "live"))
        await pilot.pause(1.0)
        svg = with_own_font(app.export_screenshot(title="swarmtui", simplify=True))
    path = HERE / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    try:
        import cairosvg
    except ImportError:
        return
    png = str(path.with_suffix(".png"))
    cairosvg.svg2png(bytestring=cell_by_cell(svg).encode(), write_to=png, output_width=WIDTH)


def with_own_font(svg: str) -> str:
    """A font that is there, instead of one to be fetched from elsewhere."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "DejaVu Sans Mono, monospace")


def cell_by_cell(svg: str) -> str:
    """Each character at its own place: cairosvg does not know textLength, and long texts would drift off the grid."""

    def apart(found: re.Match[str]) -> str:
        before, x, after, text = found.groups()
        texts = []
        at = 0
        for char in html.unescape(text):
            if not char.isspace():
                place = float(x) + CELL * at
                texts.append(f'<text{before}x="{place:g}"{after}>{html.escape(char)}</text>')
            at += cell_len(char)
        return "".join(texts)

    return re.sub(r'<text((?: [a-z-]+="[^"]*")* )x="([\d.]+)"([^>]*textLength[^>]*)>([^<]*)</text>', apart, svg)


if __name__ == "__main__":
    main()
