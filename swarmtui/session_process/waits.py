"""Gathers what the live split of the time to the first token is made of; the arithmetic is analysis.ttft_split's."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from swarmtui.analysis.machine.ttft_split import LONGEST_NS, lately
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import Telemetry, TtftSplit

# More of them add nothing to a mean of the last seconds.
_RECORDS = 512


class Waits:
    def __init__(self) -> None:
        self._finished: deque[Record] = deque(maxlen=_RECORDS)
        self._looks: deque[Telemetry] = deque()

    def finish(self, record: Record) -> None:
        self._finished.append(record.lean())

    def look(self, seen: Telemetry) -> None:
        """Four times a second the same look may come again, until the server has been asked anew."""
        if seen.servers and (not self._looks or self._looks[-1].asked_ns < seen.asked_ns):
            self._looks.append(seen)
            while self._looks[0].asked_ns < seen.asked_ns - LONGEST_NS:
                self._looks.popleft()

    def split(self, now_ns: int, c: int, levels: Sequence[Level]) -> TtftSplit | None:
        return lately(now_ns, c, self._finished, self._looks, levels)
