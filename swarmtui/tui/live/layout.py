"""Arrange the panels of a live screen: empty ones become one line each, and the streams get the room that they need."""

from __future__ import annotations

from typing import Any, NamedTuple

from textual.screen import Screen
from textual.widget import Widget

from swarmtui.tui.lines import Line, Panel, ljust
from swarmtui.tui.live.live_panel import LivePanel
from swarmtui.tui.live.streams import StreamsPanel

# The lines that the history needs below the streams.
_HISTORY_HEIGHT = 7


class EmptyPanel(NamedTuple):
    key: str
    title: str
    why: str


class CollapsedPanels(Panel[tuple[EmptyPanel, ...]]):
    """Panels with nothing to show, as one line each that says why."""

    def draw(self, width: int, height: int) -> list[Line]:
        return [
            [("──", "dim"), (f" {panel.key} {panel.title} ", "title"), (ljust(panel.why, width), "dim")]
            for panel in self.view or ()
        ]


def is_small(screen: Screen[Any]) -> bool:
    return screen.has_class("-narrow") or screen.has_class("-short")


def collapse_panels(screen: Screen[Any], *, ended: bool, single_panel: bool) -> None:
    """Show panels that are empty as one line, and give their room to the others."""
    found: list[EmptyPanel] = []
    visible: list[LivePanel] = []
    large = screen.has_class("-wide") and screen.has_class("-high")
    for panel in screen.query("#lower > LivePanel").results(LivePanel):
        unused = (panel.hidden_after_end and ended) or (panel.large_screens_only and not large)
        can_collapse = panel.collapsible and not (unused or single_panel or is_small(screen))
        why = panel.empty if can_collapse else ""
        panel.set_class(bool(why), "-empty")
        if why:
            found.append(EmptyPanel(str(panel.key), panel.title, why))
        elif not unused:
            visible.append(panel)
    for lower in screen.query("#lower"):
        lower.set_class(not visible, "-empty")
        alone = visible[0] if len(visible) == 1 and found else None
        if alone is not None and alone.height_needed is not None:
            lower.styles.height = alone.height_needed
        else:
            _clear_height(lower)
    for lines in screen.query(CollapsedPanels):
        lines.styles.height = len(found)
        lines.display = bool(found)
        lines.show(tuple(found))


def stack_streams(screen: Screen[Any], streams: StreamsPanel, *, ended: bool, single_panel: bool) -> None:
    """Give the streams the whole width if the history fits below them.

    With text, and as a heat map, they have it anyway; the history is a strip if it does not fit.
    """
    upper, view = screen.query_one("#upper"), streams.view
    room = upper.size.height + (2 if screen.has_class("-strip") else 0)
    needed = streams.lines_needed(upper.size.width - 1, room - _HISTORY_HEIGHT if streams.as_map else room)
    below = needed <= room - _HISTORY_HEIGHT
    stacked = below or streams.as_map or (view is not None and view.has_text)
    stacked = stacked and not (ended or single_panel or is_small(screen))
    if stacked:
        streams.styles.height = needed if below else "1fr"
    else:
        _clear_height(streams)
    screen.set_class(stacked, "-stacked")
    screen.set_class(stacked and not below, "-strip")


def _clear_height(widget: Widget) -> None:
    """Let the height be that of app.tcss again."""
    if widget.styles.inline.has_rule("height"):
        widget.styles.inline.clear_rule("height")
        widget.refresh(layout=True)
