"""Whether the figures can be believed, line by line."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Panel, heading, left, wrapped
from swarmtui.tui.live.machine_view import TrustLine, TrustView

_NAME, _VALUE = 20, 38
_SIDE_BY_SIDE = 100


class TrustPanel(Panel[TrustView]):
    def draw(self, width: int, height: int) -> list[Line]:
        lines = [heading("6", "trust", "can these figures be believed?", width)]
        if self.view is None:
            return lines
        if self.view.empty:
            lines.append([(f" {self.view.empty}", "dim")])
        for line in self.view.lines:
            lines += _beside(line, width) if width >= _SIDE_BY_SIDE else _below(line, width)
        return lines


def _beside(line: TrustLine, width: int) -> list[Line]:
    first, *more = wrapped(line.sentence, max(16, width - _NAME - _VALUE - 6))
    return [
        [(f" {line.sign} ", line.mood), (left(line.name, _NAME) + " ", ""), (left(line.value, _VALUE) + " ", "bold"),
         (first, "dim")],
        *([(" " * (_NAME + _VALUE + 5), ""), (text, "dim")] for text in more),
    ]  # fmt: skip


def _below(line: TrustLine, width: int) -> list[Line]:
    """Where there is less room the sentence stands under it, and only where something is not as it should be."""
    told = [(f" {line.sign} ", line.mood), (left(line.name, _NAME) + " ", ""), (line.value, "bold")]
    why = wrapped(line.sentence, max(16, width - 6)) if line.mood != "good" else []
    return [told, *([("     ", ""), (text, "dim")] for text in why)]
