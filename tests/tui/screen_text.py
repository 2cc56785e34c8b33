"""Read the text on the screen of the app."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

from swarmtui.tui.app import SwarmApp
from swarmtui.tui.lines import Line

# A word in front of a frame without a blank.
TOUCHING = re.compile(r"[\w%…][│┃]")
_SETTLED_S, _UNTIL_S = 1.0, 120.0


def screen_text(app: SwarmApp) -> str:
    """Return the lines without colours and trailing spaces; those of a screen that is not painted yet are empty."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) or "\n" * app.size.height


async def match_snapshot(app: SwarmApp, name: str) -> None:
    """Wait until the screen is the expected one of its size; UPDATE_SCREENS=1 writes the expected one."""
    path = Path(__file__).parent / "expected" / f"{name}-{app.size.width}x{app.size.height}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        await asyncio.sleep(_SETTLED_S)
        path.write_text(screen_text(app) + "\n", encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    deadline = time.monotonic() + _UNTIL_S
    while screen_text(app) + "\n" != expected and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert screen_text(app) + "\n" == expected


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)
