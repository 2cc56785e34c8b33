"""Ctrl-C, once and again: how a conductor is made to end, and one that does not is ended."""

from __future__ import annotations

import time

from swarmtui.client.client import Client
from swarmtui.model import client_protocol as said

# A conductor that was told to leave at once needs no longer, unless it hangs.
_LEAVES_WITHIN_S = 1.5


class Stopping:
    """The first word stops in order and saves; the second leaves at once, with what is in the journal by then."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._grace_s: float | None = None
        self._gone_by: float | None = None

    @property
    def asked(self) -> bool:
        return self._grace_s is not None

    @property
    def at_once(self) -> bool:
        return self._gone_by is not None

    def of(self, client: Client) -> None:
        """Somebody may have asked before there was a conductor to stop."""
        self._client = client
        if self.asked:
            self._tell()

    def ask(self, grace_s: float) -> None:
        """May be called by a signal handler in the middle of anything: it says it to the conductor, and no more."""
        if self.asked:
            self._gone_by = self._gone_by or time.monotonic() + _LEAVES_WITHIN_S
        self._grace_s = 0.0 if self.asked else grace_s
        self._tell()

    def _tell(self) -> None:
        if self._client is not None:
            self._client.say(said.Stop(grace_s=self._grace_s or 0.0, at_once=self.at_once))

    def check(self) -> None:
        """To be called while we wait: ends a conductor that does not leave, so that its stream ends too."""
        if self._client is not None and self._gone_by is not None and time.monotonic() > self._gone_by:
            client, self._client = self._client, None
            client.kill()
