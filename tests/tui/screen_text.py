"""Read the text on the screen of the app."""

from __future__ import annotations

import os
from pathlib import Path

from swarmtui.tui.app import SwarmApp
from swarmtui.tui.lines import Line


def screen_text(app: SwarmApp) -> str:
    """Return the lines without colours and trailing spaces."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def match_snapshot(app: SwarmApp, name: str) -> None:
    """Compare the screen with the expected one of its size; UPDATE_SCREENS=1 writes the expected one."""
    path = Path(__file__).parent / "expected" / f"{name}-{app.size.width}x{app.size.height}.txt"
    shown = screen_text(app) + "\n"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)
