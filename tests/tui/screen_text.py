"""Read the text on the screen of the app."""

from __future__ import annotations

from swarmtui.tui.app import SwarmApp
from swarmtui.tui.lines import Line


def screen_text(app: SwarmApp) -> str:
    """Return the lines without colours and trailing spaces."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)
