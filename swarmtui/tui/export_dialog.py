"""The dialog that exports sessions: asks for format and file, and shows where the file is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from swarmtui.model.base import BadInput, writing
from swarmtui.report import FORMATS
from swarmtui.text import sanitize
from swarmtui.tui.input_line import TextField
from swarmtui.tui.pick_list import PickItem, PickList
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

# The lines of the dialog besides the formats: frame, title, directory, file, an outcome of two lines, hint.
_OTHER_LINES = 10
_HINT = "enter: write · tab: format, directory, file · esc: close"


def default_path(root: Path, session_ids: Sequence[str], form: str) -> Path:
    """Return a file in the directory of the newest session."""
    newest = max(session_ids)
    name = f"{newest}-compared" if len(session_ids) > 1 else newest
    return root / newest / f"{name}.{FORMATS[form].suffix or form}"


class ExportDialog(ModalScreen[None]):
    app: SwarmApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "close", show=False),
        Binding("f5,ctrl+s", "write", "write", show=False),
        Binding("tab", "app.focus_next", "next", show=False, priority=True),
        Binding("shift+tab", "app.focus_previous", "previous", show=False, priority=True),
    ]

    def __init__(self, root: Path, session_ids: Sequence[str]) -> None:
        super().__init__()
        self._root, self._session_ids = root, session_ids
        self._written = False

    def compose(self) -> ComposeResult:
        several = len(self._session_ids) > 1
        forms = [form for form in FORMATS if FORMATS[form].several or not several]
        title = f"Export {len(self._session_ids)} sessions, compared" if several else f"Export {self._session_ids[0]}"
        with Vertical(classes="box", id="export-box"):
            yield Static(sanitize(title), markup=False)
            items = [PickItem(form, form, FORMATS[form].description) for form in forms]
            formats = PickList(items, id="formats")
            formats.styles.height = min(len(forms), self.app.size.height - _OTHER_LINES)
            yield formats
            path = default_path(self._root, self._session_ids, forms[0])
            # Two fields: the end of a long path would not be visible in one.
            yield Static("Directory", markup=False, classes="hint")
            yield TextField(str(path.parent), id="directory", compact=True)
            yield Static("File", markup=False, classes="hint")
            yield TextField(path.name, id="file", compact=True)
            yield Static("", markup=False, id="outcome")
            yield Static(_HINT, markup=False, classes="hint", id="export-hint")

    def on_mount(self) -> None:
        self._describe()

    @property
    def _form(self) -> str:
        return self.query_one("#formats", PickList).picked

    @property
    def _path(self) -> Path:
        directory, name = (self.query_one(f"#{part}", Input).value.strip() for part in ("directory", "file"))
        return Path(directory).expanduser() / Path(name).expanduser()

    @on(OptionList.OptionHighlighted)
    def _format_changed(self) -> None:
        """Follow the format with the suffix of the file."""
        self._written = False
        name = self.query_one("#file", Input)
        if Path(name.value).name:
            name.value = str(Path(name.value).with_suffix(f".{FORMATS[self._form].suffix or self._form}"))
        self._describe()

    @on(Input.Changed)
    def _path_changed(self) -> None:
        if not self._written:
            self._describe()

    def _describe(self) -> None:
        self._show("replaces the existing file" if self._path.is_file() else "")

    def _show(self, text: str, hint: str = _HINT) -> None:
        self.query_one("#outcome", Static).update(sanitize(text))
        self.query_one("#export-hint", Static).update(hint)

    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def action_write(self) -> None:
        """Write the file; once it is written, the same key closes the dialog."""
        if self._written:
            self.dismiss()
        else:
            self._show("writing …")
            run_in_background(self, partial(self._write, self._form, self._path), group="write")

    async def _write(self, form: str, path: Path) -> None:
        try:
            size = await asyncio.to_thread(write_export, self._root, self._session_ids, form, path)
        except BadInput as problem:
            self._show(f"✖ {problem}")
        else:
            self._written = True
            self._show(f"✓ written, {max(1, size // 1000)} KB: {path.resolve()}", "enter or esc: close")

    def action_close(self) -> None:
        self.dismiss()


def write_export(root: Path, session_ids: Sequence[str], form: str, path: Path) -> int:
    """Write sessions in one format, the oldest first, and return the size of the file."""
    from swarmtui.files import write_file
    from swarmtui.report import export
    from swarmtui.sessions.store import open_session

    content = export([open_session(root, session_id) for session_id in sorted(session_ids)], form)
    with writing(path):
        write_file(path, content)
    return len(content)
