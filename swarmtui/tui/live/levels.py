"""The table that grows as levels finish."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Panel, heading, right, wrapped
from swarmtui.tui.live.levels_view import LevelsView

# Narrower, the tasks would be cut where their figures begin.
_TASKS_WIDTH = 64


class Levels(Panel[LevelsView]):
    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [heading("4", "levels", "", width)]
        lines = [heading("4", "levels", "▸ best · ▼ past the cliff" if view.lines else "", width)]
        if not view.lines:
            return [*lines, *([(f" {line}", "dim")] for line in wrapped(view.empty, max(8, width - 2)))]
        lines.append([(" ", ""), (_row(view.titles, view.widths, width), "dim")])
        room = max(1, height - 2 - bool(view.flags))
        for line in view.lines[-room:]:
            style = "good" if line.best else "warn" if line.mark == "▼" else "dim" if line.partial else ""
            lines.append([(line.mark, style), (_row(line.cells, view.widths, width), style)])
        flags = [text for flag in view.flags for text in wrapped(flag, max(8, width - 2))]
        left_over = height - len(lines)
        if len(flags) > left_over:
            # Where not all can be said, it is said how many there are and where.
            flags = [f"{len(view.flags)} remarks: 4 shows them"]
        lines += [[(f" {flag}", "warn")] for flag in flags]
        if view.tasks and len(lines) + 2 < height and width >= _TASKS_WIDTH:
            lines += [[], [(view.tasks[0], "dim")], *([(line, "")] for line in view.tasks[1:])]
        return lines


def _row(cells: tuple[str, ...], widths: tuple[int, ...], width: int) -> str:
    """As many columns as fit, from the left."""
    text, used = "", 1
    for cell, room in zip(cells, widths, strict=True):
        used += room
        if used > width:
            break
        text += right(cell, room)
    return text
