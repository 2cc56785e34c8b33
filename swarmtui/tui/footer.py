"""The last line of a screen: the keys that matter there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from swarmtui.tui.keys import Action
from swarmtui.tui.lines import Line, LineWidget

# Keys that start or change something come first, followed by rows of keys such as 1–6, each row as one entry.
_FIRST_GROUPS = ("Load", "Replay", "Setup")
_KEY_ROWS = {"panel": "panels", "part": "lists"}
_ALWAYS = ("help", "leave")


class KeyFooter(LineWidget):
    """Shows as many keys as fit; help and quit always."""

    actions: Sequence[Action] = ()

    def show(self, actions: Sequence[Action], ended: bool = False) -> None:
        offered = [
            action for action in actions if (action.after_end if ended else action.footer) or action.id in _ALWAYS
        ]
        first = [action for action in offered if action.group in _FIRST_GROUPS]
        for kind, label in _KEY_ROWS.items():
            row = [action for action in actions if action.id.startswith(f"{kind}(")]
            if row:
                first.append(row[0]._replace(shown=f"{row[0].shown}–{row[-1].shown}", label=label))
        self.actions = [*first, *(action for action in offered if action.group not in _FIRST_GROUPS)]
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        last = [action for action in self.actions if action.id in _ALWAYS]
        # One blank before the first entry; the two blanks after the last one may be cut.
        room = width - sum(map(_width, last)) - 1 + 2
        line: Line = [(" ", "")]
        for action in self.actions:
            if action not in last and _width(action) <= room:
                room -= _width(action)
                line += _spans(action)
        for action in last:
            line += _spans(action)
        return [line]


def _spans(action: Action) -> Line:
    return [(action.shown, "title"), (f" {action.label}  ", "dim")]


def _width(action: Action) -> int:
    return cell_len(action.shown) + cell_len(action.label) + 3
