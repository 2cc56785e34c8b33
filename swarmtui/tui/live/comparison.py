"""Compare the run of a live screen with its baseline, as levels complete, and record what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.dom import DOMNode

from swarmtui.tui.baseline import Baseline, changed_flags, compare_levels, find_baseline, record_effect
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair
    from swarmtui.model.client_protocol import Frame
    from swarmtui.model.session import Level, Session
    from swarmtui.model.telemetry import DiscoveredServer
    from swarmtui.tui.live_model import LiveModel


class LiveComparison:
    """The `baseline` of a run, the `pair` of both, and in words what changed or came of it (`text`).

    All is read and computed in threads of `owner`; `changed` is called when there is more to show. `names_flags`: the
    server is running now, so that what changed of its flags is news. `records`: what came of it is logged.
    """

    def __init__(self, owner: DOMNode, changed: Callable[[], None], *, names_flags: bool, records: bool) -> None:
        self.baseline = Baseline()
        self.pair: Pair | None = None
        self.text = ""
        self._owner, self._changed = owner, changed
        self._names_flags, self._records = names_flags, records
        self._servers: tuple[DiscoveredServer, ...] | None = None
        self._compared: tuple[tuple[Level, ...], str, str] = ((), "", "")

    def follow(self, live: LiveModel) -> None:
        """Find the baseline, again when another server answers, and compare what is new."""
        session, frame = live.session, live.frame
        if session is None or frame is None:
            return
        if frame.servers != self._servers and live.directory:
            self._servers = frame.servers
            run_in_background(self._owner, partial(self._find, Path(live.directory).parent, session, frame.servers))
        saved = live.ended.directory if live.ended else ""
        key = (frame.levels, self.baseline.name, saved)
        if key != self._compared and self.baseline.summary is not None:
            self._compared = key
            # With many runs the statistics take a while.
            run_in_background(self._owner, partial(self._compare, session, frame, saved), group="compare")

    async def _find(self, root: Path, session: Session, servers: tuple[DiscoveredServer, ...]) -> None:
        self.baseline = await asyncio.to_thread(find_baseline, root, session, servers)
        if self._names_flags:
            self.text = changed_flags(self.baseline, servers)
        self._changed()

    async def _compare(self, session: Session, frame: Frame, saved: str) -> None:
        self.pair = await asyncio.to_thread(compare_levels, self.baseline, session, frame, saved)
        self._changed()
        # A baseline that was chosen is compared by `record`; the list of sessions shows what is logged.
        if self.pair is not None and saved and not session.previous and self._records:
            await asyncio.to_thread(record_effect, Path(saved), self.pair.a)

    def record(self, directory: str) -> None:
        """Log what came of the session that has ended, compared with the baseline that it names."""
        run_in_background(self._owner, partial(self._record, Path(directory)))

    async def _record(self, directory: Path) -> None:
        self.text = await asyncio.to_thread(record_effect, directory) or self.text
        self._changed()
