"""The table of the panels of the live screen."""

from __future__ import annotations

from typing import NamedTuple


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
