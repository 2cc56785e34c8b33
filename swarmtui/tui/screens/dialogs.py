"""Questions that must be answered before anything goes on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option


class QuitDialog(ModalScreen[str]):
    """A run is on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "stop and save", show=False),
        Binding("d", "choose('detach')", "detach", show=False),
        Binding("g,escape", "choose('go on')", "go on", show=False),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("A run is on. What becomes of it?", markup=False)
            yield OptionList(
                Option("s  stop and save: up to 5 s for what is in flight", id="stop"),
                Option("d  detach: it goes on; `swarmtui attach` joins it again", id="detach"),
                Option("g  go on: back to the screen", id="go on"),
                markup=False,
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or "go on")

    def action_choose(self, choice: str) -> None:
        self.dismiss(choice)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        options.action_cursor_down() if by > 0 else options.action_cursor_up()


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
