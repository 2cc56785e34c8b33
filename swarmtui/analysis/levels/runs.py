"""Group the requests of a session into the runs of each level."""

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
    """The requests of one run: `finished` ended by themselves, with or without an error; `stage` is a number."""

    number: int
    stage: int
    finished: list[Record]
    cancelled: list[Record]
    complete: bool
    end_ns: int | None
    load: Mode
    rate: float | None
    send_delays_s: tuple[float, ...]

    @property
    def window(self) -> tuple[int, int] | None:
        """The makespan of the finished requests: from the first send to the last token."""
        spans = [span for span in map(in_flight_span, self.finished) if span is not None]
        return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None

    @property
    def wall_s(self) -> float | None:
        window = self.window
        return (window[1] - window[0]) / 1e9 if window and window[1] > window[0] else None

    @property
    def busy_s(self) -> float | None:
        """Σ time in flight within the window; failed and cancelled requests also occupied a stream."""
        window = self.window
        if window is None:
            return None
        first, last = window
        spans = (span for span in map(in_flight_span, [*self.finished, *self.cancelled]) if span is not None)
        return sum(max(0, min(end, last) - max(start, first)) for start, end in spans) / 1e9


def finished_by_level(
    records: Sequence[Record], stages: Sequence[StageStart], ends: Sequence[StageEnd]
) -> dict[LevelKey, list[Record]]:
    """Return the requests that the figures of each level are based on."""
    runs = runs_by_level(records, stages, ends)
    return {key: [record for run in found for record in run.finished] for key, found in runs.items()}


def runs_by_level(
    records: Sequence[Record],
    stages: Sequence[StageStart],
    ends: Sequence[StageEnd],
    phase: Phase = "level",
) -> dict[LevelKey, list[LevelRun]]:
    by_stage: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_stage[record.stage].append(record)
    ended = {end.number: end for end in ends}
    runs: defaultdict[LevelKey, list[LevelRun]] = defaultdict(list)
    all_stages = _with_missing_stages(stages, by_stage)
    latest = {(s.c, s.rate, s.run): s.number for s in all_stages if s.phase == phase and not s.steered}
    for stage in sorted(all_stages, key=lambda s: s.number):
        end = ended.get(stage.number)
        complete = end is not None and end.complete
        superseded = stage.steered or latest.get((stage.c, stage.rate, stage.run)) != stage.number
        if stage.phase != phase or (superseded and not complete):
            continue
        found = [r for r in by_stage[stage.number] if r.phase == phase]
        delays: list[float | None] = []
        if stage.load == "open":
            delays = [r.send_delay_s for r in found if r.ok]
            found = list(map(_from_due_time, found))
        run = LevelRun(
            number=len(runs[stage.c, stage.rate]) + 1,
            stage=stage.number,
            finished=[r for r in found if r.error != CANCELLED],
            cancelled=[r for r in found if r.error == CANCELLED],
            complete=complete,
            end_ns=end.t_ns if end else None,
            load=stage.load,
            rate=stage.rate,
            send_delays_s=tuple(delay for delay in delays if delay is not None),
        )
        runs[stage.c, stage.rate].append(run)
    return runs


def _from_due_time(record: Record) -> Record:
    """Count latencies from when the request was due, so that a client that sends late does not hide queueing."""
    return msgspec.structs.replace(record, t_sent_ns=record.t_sched_ns)


def _with_missing_stages(stages: Sequence[StageStart], by_stage: dict[int, list[Record]]) -> list[StageStart]:
    """Add stages whose line in the journal was damaged, rebuilt from their requests."""
    known = {stage.number for stage in stages}
    missing = [found[0] for number, found in by_stage.items() if number not in known]
    return [
        *stages,
        *(StageStart(number=r.stage, t_ns=r.t_sent_ns or 0, c=max(1, r.c), run=r.run, phase=r.phase) for r in missing),
    ]
