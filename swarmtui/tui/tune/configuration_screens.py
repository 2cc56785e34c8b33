"""Screens of one configuration of a tune: its live run, the log of its server, and why it failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from swarmtui.files import MAX_JOURNAL, open_regular
from swarmtui.model.tuning import TuneResult
from swarmtui.tui.footer import KeyFooter
from swarmtui.tui.frame_source import LiveSource
from swarmtui.tui.keys import bindings
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.pager import Page, Pager
from swarmtui.tui.tune.view import failure_lines, log_lines

_RELOAD_S = 0.5
_LOG_BYTES = 64 << 10


class WatchScreen(LiveScreen):
    """A run that belongs to a tune: it can be watched but not steered, and Esc always closes the screen."""

    key_context = "watch"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("watch")]

    def __init__(self, source: LiveSource) -> None:
        super().__init__(source)
        self._live = source

    @property
    def _is_over(self) -> bool:
        return True

    def on_unmount(self) -> None:
        self._live.close()

    def _handle_end(self, live: LiveModel) -> None:
        """Change the footer only: the tune reports the result."""
        self.query_one(KeyFooter).show(self.app.keys.actions(self.key_context), ended=True)


class ServerLogScreen(Pager):
    """Follows the output of the server."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def page(self) -> Page:
        page = Page("server log")
        page.follow = True
        return page

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_RELOAD_S, self.fill)

    def fill(self) -> None:
        self.query_one(Page).show(log_lines(_tail(self._log), self.app.size.width))


class FailureScreen(Pager):
    def __init__(self, row: TuneResult) -> None:
        super().__init__()
        self._row = row

    def page(self) -> Page:
        return Page("failed")

    def fill(self) -> None:
        self.query_one(Page).show(failure_lines(self._row, self.app.size.width))


def _tail(path: Path) -> list[str]:
    try:
        with os.fdopen(open_regular(path, MAX_JOURNAL), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
