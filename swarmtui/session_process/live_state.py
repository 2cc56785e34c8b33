"""What is known at this moment, gathered from frames and records, and shown to faces as one frame."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from swarmtui.analysis.levels.tasks import task_figures
from swarmtui.model.client_protocol import Frame, Status
from swarmtui.model.level_key import Place
from swarmtui.model.plan import Mode
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level, TaskFigures
from swarmtui.model.telemetry import Discovered, Point, Telemetry, Trust, TtftSplit
from swarmtui.model.worker_protocol import StreamRow, WorkerFrame
from swarmtui.session_process.watched_stream import Watching

_WINDOW_NS = 1_000_000_000
_TTFT_WINDOW_NS = 10_000_000_000
_NEWEST_POINTS = 20
_MOST_POINTS = 1_200
_MOST_TASKS = 256


class Board:
    """The runner writes here what it is doing; workers' news come in by `hear` and `finish`."""

    def __init__(self, t0_ns: int) -> None:
        self._t0 = t0_ns
        self.status: Status = "starting"
        self.note = ""
        self.c = self.run = 0
        self.runs = 1
        self.load: Mode = "closed"
        self.steered = False
        self.rate: float | None = None
        self.done = 0
        self.of: int | None = None
        self.left_s: float | None = None
        self.levels: tuple[Level, ...] = ()
        self._beside: defaultdict[Place, list[Record]] = defaultdict(list)
        self._tasks: tuple[TaskFigures, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.down_s: float | None = None
        self.finished = 0
        self.errors: Counter[str] = Counter()
        self._workers: dict[int, WorkerFrame] = {}
        self._rows: dict[int, StreamRow] = {}
        self._produced: deque[tuple[int, int]] = deque()
        self._ttfts: deque[tuple[int, int, float]] = deque(maxlen=32)
        self._cpu: dict[int, tuple[int, int, float]] = {}
        self._chunks = self._tokens = 0
        self._late: deque[tuple[int, float]] = deque(maxlen=512)
        self.watching = Watching()
        self.answer = ""
        self.telemetry: Telemetry | None = None
        self.trust: tuple[Trust, ...] = ()
        self.ttft_split: TtftSplit | None = None
        self.servers: tuple[Discovered, ...] = ()
        self.history: list[Point] = []
        self._newest: deque[Point] = deque(maxlen=_NEWEST_POINTS)

    def mark(self) -> None:
        """One more point of the history; of a long one every second point goes, so that it stays bounded."""
        frame = self.frame(rows=False)
        server = self.telemetry.servers if self.telemetry else ()
        gpus = self.telemetry.gpus if self.telemetry else ()
        point = Point(
            t_ns=frame.t_ns,
            c=frame.c,
            in_flight=frame.in_flight,
            waiting=frame.waiting,
            out_tps=frame.out_tps,
            ttft_s=frame.ttft_s,
            errors=frame.errors,
            server_running=_sum(state.running for state in server),
            server_waiting=_sum(state.waiting for state in server),
            power_w=_sum(gpu.power_w for gpu in gpus),
        )
        self._newest.append(point)
        self.history.append(point)
        if len(self.history) > _MOST_POINTS:
            self.history = self.history[::2]

    def hear(self, worker: int, frame: WorkerFrame) -> None:
        self._workers[worker] = frame
        self._produced.append((frame.t_ns, sum(row.chunks for row in frame.rows)))
        while self._produced[0][0] < frame.t_ns - _WINDOW_NS:
            self._produced.popleft()
        for row in frame.rows:
            if row.ttft_s is not None and row.chunks == row.total:
                self._ttfts.append((self.c, frame.t_ns, row.ttft_s))
            self._rows[row.agent] = row
        before_t, before_cpu, _ = self._cpu.get(worker, (frame.t_ns, frame.cpu_ns, 0.0))
        passed = frame.t_ns - before_t
        self._cpu[worker] = (frame.t_ns, frame.cpu_ns, (frame.cpu_ns - before_cpu) / passed if passed else 0.0)
        if frame.watched is not None:
            self.watching.hear(frame.watched)

    def finish(self, record: Record) -> None:
        if record.error is None:
            self._chunks += record.chunks
            self._tokens += record.tokens_out or 0
        elif record.error != CANCELLED:
            self.errors[record.error] += 1
        self.finished += 1
        self.watching.finish(record)
        if self.load == "mixed" and record.phase == "level" and record.error != CANCELLED:
            self._note_task(record)
        if record.t_sent_ns is not None and record.t_sched_ns is not None:
            self._late.append((record.t_sent_ns, (record.t_sent_ns - record.t_sched_ns) / 1e9))

    def _note_task(self, record: Record) -> None:
        """Mixed loads are small; what is beyond a readable number of them is in the report at the end."""
        here = self._beside[record.c, None]
        here.append(record.lean())
        del here[:-_MOST_TASKS]
        self._tasks = task_figures(self._beside)

    @property
    def in_flight(self) -> int:
        return sum(frame.in_flight for frame in self._workers.values())

    @property
    def _tokens_per_chunk(self) -> float:
        return self._tokens / self._chunks if self._chunks else 1.0

    def _rate(self) -> float | None:
        """Over the window: what came after its first frame, and the time since that."""
        span = self._produced[-1][0] - self._produced[0][0] if self._produced else 0
        if span < _WINDOW_NS // 4:
            return None
        return sum(chunks for _, chunks in list(self._produced)[1:]) * self._tokens_per_chunk * 1e9 / span

    def _newest_ttfts(self) -> list[float]:
        """Sorted, of one C and of a few seconds: those from before would hold the median back."""
        if not self._ttfts:
            return []
        c, newest_ns, _ = self._ttfts[-1]
        return sorted(ttft for at, t_ns, ttft in self._ttfts if at == c and t_ns >= newest_ns - _TTFT_WINDOW_NS)

    def _latest_lateness(self, now: int) -> float | None:
        """The worst of the last seconds; nobody is late where nothing is due at a set time."""
        if self.load != "open":
            return None
        return max((late for t_ns, late in self._late if t_ns >= now - _TTFT_WINDOW_NS), default=None)

    def frame(self, rows: bool) -> Frame:
        now = time.perf_counter_ns()
        in_flight = self.in_flight
        waiting = sum(frame.waiting for frame in self._workers.values())
        out_tps = self._rate()
        writing = in_flight - waiting
        ttfts = self._newest_ttfts()
        return Frame(
            t_ns=now,
            status=self.status,
            note=self.note,
            elapsed_s=(now - self._t0) / 1e9,
            left_s=self.left_s,
            done=self.done,
            of=self.of,
            c=self.c,
            run=self.run,
            runs=self.runs,
            in_flight=in_flight,
            waiting=waiting,
            out_tps=out_tps,
            per_stream_tps=out_tps / writing if out_tps and writing else None,
            ttft_s=ttfts[len(ttfts) // 2] if ttfts else None,
            finished=self.finished,
            errors=sum(self.errors.values()),
            error_counts=dict(self.errors),
            lag_ms=max((frame.lag_ms for frame in self._workers.values()), default=0.0),
            worker_cpu=max((share for _, _, share in self._cpu.values()), default=0.0),
            shared_reads=sum(frame.shared_reads for frame in self._workers.values()),
            clock_steps=max((frame.clock_steps for frame in self._workers.values()), default=0),
            levels=self.levels,
            warnings=self.warnings,
            rows=tuple(sorted(self._rows.values(), key=lambda row: row.agent)) if rows else (),
            watched=self.watching.shown() if rows else None,
            points=tuple(self._newest),
            telemetry=self.telemetry,
            trust=self.trust,
            ttft_split=self.ttft_split,
            answer=self.answer,
            servers=self.servers,
            tokens_per_chunk=self._tokens_per_chunk,
            load=self.load,
            steered=self.steered,
            rate=self.rate,
            late_s=self._latest_lateness(now),
            tasks=self._tasks,
            down_s=self.down_s,
        )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
