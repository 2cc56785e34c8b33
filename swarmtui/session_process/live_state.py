"""Collect the current state of a session, and render it as the frame that clients receive."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque

from swarmtui.analysis.history import history_point
from swarmtui.analysis.levels.figures import task_figures
from swarmtui.analysis.live_trace import TraceCounts
from swarmtui.analysis.stream_detail import earlier_request, live_stream
from swarmtui.model import client_protocol, worker_protocol
from swarmtui.model.client_protocol import Frame, SessionWarning, Status
from swarmtui.model.findings import Slots
from swarmtui.model.load import traits
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level, TaskFigures
from swarmtui.model.telemetry import DiscoveredServer, HistoryPoint, QualityLine, Telemetry, TtftSplit
from swarmtui.model.worker_protocol import StreamRow, TextTail, WorkerFrame

_RATE_WINDOW_NS = 1_000_000_000
_RECENT_NS = 10_000_000_000
_FRAME_POINTS = 20
_MAX_POINTS = 1_200
_MAX_TASKS = 256

# Of the watched stream: finished requests that are kept per agent, and characters of the current answer.
_FINISHED_REQUESTS = 8
_MAX_TEXT = 32 << 10


class StreamWatcher:
    """Collects the current request of one selected agent, and the last requests of all agents."""

    def __init__(self) -> None:
        self._agent: int | None = None
        self._latest: worker_protocol.WatchedUpdate | None = None
        self._times: list[int] = []
        self._reasoning = self._text = ""
        self._finished: defaultdict[int, deque[client_protocol.EarlierRequest]] = defaultdict(
            lambda: deque(maxlen=_FINISHED_REQUESTS)
        )

    def select(self, agent: int | None) -> None:
        self._agent, self._latest = agent, None
        self._times, self._reasoning, self._text = [], "", ""

    def update(self, update: worker_protocol.WatchedUpdate) -> None:
        """Add what arrived; between two requests the last answer stays."""
        if update.agent != self._agent or update.task < 0:
            return
        if self._latest is None or (update.task, update.turn) != (self._latest.task, self._latest.turn):
            self._times, self._reasoning, self._text = [], "", ""
        self._latest = update
        self._times += update.times
        self._reasoning = (self._reasoning + update.reasoning)[-_MAX_TEXT:]
        self._text = (self._text + update.text)[-_MAX_TEXT:]

    def add_record(self, record: Record) -> None:
        self._finished[record.agent].appendleft(earlier_request(record))

    def view(self) -> client_protocol.WatchedStream | None:
        if self._agent is None:
            return None
        latest, finished = self._latest, tuple(self._finished.get(self._agent, ()))
        if latest is None:
            return client_protocol.WatchedStream(agent=self._agent, before=finished)
        return live_stream(latest, self._times, self._reasoning, self._text, finished)


class LiveState:
    """The scheduler sets what is running; frames and records of the workers are added as they arrive."""

    def __init__(self, t0_ns: int) -> None:
        self._t0 = t0_ns
        self.status: Status = "starting"
        self.note = ""
        self.c = self.run = 0
        self.runs = 1
        self.load = "closed"
        self.steered = False
        self.rate: float | None = None
        self.done = 0
        self.total: int | None = None
        self.left_s: float | None = None
        self.left_at_least = False
        self.levels: tuple[Level, ...] = ()
        self._mixed_records: defaultdict[LevelKey, list[Record]] = defaultdict(list)
        self._tasks: tuple[TaskFigures, ...] = ()
        self.warnings: tuple[SessionWarning, ...] = ()
        self.outage_s: float | None = None
        self.finished = 0
        self.errors: Counter[str] = Counter()
        self._workers: dict[int, WorkerFrame] = {}
        self._rows: dict[int, StreamRow] = {}
        # Per agent: the last row of the request before the current one, and the latest request with a record.
        self._replaced: dict[int, StreamRow] = {}
        self._recorded: dict[int, tuple[int, int]] = {}
        self._chunk_counts: deque[tuple[int, int]] = deque()
        self._ttfts: deque[tuple[int, int, float]] = deque(maxlen=32)
        # C and the rate, the time of a frame, and the chunks in it that followed another one, with the time they took.
        self._written: deque[tuple[LevelKey, int, int, float]] = deque()
        self._cpu: dict[int, tuple[int, int, float]] = {}
        self._chunks = self._tokens = 0
        self._send_delays: deque[tuple[int, float]] = deque(maxlen=512)
        self.watched = StreamWatcher()
        self._tails: dict[int, TextTail] = {}
        self.search_result = ""
        self.telemetry: Telemetry | None = None
        self.quality: tuple[QualityLine, ...] = ()
        self.ttft_split: TtftSplit | None = None
        self.servers: tuple[DiscoveredServer, ...] = ()
        self.slots: Slots | None = None
        self.history: list[HistoryPoint] = []
        self.trace = TraceCounts()
        self._newest: deque[HistoryPoint] = deque(maxlen=_FRAME_POINTS)

    def add_point(self) -> None:
        """Add the current values to the history; when it is full, every second point is dropped."""
        frame = self.frame(rows=False)
        point = history_point(frame)
        self.trace.add_sample(self.telemetry.servers if self.telemetry else ())
        self._newest.append(point)
        self.history.append(point)
        if len(self.history) > _MAX_POINTS:
            self.history = self.history[::2]

    def watch_tails(self, agents: tuple[int, ...]) -> None:
        """Keep the end of the text of these agents, empty until a worker sends it."""
        self._tails = {agent: self._tails.get(agent) or TextTail(agent, 0, "") for agent in agents}

    def update_worker(self, worker: int, frame: WorkerFrame) -> None:
        self._workers[worker] = frame
        produced, written, span_s = 0, 0, 0.0
        for row in frame.rows:
            before = self._rows.get(row.agent)
            if self._recorded.get(row.agent) != row.request:
                more = row.written_since(before)
                produced, written, span_s = produced + row.chunks, written + more[0], span_s + more[1]
            if before is not None and before.request != row.request:
                self._replaced[row.agent] = before
            if row.ttft_s is not None and row.chunks == row.total:
                self._ttfts.append((self.c, frame.t_ns, row.ttft_s))
            self._rows[row.agent] = row
        self._chunk_counts.append((frame.t_ns, produced))
        while self._chunk_counts[0][0] < frame.t_ns - _RATE_WINDOW_NS:
            self._chunk_counts.popleft()
        self._written.append(((self.c, self.rate), frame.t_ns, written, span_s))
        while self._written[0][1] < frame.t_ns - _RECENT_NS:
            self._written.popleft()
        before_t, before_cpu, _ = self._cpu.get(worker, (frame.t_ns, frame.cpu_ns, 0.0))
        passed = frame.t_ns - before_t
        self._cpu[worker] = (frame.t_ns, frame.cpu_ns, (frame.cpu_ns - before_cpu) / passed if passed else 0.0)
        if frame.watched is not None:
            self.watched.update(frame.watched)
        # A worker may send some after a client has stopped watching them.
        self._tails |= {tail.agent: tail for tail in frame.tails if tail.agent in self._tails}

    def add_record(self, record: Record) -> None:
        if record.error is None:
            self._chunks += record.chunks
            self._tokens += record.tokens_out or 0
        elif record.error != CANCELLED:
            self.errors[record.error] += 1
        self.finished += 1
        self._add_end(record)
        self.watched.add_record(record)
        self.trace.add(record)
        if traits(self.load).primary and record.phase == "level" and record.error != CANCELLED:
            self._add_mixed_record(record)
        if record.t_sent_ns is not None and record.t_sched_ns is not None:
            self._send_delays.append((record.t_sent_ns, (record.t_sent_ns - record.t_sched_ns) / 1e9))

    def _add_end(self, record: Record) -> None:
        """Count the chunks of an answer that arrived after its last row."""
        first_ns, last_ns, sent_ns = record.t_first_ns, record.t_last_ns, record.t_sent_ns or 0
        span_s = (last_ns - first_ns) / 1e9 if first_ns is not None and last_ns is not None else 0.0
        end = StreamRow(record.agent, "", record.task, record.type, sent_ns, 0, record.chunks, record.ttft_s, span_s)
        rows = (self._rows.get(end.agent), self._replaced.get(end.agent))
        before = next((row for row in rows if row is not None and row.request == end.request), None)
        self._recorded[end.agent] = end.request
        if self._chunk_counts:
            t_ns, produced = self._chunk_counts[-1]
            more = max(0, end.total - (before.total if before else 0))
            self._chunk_counts[-1] = (t_ns, produced + more)
            chunks, span_s = end.written_since(before)
            key, t_ns, written, written_s = self._written[-1]
            self._written[-1] = (key, t_ns, written + chunks, written_s + span_s)

    def _add_mixed_record(self, record: Record) -> None:
        """Keep the newest records of a mixed load; the report at the end covers all."""
        records = self._mixed_records[record.c, None]
        records.append(record.without_chunks())
        del records[:-_MAX_TASKS]
        self._tasks = task_figures(self._mixed_records)

    @property
    def in_flight(self) -> int:
        return sum(frame.in_flight for frame in self._workers.values())

    @property
    def _tokens_per_chunk(self) -> float:
        return self._tokens / self._chunks if self._chunks else 1.0

    def _rate(self) -> float | None:
        """Tokens per second in the window: those after its first frame, divided by the time since that frame."""
        span = self._chunk_counts[-1][0] - self._chunk_counts[0][0] if self._chunk_counts else 0
        if span < _RATE_WINDOW_NS // 4:
            return None
        return sum(chunks for _, chunks in list(self._chunk_counts)[1:]) * self._tokens_per_chunk * 1e9 / span

    def _stream_rate(self) -> float | None:
        """Return the tok/s of a stream while it writes, over the last seconds at the current C."""
        key = self.c, self.rate
        written = [(chunks, span_s) for at, _, chunks, span_s in self._written if at == key]
        chunks, span_s = sum(chunks for chunks, _ in written), sum(span_s for _, span_s in written)
        return chunks * self._tokens_per_chunk / span_s if span_s else None

    def _recent_ttfts(self) -> list[float]:
        """Return, sorted, the TTFTs of the last seconds at the current C; older ones would delay the median."""
        if not self._ttfts:
            return []
        c, newest_ns, _ = self._ttfts[-1]
        return sorted(ttft for at, t_ns, ttft in self._ttfts if at == c and t_ns >= newest_ns - _RECENT_NS)

    def _worst_send_delay(self, now: int) -> float | None:
        """Return the largest send delay of the last seconds; only an open loop has send times."""
        if not traits(self.load).by_rate:
            return None
        return max((delay for t_ns, delay in self._send_delays if t_ns >= now - _RECENT_NS), default=None)

    def frame(self, rows: bool) -> Frame:
        now = time.perf_counter_ns()
        in_flight = self.in_flight
        waiting = sum(frame.waiting for frame in self._workers.values())
        out_tps = self._rate()
        ttfts = self._recent_ttfts()
        return Frame(
            t_ns=now,
            status=self.status,
            note=self.note,
            elapsed_s=(now - self._t0) / 1e9,
            left_s=self.left_s,
            left_at_least=self.left_at_least,
            done=self.done,
            of=self.total,
            c=self.c,
            run=self.run,
            runs=self.runs,
            in_flight=in_flight,
            waiting=waiting,
            out_tps=out_tps,
            per_stream_tps=self._stream_rate(),
            ttft_s=ttfts[len(ttfts) // 2] if ttfts else None,
            finished=self.finished,
            errors=sum(self.errors.values()),
            error_counts=dict(self.errors),
            lag_ms=max((frame.lag_ms for frame in self._workers.values()), default=0.0),
            worker_cpu=max((share for _, _, share in self._cpu.values()), default=0.0),
            coalesced_chunks=sum(frame.coalesced_chunks for frame in self._workers.values()),
            clock_steps=max((frame.clock_steps for frame in self._workers.values()), default=0),
            levels=self.levels,
            warnings=self.warnings,
            rows=tuple(sorted(self._rows.values(), key=lambda row: row.agent)) if rows else (),
            watched=self.watched.view() if rows else None,
            points=tuple(self._newest),
            telemetry=self.telemetry,
            quality=self.quality,
            ttft_split=self.ttft_split,
            search_result=self.search_result,
            servers=self.servers,
            tokens_per_chunk=self._tokens_per_chunk,
            load=self.load,
            steered=self.steered,
            rate=self.rate,
            send_delay_s=self._worst_send_delay(now),
            tasks=self._tasks,
            outage_s=self.outage_s,
            trace=self.trace.view(self.servers),
            tails=tuple(self._tails.values()) if rows else (),
            slots=self.slots,
        )
