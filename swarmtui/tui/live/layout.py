"""Arrange the panels of a live screen: empty ones become one line each, and the streams get the room that they need."""

from __future__ import annotations

from typing import Any, NamedTuple

from textual.screen import Screen
from textual.widget import Widget

from swarmtui.tui.lines import Line, LineWidget, Panel, ljust
from swarmtui.tui.live.curve import CurvePanel
from swarmtui.tui.live.gpus import GpusPanel
from swarmtui.tui.live.levels import LevelsPanel
from swarmtui.tui.live.quality import QualityPanel
from swarmtui.tui.live.streams import StreamsPanel

# The title and key of panels that become one line if they are empty.
_COLLAPSIBLE: dict[type[LineWidget], tuple[str, str]] = {
    LevelsPanel: ("levels", "4"),
    GpusPanel: ("GPUs", "3"),
    CurvePanel: ("curve", "5"),
    QualityPanel: ("measurement quality", "6"),
}
# The levels alone do not need the height of a curve.
_MAX_LEVELS_HEIGHT = 14
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
    visible: list[LineWidget] = []
    # The result contains the levels; the quality has a place on large screens only.
    large = screen.has_class("-wide") and screen.has_class("-high")
    unused_keys = ("4" if ended else "", "" if large else "6")
    for panel in screen.query("#lower > LineWidget").results(LineWidget):
        name, key = _COLLAPSIBLE[type(panel)]
        unused = key in unused_keys
        why = "" if unused or single_panel or is_small(screen) else panel.empty
        panel.set_class(bool(why), "-empty")
        if why:
            found.append(EmptyPanel(key, name, why))
        elif not unused:
            visible.append(panel)
    for lower in screen.query("#lower"):
        lower.set_class(not visible, "-empty")
        match visible:
            case [LevelsPanel() as levels] if found:
                lower.styles.height = min(_MAX_LEVELS_HEIGHT, levels.lines_needed)
            case _:
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
