"""Group requests into the runs of each level, and compute what was in flight and the tokens of the steady window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import fsum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from swarmtui.model.load import traits
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import LEVEL_PHASES, Phase, Record

if TYPE_CHECKING:
    from swarmtui.model.journal import StageEnd, StageStart

Span = tuple[int, int]


class SteadyPart(NamedTuple):
    """The length of a steady window, and the tokens and chunks that arrived in it."""

    seconds: float
    tokens: float
    chunks: int


def in_flight_span(record: Record) -> Span | None:
    """Return the time from the send to the last token; of a failed request to its end, since it occupied a stream."""
    ends = (record.t_end_ns, record.t_done_ns) if record.ok else (record.t_done_ns, record.t_last_ns)
    end = ends[0] if ends[0] is not None else ends[1]
    if record.t_sent_ns is None or end is None or end < record.t_sent_ns:
        return None
    return record.t_sent_ns, end


def in_flight_spans(records: Iterable[Record]) -> list[Span]:
    return [span for span in map(in_flight_span, records) if span is not None]


def window_at(c: int, spans: Iterable[Span], since_ns: int | None = None, until_ns: int | None = None) -> Span | None:
    """Return the first and the last moment at which exactly `c` spans overlap; None if they never do.

    Moments in between at which one has ended and the next has not begun stay inside: on a server that decodes all
    streams in one step, the tokens of the others arrive just then.
    """
    changes: defaultdict[int, int] = defaultdict(int)
    for start, end in spans:
        changes[start] += 1
        changes[end] -= 1
    window: Span | None = None
    level = 0
    for time, following in pairwise(sorted(changes)):
        level += changes[time]
        start = time if since_ns is None else max(time, since_ns)
        end = following if until_ns is None else min(following, until_ns)
        if level == c and start < end:
            window = (window[0] if window else start, end)
    return window


def mean_in_flight(spans: Iterable[Span], window: Span) -> float | None:
    """Return Σ overlap of the spans with the window / its length."""
    first, last = window
    if last <= first:
        return None
    return sum(max(0, min(end, last) - max(start, first)) for start, end in spans) / (last - first)


def tokens_per_chunk(records: Iterable[Record]) -> float:
    """Return the mean of the answers whose tokens were counted; 1 if there are none."""
    counted = [record for record in records if record.ok and record.tokens_out is not None and record.chunks]
    chunks = sum(record.chunks for record in counted)
    return sum(record.tokens_out or 0 for record in counted) / chunks if chunks else 1.0


def steady(records: Sequence[Record], c: int, window: Span | None) -> SteadyPart | None:
    """Return the time of the window and the tokens that arrived in it; None for fewer than 2·C chunks."""
    if window is None or window[1] <= window[0]:
        return None
    part = next(steady_parts(records, window))
    return part if part.chunks >= 2 * c else None


def steady_parts(records: Sequence[Record], bounds: Sequence[int]) -> Iterator[SteadyPart]:
    """Yield what arrived from each of some moments to the next.

    The tokens of all requests count, of whatever phase, also of cancelled and failed ones: these are estimated by
    their chunks and the tokens per chunk of the others. A chunk exactly at the start of a part is outside.
    """
    per_chunk = tokens_per_chunk(records)
    parts: list[list[tuple[float, int]]] = [[] for _ in bounds[1:]]
    for record in records:
        first_ns, last_ns = record.t_first_ns, record.t_last_ns
        if first_ns is None or first_ns > bounds[-1] or (last_ns is not None and last_ns <= bounds[0]):
            continue
        estimated = not record.ok and record.chunk_tokens is None
        for part, (start, end) in zip(parts, pairwise(record.chunks_until(bounds)), strict=True):
            part.append(((end - start) * per_chunk if estimated else record.tokens_of_chunks(start, end), end - start))
    for part, (start, end) in zip(parts, pairwise(bounds), strict=True):
        yield SteadyPart((end - start) / 1e9, fsum(tokens for tokens, _ in part), sum(chunks for _, chunks in part))


class LevelRun(NamedTuple):
    """The requests of one run: `finished` ended by themselves, with or without an error, `unfinished` were cancelled.

    In an open loop the `t_sent_ns` of `finished` is when they were due, that of `sent`, the same requests, when they
    were sent: latencies count from the first, what was in flight from the second. `unmeasured` are other requests in
    flight at that time: pre-roll and fillers, or requests that began or ended in another stage of a ramp.
    `earlier_errors` are the failed requests of attempts that were repeated.
    """

    number: int
    stage: int
    c: int
    finished: list[Record]
    sent: list[Record]
    unfinished: list[Record]
    unmeasured: list[Record]
    earlier_errors: list[Record]
    complete: bool
    start_ns: int
    end_ns: int | None
    load: str
    rate: float | None
    steered: bool
    send_delays_s: tuple[float, ...]

    @property
    def records(self) -> list[Record]:
        return [*self.sent, *self.unfinished, *self.unmeasured]

    @property
    def requests(self) -> list[Record]:
        """The requests of the run, from when they were due, without those of other stages at the same time."""
        others = (record for record in self.unmeasured if record.phase in ("preroll", "filler"))
        return [*self.finished, *self.unfinished, *others]

    @property
    def tokens_per_chunk(self) -> float:
        return tokens_per_chunk(self.records)

    @property
    def failed(self) -> list[Record]:
        """All requests that failed in a run: measured, pre-roll and fillers, also in attempts that were repeated."""
        own = (*self.finished, *(r for r in self.unmeasured if r.stage == self.stage and r.phase != "level"))
        return [*(r for r in own if r.failed), *self.earlier_errors]

    @property
    def streaming(self) -> int:
        """The most streams that were between their first and last token at once; one may begin as another ends."""
        spans = ((record.t_first_ns or 0, record.t_last_ns or 0) for record in self.records)
        changes = sorted(change for start, end in spans if start < end for change in ((start, 1), (end, -1)))
        return max(accumulate((change for _, change in changes), initial=0))

    @property
    def filled(self) -> bool:
        """Whether requests before or after the measured ones kept C in flight; a single stream may have no others."""
        others = any(record.phase in ("preroll", "filler") for record in self.unmeasured)
        return not self.steered and (others or (self.c == 1 and bool(self.unfinished)))

    @property
    def has_counts(self) -> bool:
        return any(record.ok and record.tokens_out is not None for record in self.finished)

    @property
    def has_cycles(self) -> bool:
        """Whether throughput, stream rate and TTFT are those of whole cycles, not of the finished requests."""
        return self.filled and traits(self.load).holds_c

    @property
    def window(self) -> Span | None:
        """The makespan of the finished requests: from the first send to the last token."""
        spans = in_flight_spans(self.sent)
        return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None

    @property
    def wall_s(self) -> float | None:
        window = self.window
        return (window[1] - window[0]) / 1e9 if window and window[1] > window[0] else None

    @property
    def busy_s(self) -> float | None:
        """Σ time in flight within the makespan; failed, cancelled and unmeasured requests also occupied a stream."""
        window, wall_s = self.window, self.wall_s
        mean = mean_in_flight(in_flight_spans(self.records), window) if window else None
        return None if mean is None or wall_s is None else mean * wall_s

    @property
    def steady_window(self) -> Span | None:
        """The time from the first measured send to the one after the last: cycles, in each of which all streams send.

        Ending it at the last measured send would leave out the decode phase of the last cycle. Recorded sessions have
        no such cycles. Without pre-roll, it is the time from the first to the last moment at which C were in flight.
        """
        if traits(self.load).replayed:
            return (self._sent_ns[0], self._sent_ns[-1]) if self._sent_ns else None
        if self.filled:
            return (self.window_sends[0], self.window_sends[-1]) if self.window_sends else None
        return window_at(self.c, in_flight_spans(self.records), self.start_ns if self.steered else None, self.end_ns)

    @property
    def window_sends(self) -> list[int]:
        """The send times of as many requests as were measured, and of the one after them, from the first measured one.

        A run that was ended by time has no request after them, and is cut to whole cycles.
        """
        measured = self._sent_ns
        fillers = [r.t_sent_ns for r in self.unmeasured if r.phase == "filler" and r.t_sent_ns is not None]
        sends = sorted([*measured, *fillers])[: len(measured) + 1]
        return sends if fillers else sends[: max(len(sends) - 1, 0) // self.c * self.c + 1]

    @property
    def held_window(self) -> Span | None:
        """The time in which the client had work for C streams; None if there were no more requests than streams."""
        sent = self._sent_ns
        if not traits(self.load).holds_c or len(sent) <= self.c:
            return None
        return self.steady_window if self.filled or self.steered else (sent[self.c - 1], sent[-1])

    @property
    def _sent_ns(self) -> list[int]:
        return sorted(r.t_sent_ns for r in (*self.sent, *self.unfinished) if r.t_sent_ns is not None)


def requests_by_level(
    records: Sequence[Record], stages: Sequence[StageStart], ends: Sequence[StageEnd]
) -> dict[LevelKey, list[Record]]:
    """Return the requests of each level: measured and unfinished ones, pre-roll and fillers."""
    runs = runs_by_level(records, stages, ends)
    return {key: [r for run in found for r in run.requests] for key, found in runs.items()}


def group_by_stage(records: Sequence[Record]) -> defaultdict[int, list[Record]]:
    stages: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        stages[record.stage].append(record)
    return stages


def runs_by_level(
    records: Sequence[Record], stages: Sequence[StageStart], ends: Sequence[StageEnd], phase: Phase = "level"
) -> dict[LevelKey, list[LevelRun]]:
    """Return the runs of each level.

    A stage that the user left before it had enough requests is a run, an incomplete one, only of a level that has no
    other and if a request succeeded in it. One that ended before its first measured request is a run only if requests
    failed, or if it is the first.
    """
    by_stage = group_by_stage(records)
    ended = {end.number: end for end in ends}
    runs: defaultdict[LevelKey, list[LevelRun]] = defaultdict(list)
    partial: defaultdict[LevelKey, list[LevelRun]] = defaultdict(list)
    all_stages = _with_missing_stages(stages, by_stage)
    latest = {(s.c, s.rate, s.run): s.number for s in all_stages if s.phase == phase and not s.steered}
    errors: defaultdict[tuple[int, float | None, int], list[Record]] = defaultdict(list)
    for stage in sorted(all_stages, key=lambda s: s.number):
        if stage.phase != phase:
            continue
        end, attempt = ended.get(stage.number), (stage.c, stage.rate, stage.run)
        complete = end is not None and end.complete
        superseded = not stage.steered and latest.get(attempt) != stage.number
        found = [r for r in by_stage[stage.number] if r.phase in (phase, "unfinished")]
        if superseded and not complete:
            errors[attempt] += [r for r in by_stage[stage.number] if r.failed]
            continue
        unmeasured = [r for r in by_stage[stage.number] if r.phase not in (phase, "unfinished")]
        if stage.steered:
            inside = [r for r in found if _ends_inside(r, end)]
            unmeasured = _overlapping(records, stage, end, inside)
            found = inside
        delays = [r.send_delay_s for r in found if r.ok] if traits(stage.load).scheduled else []
        sent = [r for r in found if not r.cancelled]
        finished = sent
        if traits(stage.load).by_rate:
            # Latencies count from when a request was due, so that a client that sends late does not hide queueing.
            finished = [msgspec.structs.replace(record, t_sent_ns=record.t_sched_ns) for record in sent]
        failed = errors.get(attempt) or any(record.failed for record in unmeasured)
        if not found and not failed and end is not None and runs:
            continue
        same_level = (partial if stage.steered and not complete else runs)[stage.c, stage.rate]
        run = LevelRun(
            number=len(same_level) + 1,
            stage=stage.number,
            c=stage.c,
            finished=finished,
            sent=sent,
            unfinished=[r for r in found if r.cancelled],
            unmeasured=unmeasured,
            earlier_errors=[] if stage.steered else errors.pop(attempt, []),
            complete=complete,
            start_ns=stage.t_ns,
            end_ns=end.t_ns if end else None,
            load=stage.load,
            rate=stage.rate,
            steered=stage.steered,
            send_delays_s=tuple(delay for delay in delays if delay is not None),
        )
        same_level.append(run)
    for key, steered in partial.items():
        if not runs[key]:
            runs[key] = [run for run in steered if any(record.ok for record in run.finished)]
    return {key: found for key, found in runs.items() if found}


def _ends_inside(record: Record, end: StageEnd | None) -> bool:
    """Whether C was the same for the whole request; a failed one counts in the stage in which it was sent."""
    span = in_flight_span(record)
    return not record.ok or end is None or span is None or span[1] <= end.t_ns


def _overlapping(
    records: Sequence[Record], stage: StageStart, end: StageEnd | None, own: Sequence[Record]
) -> list[Record]:
    known = {id(record) for record in own}
    return [
        record
        for record in records
        if id(record) not in known
        and (span := in_flight_span(record)) is not None
        and span[1] > stage.t_ns
        and (end is None or span[0] < end.t_ns)
    ]


def _with_missing_stages(stages: Sequence[StageStart], by_stage: dict[int, list[Record]]) -> list[StageStart]:
    """Add stages whose line in the journal was damaged, rebuilt from their requests."""
    from swarmtui.model.journal import StageStart  # not needed for the first paint of the app

    known, found = {stage.number for stage in stages}, list(stages)
    for r in (records[0] for number, records in by_stage.items() if number not in known):
        phase = "level" if r.phase in LEVEL_PHASES else r.phase
        found.append(StageStart(number=r.stage, t_ns=r.t_sent_ns or 0, c=max(1, r.c), run=r.run, phase=phase))
    return found
