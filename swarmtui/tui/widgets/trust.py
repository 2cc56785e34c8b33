"""Whether the figures can be believed, line by line."""

from __future__ import annotations

from swarmtui.tui.paint import Line, Panel, heading, left, wrapped
from swarmtui.tui.views.machine import TrustView

_NAME = 20
_VALUES = (14, 38)


class TrustPanel(Panel[TrustView]):
    def draw(self, width: int, height: int) -> list[Line]:
        lines = [heading("6", "trust", "can these figures be believed?", width)]
        if self.view is None:
            return lines
        if self.view.empty:
            lines.append([(f" {self.view.empty}", "dim")])
        value = _VALUES[width >= 100]
        room = max(16, width - _NAME - value - 6)
        for line in self.view.lines:
            sentence = wrapped(line.sentence, room)
            lines.append([
                (f" {line.sign} ", line.mood),
                (left(line.name, _NAME) + " ", ""),
                (left(line.value, value) + " ", "bold"),
                (sentence[0], "dim"),
            ])  # fmt: skip
            lines += [[(" " * (_NAME + value + 5), ""), (more, "dim")] for more in sentence[1:]]
        return lines
