"""Panels with nothing to show, as one line each that says why."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.tui.lines import Line, Panel, ljust


class EmptyPanel(NamedTuple):
    key: str
    title: str
    why: str


class CollapsedPanels(Panel[tuple[EmptyPanel, ...]]):
    def draw(self, width: int, height: int) -> list[Line]:
        return [
            [("──", "dim"), (f" {panel.key} {panel.title} ", "title"), (ljust(panel.why, width), "dim")]
            for panel in self.view or ()
        ]
