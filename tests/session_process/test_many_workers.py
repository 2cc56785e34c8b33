"""Three workers keep C requests in flight, whichever of them the server answers first."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from swarmtui.model.load import Barrier, Closed, Load, LoadBase, Open
from swarmtui.model.plan import Plan
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, respond_with_words, scripted_server
from tests.session_process.harness import SessionHarness

C = 6
WORDS = respond_with_words(1)


class FullHouse:
    """Answers a request only while C are in flight, until `total` have arrived, and always on the same connection.

    One worker then uses up its tasks long before the others. `starved` is set if the client lets a stream idle.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._arrived = 0
        self._waiting: set[int] = set()
        self._answered: Counter[int] = Counter()
        self._changed = threading.Condition()
        self.starved = False

    def __call__(self, to: ScriptedHandler, request: ReceivedRequest) -> None:
        here = request.connection
        with self._changed:
            self._arrived += 1
            self._waiting.add(here)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self.starved or self._is_next(here), 10.0):
                self.starved = True
            self._waiting.discard(here)
            self._answered[here] += 1
            self._changed.notify_all()
        WORDS(to, request)

    def _is_next(self, connection: int) -> bool:
        if self._arrived >= self._total:
            return True
        favourite = max(self._waiting, key=lambda waiting: (self._answered[waiting], waiting))
        return len(self._waiting) == C and connection == favourite


@pytest.mark.parametrize(
    ("load", "requests"),
    [
        (Closed(levels=(C,), warmup=0, requests=4 * C, preroll=False), 4 * C),
        (Barrier(levels=(C,), warmup=0, serial="none"), C),
        (Open(streams=C, warmup=0, requests=4 * C, rate=5000.0), 4 * C),
    ],
    ids=lambda value: value.name if isinstance(value, LoadBase) else str(value),
)
def test_streams_of_all_workers_stay_busy(harness: SessionHarness, load: Load, requests: int) -> None:
    responder = FullHouse(requests)
    with scripted_server(responder) as server:
        session_client = harness.start(server.url, Plan(load=load, workers=3))
        ended = session_client.wait_for_end()
    measured = [record for record in harness.journal(session_client).records if record.phase == "level"]
    assert (ended.ending, responder.starved) == ("done", False)
    assert len(measured) == len({record.task for record in measured}) == requests
    assert [record.error for record in measured] == [None] * requests
