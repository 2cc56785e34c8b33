"""Watch the server after a run: whether it is up, and which flags changed when it was restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from swarmtui.analysis.compare.differences import server_change_texts
from swarmtui.client import catalogue
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.redaction import Secrets
from swarmtui.model.telemetry import DiscoveredServer

_INTERVAL_S = 1.0
# The server is identified in every fourth check; in between only its port is checked.
_IDENTIFY_EVERY = 4


class ServerWatch:
    """Checks one endpoint every second in a thread; `server` is what was found there during the run."""

    def __init__(
        self, endpoint: Endpoint, secrets: Secrets, server: DiscoveredServer | None, on_change: Callable[[], None]
    ) -> None:
        self._endpoint, self._secrets, self._server, self._on_change = endpoint, secrets, server, on_change
        self._pid = server.pid if server else None
        self._down_since: float | None = None
        self._changes: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        return self._down_since is not None

    @property
    def down_s(self) -> float | None:
        return None if self._down_since is None else time.monotonic() - self._down_since

    @property
    def changes(self) -> tuple[str, ...]:
        """Return what the last restart changed, from long to short; empty while the server is down or not restarted."""
        return self._changes if self._down_since is None else ()

    async def run(self) -> None:
        checks = 0
        while True:
            if not await asyncio.to_thread(catalogue.is_listening, self._endpoint.url):
                self._down_since = time.monotonic() if self._down_since is None else self._down_since
            elif self.is_down or checks % _IDENTIFY_EVERY == 0:
                found = await asyncio.to_thread(catalogue.identify_server, self._endpoint, self._secrets)
                self._identified(found)
            checks += 1
            self._on_change()
            await asyncio.sleep(_INTERVAL_S)

    def _identified(self, now: DiscoveredServer | None) -> None:
        if now is None:
            return
        # A restart between two checks shows only in the process id.
        restarted = self.is_down or (None not in (self._pid, now.pid) and self._pid != now.pid)
        if restarted:
            server = self._server
            self._changes = server_change_texts(server, now) if server else ("its previous flags are not known",)
        self._down_since, self._pid = None, now.pid
        self._server = self._server or now
