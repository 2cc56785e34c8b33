"""A name and a line to type into."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static


def field(name: str, label: str, value: str = "", hint: str = "") -> ComposeResult:
    """`hint` is what stands in it while it is empty."""
    with Horizontal(classes="field", id=f"of-{name}"):
        yield Static(label, markup=False, classes="name")
        entry = Input(value, id=name, compact=True, placeholder=hint)
        entry.cursor_blink = False
        yield entry
