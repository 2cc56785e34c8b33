"""End a run when the half-width of its steady rate is small enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from swarmtui.analysis.levels.runs import LevelRun, runs_by_level
from swarmtui.analysis.levels.window import relative_half_width
from swarmtui.model.journal import StageStart
from swarmtui.model.record import Record
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun


class PrecisionGoal:
    """Looks at the requests of a run with each further cycle; `reached` once its half-width is at most `half_width`.

    It starts with `least` requests. With `on_look` figures are computed in a thread, since a large level must not hold
    up the event loop, and it is called afterwards.
    """

    def __init__(
        self, start: StageStart, half_width: float, least: int, on_look: Callable[[], None] | None = None
    ) -> None:
        self._start, self._half_width, self._due, self._on_look = start, half_width, least, on_look
        self._records: list[Record] = []
        self._measured = 0
        self._looking: asyncio.Task[None] | None = None
        self.reached = False
        self.found: float | None = None

    def add(self, record: Record) -> None:
        if record.stage != self._start.number:
            return
        self._records.append(record)
        self._measured += record.phase == "level"
        if self._measured >= self._due and not self.reached and (self._looking is None or self._looking.done()):
            self._due = self._measured + self._start.c
            if self._on_look is None:
                self._judge(self._known_half_width(tuple(self._records)))
            else:
                self._looking = asyncio.create_task(self._look(tuple(self._records), self._on_look))

    async def _look(self, records: tuple[Record, ...], on_look: Callable[[], None]) -> None:
        self._judge(await asyncio.to_thread(self._known_half_width, records))
        on_look()

    def _known_half_width(self, records: tuple[Record, ...]) -> float | None:
        (runs,) = runs_by_level(records, [self._start], []).values()
        return relative_half_width(self._start.c, [known_part(runs[0])])

    @property
    def missed(self) -> str:
        """How far the run came: `± 3.1 % after 64 requests, ± 2 % was to be reached`"""
        return (
            f"{_percent(self.found)} after {count_noun(self._measured, 'request')}, "
            f"{_percent(self._half_width)} was to be reached"
        )

    def _judge(self, found: float | None) -> None:
        """Two looks in a row must agree: one alone is often small by chance, and the run ends with the first."""
        before, self.found = self.found, found
        self.reached = all(one is not None and one <= self._half_width for one in (before, found))


def _percent(share: float | None) -> str:
    return "no half-width" if share is None else f"± {short_percent(share, 2)}"


def known_part(run: LevelRun) -> LevelRun:
    """Return a run up to the time from which tokens are in answers that have not ended: an agent is always busy."""
    last_ns: dict[int, int] = {}
    for record in run.records:
        last_ns[record.agent] = max(last_ns.get(record.agent, 0), record.left_ns)
    known_ns = min(last_ns.values()) if len(last_ns) >= run.c else 0
    sent = [record for record in run.sent if (record.t_sent_ns or 0) <= known_ns]
    later = [record for record in run.sent if (record.t_sent_ns or 0) > known_ns]
    return run._replace(sent=sent, unmeasured=[*run.unmeasured, *later])
