"""Convert the times of a host to the clock of the session process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from swarmtui.model.hosts import ClockOffset
from swarmtui.model.record import shift_times
from swarmtui.model.worker_protocol import Finished, StreamRow, WatchedUpdate, WorkerFrame, WorkerReport


class RoundTrip(NamedTuple):
    """A ping: when it was sent, what the clock of the host said, and when the answer came."""

    sent_ns: int
    host_ns: int
    received_ns: int


def best_offset(pings: Iterable[RoundTrip]) -> ClockOffset:
    """Return the offset by the ping with the shortest round trip: it was delayed least, in both directions."""
    best = min(pings, key=lambda ping: ping.received_ns - ping.sent_ns)
    half = (best.received_ns - best.sent_ns + 1) // 2
    middle = best.sent_ns + half
    return ClockOffset(t_ns=middle, offset_ns=best.host_ns - middle, bound_ns=half)


class HostClock:
    """The measured offsets of one host, and the conversion of its times.

    All times of a record are shifted by the offset at the time when it was sent: its latencies stay as the clock of its
    host measured them, and only its position relative to other hosts depends on the offset.
    """

    def __init__(self) -> None:
        self._offsets: list[ClockOffset] = []
        self.bound_ns = 0

    def add(self, measured: ClockOffset) -> None:
        """`bound_ns` becomes the largest error so far: a change between two rounds is an error until it is measured."""
        change = abs(measured.offset_ns - self._offsets[-1].offset_ns) if self._offsets else 0
        self.bound_ns = max(self.bound_ns, measured.bound_ns + change)
        self._offsets.append(measured)

    @property
    def newest(self) -> ClockOffset:
        return self._offsets[-1]

    def offset_at(self, host_ns: int) -> int:
        """Return the offset measured last before a time of the host; the first one for earlier times."""
        position = bisect_right(self._offsets, host_ns, key=lambda measured: measured.t_ns + measured.offset_ns)
        return self._offsets[max(0, position - 1)].offset_ns

    def convert(self, report: WorkerReport) -> WorkerReport:
        match report:
            case Finished(number, record):
                first_ns = record.t_sent_ns if record.t_sent_ns is not None else record.t_done_ns
                return Finished(number, shift_times(record, -self.offset_at(first_ns or 0)))
            case WorkerFrame():
                watched = report.watched
                return msgspec.structs.replace(
                    report,
                    t_ns=report.t_ns - self.newest.offset_ns,
                    rows=tuple(self._convert_row(row) for row in report.rows),
                    watched=self._convert_watched(watched) if watched is not None else None,
                )
        return report

    def _convert_row(self, row: StreamRow) -> StreamRow:
        if not row.t_sent_ns:
            return row
        return msgspec.structs.replace(row, t_sent_ns=row.t_sent_ns - self.offset_at(row.t_sent_ns))

    def _convert_watched(self, watched: WatchedUpdate) -> WatchedUpdate:
        offset = self.offset_at(watched.t_sent_ns or watched.t_sched_ns or 0)
        times = tuple(t_ns - offset for t_ns in watched.times)
        return msgspec.structs.replace(shift_times(watched, -offset), times=times)
