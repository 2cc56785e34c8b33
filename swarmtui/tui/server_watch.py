"""After a run: whether its server is still there, how long it has been away, and how it was started when it is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from swarmtui.client import catalogue
from swarmtui.experiments.answer import flag_change
from swarmtui.model.telemetry import Discovered

_LOOK_S = 1.0
# So many looks at the port alone, then one that asks the server itself.
_ASK_EVERY = 4


class Vigil:
    """One endpoint, looked at once a second in a thread. `server` is as it was while the run was on."""

    def __init__(self, url: str, server: Discovered | None, wake: Callable[[], None]) -> None:
        self._url, self._server, self._wake = url, server, wake
        self._pid = server.pid if server else None
        self._gone_at: float | None = None
        self._back = ""

    @property
    def is_down(self) -> bool:
        return self._gone_at is not None

    @property
    def down_s(self) -> float | None:
        return None if self._gone_at is None else time.monotonic() - self._gone_at

    @property
    def back(self) -> str:
        """What is different since the server came back; empty before that."""
        return self._back if self._gone_at is None else ""

    async def keep(self) -> None:
        looks = 0
        while True:
            if not await asyncio.to_thread(catalogue.is_there, self._url):
                self._gone_at = time.monotonic() if self._gone_at is None else self._gone_at
            elif self.is_down or looks % _ASK_EVERY == 0:
                self._take(await asyncio.to_thread(catalogue.identify, self._url))
            looks += 1
            self._wake()
            await asyncio.sleep(_LOOK_S)

    def _take(self, now: Discovered | None) -> None:
        """A restart that took less than a second is told by the number of the process."""
        if now is None:
            return
        restarted = self.is_down or (None not in (self._pid, now.pid) and self._pid != now.pid)
        if restarted:
            self._back = flag_change(self._server, now) if self._server else "its former flags are not known"
        self._gone_at, self._pid = None, now.pid
        self._server = self._server or now
