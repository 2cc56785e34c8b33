"""The tuning log: each change of the server with its effect, marked as kept or reverted, with a note."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from textual.app import ComposeResult

from swarmtui.experiments.store import mark_change, read_log
from swarmtui.model.base import BadInput
from swarmtui.model.tuning import LoggedChange
from swarmtui.numbers import local_time, signed_percent
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.cursor_list import CursorList
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.lines import Line, heading, ljust, rjust, wrap, wrapped_note
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no changes yet: R after a run, `swarmtui run --baseline last` and `swarmtui ab` add them"
_DETAIL_LINES = 6
_STYLES = {"faster": "good", "slower": "bad", "refused": "warn"}
_NUMBER, _CREATED, _EFFECT, _VERDICT, _KEPT = 4, 17, 10, 12, 10
_MIN_CHANGE = 18


# views


def _titles(width: int) -> str:
    change, note = _text_widths(width)
    first = f"  {rjust('', _NUMBER)} {ljust('created', _CREATED)}{ljust('change', change)}"
    return f"{first}{rjust('effect', _EFFECT)}  {ljust('verdict', _VERDICT)}{ljust('', _KEPT)}{ljust('note', note)}"


def _change_line(change: LoggedChange, width: int, here: bool) -> Line:
    change_width, note_width = _text_widths(width)
    bold = "bold" if here else ""
    return [
        ("› " if here else "  ", "cursor"),
        (rjust(str(change.number), _NUMBER) + " ", "dim"),
        (ljust(local_time(change.created), _CREATED), "dim"),
        (ljust(sanitize(change.what), change_width), bold),
        (rjust(signed_percent(change.change), _EFFECT) + "  ", "bold"),
        (ljust(change.verdict, _VERDICT), _STYLES.get(change.verdict, "dim")),
        (ljust(change.kept, _KEPT), bold),
        (ljust(sanitize(change.note), note_width), "dim"),
    ]


def _detail_lines(change: LoggedChange, width: int) -> list[Line]:
    """The whole text of one change; its row in the list is cut."""
    lines: list[Line] = []
    for name, text in (("change", change.what), ("effect", change.effect), ("note", change.note)):
        for number, part in enumerate(wrap(sanitize(text), max(8, width - 12)) if text else []):
            lines.append([(f" {ljust(name if not number else '', 9)}", "dim"), (part, "")])
    lines.append([(f" {ljust('sessions', 9)}", "dim"), (sanitize(f"{change.before} → {change.after}"), "dim")])
    return lines


def _text_widths(width: int) -> tuple[int, int]:
    """Divide the remaining width: two thirds for the change, one third for the note."""
    room = max(_MIN_CHANGE, width - 2 - _NUMBER - 1 - _CREATED - _EFFECT - 2 - _VERDICT - _KEPT)
    change = max(_MIN_CHANGE, room * 2 // 3)
    return change, room - change


# widgets


class ChangeList(CursorList[LoggedChange]):
    """The changes, newest first, and below them the whole text of the selected one."""

    other_lines = 3 + _DETAIL_LINES
    empty = "loading …"

    def show(self, changes: Sequence[LoggedChange], empty: str) -> None:
        self.empty = empty
        self.set_rows(tuple(reversed(changes)))

    def draw(self, width: int, height: int) -> list[Line]:
        head = heading("", "tuning log", f"newest first · {len(self.rows)}" if self.rows else "", width)
        if self.selected is None:
            return [head, *wrapped_note(self.empty, width)]
        room = max(1, height - self.other_lines)
        rows = [_change_line(row, width, position == self.cursor) for position, row in self.visible_rows(room)]
        blanks: list[Line] = [[]] * (room - len(rows))
        return [
            head,
            [(_titles(width), "dim")],
            *rows,
            *blanks,
            heading("", f"change {self.selected.number}", "", width),
            *_detail_lines(self.selected, width),
        ]


class LogScreen(CursorScreen):
    key_context = "log"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def compose(self) -> ComposeResult:
        yield ChangeList()
        yield InputLine()
        yield KeyFooter()

    def on_mount(self) -> None:
        self._reload()

    def _reload(self) -> None:
        run_in_background(self, self._read, group="read")

    async def _read(self) -> None:
        changes: Sequence[LoggedChange]
        try:
            changes, empty = await asyncio.to_thread(read_log, self._root), _EMPTY
        except BadInput as problem:
            changes, empty = (), sanitize(str(problem))
        self.query_one(ChangeList).show(changes, empty)

    def _mark(self, kept: Literal["kept", "reverted"] | None, note: str | None = None) -> None:
        selected = self.query_one(ChangeList).selected
        if selected is None:
            return
        try:
            mark_change(self._root, selected.number, kept, note)
        except BadInput as problem:
            self.app.toast(str(problem))
        self._reload()

    def action_kept(self) -> None:
        self._mark("kept")

    def action_reverted(self) -> None:
        self._mark("reverted")

    def action_note(self) -> None:
        def done(text: str | None) -> None:
            if text is not None:
                self._mark(None, text)

        selected = self.query_one(ChangeList).selected
        if selected is not None:
            self.query_one(InputLine).ask(f"note on change {selected.number}:", selected.note, str, done)
