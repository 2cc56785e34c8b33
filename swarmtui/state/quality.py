"""Gather the facts about measurement quality of a session so far; `analysis.quality.judge` judges them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from swarmtui.analysis.levels.stats import largest_known, percentile
from swarmtui.analysis.machine.energy import lowered_by, throttled_share
from swarmtui.analysis.machine.host import host_use
from swarmtui.analysis.machine.server_counters import counter_change
from swarmtui.analysis.machine.ttft_split import MAX_AGE_NS, recent_split
from swarmtui.analysis.quality.facts import (
    Turnaround,
    counter_facts,
    level_facts,
    merge_facts,
    other_clients,
    record_facts,
    uncertain_tokens,
    with_turns,
)
from swarmtui.analysis.quality.judge import EVERYTHING, judge
from swarmtui.analysis.quality.quality_limits import Enough
from swarmtui.engines.registry import engine_named
from swarmtui.model.findings import SearchState
from swarmtui.model.journal import QualityEntry
from swarmtui.model.record import Record
from swarmtui.model.session import Event, Level
from swarmtui.model.telemetry import (
    CachePromise,
    HostLoad,
    QualityFacts,
    QualityLine,
    ServerState,
    Telemetry,
    TtftSplit,
)
from swarmtui.model.worker_protocol import WorkerFrame

# Frames of a minute, recent requests, and samples of the server that are kept.
_FRAMES = 600
_RECORDS = 256
_SAMPLES = 3
# Requests for the TTFT split; more would not change the mean of the last seconds.
_SPLIT_RECORDS = 512
# Our own count of requests and the server's are compared if they are no further apart than this.
_SAME_TIME_NS = 400_000_000
# A busy server notices this late that a request was cancelled: llama.cpp took 2 s for those that waited for a slot.
_UNNOTICED_NS = 5_000_000_000
# Readings of the host, twice per second.
_HOST_READINGS = 21
# Frames over which the CPU share of a worker is measured, about three seconds: opening connections takes one.
_CPU_FRAMES = 31


class QualityMonitor:
    """Collects frames, records, samples and events, and judges the measurement quality from them at any time.

    `closed`: each agent sends its next request immediately. `cpu` is the largest share of a core that a worker used
    during three seconds, `clock_bound_s` how well the clocks of other hosts are known, `usage` what the tokenizer of
    the server says about its usage: only the session process can measure these. `asked` are the figures that the
    answer is made of.
    """

    def __init__(self, *, cache: CachePromise, closed: bool = True) -> None:
        self._cache, self._closed = cache, closed
        self.asked = EVERYTHING
        self._restarted = self._several_servers = False
        self._lags: deque[float] = deque(maxlen=_FRAMES)
        self._cpu: defaultdict[int, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=_CPU_FRAMES))
        self._turnaround = Turnaround()
        self._records: deque[Record] = deque(maxlen=_RECORDS)
        self._own_counts: deque[tuple[int, int]] = deque(maxlen=12)
        self._server_counts: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._max_other_clients: tuple[float, float] | None = None
        self._host: deque[HostLoad] = deque(maxlen=_HOST_READINGS)
        self._lowered: deque[frozenset[str] | None] = deque(maxlen=_FRAMES)
        self._clock_steps: int | None = None
        self._baseline: tuple[ServerState, ...] = ()
        self._first: tuple[ServerState, ...] = ()
        self._latest_ns: int | None = None
        self._latest: tuple[ServerState, ...] = ()
        self._tokens = self._chunks = self._cancelled = self._cancelled_chunks = 0
        self._cancelled_ns: list[int] = []
        # The latest stage with cancelled requests: its number, and the chunks of these requests.
        self._last_cancelled = (0, 0)
        self._failed = False
        # When the first measured request was sent, and the latest moment that is known.
        self._measured_ns: int | None = None
        self._now_ns = 0
        self.cpu: float | None = None
        self.clock_bound_s: float | None = None
        self.usage = QualityFacts()

    def add_frame(self, worker: int, frame: WorkerFrame) -> None:
        if frame.cpu_ns is None or frame.lag_ms is None or frame.clock_steps is None:
            return
        if frame.in_flight:
            self._lags.append(frame.lag_ms)
            self._clock_steps = max(self._clock_steps or 0, frame.clock_steps)
        frames = self._cpu[worker]
        frames.append((frame.t_ns, frame.cpu_ns))
        share = _cpu_share(frames)
        if share is not None and len(frames) == frames.maxlen:
            self.cpu = max(self.cpu or 0.0, share)

    def add_baseline(self, sample: Telemetry) -> None:
        """Add what the servers had counted before our first request."""
        self._baseline += sample.servers

    def add_event(self, event: Event) -> None:
        match event.name:
            case "server_restarted":
                self._restarted = True
            case "several_servers":
                self._several_servers = True

    def add_record(self, record: Record) -> None:
        if self._closed:
            self._turnaround.add(record)
        if record.ok:
            self._tokens += record.tokens_out or 0
            self._chunks += record.chunks
        elif record.cancelled:
            self._cancelled += record.t_sent_ns is not None
            self._cancelled_ns += [record.left_ns] if record.t_sent_ns is not None else []
            self._cancelled_chunks += record.chunks
            stage, chunks = self._last_cancelled
            self._last_cancelled = (record.stage, record.chunks + (chunks if stage == record.stage else 0))
        else:
            # Only the server knows how many tokens it generated for a request that failed.
            self._failed = True
        if record.ok and record.phase == "level":
            self._records.append(record.without_chunks())
        if record.phase == "level" and record.t_sent_ns is not None:
            self._measured_ns = min(record.t_sent_ns, self._measured_ns or record.t_sent_ns)
            self._now_ns = max(self._now_ns, record.left_ns)

    def add_sample(self, sample: Telemetry, in_flight: int) -> None:
        self._own_counts.append((sample.t_ns, in_flight))
        self._now_ns = max(self._now_ns, sample.t_ns)
        if sample.host is not None and in_flight and (not self._host or self._host[-1].t_ns < sample.host.t_ns):
            self._host.append(sample.host)
        if in_flight:
            self._lowered.append(lowered_by(sample.serving_gpus))
        if sample.servers and sample.servers_read_ns != self._latest_ns:
            self._latest_ns, self._latest = sample.servers_read_ns, sample.servers
            self._first = self._first or sample.servers
            self._compare_counts(sample)

    def _compare_counts(self, sample: Telemetry) -> None:
        """Compare our requests in flight with those that the server counted at the same time."""
        read_ns = sample.servers_read_ns
        own = [(t_ns, count) for t_ns, count in self._own_counts if abs(t_ns - read_ns) <= _SAME_TIME_NS]
        total = [(s.running or 0.0) + (s.waiting or 0.0) for s in sample.servers if None not in (s.running, s.waiting)]
        if not own or not total:
            return
        # When the server had no more than ours, it had noticed all that were cancelled before; ours is known late.
        noticed = [t_ns - _SAME_TIME_NS for t_ns, count in own if sum(total) <= count]
        since_ns = max(noticed, default=read_ns - _UNNOTICED_NS)
        self._cancelled_ns = [t_ns for t_ns in self._cancelled_ns if t_ns > since_ns]
        counts = self._server_counts
        ours = max(count for _, count in own) + len(self._cancelled_ns)
        counts.append((float(ours), sum(total)))
        others = other_clients(counts) if len(counts) == counts.maxlen else None
        if others is not None and (self._max_other_clients is None or others > self._max_other_clients[0]):
            self._max_other_clients = (others, counts[-1][0])

    def lines(self, levels: tuple[Level, ...], search: SearchState | None = None) -> tuple[QualityLine, ...]:
        """Judge the present: the latest requests and level, and how busy the host was at what it may have changed."""
        host = QualityFacts(host=level_facts(levels, search).host)
        return judge(merge_facts(self.facts(levels[-1:], search), host), self.asked, self._so_far)

    def final(self, levels: tuple[Level, ...]) -> QualityEntry:
        """Judge the whole session, once all requests have ended."""
        facts = self.facts(levels, ended=True)
        return QualityEntry(lines=judge(facts, self.asked), facts=facts)

    def facts(
        self, levels: tuple[Level, ...], search: SearchState | None = None, *, ended: bool = False
    ) -> QualityFacts:
        growth = self._counter_growth(self._baseline or self._first)
        # Only when all requests have ended do both sides count the same tokens.
        counted = growth.output_tokens if growth is not None and self._baseline and ended and not self._failed else None
        others, in_flight = self._max_other_clients or (None, None)
        if not ended:
            others = other_clients(self._server_counts)
            in_flight = None if others is None else self._server_counts[-1][0]
        lag_ms = percentile(sorted(self._lags), 0.99) if self._lags else None
        throttled, throttle = throttled_share(self._lowered)
        answers = record_facts(self._records)
        return merge_facts(
            QualityFacts(throttled=throttled, throttle=throttle),
            self.usage,
            counter_facts(growth),
            answers,
            level_facts(levels, search),
            QualityFacts(
                lag_p99_s=None if lag_ms is None else lag_ms / 1e3,
                host=host_use(self._host[0], self._host[-1]) if len(self._host) > 1 else None,
                turnaround=self._turnaround.share,
                worker_cpu=self.cpu if ended and self.cpu is not None else self.worker_cpu,
                in_flight=None if self._counters_lost else in_flight,
                other_clients=None if self._counters_lost else others,
                # The tokens of cancelled requests follow from their chunks.
                client_tokens=None
                if counted is None
                else self._tokens + self._cancelled_chunks * self.tokens_per_chunk,
                server_tokens=counted,
                uncertain_tokens=uncertain_tokens(self._cancelled, answers.tpot_s),
                uncounted_tokens=self._uncounted_tokens,
                cache=with_turns(self._cache, self._records),
                clock_steps=self._clock_steps,
                clock_bound_s=self.clock_bound_s,
                restarted=self._restarted,
                several_servers=self._several_servers,
            ),
        )

    @property
    def worker_cpu(self) -> float | None:
        """The share of a core that the busiest worker uses at present."""
        return largest_known(map(_cpu_share, self._cpu.values()))

    @property
    def _so_far(self) -> Enough:
        measured_ns = self._now_ns if self._measured_ns is None else self._measured_ns
        return Enough((self._now_ns - measured_ns) / 1e9, len(self._records))

    @property
    def _counters_lost(self) -> bool:
        """Whether the counters do not cover the session: a server restarted, or several share one URL."""
        return self._restarted or self._several_servers

    @property
    def _uncounted_tokens(self) -> float:
        """The tokens by which the server's count may be below ours because of cancelled requests.

        A chunk may hold only one. A server that counts the tokens of a request at its end has not counted those of
        requests that it has not noticed to be cancelled.
        """
        tokens = self._cancelled_chunks * max(0.0, self.tokens_per_chunk - 1.0)
        if any(state.running and engine_named(state.engine).counts_tokens_at_end for state in self._latest):
            tokens += self._last_cancelled[1]
        return tokens

    @property
    def tokens_per_chunk(self) -> float:
        """The mean of the answers so far; 1 before the first."""
        return self._tokens / self._chunks if self._chunks else 1.0

    def _counter_growth(self, since: tuple[ServerState, ...]) -> ServerState | None:
        """Return what the servers have counted since then; None unless all of them are known."""
        if self._counters_lost or {state.url for state in since} != {state.url for state in self._latest}:
            return None
        change = counter_change(since, self._latest)
        return change.state if change is not None and not change.restarted else None


def _cpu_share(frames: Sequence[tuple[int, int]]) -> float | None:
    """Return the share of a core that a worker used, from the time and the CPU time of its frames."""
    if len(frames) < 2 or frames[-1][0] == frames[0][0]:
        return None
    return (frames[-1][1] - frames[0][1]) / (frames[-1][0] - frames[0][0])


class TtftSplitWindow:
    """The recent requests and samples that the TTFT split is computed from."""

    def __init__(self) -> None:
        self._finished: deque[Record] = deque(maxlen=_SPLIT_RECORDS)
        self._samples: deque[Telemetry] = deque()

    def add_record(self, record: Record) -> None:
        self._finished.append(record.without_chunks())

    def add_sample(self, sample: Telemetry) -> None:
        """Add a sample, unless its server metrics are those of the last one."""
        if sample.servers and (not self._samples or self._samples[-1].servers_read_ns < sample.servers_read_ns):
            self._samples.append(sample)
            while self._samples[0].servers_read_ns < sample.servers_read_ns - MAX_AGE_NS:
                self._samples.popleft()

    def split(self, now_ns: int, c: int, levels: Sequence[Level]) -> TtftSplit | None:
        return recent_split(now_ns, c, self._finished, self._samples, levels)
