"""A session: what was measured and how, and the figures derived from its journal."""

from __future__ import annotations

from typing import Any, Literal

from swarmtui.model.answer import Answer
from swarmtui.model.base import Stored
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Capacity, Check, Findings, Goodput, Scaling, SearchState
from swarmtui.model.hosts import Host
from swarmtui.model.load import traits
from swarmtui.model.plan import PerLevel, Plan
from swarmtui.model.record import TokenSource, Waterfall
from swarmtui.model.rows import level_rows
from swarmtui.model.session_tags import ModelFacts, Series
from swarmtui.model.speed_of_light import SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer, Energy, HostUse, KvFigures, QualityLine, Speculation, TtftSplit

# A stream may be faster than at C=1 by this much and still have a slowdown of 0 %.
FASTER_TOLERANCE = 0.005

SessionState = Literal["running", "done", "stopped", "unusable", "failed", "interrupted"]


class ClientInfo(Stored, frozen=True, kw_only=True):
    """The host and software that measured."""

    version: str
    python: str
    host: str
    cores: int
    kernel: str = ""


class Session(Stored, frozen=True, kw_only=True):
    """The head of a session, written before the first request.

    `t0_ns` is the monotonic clock at `created` (ISO 8601, UTC): the one anchor to wall-clock time.
    `previous` is the session that this one is compared with, so that the sessions of a tuning loop form a chain. A
    session that `repeats` its plan is compared with the last one before the change, which may be an earlier one.
    `hosts` are the nodes whose workers sent the requests, empty if that was the host of the client alone.
    `workload_file` is where the workload was read from, empty if it is built in.
    """

    id: str
    created: str
    t0_ns: int
    endpoints: tuple[Endpoint, ...]
    workload: str
    workload_digest: str
    workload_spec: dict[str, Any]
    plan: Plan
    client: ClientInfo
    workload_file: str = ""
    hosts: tuple[Host, ...] = ()
    label: str = ""
    note: str = ""
    tags: dict[str, str] = {}
    server_flags: str = ""
    prompt_tokens_by: Literal["tokenize", "usage", "none"] = "none"
    simulated: bool = False
    previous: str = ""
    repeats: bool = False
    series: Series | None = None
    model_facts: ModelFacts | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it is without anything private: other sessions name their host and its clock."""
        return not self.t0_ns and not self.client.host


class Event(Stored, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Something that affects the figures: a pause, a worker that died, a field that was omitted."""

    t_ns: int
    name: str
    detail: str = ""


class Spread(Stored, frozen=True, kw_only=True):
    """Statistics of a sample; a percentile is null below its minimum n (p50 5, p90 29, p95 59, p99 299).

    An interval holds its percentile with a confidence of 95 %: two of the values, whatever their distribution; null
    where there are too few values for that (p50 6, p90 36, p95 72, p99 368), or some are only known to be longer.
    """

    n: int
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    p50_interval: tuple[float, float] | None = None
    p90_interval: tuple[float, float] | None = None
    p95_interval: tuple[float, float] | None = None
    p99_interval: tuple[float, float] | None = None

    @property
    def median(self) -> float | None:
        """The median; that of up to four values follows from their mean and range. A median of few is no percentile."""
        if self.p50 is not None or self.n > 4 or self.mean is None:
            return self.p50
        if self.n < 3 or self.min is None or self.max is None:
            return self.mean if self.n < 3 else None
        # To the nanosecond: the sum of a time that is exactly the limit may be above it by rounding.
        return round((self.n * self.mean - self.min - self.max) / (self.n - 2), 9)


class RateSummary(Stored, frozen=True, kw_only=True):
    """Rates of single answers; `mean` weighs each by its time: Σ tokens after the first / Σ time of these."""

    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    max: float | None = None


class RunFigures(Stored, frozen=True, kw_only=True):
    """One run of a level: the replicate on which confidence intervals are based."""

    run: int
    n: int
    ok: int
    errors: int
    wall_s: float | None
    steady_s: float | None
    c_achieved: float | None
    c_held: float | None = None
    tokens_out: int
    out_tps_wall: float | None
    out_tps_steady: float | None
    per_stream_tps: float | None
    ttft_s: float | None
    complete: bool = True


class SerialBaseline(Stored, frozen=True, kw_only=True):
    """The tasks of a level in sequence, and the speed-up of the batch over that.

    `how` says how the time was measured or extrapolated. For `clean_speedup`, a cut answer takes as long as the mean of
    the uncut ones; if it is null, `reason` says why.
    """

    how: str
    extrapolated: bool
    tasks: int
    wall_s: float
    out_tps: float | None
    speedup: float
    clean_speedup: float | None = None
    reason: str = ""


class Replica(Stored, frozen=True, kw_only=True):
    """The part of a level that one of several endpoints served."""

    endpoint: int
    n: int
    ok: int
    errors: int
    tokens_out: int | None
    out_tps_wall: float | None
    per_stream_tps: float | None
    ttft_s: Spread


class TaskFigures(Stored, frozen=True, kw_only=True):
    """One type of task at one level and turn; `e2e_s` is the median, `tokens_out` the mean of the answers."""

    c: int
    rate: float | None = None
    type: str
    turn: int
    n: int
    ok: int
    ttft_s: Spread
    per_stream_tps: float | None
    e2e_s: float | None
    tokens_out: float | None
    verdicts: dict[str, int]


class TtftCell(Stored, frozen=True, kw_only=True):
    """The median TTFT of requests by turn and prompt length; both are classes from here to twice as much.

    Turns count from 1 in one agent; the first class of prompts begins at 0.
    """

    turn: int
    context: int
    n: int
    ttft_s: float


class TraceFigures(Stored, frozen=True, kw_only=True):
    """The figures that a replayed trace adds to a level.

    `jobs` are recorded sessions that were played from their first request to their last, `failed` those that ended
    with an error. `jobs_per_h` counts requests as shares of their session, so
    that sessions longer than the level count, too; it is also given per session slot (user) and per GPU.
    `recorded_tokens` are the prompt tokens as recorded, and `prompt_error` how far those that the server counted are
    from them. `reusable_tokens` of them were sent before in the same session, in whole blocks of the server if their
    `block_size` is known: `max_hit_rate` is their share, which no prefix cache exceeds. `hit_rate` is that of the
    measured requests, by the cached tokens of their answers; or estimated by the counters of the server, which include
    other requests, as `max_hit_rate` times the share of possible hits. `live_context` is the mean number of tokens in
    the contexts of the live sessions.
    """

    jobs: int
    failed: int
    jobs_per_h: float | None = None
    jobs_per_h_user: float | None = None
    jobs_per_h_gpu: float | None = None
    recorded_tokens: int = 0
    reusable_tokens: int = 0
    block_size: int | None = None
    cached_tokens: int | None = None
    fresh_tokens: int | None = None
    prompt_error: float | None = None
    max_hit_rate: float | None = None
    hit_rate: float | None = None
    hit_rate_by: Literal["answers", "server"] | None = None
    live_context: float | None = None
    ttft: tuple[TtftCell, ...] = ()


class CanaryFigures(Stored, frozen=True, kw_only=True):
    """Answers to questions with known answers at one level, compared with those asked alone before the first level.

    `pass_low` and `pass_high` are a 95 % interval. `diverged` counts answers that differ from that to the same question
    at C=1, of `compared`, and `diverged_after` is the median of equal characters before. If the model fails alone, the
    comparison is not `applicable`.
    """

    n: int
    passed: int
    pass_low: float | None = None
    pass_high: float | None = None
    alone_n: int
    alone_passed: int
    applicable: bool
    compared: int = 0
    diverged: int = 0
    diverged_after: float | None = None


class Silence(Stored, frozen=True, kw_only=True):
    """A time in which no stream received anything, and which reading a prompt does not explain.

    `frozen`: some were being answered. `all_waiting`: all waited for their first token. `no_cpu`: the host let the
    client and a server on it wait for a CPU meanwhile, which is why.
    """

    kind: Literal["frozen", "all_waiting", "no_cpu"]
    t_ns: int
    seconds: float


class Level(PerLevel, frozen=True, kw_only=True):
    """The figures of one level over all its runs, as in `run --json`. Null is not measured.

    `n` counts the measured requests that finished, with or without an error; unmeasured ones (pre-roll, fillers) are
    not in it, nor the `unfinished` ones, which were cancelled when the window of the level was over. `errors` counts
    all that failed, also unmeasured ones, and those of an attempt that was repeated after an outage or a pause.
    `empty` answers have no token, which misses a limit on the first one. `out_tps_steady_hw` is the half-width of the
    95 % interval of the steady rate.
    Rates over several runs are the sum of tokens over the sum of time. `clean` figures leave out cap hits. `c_achieved`
    is the mean number in flight, `c_held` that while the client had work for C streams (null for other loads),
    `coalesced_chunks` the share of chunks that were read together with the chunk before, `first_coalesced` that of
    answers whose first chunk was: their first tokens may have come earlier, by up to `first_error_s` in the mean of all
    answers, so that TTFT is shorter and the time of the later tokens longer. `miscounted` answers have fewer tokens, by
    the server, than chunks with output. `streaming` is how many streams were between their first and last token at
    once, at most, `queued` the mean queue that servers reported. `job_s` is the time of whole conversations and
    recorded sessions, with their pauses; `waterfall` has the parts of it, or of e2e if requests are alone.
    With a `rate` (open loop), latencies count from when a request was due, and `send_delay_s` is how much later it was
    sent; `arrived_per_s` and `served_per_s` are measured from the first to the last request due, or completed. There
    `c` is only the maximum in flight, and levels differ by their rate.
    `judged_ttft_s` is the TTFT of the requests that a search for the capacity counted for a limit on it, with those
    that were late and still awaited: percentiles that depend on these are null.
    """

    runs: int
    n: int
    ok: int
    errors: int
    unfinished: int = 0
    error_counts: dict[str, int]
    cap_hits: int
    degenerate: int
    empty: int = 0
    complete: bool
    wall_s: float | None
    steady_s: float | None
    c_achieved: float | None
    c_held: float | None = None
    streaming: int | None = None
    queued: float | None = None
    token_source: TokenSource | Literal["mixed"] | None
    tokens_in: int | None
    tokens_out: int | None
    cached_tokens: int | None
    out_tps_wall: float | None
    out_tps_steady: float | None
    out_tps_steady_hw: float | None = None
    prompt_tps: float | None
    total_tps: float | None
    per_stream_tps: RateSummary
    per_stream_tps_clean: RateSummary
    ttft_s: Spread
    judged_ttft_s: Spread | None = None
    ttfo_s: Spread
    tpot_s: Spread
    icl_s: Spread
    e2e_s: Spread
    job_s: Spread = Spread(n=0)
    longest_stall_s: float | None
    straggler: float | None
    contention: float | None
    rate_speedup: float | None
    wall_speedup: float | None
    token_ratio: float | None
    pass_rate: float | None
    coalesced_chunks: float | None
    first_coalesced: float | None = None
    first_error_s: float | None = None
    miscounted: int = 0
    silences: tuple[Silence, ...] = ()
    stamp: Literal["kernel", "read", "mixed"] | None
    flags: Findings
    by_run: tuple[RunFigures, ...]
    energy: Energy | None = None
    host: HostUse | None = None
    ttft_split: TtftSplit | None = None
    waterfall: Waterfall | None = None
    kv: KvFigures | None = None
    speculation: Speculation | None = None
    load: str = "closed"
    send_delay_s: Spread | None = None
    arrived_per_s: float | None = None
    served_per_s: float | None = None
    serial: SerialBaseline | None = None
    verdicts: dict[str, int] = {}
    replicas: tuple[Replica, ...] = ()
    canaries: CanaryFigures | None = None
    replay: TraceFigures | None = None

    @property
    def has_complete_run(self) -> bool:
        """Whether the figures can be compared with those of other levels: at most some of the runs ended early."""
        return self.complete or any(run.complete for run in self.by_run)

    @property
    def has_weak_output(self) -> bool:
        """Whether its output does not stand for it: it ended early, or had too few requests at C."""
        return not self.has_complete_run or any(flag.code == "steady_below_wall" for flag in self.flags)

    @property
    def attempts(self) -> int:
        """The requests that `errors` are a part of."""
        return self.ok + self.errors

    @property
    def half_width(self) -> float | None:
        """The half-width of the steady rate as a share of it."""
        known = self.out_tps_steady_hw is not None and self.out_tps_steady
        return (self.out_tps_steady_hw or 0.0) / self.out_tps_steady if known and self.out_tps_steady else None

    @property
    def slowdown(self) -> float | None:
        """The contention as it is shown; null if streams were faster than a single one, which a flag explains."""
        return None if self.contention is None or self.contention < -FASTER_TOLERANCE else max(0.0, self.contention)

    @property
    def tokens_estimated(self) -> bool:
        """Whether tokens were counted as chunks, at least in part; rates are then marked with ~."""
        return self.token_source in ("chunks", "mixed")

    @property
    def shown_ttft_s(self) -> Spread:
        """The TTFT beside a verdict on the level: that of the requests that were judged, if a search judged it."""
        return self.ttft_s if self.judged_ttft_s is None else self.judged_ttft_s

    @property
    def headline_tps(self) -> float | None:
        """The main throughput: steady for closed loops, wall for loads that end with a drain by design."""
        return self._headline(self.out_tps_steady, self.out_tps_wall)

    @property
    def headline_hw(self) -> float | None:
        """The half-width of the 95 % interval of the headline; null if that is the wall rate."""
        return self.out_tps_steady_hw if self.headline_is_steady else None

    @property
    def headline_by_run(self) -> tuple[float, ...]:
        """The main throughput of each run that has one."""
        rates = (self._headline(run.out_tps_steady, run.out_tps_wall) for run in self.by_run)
        return tuple(rate for rate in rates if rate)

    @property
    def output_s(self) -> float | None:
        """The time that the measured output takes at the main throughput; unmeasured requests share the makespan."""
        return self.tokens_out / self.headline_tps if self.tokens_out and self.headline_tps else self.wall_s

    @property
    def headline_is_steady(self) -> bool:
        return traits(self.load).holds_c and bool(self.out_tps_steady)

    def _headline(self, steady: float | None, wall: float | None) -> float | None:
        return (steady if traits(self.load).holds_c else None) or wall


class Summary(Stored, frozen=True, kw_only=True):
    """The output of `run --json`, which detail.json extends by the requests.

    `answer` is null for a pooled summary, and one of another tool. `search` is what a search for the capacity or the
    cliff knew at the end, null if the last goal was another one. `pooled_sessions` is the number of sessions that
    `compare` pooled into this summary; 0 is a single session.
    """

    schema: int
    state: SessionState
    message: str
    session: Session
    levels: tuple[Level, ...]
    warmup_requests: int
    events: tuple[Event, ...]
    checks: tuple[Check, ...] = ()
    scaling: Scaling | None = None
    goodput: tuple[Goodput, ...] = ()
    capacity: Capacity | None = None
    speed_of_light: SpeedOfLight | None = None
    servers: tuple[DiscoveredServer, ...] = ()
    gpus: tuple[str, ...] = ()
    quality: tuple[QualityLine, ...] = ()
    tasks: tuple[TaskFigures, ...] = ()
    answer: Answer | None = None
    search: SearchState | None = None
    pooled_sessions: int = 0

    def to_rows(self, *, runs: bool = False) -> list[dict[str, Any]]:
        """Return one flat row for each level, for a data frame; with `runs`, also one for each run of it.

        Parts of a figure are columns of their own, such as `ttft_s.p50`.
        """
        return level_rows(self.levels, {"session": self.session.id, "label": self.session.label}, runs=runs)
