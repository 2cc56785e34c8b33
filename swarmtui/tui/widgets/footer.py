"""The last line: the keys that matter here."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from swarmtui.tui.keys import Action
from swarmtui.tui.paint import Line, Lines


class KeyLine(Lines):
    """As many as fit, in the order of the table; help and quit always."""

    actions: Sequence[Action] = ()

    def show(self, actions: Sequence[Action], ended: bool = False) -> None:
        self.actions = [
            action for action in actions if (action.after if ended else action.footer) or action.id in ("help", "leave")
        ]
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        last = [action for action in self.actions if action.id in ("help", "leave")]
        room = width - sum(map(_width, last)) - 1
        line: Line = [(" ", "")]
        for action in self.actions:
            if action in last:
                continue
            room -= _width(action)
            if room < 0:
                break
            line += _spans(action)
        for action in last:
            line += _spans(action)
        return [line]


def _spans(action: Action) -> Line:
    return [(action.shown, "title"), (f" {action.label}  ", "dim")]


def _width(action: Action) -> int:
    return cell_len(action.shown) + cell_len(action.label) + 3
