"""Gathers what speaks for or against the figures while they are made; the verdict is analysis.trust's."""

from __future__ import annotations

from collections import deque
from statistics import median

from swarmtui.analysis.stats import percentile
from swarmtui.analysis.trust import Facts, judge, strangers
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Trusted
from swarmtui.model.telemetry import Telemetry, Trust
from swarmtui.model.wire import WorkerFrame

# A minute of frames, a screenful of requests, a few looks at the server.
_FRAMES = 600
_RECORDS = 256
_LOOKS = 5


class Doubts:
    """`cpu` is the largest share of a core that a worker took for a second."""

    def __init__(self, cold_promised: bool) -> None:
        self._cold = cold_promised
        self._lags: deque[float] = deque(maxlen=_FRAMES)
        self._cpu: deque[tuple[int, int]] = deque(maxlen=11)
        self._records: deque[Record] = deque(maxlen=_RECORDS)
        self._looks: deque[tuple[float, float]] = deque(maxlen=_LOOKS)
        self._throttled: deque[bool] = deque(maxlen=_FRAMES)
        self._clock_steps = 0
        self._counted_before: float | None = None
        self._counted: float | None = None
        self._tokens: int | None = 0
        self._preemptions: list[float] = []
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
        """What the server had counted before our first request."""
        self._counted_before = _output_tokens(seen)

    def finish(self, record: Record) -> None:
        # What a request that was cut off has cost the server, only the server knows.
        self._tokens = None if self._tokens is None or not record.ok else self._tokens + (record.tokens_out or 0)
        if record.ok and record.phase == "level":
            self._records.append(record)

    def look(self, seen: Telemetry, in_flight: int) -> None:
        known = [s for s in seen.servers if s.running is not None and s.waiting is not None]
        if known:
            there = sum((s.running or 0.0) + (s.waiting or 0.0) for s in known)
            self._looks.append((float(in_flight), there))
        told = [gpu.throttle for gpu in seen.gpus if gpu.throttle is not None]
        if told and in_flight:
            self._throttled.append(any(told))
        self._counted = _output_tokens(seen)
        self._preemptions += [s.preemptions for s in seen.servers[:1] if s.preemptions is not None]
        self._preemptions = self._preemptions[:1] + self._preemptions[-1:]

    def lines(self, levels: tuple[Level, ...], seen: Telemetry | None, *, ended: bool = False) -> tuple[Trust, ...]:
        last = levels[-1] if levels else None
        gaps = [record.tpot_s for record in self._records if record.tpot_s is not None]
        chunks = sum(record.chunks for record in self._records)
        asked = sum(record.tokens_in or 0 for record in self._records)
        cached = [record.cached_tokens for record in self._records if record.cached_tokens is not None]
        reasons = {reason for gpu in seen.gpus for reason in gpu.throttle or ()} if seen else set()
        engine = [record.engine_decode_tps for record in self._records if record.engine_decode_tps]
        ours = [record.decode_tps for record in self._records if record.engine_decode_tps and record.decode_tps]
        counted = None
        before, now = self._counted_before, self._counted
        if ended and self._tokens and not self.restarted and now is not None and before is not None:
            counted = now - before
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
                c_target=float(last.c) if last else None,
                c_achieved=last.c_achieved if last else None,
                in_flight=self._looks[-1][0] if self._looks else None,
                strangers=strangers(self._looks),
                token_source=last.token_source if last else None,
                cold_promised=self._cold,
                cached_share=sum(cached) / asked if cached and asked else None,
                preemptions=self._preemptions[-1] - self._preemptions[0] if self._preemptions else None,
                throttled=sum(self._throttled) / len(self._throttled) if self._throttled else None,
                throttle=tuple(sorted(reasons)),
                clock_steps=self._clock_steps if self._lags else None,
                shared_reads=sum(record.shared_reads for record in self._records) / chunks if chunks else None,
            )
        )

    def verdict(self, levels: tuple[Level, ...], seen: Telemetry | None) -> Trusted:
        """With what can be said only when all requests have ended: do both sides count the same tokens?"""
        lag = self.lag_p99_ms
        return Trusted(
            lines=self.lines(levels, seen, ended=True), lag_p99_s=lag / 1e3 if lag is not None else None, cpu=self.cpu
        )

    @property
    def lag_p99_ms(self) -> float | None:
        return percentile(sorted(self._lags), 0.99) if self._lags else None

    def _cpu_share(self) -> float | None:
        if len(self._cpu) < 2 or self._cpu[-1][0] == self._cpu[0][0]:
            return None
        return (self._cpu[-1][1] - self._cpu[0][1]) / (self._cpu[-1][0] - self._cpu[0][0])


def _output_tokens(seen: Telemetry) -> float | None:
    known = [state.output_tokens for state in seen.servers]
    return sum(count for count in known if count is not None) if known and None not in known else None
