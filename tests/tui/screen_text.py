"""What a person would read on the app's screen."""

from __future__ import annotations

from swarmtui.tui.app import SwarmApp


def screen_text(app: SwarmApp) -> str:
    """The cells as lines, without colours and without blanks at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)
