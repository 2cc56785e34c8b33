"""Replay a saved session: build the frame of any moment from its journal."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.stats import ratio, sum_known
from swarmtui.analysis.live_trace import TraceCounts
from swarmtui.analysis.machine.ttft_split import MAX_AGE_NS, recent_split
from swarmtui.analysis.stream_detail import earlier_request, recorded_stream, recorded_tail
from swarmtui.model.client_protocol import Frame, Hello, Status, WatchedStream
from swarmtui.model.load import traits
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level, StageEnd, StageStart, Summary, TaskFigures
from swarmtui.model.telemetry import HistoryPoint, Telemetry
from swarmtui.model.worker_protocol import StreamRow, TextTail
from swarmtui.sessions.store import LoadedSession, journal_slots, load_session, summarise

_POINT_NS = 250_000_000
_MAX_POINTS = 20_000
_SECOND_NS = 1_000_000_000
_RECENT_TTFTS = 32
_RECENT_REQUESTS = 512
_FINISHED_SHOWN = 8
_RECENT_NS = 10 * _SECOND_NS


def open_replay(root: Path, which: str) -> Replay:
    return Replay(load_session(root, which))


class Replay:
    """Builds frames by time lookup; only levels are cached from one frame to the next."""

    def __init__(self, loaded: LoadedSession) -> None:
        journal = loaded.journal
        self._session = session = journal.head.session
        self._t0 = session.t0_ns
        self._records = sorted((r for r in journal.records if r.t_sent_ns is not None), key=_sent_ns)
        self._starts = sorted(journal.stages, key=lambda start: start.t_ns)
        self._ends = sorted(journal.ends, key=lambda end: end.t_ns)
        self._telemetry = sorted(journal.telemetry, key=lambda sample: sample.t_ns)
        self._end = journal.end
        self._has_text = any(record.text or record.reasoning for record in self._records)
        self._loaded = loaded
        self._servers, self._slots = journal.servers, journal_slots(journal)
        self._search_results = [
            (event.t_ns, event.detail) for event in journal.events if event.name in ("cliff", "capacity")
        ]
        self._pauses = [event for event in journal.events if event.name in ("paused", "resumed")]
        self._last_ns = max(
            [self._t0, *(r.left_ns for r in self._records), *(end.t_ns for end in self._ends)]
            + ([journal.end.t_ns] if journal.end else [])
        )
        self._levels: tuple[int, tuple[Level, ...]] = (-1, ())
        self._times_by_agent: dict[int, tuple[Record, list[int]]] = {}
        self._index()
        self.hello = Hello(session, str(loaded.directory))
        self._points = self._build_points()

    def _index(self) -> None:
        records = self._records
        self._by_agent: defaultdict[int, list[Record]] = defaultdict(list)
        for record in records:
            self._by_agent[record.agent].append(record)
        self._sent_by_agent = {agent: [_sent_ns(r) for r in sent] for agent, sent in self._by_agent.items()}
        self._finished = sorted(records, key=lambda record: record.left_ns)
        self._finished_ns = [record.left_ns for record in self._finished]
        self._first_tokens = sorted(
            (r.t_first_ns, r.c, r.ttft_s) for r in records if r.t_first_ns and r.ttft_s is not None
        )
        self._first_ns = [t_ns for t_ns, _, _ in self._first_tokens]
        tokens: defaultdict[int, float] = defaultdict(float)
        for record in records:
            for t_ns, share in zip(record.chunk_times_ns(), record.tokens_per_chunk(), strict=False):
                tokens[(t_ns - self._t0) // _POINT_NS] += share
        last = max(tokens, default=0)
        self._produced = list(accumulate((tokens.get(position, 0.0) for position in range(last + 1)), initial=0.0))
        self._sent_ns = [_sent_ns(record) for record in records]
        self._answered_ns = sorted(min(record.t_first_ns or record.left_ns, record.left_ns) for record in records)
        self._failed_ns = [r.left_ns for r in self._finished if r.error not in (None, CANCELLED)]

    @property
    def length_s(self) -> float:
        return (self._last_ns - self._t0) / 1e9

    def _moment(self, at_s: float) -> int:
        return self._last_ns if at_s >= self.length_s else self._t0 + int(at_s * 1e9)

    def points_until(self, at_s: float) -> list[HistoryPoint]:
        return self._points[: int(at_s * 1e9 // self._step) + 1]

    def frame_at(self, at_s: float) -> Frame:
        now = self._moment(at_s)
        stage = self._stage_at(now)
        point = self._point(now, stage)
        finished = self._finished[: bisect_right(self._finished_ns, now)]
        failed = Counter(r.error for r in finished if r.error not in (None, CANCELLED))
        here = [r for r in finished if stage is not None and r.stage == stage.number]
        rows = tuple(self._row(agent, now) for agent in sorted(self._by_agent))
        tokens_per_chunk = self._tokens_per_chunk(finished)
        return Frame(
            t_ns=now,
            status=self._status(now, stage),
            note="",
            elapsed_s=at_s,
            left_s=None,
            done=sum(r.phase == stage.phase for r in here) if stage else 0,
            of=stage.of if stage else None,
            steered=stage is not None and stage.steered,
            load=stage.load if stage else "closed",
            rate=stage.rate if stage else None,
            c=point.c,
            run=stage.run if stage else 0,
            runs=self._session.plan.load.runs,
            in_flight=point.in_flight,
            waiting=point.waiting,
            out_tps=point.out_tps,
            per_stream_tps=_stream_rate(rows, here, now, tokens_per_chunk),
            ttft_s=point.ttft_s,
            finished=len(finished),
            errors=point.errors,
            error_counts={str(name): count for name, count in failed.items()},
            lag_ms=0.0,
            worker_cpu=0.0,
            coalesced_chunks=sum(r.coalesced_chunks for r in finished),
            clock_steps=0,
            levels=self._levels_at(now),
            warnings=(),
            rows=rows,
            telemetry=self._telemetry_at(now),
            quality=self._summary.quality if now >= self._last_ns else (),
            ttft_split=recent_split(
                now, point.c, finished[-_RECENT_REQUESTS:], self._samples_before(now), self._levels_at(now)
            ),
            search_result=next((detail for t_ns, detail in reversed(self._search_results) if t_ns <= now), ""),
            tokens_per_chunk=tokens_per_chunk,
            tasks=self._tasks(self._levels_at(now)),
            trace=TraceCounts(here).view(self._servers),
            servers=self._servers,
            slots=self._slots,
        )

    def watched_at(self, agent: int, at_s: float) -> WatchedStream:
        """Return the newest request of an agent as it was at that time; no text unless answers were saved."""
        now = self._moment(at_s)
        position = bisect_right(self._sent_by_agent.get(agent, []), now)
        done = [r for r in self._by_agent[agent][max(0, position - _FINISHED_SHOWN - 1) : position] if r.left_ns <= now]
        before = tuple(earlier_request(record) for record in reversed(done[-_FINISHED_SHOWN:]))
        if not position:
            return WatchedStream(agent=agent, before=before)
        return recorded_stream(self._by_agent[agent][position - 1], now, before)

    def tails_at(self, agents: Iterable[int], at_s: float) -> tuple[TextTail, ...]:
        """Return the end of the text of each agent's request; nothing if no answer of the session was saved."""
        if not self._has_text:
            return ()
        now = self._moment(at_s)
        current = [(agent, self._request_at(agent, now)) for agent in agents]
        return tuple(
            recorded_tail(record, bisect_right(self._times(record), now)) if record else TextTail(agent, 0, "")
            for agent, record in current
        )

    def _status(self, now: int, stage: StageStart | None) -> Status:
        if now >= self._last_ns:
            return "ended"
        paused = [event.name for event in self._pauses if event.t_ns <= now]
        if paused and paused[-1] == "paused":
            return "paused"
        if stage is None:
            return "starting"
        return "warming up" if stage.phase in ("warmup", "canary") else "running"

    def _stage_at(self, now: int) -> StageStart | None:
        position = bisect_right(self._starts, now, key=lambda start: start.t_ns)
        return self._starts[position - 1] if position else None

    def _telemetry_at(self, now: int) -> Telemetry | None:
        position = bisect_right(self._telemetry, now, key=lambda sample: sample.t_ns)
        return self._telemetry[position - 1] if position else None

    def _samples_before(self, now: int) -> list[Telemetry]:
        """Return the samples of the last minute."""
        first, last = (bisect_right(self._telemetry, t, key=lambda seen: seen.t_ns) for t in (now - MAX_AGE_NS, now))
        return sorted(self._telemetry[first:last], key=lambda seen: seen.servers_read_ns)

    @cached_property
    def _summary(self) -> Summary:
        """The figures of the finished session, with those of the machine and the events of each level."""
        return summarise(self._loaded)

    def _levels_at(self, now: int) -> tuple[Level, ...]:
        """Compute the levels again only when another stage has ended, as the session process does."""
        if now >= self._last_ns:
            return self._summary.levels
        ended = bisect_right(self._ends, now, key=lambda end: end.t_ns)
        if self._levels[0] != ended:
            ends: list[StageEnd] = self._ends[:ended]
            over = {end.number for end in ends}
            starts = [start for start in self._starts if start.number in over]
            records = [r for r in self._records if r.stage in over and r.phase != "warmup"]
            rates = self._session.plan.load.serial_rates
            self._levels = (ended, level_figures(records, starts, ends, rates, self._servers))
        return self._levels[1]

    def _tasks(self, levels: Sequence[Level]) -> tuple[TaskFigures, ...]:
        """Return the tasks of a mixed load at these levels, as live frames have them."""
        shown = {level.key for level in levels if traits(level.load).primary}
        return tuple(task for task in self._summary.tasks if (task.c, task.rate) in shown) if shown else ()

    def _request_at(self, agent: int, now: int) -> Record | None:
        """Return the request that this agent had in flight."""
        position = bisect_right(self._sent_by_agent.get(agent, []), now)
        record = self._by_agent[agent][position - 1] if position else None
        return record if record is not None and now < record.left_ns else None

    def _row(self, agent: int, now: int) -> StreamRow:
        record = self._request_at(agent, now)
        if record is None:
            return StreamRow(agent, "idle", -1, "", 0, 0, 0, None)
        times = self._times(record)
        total = bisect_right(times, now)
        if total:
            content = record.t_first_content_ns
            state = "writing" if content is not None and content <= now else "thinking"
        else:
            state = "waiting" if record.t_headers_ns is None or record.t_headers_ns > now else "prefill"
        ttft, span_s = (record.ttft_s, (times[total - 1] - times[0]) / 1e9) if total else (None, 0.0)
        return StreamRow(agent, state, record.task, record.type, _sent_ns(record), 0, total, ttft, span_s)

    def _times(self, record: Record) -> list[int]:
        """Return the times of the chunks, cached for the current request of each agent."""
        kept = self._times_by_agent.get(record.agent)
        if kept is None or kept[0] is not record:
            kept = self._times_by_agent[record.agent] = (record, record.chunk_times_ns())
        return kept[1]

    def _tokens_per_chunk(self, finished: Iterable[Record]) -> float:
        good = [r for r in finished if r.ok and r.tokens_out]
        chunks = sum(r.chunks for r in good)
        return sum(r.tokens_out or 0 for r in good) / chunks if chunks else 1.0

    def _build_points(self) -> list[HistoryPoint]:
        span = self._last_ns - self._t0
        self._step = max(_POINT_NS, span // _MAX_POINTS)
        moments = range(self._t0, self._last_ns + 1, self._step)
        return [self._point(now, self._stage_at(now)) for now in moments]

    def _point(self, now: int, stage: StageStart | None) -> HistoryPoint:
        sent = bisect_right(self._sent_ns, now)
        left = bisect_right(self._finished_ns, now)
        answered = bisect_right(self._answered_ns, now)
        telemetry = self._telemetry_at(now)
        servers = telemetry.servers if telemetry else ()
        return HistoryPoint(
            t_ns=now,
            c=stage.c if stage else 0,
            in_flight=sent - left,
            waiting=sent - answered,
            out_tps=self._rate(now),
            ttft_s=self._ttft(now),
            errors=bisect_right(self._failed_ns, now),
            server_waiting=sum_known(state.waiting for state in servers),
        )

    def _rate(self, now: int) -> float | None:
        """Return the tokens of the last full second."""
        if not self._sent_ns or now < self._sent_ns[0]:
            return None
        most = len(self._produced) - 1
        first, last = (min(most, max(0, (moment - self._t0) // _POINT_NS)) for moment in (now - _SECOND_NS, now))
        return self._produced[last] - self._produced[first]

    def _ttft(self, now: int) -> float | None:
        position = bisect_left(self._first_ns, now)
        firsts = self._first_tokens[max(0, position - _RECENT_TTFTS) : position]
        if not firsts:
            return None
        newest_ns, c, _ = firsts[-1]
        newest = sorted(ttft for t_ns, at, ttft in firsts if at == c and t_ns >= newest_ns - _RECENT_NS)
        return newest[len(newest) // 2]


def _stream_rate(rows: Iterable[StreamRow], finished: Iterable[Record], now: int, per_chunk: float) -> float | None:
    """Return the tok/s of a stream while it writes: of the current streams, and of those of the last seconds."""
    current = [(chunks * per_chunk, span_s) for chunks, span_s in (row.written_since(None) for row in rows)]
    past = [record.decoded for record in finished if record.left_ns >= now - _RECENT_NS and record.ok]
    written = [*current, *filter(None, past)]
    return ratio(sum(tokens for tokens, _ in written), sum(span_s for _, span_s in written))


def _sent_ns(record: Record) -> int:
    return record.t_sent_ns or 0
