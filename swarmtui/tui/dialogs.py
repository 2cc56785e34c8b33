"""Questions that must be answered before anything goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from swarmtui.tui.pick_list import Item, Pick

_WHAT_IS_ON = {
    "run": (
        "A run is on. What becomes of it?",
        "s  stop and save: up to 5 s for what is in flight",
        "d  detach: it goes on; attach joins it again",
    ),
    "tune": (
        "A tune is on. What becomes of it?",
        "s  stop: finished cells stay, this one is given up",
        "d  detach: it goes on; the same command shows it again",
    ),
}


class QuitDialog(ModalScreen[str]):
    """Something is on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "stop and save", show=False),
        Binding("d", "choose('detach')", "detach", show=False),
        Binding("escape", "choose('go on')", "go on", show=False),
    ]

    def __init__(self, what: Literal["run", "tune"] = "run") -> None:
        super().__init__()
        self.what = what
        self._words = _WHAT_IS_ON[what]

    def compose(self) -> ComposeResult:
        question, stop, detach = self._words
        with Vertical(classes="box"):
            yield Static(question, markup=False)
            yield Pick([
                Item("stop", stop),
                Item("detach", detach),
                Item("go on", "esc  go on: back to the screen"),
            ])  # fmt: skip

    def on_pick_taken(self, event: Pick.Taken) -> None:
        self.dismiss(event.pick.chosen)

    def action_choose(self, choice: str) -> None:
        self.dismiss(choice)


class Words(NamedTuple):
    """Label, note, and the directory under which the session is kept."""

    label: str
    note: str
    place: str


class NoteDialog(ModalScreen[Words | None]):
    """Saved at once, also when the run has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "back", show=False),
        Binding("f5,ctrl+s", "save", "save", show=False),
        # Before the field: what is typed behind it belongs into the next one.
        Binding("tab", "app.focus_next", "next", show=False, priority=True),
        Binding("shift+tab", "app.focus_previous", "before", show=False, priority=True),
    ]

    def __init__(self, words: Words) -> None:
        super().__init__()
        self._before = words

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Label: a name for this session", markup=False)
            yield Input(self._before.label, id="label", compact=True)
            yield Static("Note: what is special about it", markup=False)
            yield Input(self._before.note, id="note", compact=True)
            yield Static("Kept in", markup=False)
            yield Input(self._before.place, id="place", compact=True)
            yield Static("", markup=False, id="wrong")
            yield Static("tab: next · enter: save · esc: leave as it was", markup=False, classes="hint")

    def on_mount(self) -> None:
        for entry in self.query(Input):
            entry.cursor_blink = False

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "place":
            self.query_one("#wrong", Static).update(self._wrong(event.value))

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        label, note, place = (self.query_one(f"#{name}", Input).value.strip() for name in Words._fields)
        if not self._wrong(place):
            self.dismiss(Words(label, note, str(Path(place).expanduser())))

    def _wrong(self, place: str) -> str:
        """Where it is already it can stay."""
        return "" if place.strip() == self._before.place else wrong_with_place(place)

    def action_give_up(self) -> None:
        self.dismiss(None)


def wrong_with_place(place: str) -> str:
    """Why no session can be kept there; empty where it can, or where only trying will tell."""
    path = Path(place.strip()).expanduser()
    if not place.strip() or not path.is_absolute():
        return "✖ a directory, from / or ~ on"
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        return f"✖ {nearest} is no directory"
    return "" if os.access(nearest, os.W_OK) else f"✖ {nearest} cannot be written to"
