"""Wait until the server has ended the requests that a level cancelled, and find out whether it ends them at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from swarmtui.engines.registry import engine_named
from swarmtui.model.telemetry import Telemetry

# The next level starts after this time, if the server does not say that it still works on the cancelled requests.
_PAUSE_S = 0.5
# Longer than a step of prefill, in which a server does not notice that a client is gone.
_PATIENCE_S = 5.0
_MAX_WAIT_S = 60.0
_POLL_S = 0.05


class CancelledRequests:
    """The requests on the server after all of ours were cancelled.

    `read_now` asks for a new sample and returns the newest one. Requests that the server had beside `own` of ours
    before, in a sample since `since_ns`, are those of other clients.
    """

    def __init__(self, read_now: Callable[[], Telemetry], own: int, since_ns: int) -> None:
        self._read_now = read_now
        before = read_now()
        known = before.servers_t_ns is not None and before.servers_t_ns >= since_ns
        self._others = max(0.0, (_requests(before) or 0.0) - own) if known else 0.0
        self._own, self._cancelled_ns = own, time.perf_counter_ns()

    async def wait(self, stop: Callable[[], bool]) -> bool:
        """Return when the server works on none of them, or after half a second if it does not tell.

        False: it continues to work on them. Wait for that, too, but not forever.
        """
        first: Telemetry | None = None
        passed_s, running = 0.0, False
        while not stop():
            sample = self._read_now()
            if sample.servers_t_ns is not None and sample.servers_t_ns > self._cancelled_ns:
                first = first or sample
                requests = _requests(sample)
                if requests is not None and requests <= self._others:
                    break
                # Other clients come and go; and some servers leave the last number when they have nothing to do.
                many = requests is not None and requests - self._others >= max(1, self._own // 2)
                running = many and (passed_s < _PAUSE_S or _works(first, sample))
            if passed_s >= (_PAUSE_S if not running else _MAX_WAIT_S if _counts(sample) else _PATIENCE_S):
                break
            await asyncio.sleep(_POLL_S)
            passed_s = (time.perf_counter_ns() - self._cancelled_ns) / 1e9
        return passed_s < _PATIENCE_S


def _requests(sample: Telemetry) -> float | None:
    """Return the requests that all servers run or have waiting; None if one does not tell."""
    running = [server.running for server in sample.servers if server.running is not None]
    waiting = (server.waiting or 0.0 for server in sample.servers)
    return sum(running) + sum(waiting) if running and len(running) == len(sample.servers) else None


def _works(first: Telemetry, latest: Telemetry) -> bool:
    """Whether a server that counts tokens as it generates them counted more since the first sample, if one does."""
    return not _counts(latest) or sum(_counts(latest)) > sum(_counts(first))


def _counts(sample: Telemetry) -> list[float]:
    """Return the tokens that servers have generated, of those that count them at once."""
    at_once = (server for server in sample.servers if not engine_named(server.engine).counts_tokens_at_end)
    return [server.output_tokens for server in at_once if server.output_tokens is not None]
