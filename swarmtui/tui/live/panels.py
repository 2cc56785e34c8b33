"""The table of the panels of the live screen."""

from __future__ import annotations

from typing import NamedTuple


class PanelEntry(NamedTuple):
    """The module and the class of a panel, and how help and command palette name its key.

    The class is imported with the live screen, after the first paint of the app.
    """

    target: str
    label: str
    tooltip: str


# By key, in the order in which Tab visits them.
PANELS: dict[int, PanelEntry] = {
    1: PanelEntry("curve:CurvePanel", "curve", "Go to the curve; again: the curve alone"),
    2: PanelEntry("streams:StreamsPanel", "agents", "Go to the agents; again: the agents alone"),
    3: PanelEntry("machine:MachinePanel", "GPUs, server", "Go to GPUs and server; again: alone"),
    4: PanelEntry("levels:LevelsPanel", "levels", "Go to the levels; again: alone, with all columns and remarks"),
    5: PanelEntry("history:HistoryPanel", "history", "Go to the history; again: alone, for the whole session"),
    6: PanelEntry("quality:QualityPanel", "quality", "Go to the measurement quality; again: alone"),
    7: PanelEntry("result:ResultPanel", "result", "Go to the result, after the end; again: alone"),
}
