"""A cell of a tune: its run, to be looked at and not to be steered; the log of its server; why it broke."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from swarmtui.model.tuning import CellRow
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.frame_source import Live
from swarmtui.tui.keys import bindings
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import Track
from swarmtui.tui.pager import Page, Pager
from swarmtui.tui.tune.view import broken_lines, log_lines

_LOOK_S = 0.5
_LOG_BYTES = 64 << 10


class CellScreen(LiveScreen):
    """Esc goes back to the grid at any time: the tune does not mind who looks on."""

    where = "watch"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("watch")]

    def __init__(self, source: Live) -> None:
        super().__init__(source)
        self._live = source

    @property
    def _is_over(self) -> bool:
        return True

    def on_unmount(self) -> None:
        self._live.close()

    def _end(self, track: Track) -> None:
        """It is the tune's to tell how a cell went."""
        self.query_one(KeyLine).show(self.app.keys.actions(self.where), ended=True)


class ServerLogScreen(Pager):
    """What the server of a cell writes, as it writes it."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def page(self) -> Page:
        page = Page("log of the server")
        page.follow = True
        return page

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_LOOK_S, self._fill)
        self._fill()

    def _fill(self) -> None:
        self.query_one(Page).show(log_lines(_tail(self._log), self.app.size.width))


class BrokenScreen(Pager):
    """Why a cell broke."""

    def __init__(self, row: CellRow) -> None:
        super().__init__()
        self._row = row

    def page(self) -> Page:
        return Page("BROKEN")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Page).show(broken_lines(self._row, self.app.size.width))


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []
