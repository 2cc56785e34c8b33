"""Gathers what speaks for or against the figures while they are made; the verdict is analysis.trust's."""

from __future__ import annotations

from collections import deque
from statistics import median

from swarmtui.analysis.levels.stats import percentile, ratio
from swarmtui.analysis.machine.energy import LOWERED
from swarmtui.analysis.machine.server_counters import change
from swarmtui.analysis.quality.trust import Facts, judge, strangers
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Trusted
from swarmtui.model.telemetry import ServerState, Telemetry, Trust
from swarmtui.model.worker_protocol import WorkerFrame

# A minute of frames, a screenful of requests, a few looks at the server.
_FRAMES = 600
_RECORDS = 256
_LOOKS = 3
# Our own count and the server's are of one moment when they are no further apart than this.
_MOMENT_NS = 400_000_000


class Doubts:
    """`cpu` is the largest share of a core that a worker took for a second."""

    def __init__(self, cold_promised: bool) -> None:
        self._cold = cold_promised
        self._lags: deque[float] = deque(maxlen=_FRAMES)
        self._cpu: deque[tuple[int, int]] = deque(maxlen=11)
        self._records: deque[Record] = deque(maxlen=_RECORDS)
        self._ours: deque[tuple[int, int]] = deque(maxlen=12)
        self._looks: deque[tuple[float, float]] = deque(maxlen=_LOOKS)
        self._most: tuple[float, float] | None = None
        self._throttled: deque[bool] = deque(maxlen=_FRAMES)
        self._reasons: set[str] = set()
        self._clock_steps = 0
        self._before: tuple[ServerState, ...] = ()
        self._first: tuple[ServerState, ...] = ()
        self._seen_ns: int | None = None
        self._now: tuple[ServerState, ...] = ()
        self._tokens: int | None = 0
        self.cpu: float | None = None
        self.restarted = False

    def hear(self, frame: WorkerFrame) -> None:
        if frame.in_flight:
            self._lags.append(frame.lag_ms)
        self._cpu.append((frame.t_ns, frame.cpu_ns))
        self._clock_steps = max(self._clock_steps, frame.clock_steps)
        share = self._cpu_share()
        if share is not None and len(self._cpu) == self._cpu.maxlen:
            self.cpu = max(self.cpu or 0.0, share)

    def before(self, seen: Telemetry) -> None:
        """What servers had counted before our first request."""
        self._before += seen.servers

    def finish(self, record: Record) -> None:
        # What a request that was cut off has cost the server, only the server knows.
        self._tokens = None if self._tokens is None or not record.ok else self._tokens + (record.tokens_out or 0)
        if record.ok and record.phase == "level":
            self._records.append(record.lean())

    def look(self, seen: Telemetry, in_flight: int) -> None:
        self._ours.append((seen.t_ns, in_flight))
        told = [gpu.throttle for gpu in seen.gpus if gpu.throttle is not None]
        if told and in_flight:
            lowered = LOWERED.intersection(reason for reasons in told for reason in reasons)
            self._throttled.append(bool(lowered))
            self._reasons |= lowered
        if seen.servers and seen.asked_ns != self._seen_ns:
            self._seen_ns, self._now = seen.asked_ns, seen.servers
            self._first = self._first or seen.servers
            self._compare(seen)

    def _compare(self, seen: Telemetry) -> None:
        """Who is on the server beside us, counted here and there at the same moment."""
        ours = [count for t_ns, count in self._ours if abs(t_ns - seen.asked_ns) <= _MOMENT_NS]
        there = [(s.running or 0.0) + (s.waiting or 0.0) for s in seen.servers if None not in (s.running, s.waiting)]
        if not ours or not there:
            return
        self._looks.append((float(max(ours)), sum(there)))
        found = strangers(self._looks) if len(self._looks) == self._looks.maxlen else None
        if found is not None and (self._most is None or found > self._most[0]):
            self._most = (found, self._looks[-1][0])

    def lines(self, levels: tuple[Level, ...], *, ended: bool = False) -> tuple[Trust, ...]:
        last = levels[-1] if levels else None
        gaps = [record.tpot_s for record in self._records if record.tpot_s is not None]
        chunks = sum(record.chunks for record in self._records)
        asked = sum(record.tokens_in or 0 for record in self._records)
        cached = [record.cached_tokens for record in self._records if record.cached_tokens is not None]
        engine = [record.engine_decode_tps for record in self._records if record.engine_decode_tps]
        ours = [record.decode_tps for record in self._records if record.engine_decode_tps and record.decode_tps]
        told = self._told(self._before or self._first)
        counted = told.output_tokens if told is not None and self._before and ended and self._tokens else None
        others, beside = (self._most if ended else self._alone()) or (None, None)
        return judge(
            Facts(
                restarted=self.restarted,
                client_tokens=self._tokens if counted is not None else None,
                server_tokens=counted,
                client_decode_tps=median(ours) if engine and ours else None,
                engine_decode_tps=median(engine) if engine and ours else None,
                lag_p99_ms=self.lag_p99_ms,
                tpot_s=median(gaps) if gaps else None,
                kernel_stamps=all(record.stamp == "kernel" for record in self._records) if self._records else None,
                worker_cpu=self.cpu if ended and self.cpu is not None else self._cpu_share(),
                # In an open loop nobody holds C.
                c_target=float(last.c) if last and last.rate is None else None,
                c_achieved=last.c_achieved if last else None,
                in_flight=beside,
                strangers=others,
                token_source=last.token_source if last else None,
                cold_promised=self._cold,
                cached_share=sum(cached) / asked if cached and asked else _cached(told),
                preemptions=told.preemptions if told is not None else None,
                throttled=sum(self._throttled) / len(self._throttled) if self._throttled else None,
                throttle=tuple(sorted(self._reasons)),
                clock_steps=self._clock_steps if self._lags else None,
                shared_reads=sum(record.shared_reads for record in self._records) / chunks if chunks else None,
            )
        )

    def verdict(self, levels: tuple[Level, ...]) -> Trusted:
        """With what can be said only when all requests have ended: do both sides count the same tokens?"""
        lag = self.lag_p99_ms
        lines = self.lines(levels, ended=True)
        return Trusted(lines=lines, lag_p99_s=lag / 1e3 if lag is not None else None, cpu=self.cpu)

    def _told(self, since: tuple[ServerState, ...]) -> ServerState | None:
        """What servers have counted; of some of them only it would be held against all of our requests."""
        if self.restarted or {state.url for state in since} != {state.url for state in self._now}:
            return None
        grown = change(since, self._now)
        return grown.state if grown is not None and not grown.restarted else None

    def _alone(self) -> tuple[float, float] | None:
        """The present: strangers, and our own requests beside them."""
        found = strangers(self._looks)
        return None if found is None else (found, self._looks[-1][0])

    @property
    def lag_p99_ms(self) -> float | None:
        return percentile(sorted(self._lags), 0.99) if self._lags else None

    def _cpu_share(self) -> float | None:
        if len(self._cpu) < 2 or self._cpu[-1][0] == self._cpu[0][0]:
            return None
        return (self._cpu[-1][1] - self._cpu[0][1]) / (self._cpu[-1][0] - self._cpu[0][0])


def _cached(told: ServerState | None) -> float | None:
    """By the server's own count, where answers do not say it of themselves."""
    return ratio(told.cache_hits, told.cache_queries) if told is not None else None
