"""The tuning log: a row for each change, what it gave, and whether people kept it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.model.tuning import Change
from swarmtui.text import plain, signed
from swarmtui.tui.lines import Line, left, right, wrapped
from swarmtui.tui.numbers import NOTHING

_STYLES = {"faster": "good", "slower": "bad", "refused": "warn"}
_NUMBER, _WHEN, _GAVE, _VERDICT, _KEPT = 4, 17, 10, 12, 10
_LEAST = 18


class ChangeLine(NamedTuple):
    number: int
    when: str
    what: str
    gave: str
    verdict: str
    style: str
    kept: str
    note: str


def change_lines(changes: Sequence[Change]) -> list[ChangeLine]:
    """Newest first: what was tried last is what is decided on next."""
    return [
        ChangeLine(
            number=change.number,
            when=change.created[:16].replace("T", " "),
            what=plain(change.what),
            gave=NOTHING if change.change is None else signed(change.change),
            verdict=change.verdict,
            style=_STYLES.get(change.verdict, "dim"),
            kept=change.kept,
            note=plain(change.note),
        )
        for change in reversed(changes)
    ]


def titles(width: int) -> str:
    what, note = _rooms(width)
    head = f"  {right('', _NUMBER)} {left('made (UTC)', _WHEN)}{left('changed', what)}{right('gave', _GAVE)}  "
    return f"{head}{left('verdict', _VERDICT)}{left('', _KEPT)}{left('note', note)}"


def drawn(line: ChangeLine, width: int, here: bool) -> Line:
    what, note = _rooms(width)
    strong = "bold" if here else ""
    return [
        ("› " if here else "  ", "cursor"),
        (right(str(line.number), _NUMBER) + " ", "dim"),
        (left(line.when, _WHEN), "dim"),
        (left(line.what, what), strong),
        (right(line.gave, _GAVE) + "  ", "bold"),
        (left(line.verdict, _VERDICT), line.style),
        (left(line.kept, _KEPT), strong),
        (left(line.note, note), "dim"),
    ]


def whole(change: Change, width: int) -> list[Line]:
    """All words of one change, for which its row has no room."""
    lines: list[Line] = []
    for name, text in (("changed", change.what), ("gave", change.gave), ("note", change.note)):
        for place, part in enumerate(wrapped(plain(text), max(8, width - 12)) if text else []):
            lines.append([(f" {left(name if not place else '', 9)}", "dim"), (part, "")])
    lines.append([(f" {left('sessions', 9)}", "dim"), (plain(f"{change.before} → {change.after}"), "dim")])
    return lines


def _rooms(width: int) -> tuple[int, int]:
    """For what was changed and for the note: two parts of what is left, and one."""
    room = max(_LEAST, width - 2 - _NUMBER - 1 - _WHEN - _GAVE - 2 - _VERDICT - _KEPT)
    return max(_LEAST, room * 2 // 3), room - max(_LEAST, room * 2 // 3)
