"""Where nothing useful fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Static

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

LEAST = Size(60, 16)


def is_too_small(size: Size) -> bool:
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmall(Screen[None]):
    app: SwarmApp

    def compose(self) -> ComposeResult:
        yield Static(self._words(), markup=False)

    def on_resize(self) -> None:
        self.query_one(Static).update(self._words())

    def _words(self) -> str:
        size = self.app.size
        words = f"{size.width}×{size.height} is too small;\n{LEAST.width}×{LEAST.height} is needed."
        return f"{words}\nThe run goes on." if self.app.running_id else words
