"""Questions that must be answered before anything goes on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from swarmtui.tui.widgets.pick import Item, Pick


class QuitDialog(ModalScreen[str]):
    """A run is on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "stop and save", show=False),
        Binding("d", "choose('detach')", "detach", show=False),
        Binding("escape", "choose('go on')", "go on", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("A run is on. What becomes of it?", markup=False)
            yield Pick([
                Item("stop", "s  stop and save: up to 5 s for what is in flight"),
                Item("detach", "d  detach: it goes on; attach joins it again"),
                Item("go on", "esc  go on: back to the screen"),
            ])  # fmt: skip

    def on_pick_taken(self, event: Pick.Taken) -> None:
        self.dismiss(event.pick.chosen)

    def action_choose(self, choice: str) -> None:
        self.dismiss(choice)


class NoteDialog(ModalScreen[tuple[str, str] | None]):
    """Label and note; both are saved at once."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", show=False)]

    def __init__(self, label: str, note: str) -> None:
        super().__init__()
        self._label, self._note = label, note

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Label: a name for this session", markup=False)
            yield Input(self._label, id="label", compact=True)
            yield Static("Note: what is special about it", markup=False)
            yield Input(self._note, id="note", compact=True)
            yield Static("enter: next, save · esc: leave as it was", markup=False, classes="hint")

    def on_mount(self) -> None:
        for entry in self.query(Input):
            entry.cursor_blink = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "label":
            self.query_one("#note", Input).focus()
        else:
            label, note = (self.query_one(f"#{name}", Input).value for name in ("label", "note"))
            self.dismiss((label, note))

    def action_give_up(self) -> None:
        self.dismiss(None)
