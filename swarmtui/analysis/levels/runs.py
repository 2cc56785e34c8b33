"""Records to runs: which requests are the runs of which level, and how long each run took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.steady import in_flight_span
from swarmtui.model.level_key import LevelKey
from swarmtui.model.plan import Mode
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import StageEnd, StageStart


class LevelRun(NamedTuple):
    """The requests of one run: `finished` ended by themselves, well or not. `stretch` is the number of its stretch."""

    number: int
    stretch: int
    finished: list[Record]
    cancelled: list[Record]
    complete: bool
    end_ns: int | None
    load: Mode
    rate: float | None

    @property
    def window(self) -> tuple[int, int] | None:
        """The makespan: from the first sent to the last token, of finished requests."""
        spans = [span for span in map(in_flight_span, self.finished) if span is not None]
        return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None

    @property
    def wall_s(self) -> float | None:
        window = self.window
        return (window[1] - window[0]) / 1e9 if window and window[1] > window[0] else None

    @property
    def busy_s(self) -> float | None:
        """Σ time in flight within the window (Little), whatever became of the request: it took a stream's place."""
        window = self.window
        if window is None:
            return None
        first, last = window
        spans = (span for span in map(in_flight_span, [*self.finished, *self.cancelled]) if span is not None)
        return sum(max(0, min(end, last) - max(start, first)) for start, end in spans) / 1e9


def finished_by_level(
    records: Sequence[Record], stretches: Sequence[StageStart], ends: Sequence[StageEnd]
) -> dict[LevelKey, list[Record]]:
    """The requests from which the figures of each level are made, by its `key`."""
    runs = runs_by_level(records, stretches, ends)
    return {place: [record for run in here for record in run.finished] for place, here in runs.items()}


def runs_by_level(
    records: Sequence[Record],
    stretches: Sequence[StageStart],
    ends: Sequence[StageEnd],
    phase: Phase = "level",
) -> dict[LevelKey, list[LevelRun]]:
    by_stretch: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stretch[record.stage].append(record)
    ended = {end.number: end for end in ends}
    runs: defaultdict[LevelKey, list[LevelRun]] = defaultdict(list)
    all_stretches = _with_lost(stretches, by_stretch)
    latest = {(s.c, s.rate, s.run): s.number for s in all_stretches if s.phase == phase and not s.steered}
    for stretch in sorted(all_stretches, key=lambda s: s.number):
        end = ended.get(stretch.number)
        complete = end is not None and end.complete
        superseded = stretch.steered or latest.get((stretch.c, stretch.rate, stretch.run)) != stretch.number
        if stretch.phase != phase or (superseded and not complete):
            continue
        found = [r for r in by_stretch[stretch.number] if r.phase == phase]
        if stretch.load == "open":
            found = list(map(_as_due, found))
        run = LevelRun(
            number=len(runs[stretch.c, stretch.rate]) + 1,
            stretch=stretch.number,
            finished=[r for r in found if r.error != CANCELLED],
            cancelled=[r for r in found if r.error == CANCELLED],
            complete=complete,
            end_ns=end.t_ns if end else None,
            load=stretch.load,
            rate=stretch.rate,
        )
        runs[stretch.c, stretch.rate].append(run)
    return runs


def _as_due(record: Record) -> Record:
    """In an open loop time counts from when a request was due: a client that is late hides no queue by it."""
    return msgspec.structs.replace(record, t_sent_ns=record.t_sched_ns, t_headers_ns=record.t_sent_ns)


def _with_lost(stretches: Sequence[StageStart], by_stretch: dict[int, list[Record]]) -> list[StageStart]:
    """The stretches, and those whose own line in the journal was damaged, made again from their requests."""
    known = {stretch.number for stretch in stretches}
    lost = [found[0] for number, found in by_stretch.items() if number not in known]
    return [
        *stretches,
        *(StageStart(number=r.stage, t_ns=r.t_sent_ns or 0, c=max(1, r.c), run=r.run, phase=r.phase) for r in lost),
    ]
