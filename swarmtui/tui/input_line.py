"""A line to type into, at the foot of a screen: it says at once what is wrong with what is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from swarmtui.model.schema import BadInput
from swarmtui.text import plain

Check = Callable[[str], object]


class Prompt(Horizontal):
    """`check` raises BadInput for what cannot be; `done` gets what was typed, None when it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._check: Check = str
        self._done: Callable[[str | None], None] = lambda text: None
        self._typed: Callable[[str], None] = lambda text: None

    def compose(self) -> ComposeResult:
        yield Static("", markup=False, classes="prompt--label")
        entry = Input(compact=True)
        entry.cursor_blink = False
        yield entry
        yield Static("", markup=False, classes="prompt--problem")

    def ask(
        self,
        label: str,
        value: str,
        check: Check,
        done: Callable[[str | None], None],
        typed: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._check, self._done, self._typed = check, done, typed
        self.query_one(".prompt--label", Static).update(f" {label} ")
        entry = self.query_one(Input)
        self.add_class("-open")
        entry.value = value
        entry.cursor_position = len(value)
        # What is not shown yet cannot be focused.
        self.call_after_refresh(entry.focus)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def action_give_up(self) -> None:
        self._close(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self._typed(event.value)
            self.query_one(".prompt--problem", Static).update(self._problem(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._problem(event.value):
            self._close(event.value)

    def _problem(self, text: str) -> str:
        try:
            self._check(text)
        except BadInput as problem:
            return plain(problem.problem)
        return ""

    def _close(self, text: str | None) -> None:
        self.remove_class("-open")
        self.screen.set_focus(None)
        self._done(text)
