"""The pages about one session: its publication checklist, and what is shared of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from swarmtui.model.base import BadInput, writing
from swarmtui.report.table import Block, Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page, Pager
from swarmtui.tui.textual_patches import run_in_background

# Beside the files of the session: an export may have the same names.
_DIRECTORY = "shared"


class SessionPage(Pager):
    """Shows what `make_blocks` returns, which runs in a thread, or why it failed."""

    waiting: str

    def __init__(self, root: Path, session_id: str) -> None:
        super().__init__()
        self._root, self._session_id = root, session_id
        self._blocks: Sequence[Block] = (Sentence(self.waiting, "detail"),)

    def on_mount(self) -> None:
        super().on_mount()
        run_in_background(self, self._make, group="page")

    async def _make(self) -> None:
        try:
            self._blocks = await asyncio.to_thread(self.make_blocks, self._root, self._session_id)
        except BadInput as problem:
            self._blocks = (Sentence(f"✖ {sanitize(str(problem))}", "lead"),)
        self.update_panels()

    def update_panels(self) -> None:
        page = self.query_one(Page)
        page.notes = (self._session_id,)
        page.show_blocks(self._blocks)

    @staticmethod
    def make_blocks(root: Path, session_id: str) -> Sequence[Block]:
        raise NotImplementedError


class ChecklistScreen(SessionPage):
    """Each condition of the publication checklist, by the journal as it is now, also while the session runs."""

    page_title, waiting = "publication checklist", "loading …"

    @staticmethod
    def make_blocks(root: Path, session_id: str) -> Sequence[Block]:
        from swarmtui.analysis.quality.checklist import checklist_sentence
        from swarmtui.report.session import check_sentences
        from swarmtui.sessions.store import read_session

        checks = read_session(root, session_id).checks
        return (Sentence(checklist_sentence(checks), "lead"), *check_sentences(checks))


class ShareScreen(SessionPage):
    """Writes the card, the post and the file to send as soon as it is opened; nothing is sent anywhere."""

    page_title, waiting = "share", "writing …"

    @staticmethod
    def make_blocks(root: Path, session_id: str) -> Sequence[Block]:
        from swarmtui.files import make_private_directory, write_file
        from swarmtui.report.sharing import default_names, prepare, render_files, shared_blocks

        found = prepare(root, session_id)
        directory, names = root / session_id / _DIRECTORY, default_names(found)
        with writing(directory):
            make_private_directory(directory)
            for name, content in zip(names, render_files(found, names), strict=True):
                write_file(directory / name, content)
        hint = f"Nothing is sent. With a title of yours: swarmtui share {session_id} --label TEXT"
        home = Path.home()
        where = f"~/{directory.relative_to(home)}" if directory.is_relative_to(home) else str(directory.resolve())
        return shared_blocks(found, f"{', '.join(names)} in {where}", (), hint)
