"""The screen that makes what is shared of a session, and says where it is, what is in it and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from swarmtui.model.base import BadInput
from swarmtui.report.table import Block, Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page, Pager
from swarmtui.tui.textual_patches import run_in_background

# Beside the files of the session: an export may have the same names.
_DIRECTORY = "shared"


class ShareScreen(Pager):
    """Writes the files as soon as it is opened; nothing is sent anywhere."""

    page_title = "share"

    def __init__(self, root: Path, session_id: str) -> None:
        super().__init__()
        self._root, self._session_id = root, session_id
        self._blocks: Sequence[Block] = (Sentence("writing …", "detail"),)

    def on_mount(self) -> None:
        super().on_mount()
        run_in_background(self, self._make, group="share")

    async def _make(self) -> None:
        try:
            self._blocks = await asyncio.to_thread(make_files, self._root, self._session_id)
        except BadInput as problem:
            self._blocks = (Sentence(f"✖ {sanitize(str(problem))}", "lead"),)
        self.update_panels()

    def update_panels(self) -> None:
        page = self.query_one(Page)
        page.note = self._session_id
        page.show_blocks(self._blocks)


def make_files(root: Path, session_id: str) -> list[Block]:
    """Write the card, the post and the file to send, and describe them."""
    from swarmtui.files import make_private_directory, write_file
    from swarmtui.report.sharing import default_names, prepare, render_files, shared_blocks

    found = prepare(root, session_id)
    directory, names = root / session_id / _DIRECTORY, default_names(found)
    try:
        make_private_directory(directory)
        for name, content in zip(names, render_files(found, names), strict=True):
            write_file(directory / name, content)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
    hint = f"Nothing is sent. With a title of yours: swarmtui share {session_id} --label TEXT"
    home = Path.home()
    where = f"~/{directory.relative_to(home)}" if directory.is_relative_to(home) else str(directory.resolve())
    return shared_blocks(found, f"{', '.join(names)} in {where}", (), hint)
