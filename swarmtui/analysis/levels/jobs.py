"""Follow jobs by their finished requests: conversations, and recorded sessions that are played from the beginning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from swarmtui.analysis.levels.runs import in_flight_span
from swarmtui.model.record import Record

Key = tuple[bool, int]


class JobEnd(NamedTuple):
    """How long a job took; `ok`: all its requests were answered, None if it was cut off before."""

    seconds: float
    ok: bool | None


def job_of(record: Record) -> Key | None:
    """Return which job a request belongs to, if that has several requests."""
    if record.replayed is not None:
        return True, record.replayed.play
    return (False, record.task) if record.turns > 1 else None


class Jobs:
    """Finds the end of each job: its last answer, its first error, or the first of its requests to be cancelled.

    Requests are added in the order in which they end.
    """

    def __init__(self) -> None:
        self._open: dict[Key, tuple[int, int, int]] = {}
        self._ended: set[Key] = set()

    def add(self, record: Record) -> JobEnd | None:
        """Return the end of the job if it ends with this request.

        One that ends before the load is reached does not count, nor a recorded session that was not begun at its start.
        """
        key, span, replayed = job_of(record), in_flight_span(record), record.replayed
        if key is None or span is None or key in self._ended or (replayed and replayed.skipped):
            return None
        first, last, answered = self._open.pop(key, (*span, 0))
        first, last, answered = min(first, span[0]), max(last, span[1]), answered + record.ok
        if record.ok and answered < (replayed.requests if replayed else record.turns):
            self._open[key] = first, last, answered
            return None
        self._ended.add(key)
        ok = True if record.ok else None if record.cancelled else False
        return JobEnd((last - first) / 1e9, ok) if record.phase != "preroll" else None


def whole_jobs(records: Iterable[Record]) -> list[tuple[float, list[Record]]]:
    """Return the seconds and the requests of all jobs that ended well."""
    jobs, found = Jobs(), []
    parts: defaultdict[Key | None, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.left_ns):
        key = job_of(record)
        if key is not None:
            parts[key].append(record)
        if (end := jobs.add(record)) is not None and end.ok:
            found.append((end.seconds, parts[key]))
    return found
