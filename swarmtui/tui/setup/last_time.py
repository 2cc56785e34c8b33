"""The line of the setup screen that says what was found at this endpoint last time, and opens that result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.events import Click

from swarmtui.model.endpoint import SIMULATOR_PREFIX
from swarmtui.tui.lines import Line, LineWidget, longest_fit, shorten
from swarmtui.tui.setup.view import last_time_texts
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.sessions.index import SessionRow

# Older sessions are found in the list of all.
_NEWEST = 200


class LastTime(LineWidget):
    """Hidden until a session of this endpoint is found; its key or a click opens the result."""

    def __init__(self) -> None:
        super().__init__(id="last-time")
        self.display = False
        self._rows: tuple[SessionRow, ...] = ()
        self._found: SessionRow | None = None
        self._endpoint: tuple[str, str, Mapping[str, str] | None] = ("", "", None)

    def load(self) -> None:
        """Read the newest sessions again: a run may have ended since."""
        run_in_background(self, self._load, group="last-time")

    async def _load(self) -> None:
        self._rows = await asyncio.to_thread(_newest_sessions, self.app.session_root)
        self.show_endpoint(*self._endpoint)

    def show_endpoint(self, url: str, model: str, flags: Mapping[str, str] | None) -> None:
        """Show the newest result of this endpoint, whose server has these flags now; hide the line if there is none."""
        self._endpoint = (url, model, flags)
        embedded = url.startswith(SIMULATOR_PREFIX)
        self._found = next((row for row in self._rows if url and row.is_at(url, model, embedded)), None)
        self.display = self._found is not None
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        row = self._found
        if row is None:
            return []
        from swarmtui.report.session_list import answer_text

        age_s = time.time() - datetime.fromisoformat(row.created).timestamp()
        *_, now = self._endpoint
        texts = last_time_texts(answer_text(row), age_s, naming_flags(row.flags, now))
        return [[(" [0] ", "title"), (shorten(longest_fit(texts, width - 6), width - 6), "good")]]

    def on_click(self, event: Click) -> None:
        event.stop()
        self.open()

    def open(self) -> None:
        if self._found is not None:
            work = partial(self.app.open_result, self.app.session_root, self._found.id)
            run_in_background(self, work, group="open")


def naming_flags(flags: Mapping[str, str] | None, now: Mapping[str, str] | None) -> str:
    """Return the flags of a session that its server does not have now, else those of its slots: `--parallel 2`"""
    from swarmtui.analysis.compare.differences import flags_text, option_name, varying_flags
    from swarmtui.engines.registry import ENGINES

    if flags is None:
        return ""
    if now is not None and (differing := varying_flags([now, flags])[1]):
        return differing
    slots = {name for engine in ENGINES for name in engine.slot_flags}
    return flags_text({name: value for name, value in flags.items() if option_name(name) in slots})


def _newest_sessions(root: Path) -> tuple[SessionRow, ...]:
    """Return the newest sessions that have an answer of their own."""
    from swarmtui.report.session_list import answer_text
    from swarmtui.sessions.index import read_row, session_directories

    rows = (read_row(root / name) for name in session_directories(root)[:_NEWEST])
    return tuple(row for row in rows if row.is_complete and row.stands_alone and row.created and answer_text(row))
