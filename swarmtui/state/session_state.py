"""The state of a session, as screens show it: worker frames, journal entries and samples go in, frames come out.

The session process applies what happens as it happens, a replay what its journal holds: both show the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from swarmtui.analysis.capacity.agents import predict_kv_cliff
from swarmtui.analysis.capacity.scaling import server_slots
from swarmtui.analysis.capacity.words import with_outlook
from swarmtui.analysis.levels.figures import LevelReading, level_readings, task_figures
from swarmtui.analysis.levels.stats import largest_known
from swarmtui.analysis.limits.slo import read_slo, usable_slo
from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.analysis.quality.doubts import find_disturbances, find_doubts, judge_host, temper
from swarmtui.analysis.quality.facts import cache_promise, level_facts
from swarmtui.analysis.quality.judge import asked_figures
from swarmtui.analysis.speed_of_light.session import session_limits
from swarmtui.model.answer import Answer
from swarmtui.model.base import copy_fields
from swarmtui.model.client_protocol import Frame, ProvisionalLevel, SessionWarning, Status, TimeBound, Totals
from swarmtui.model.findings import Goodput, KvCliff, SearchState, Slots
from swarmtui.model.journal import (
    CapacitySearch,
    Entry,
    Head,
    RequestEntry,
    SearchEntry,
    ServerEntry,
    StageEnd,
    StageStart,
    TelemetryEntry,
)
from swarmtui.model.load import traits
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS, LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import Event, Level, Session, Summary, TaskFigures
from swarmtui.model.telemetry import DiscoveredServer, HistoryPoint, QualityLine, Telemetry, TtftSplit, thinned
from swarmtui.model.worker_protocol import WorkerFrame
from swarmtui.state.counts import RunningSlo, TraceCounts, add_to_totals
from swarmtui.state.goals import follow_search, follow_sweep
from swarmtui.state.quality import QualityMonitor, TtftSplitWindow
from swarmtui.state.streams import StreamTally, Throughput, WatchedStreams

_RECENT_NS = 10_000_000_000
# Quality is judged no more often than this.
_JUDGED_NS = 1_000_000_000
# What happened to the server is shown for this long.
_NEWS_NS = 30_000_000_000
_FRAME_POINTS = 20
_MAX_TASKS = 256
# The number of a level that a search has chosen, until its stage starts.
_CHOSEN = -1


class SessionState:
    """Apply entries, worker frames and samples, then `tick` four times per second; `frame` is the state at that time.

    What is in no journal, the session process sets: the `note`, the time left, the `warnings`, and the `status` while
    it drains, stops and saves. `levels` are set by whoever computes them, with the `readings` that
    servers reported.

        state = SessionState(t0_ns)
        state.apply(entry)
        state.apply_frame(worker, worker_frame)
        state.tick(now_ns)
        state.frame(now_ns, rows=True)
    """

    def __init__(self, t0_ns: int) -> None:
        self._t0 = t0_ns
        self._session: Session | None = None
        self.status: Status = "starting"
        self.note = self.search_result = ""
        self.kv_cliff: KvCliff | None = None
        self.search: SearchState | None = None
        self.planned: tuple[float, ...] = ()
        self.left_s: float | None = None
        self.left_bound: TimeBound = "exact"
        self.warnings: tuple[SessionWarning, ...] = ()
        self.levels: tuple[Level, ...] = ()
        self.capacity_search: CapacitySearch | None = None
        self.answer: Answer | None = None
        self.goodput: tuple[Goodput, ...] = ()
        self.telemetry: Telemetry | None = None
        self.readings: list[LevelReading] = []
        self.servers: tuple[DiscoveredServer, ...] = ()
        self.slots: Slots | None = None
        # What the hardware allows at each of the levels, and of which figures that was computed.
        self._limit: tuple[object, tuple[tuple[int, float], ...]] = None, ()
        self.finished = self.measured = 0
        self.history: list[HistoryPoint] = []
        self.watched = WatchedStreams()
        self.quality = QualityMonitor(cache="cold")
        self._summary: Summary | None = None
        self._judged: tuple[int, tuple[Level, ...], tuple[QualityLine, ...], TtftSplit | None] | None = None
        self._several_servers = False
        self._outage_ns: int | None = None
        # What happened to the server last, and when.
        self._server_news = 0, ""
        # The stage: the latest one, and what has been done in it.
        self._stage: StageStart | None = None
        self.c = self._done = 0
        self._begun: set[int] = set()
        self.total: int | None = None
        self._trace = TraceCounts()
        self.slo = ""
        self._running_slo: RunningSlo | None = None
        self._provisional: dict[LevelKey, ProvisionalLevel] = {}
        # Tokens and seconds of this stage, by the rates of its ticks.
        self._stage_output = (0.0, 0.0)
        self._ticked_ns: int | None = None
        # Finished requests.
        self.totals = Totals()
        self._errors: Counter[str] = Counter()
        self.coalesced_chunks: int | None = None
        self._send_delays: deque[tuple[int, float]] = deque(maxlen=512)
        self._mixed_records: defaultdict[LevelKey, list[Record]] = defaultdict(list)
        self.tasks: tuple[TaskFigures, ...] | None = ()
        self._split = TtftSplitWindow()
        # Workers and their streams.
        self._workers: dict[int, WorkerFrame] = {}
        self._throughput = Throughput()
        self._tallies: dict[int, StreamTally] = {}
        self._newest: deque[HistoryPoint] = deque(maxlen=_FRAME_POINTS)

    # what happens

    def apply(self, entry: Entry) -> None:
        """Apply an entry of the journal; samples are added with `add_sample`, since the journal has only some."""
        self.search = follow_search(self.search, entry)
        self.planned = follow_sweep(self.planned, entry)
        match entry:
            case Head(session=session):
                closed = session.plan.load.holds_c
                self.quality = QualityMonitor(cache=cache_promise(session), closed=closed)
                self._session = session
                self._ask(session.plan.slo, searched=False)
            case StageStart():
                self._start_stage(entry)
            case SearchEntry(search=SearchState(next_c=int(c)) as search):
                self._choose_level(c, search, entry.t_ns)
            case StageEnd() if self._stage is not None:
                # After a serial stage, the figures of its level are shown.
                self.c = self._stage.c
            case RequestEntry(record=record):
                self._add_record(record)
            case ServerEntry(server=server):
                self.servers += (server,)
                self._find_slots()
            case Event():
                self._apply_event(entry)
            case TelemetryEntry(telemetry=sample):
                # Levels are computed from what the journal has, as those of a saved session.
                self.readings += level_readings([sample])
            case CapacitySearch(slo=slo, context_tokens=None):
                self.capacity_search = entry
                self._ask(slo, searched=True)
            case CapacitySearch(context_tokens=float(tokens)):
                self.kv_cliff = predict_kv_cliff(tokens, self.servers)

    def _ask(self, slo: str, *, searched: bool) -> None:
        self.slo = usable_slo(slo)
        self.quality.asked = asked_figures(read_slo(slo), searched=searched)

    def _choose_level(self, c: int, search: SearchState, t_ns: int) -> None:
        """Show the next level of a search with no figures yet: its stage starts when the server has ended requests."""
        visited = search.level(c)
        run = 1 + (visited.visits if visited is not None else 0)
        self._start_stage(StageStart(number=_CHOSEN, t_ns=t_ns, c=c, run=run, phase="level", load=self.load))
        self._throughput.restart()
        self._judged = None

    def _start_stage(self, start: StageStart) -> None:
        if (start.c, start.rate) != self.key:
            for tally in self._tallies.values():
                tally.restart()
        if self._stage is not None and self._stage.phase == "warmup":
            # The figures of levels do not count them, either.
            self._errors.clear()
        serial = start.phase == "serial"
        self._stage, self.c = start, 1 if serial else start.c
        self._done, self.total = 0, start.of
        self._begun = set()
        self._stage_output = (0.0, 0.0)
        judged = self.slo and start.phase == "level"
        self._running_slo = RunningSlo(self.slo, start.number, start.t_ns) if judged else None
        self.status = "warming up" if start.phase in ("warmup", "canary") else "running"
        self.note = "the same tasks serially" if serial else ""
        if not start.steered:
            self._trace = TraceCounts()
        self._trace.end_plays(start.abandoned)

    def _apply_event(self, event: Event) -> None:
        self.quality.add_event(event)
        match event.name:
            case "paused":
                self.status = "paused"
            case "resumed":
                self.status = "running"
            case "server_gone":
                self._outage_ns = event.t_ns
            case "server_back" | "server_changed":
                self._outage_ns = None
                self._server_news = event.t_ns, f"the server is back {event.detail}"
            case "server_restarted":
                self._server_news = event.t_ns, f"the server was restarted: {event.detail}"
            case "cliff" | "capacity":
                self.search_result = event.detail
            case "several_servers":
                self._several_servers = True
                self._find_slots()

    def _find_slots(self) -> None:
        """Behind a load balancer one server does not tell the slots."""
        if self._session is not None:
            self.slots = None if self._several_servers else server_slots(self._session, self.servers)

    def _add_record(self, record: Record) -> None:
        if record.error is not None and not record.cancelled:
            self._errors[record.error] += 1
        self.totals = add_to_totals(self.totals, record, scheduled=traits(self.load).scheduled)
        self.finished += 1
        self.measured += record.phase == "level" and not record.cancelled
        stage = self._stage
        if record.ends_task and stage is not None and (record.stage, record.phase) == (stage.number, stage.phase):
            self._done += 1
        self.coalesced_chunks = (self.coalesced_chunks or 0) + record.coalesced_chunks
        self.watched.add_record(record)
        self._trace.add(record)
        self.quality.add_record(record)
        self._split.add_record(record)
        if self._running_slo is not None:
            self._running_slo.add(record)
        if traits(self.load).primary and record.phase == "level":
            # The newest ones; the report at the end covers all.
            records = self._mixed_records[record.c, None]
            records.append(record.without_chunks())
            del records[:-_MAX_TASKS]
            self.tasks = None
        if record.send_delay_s is not None and record.t_sent_ns is not None:
            self._send_delays.append((record.t_sent_ns, record.send_delay_s))

    def end_stream(self, record: Record) -> None:
        """Count what a request received after its last row. Its entry may follow later, when its answer was checked."""
        if record.ok and self._stage is not None and record.stage == self._stage.number:
            self._begun.add(record.agent)
        self._throughput.add_end(self.key, record, record.waited_s(scheduled=traits(self.load).scheduled))

    def apply_frame(self, worker: int, frame: WorkerFrame) -> None:
        self._workers[worker] = frame
        self._throughput.add_frame(self.key, frame)
        self.quality.add_frame(worker, frame)
        if self._stage is not None:
            since = self._stage.t_ns
            self._begun.update(row.agent for row in frame.rows if row.ttft_s is not None and row.t_sent_ns >= since)
        if frame.watched is not None:
            self.watched.update(frame.watched)
        self.watched.update_tails(frame.tails)

    def add_sample(self, sample: Telemetry) -> None:
        self.telemetry = sample
        self.quality.add_sample(sample, self.in_flight)
        self._split.add_sample(sample)

    def tick(self, now: int) -> None:
        """Add the current values to the history; when it is full, every second point is dropped."""
        if self.telemetry is not None:
            self._trace.add_sample(now, self.telemetry.servers)
        for agent, row in self._throughput.rows.items():
            tally = self._tallies.get(agent)
            if tally is None:
                tally = self._tallies[agent] = StreamTally(now)
            tally.update(now, row, self.quality.tokens_per_chunk)
        point = self._point(now)
        self._newest.append(point)
        self.history.append(point)
        self.history = thinned(self.history)
        if point.out_tps is not None and self._ticked_ns is not None:
            passed_s, (tokens, seconds) = (now - self._ticked_ns) / 1e9, self._stage_output
            self._stage_output = (tokens + point.out_tps * passed_s, seconds + passed_s)
        self._ticked_ns = now
        if self.status == "running" and self._stage is not None and self._stage.phase == "level":
            self._update_level(self._stage, point)

    def _update_level(self, stage: StageStart, point: HistoryPoint) -> None:
        """Keep the figures of the level that is being measured, with each request that finishes."""
        known = self._provisional.get(self.key)
        of = self.total or (MIN_STEERED_COMPLETIONS * self.c if stage.steered else None)
        done = self._shown_done
        if not done or (known is not None and (known.done, known.of) == (done, of)):
            return
        if known is not None and known.done > done and stage.steered:
            # The same C again, with fewer requests than the first time.
            return
        tokens, seconds = self._stage_output
        judged = self._running_slo.judged_ttft_s() if self._running_slo and self.capacity_search else None
        self._provisional[self.key] = ProvisionalLevel(
            c=self.c,
            rate=stage.rate,
            done=done,
            of=of,
            out_tps=tokens / seconds if seconds else point.out_tps,
            per_stream_tps=self._stream_tps(),
            ttft_s=point.ttft_s if judged is None else judged.median,
        )

    def finish(self, summary: Summary) -> None:
        """Set the figures of the whole session, and its answer: what is in no level of it is not shown any more."""
        self._summary, self.levels, self._judged = summary, summary.levels, None
        self.answer, self.goodput, self.search = summary.answer, summary.goodput, summary.search
        self.tasks = summary.tasks
        self.measured = sum(level.n for level in summary.levels)
        self._provisional.clear()
        self._errors = Counter()
        for level in summary.levels:
            self._errors.update(level.error_counts)

    # what is shown

    @property
    def load(self) -> str:
        return self._stage.load if self._stage is not None else "closed"

    @property
    def key(self) -> LevelKey:
        return self.c, self._stage.rate if self._stage is not None else None

    @property
    def in_flight(self) -> int:
        return sum(frame.in_flight for frame in self._workers.values())

    @property
    def _shown_done(self) -> int:
        """More requests may end than a stage waits for."""
        return self._done if self.total is None else min(self._done, self.total)

    def _stream_tps(self) -> float | None:
        return self._throughput.stream_tps(self.key, self.quality.tokens_per_chunk)

    def _point(self, now: int) -> HistoryPoint:
        begins = self._stage is not None and self._stage.number == _CHOSEN
        chunks_per_s = None if begins else self._throughput.chunks_per_s()
        return HistoryPoint(
            t_ns=now,
            c=self.c,
            in_flight=self.in_flight,
            waiting=sum(frame.waiting for frame in self._workers.values()),
            out_tps=None if chunks_per_s is None else chunks_per_s * self.quality.tokens_per_chunk,
            ttft_s=self._throughput.median_ttft_s(self.key),
            errors=self._errors.total(),
            server_waiting=self.telemetry.waiting if self.telemetry is not None else None,
            per_stream_tps=self._stream_tps(),
        )

    def _judge(self, now: int) -> tuple[tuple[QualityLine, ...], TtftSplit | None]:
        """Return the measurement quality and the split of the TTFT, which look at all recent answers: once a second."""
        if self._judged is None or self._judged[1] is not self.levels or not 0 <= now - self._judged[0] < _JUDGED_NS:
            final = self._summary
            lines = self.quality.lines(self.levels, self.search) if final is None else final.quality
            self._judged = now, self.levels, lines, self._split.split(now, self.c, self.levels)
        return self._judged[2:]

    def _agents_begun(self) -> int | None:
        """Return how many agents got a first token while a level of a closed loop measures no request yet."""
        stage = self._stage
        if stage is None or stage.phase != "level" or stage.steered or not traits(stage.load).holds_c:
            return None
        return len(self._begun) if not self._done and len(self._begun) < stage.c else None

    def is_disturbed(self, now: int) -> bool:
        """Return whether something slows the server down: a level that is missed then proves nothing."""
        return bool(find_disturbances(self._judge(now)[0]))

    @property
    def was_disturbed(self) -> bool:
        """Whether the levels so far were measured on a busy host: then the answer leaves open what was missed."""
        return bool(find_disturbances(judge_host(level_facts(self.levels, self.search).host)))

    def _limit_points(self) -> tuple[tuple[int, float], ...]:
        """Return C and the tok/s that are possible at each level, of a MoE those to expect, where that is known."""
        if self._summary is not None:
            return self._summary.speed_of_light.expected if self._summary.speed_of_light is not None else ()
        facts = self._session.model_facts if self._session is not None else None
        if facts is None and not any(server.shape for server in self.servers):
            return ()
        gpus = used_gpus(self.telemetry, self.servers) if self.telemetry is not None else ()
        of = (self.levels, self.servers, self.slots, tuple(gpu.uuid for gpu in gpus))
        if of != self._limit[0]:
            self._limit = of, session_limits(self.levels, self.servers, gpus, self.slots, {}, facts).expected
        return self._limit[1]

    def frame(self, now: int, *, rows: bool) -> Frame:
        stage, point, newest = self._stage, self._point(now), self._throughput.rows
        if self.tasks is None:
            self.tasks = task_figures(self._mixed_records)
        quality, ttft_split = self._judge(now)
        known = {level.key for level in self.levels}
        provisional = (level for key, level in self._provisional.items() if key not in known)
        workers, (news_ns, news) = self._workers.values(), self._server_news
        judged = self._running_slo
        if judged is not None:
            judged.see(newest.values(), now)
        recent_delays = (delay for t_ns, delay in self._send_delays if t_ns >= now - _RECENT_NS)
        frame = copy_fields(
            Frame,
            self,
            t_ns=now,
            note=self.note or (news if now - news_ns < _NEWS_NS and self.status != "ended" else ""),
            elapsed_s=(now - self._t0) / 1e9,
            done=self._shown_done,
            of=self.total,
            run=stage.run if stage is not None else 0,
            runs=stage.runs if stage is not None else 1,
            in_flight=point.in_flight,
            waiting=point.waiting,
            out_tps=point.out_tps,
            per_stream_tps=point.per_stream_tps,
            ttft_s=point.ttft_s,
            errors=point.errors,
            error_counts=dict(self._errors),
            lag_ms=largest_known([frame.lag_ms for frame in workers]),
            worker_cpu=self.quality.worker_cpu,
            clock_steps=max((f.clock_steps for f in workers if f.clock_steps is not None), default=None),
            limit=self._limit_points(),
            provisional=tuple(sorted(provisional, key=lambda level: level.offered_load)),
            rows=tuple(sorted(newest.values(), key=lambda row: row.agent)) if rows else (),
            rates=tuple(tally.view(agent) for agent, tally in self._tallies.items()) if rows else (),
            watched=self.watched.view() if rows else None,
            points=tuple(self._newest),
            quality=quality,
            ttft_split=ttft_split,
            search_result=temper(self.search_result, find_doubts(quality)),
            tokens_per_chunk=self.quality.tokens_per_chunk,
            steered=stage is not None and stage.steered,
            rate=stage.rate if stage is not None else None,
            # Only an open loop has send times.
            send_delay_s=max(recent_delays, default=None) if traits(self.load).by_rate else None,
            outage_s=None if self._outage_ns is None else (now - self._outage_ns) / 1e9,
            silent_s=self._throughput.silent_s(now) if point.in_flight and self.status == "running" else None,
            trace=self._trace.view(self.servers),
            tails=self.watched.tails if rows else (),
            slo_kept=judged.conditions() if judged is not None else (),
            first_tokens=judged.first_tokens() if judged is not None else None,
            begun=self._agents_begun(),
        )
        return with_outlook(frame)
