"""A text field at the bottom of a screen that validates what is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from swarmtui.model.base import BadInput
from swarmtui.text import sanitize, sanitize_lines
from swarmtui.tui.textual_patches import ClusterInput

Validator = Callable[[str], object]


class TextField(ClusterInput):
    """A text field without control characters, whether typed, pasted or read from a file; its cursor does not blink."""

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return " ".join(sanitize_lines(value))


class InputLine(Horizontal):
    """Asks for one line: `validate` raises BadInput, `done` gets the text, or None if it was cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._validate: Validator = str
        self._done: Callable[[str | None], None] = lambda text: None
        self._typed: Callable[[str], None] = lambda text: None

    def compose(self) -> ComposeResult:
        yield Static("", markup=False, classes="input-line--label")
        yield TextField(compact=True)
        yield Static("", markup=False, classes="input-line--problem")
        yield Static("", markup=False, classes="input-line--keys")

    def ask(
        self,
        label: str,
        value: str,
        validate: Validator,
        done: Callable[[str | None], None],
        typed: Callable[[str], None] = lambda text: None,
        *,
        enter: str = "ok",
    ) -> None:
        """`enter` is what Enter does."""
        self._validate, self._done, self._typed = validate, done, typed
        self.query_one(".input-line--label", Static).update(f" {label} ")
        self.query_one(".input-line--keys", Static).update(f"enter {enter} · esc back ")
        entry = self.query_one(Input)
        self.add_class("-open")
        entry.value = value
        entry.cursor_position = len(entry.value)
        # At once: keys that follow in the same packet belong to the field.
        self.screen.set_focus(entry)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def action_cancel(self) -> None:
        self._close(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self._typed(event.value)
            self.query_one(".input-line--problem", Static).update(self._problem(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._problem(event.value):
            self._close(event.value)

    def _problem(self, text: str) -> str:
        try:
            self._validate(text)
        except BadInput as problem:
            return sanitize(problem.problem)
        return ""

    def _close(self, text: str | None) -> None:
        self.remove_class("-open")
        self.screen.set_focus(None)
        self._done(text)
