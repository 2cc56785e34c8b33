"""The panels of the live screen: a table with one line for each, and the base class of all of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from swarmtui.tui.lines import Line, LineWidget, heading

if TYPE_CHECKING:
    from swarmtui.tui.live.screen import LiveScreen


class PanelEntry(NamedTuple):
    """The module and the class of a panel, and how help and command palette name the key that shows only this panel.

    The class is imported with the live screen, after the first paint of the app.
    """

    target: str
    label: str
    tooltip: str


# By key, in the order in which they stand on the screen.
PANELS: dict[int, PanelEntry] = {
    1: PanelEntry("streams:StreamsPanel", "streams", "Streams only; Esc shows all panels again"),
    2: PanelEntry("history:HistoryPanel", "history", "History only, for the whole session"),
    4: PanelEntry("levels:LevelsPanel", "levels", "Levels only, with all columns and remarks"),
    3: PanelEntry("gpus:GpusPanel", "GPUs", "GPUs only"),
    5: PanelEntry("curve:CurvePanel", "curve", "Curve only"),
    6: PanelEntry("quality:QualityPanel", "quality", "Measurement quality only"),
}


class LivePanel(LineWidget):
    """A part of the live screen, which makes its view from the screen's data.

    class CachePanel(LivePanel, Panel[CacheView]):
        key, title = 7, "prefix cache"

        def update_from(self, screen: LiveScreen) -> None:
            self.show(cache_view(screen.shown.frame))
    """

    # A panel without a key is not in PANELS: the screen places it itself.
    key: ClassVar[int] = 0
    title: str = ""
    row: ClassVar[Literal["upper", "lower"]] = "lower"
    # One line instead of a panel while `empty` says why there is nothing to show; in the lower row only.
    collapsible: ClassVar[bool] = True
    large_screens_only: ClassVar[bool] = False
    # Panels whose content the result contains.
    hidden_after_end: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_class(self.large_screens_only, "-large-screens-only")
        self.set_class(self.hidden_after_end, "-hidden-after-end")

    @property
    def height_needed(self) -> int | None:
        """The lines that the panel needs if it is alone in its row; None if it can use all of them."""
        return None

    def update_from(self, screen: LiveScreen) -> None:
        """Show the current view for the panel's size."""
        raise NotImplementedError

    def fit_view(self) -> None:
        self.update_from(cast("LiveScreen", self.screen))

    def heading(self, note: str, width: int) -> Line:
        return heading(str(self.key), self.title, note, width)


def load_panels() -> list[type[LivePanel]]:
    """Import the classes of all panels."""
    targets = (entry.target.partition(":") for entry in PANELS.values())
    return [getattr(importlib.import_module(f"swarmtui.tui.live.{module}"), name) for module, _, name in targets]
