"""The table that grows as levels finish."""

from __future__ import annotations

from swarmtui.tui.paint import Line, Lines, heading, right, wrapped
from swarmtui.tui.views.levels import LevelsView

_WIDTHS = (4, 8, 8, 8, 6, 7, 5, 4, 8, 8)


class Levels(Lines):
    view: LevelsView | None = None

    def show(self, view: LevelsView) -> None:
        if view != self.view:
            self.view = view
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [heading("4", "levels", "", width)]
        lines = [heading("4", "levels", "▸ best · ▼ past the cliff" if view.lines else "", width)]
        if not view.lines:
            return [*lines, *([(f" {line}", "dim")] for line in wrapped(view.empty, max(8, width - 2)))]
        lines.append([(" ", ""), (_row(view.titles, width), "dim")])
        room = max(1, height - 2 - bool(view.flags))
        for line in view.lines[-room:]:
            style = "good" if line.best else "warn" if line.mark == "▼" else "dim" if line.partial else ""
            lines.append([(line.mark, style), (_row(line.cells, width), style)])
        flags = [text for flag in view.flags for text in wrapped(flag, max(8, width - 2))]
        left_over = height - len(lines)
        if len(flags) > left_over:
            # Where not all can be said, it is said how many there are and where.
            flags = [f"{len(view.flags)} remarks: 4 shows them"]
        return [*lines, *([(f" {flag}", "warn")] for flag in flags)]


def _row(cells: tuple[str, ...], width: int) -> str:
    """As many columns as fit, from the left."""
    text, used = "", 1
    for cell, room in zip(cells, _WIDTHS, strict=True):
        used += room
        if used > width:
            break
        text += right(cell, room)
    return text
