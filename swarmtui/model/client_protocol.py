"""Messages between a session process and its clients. Every frame is complete, so a slow client may miss some."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import msgspec

from swarmtui.model.answer import Answer
from swarmtui.model.base import copy_fields
from swarmtui.model.findings import Goodput, KeptShare, KvCliff, SearchState, Slots
from swarmtui.model.plan import PerLevel
from swarmtui.model.record import Waterfall
from swarmtui.model.session import Level, Session, Spread, TaskFigures
from swarmtui.model.telemetry import DiscoveredServer, HistoryPoint, QualityLine, Telemetry, TtftSplit
from swarmtui.model.worker_protocol import ProtocolMessage, StreamRow, TextTail

Status = Literal["starting", "warming up", "running", "pausing", "paused", "draining", "stopping", "saving", "ended"]
# How exact a time is: an estimate from a plan, a rough one, or a bound.
TimeBound = Literal["exact", "about", "at_least", "at_most"]


class Subscribe(ProtocolMessage, frozen=True):
    """First message of a client; `hz` is in frames per second, `rows` adds a row for each stream."""

    hz: float = 4.0
    rows: bool = False


class SetConcurrency(ProtocolMessage, frozen=True):
    """Set C, and switch to manual control. `cancel`: do not wait for the streams above `c`."""

    c: int
    cancel: bool = False


class Pause(ProtocolMessage, frozen=True):
    pass


class Resume(ProtocolMessage, frozen=True):
    pass


class NextLevel(ProtocolMessage, frozen=True):
    pass


class Stop(ProtocolMessage, frozen=True):
    """Send no new requests, cancel those still in flight after `grace_s`, and save.

    `immediate`: wait for nothing; the figures can be derived from the journal later.
    """

    grace_s: float = 5.0
    immediate: bool = False


class Sweep(ProtocolMessage, frozen=True):
    """Run these levels in order, after what was measured under manual control."""

    levels: tuple[int, ...]
    runs: int = 1


class FindCliff(ProtocolMessage, frozen=True):
    """Double C until requests queue or throughput stops growing, then bisect to the cliff."""

    max_c: int = 1024


class FindCapacity(ProtocolMessage, frozen=True):
    """Find the most agents that keep an SLO, written as on the command line.

    `alpha` is the error of the bounds that decide a level: 1 % needs 44 requests without a miss for a share of 90 %,
    20 % needs 16. With a budget, the search decides first, and confirms only what it has time for. `near` are the
    levels at the border of the search that it is compared with: it visits them in place of those beside them.
    """

    slo: str
    max_c: int = 1024
    alpha: float = 0.01
    budget_s: float | None = None
    near: tuple[int, ...] = ()


class Describe(ProtocolMessage, frozen=True):
    """Set the label and note of the session."""

    label: str
    note: str


class SaveTo(ProtocolMessage, frozen=True):
    """Move the session to this directory and continue there; a failure is a warning with the code `save_refused`."""

    directory: str


class WatchStream(ProtocolMessage, frozen=True):
    agent: int | None


class WatchTails(ProtocolMessage, frozen=True):
    """Send the end of the text of these agents' responses with each frame; no others."""

    agents: tuple[int, ...]


ClientCommand = (
    Subscribe | SetConcurrency | Pause | Resume | NextLevel | Stop | Sweep | FindCliff | Describe | SaveTo | WatchStream
    | WatchTails | FindCapacity
)  # fmt: skip


class Hello(ProtocolMessage, frozen=True):
    """First message to a client, repeated when the session was moved: the session and the history so far."""

    session: Session
    directory: str
    history: tuple[HistoryPoint, ...] = ()


class EarlierRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request of the watched agent; `preview` is the part of its answer that is kept.

    The parts of its time are with the pause since the request before.
    """

    task: int
    turn: int
    type: str
    error: str | None
    verdict: str | None
    ttft_s: float | None
    tokens_out: int | None
    decode_tps: float | None
    e2e_s: float | None
    waterfall: Waterfall | None
    preview: str


class WatchedStream(msgspec.Struct, frozen=True, kw_only=True):
    """The watched agent: its latest request, and those before it, newest first.

    `gaps_s` are the times between chunks; `recent_gaps_s` are the latest of them, in order of arrival. `waterfall` has
    the parts of its time in this stage, over the earlier requests that are kept.
    """

    agent: int
    task: int = -1
    turn: int = 0
    type: str = ""
    t_sched_ns: int | None = None
    t_sent_ns: int | None = None
    t_headers_ns: int | None = None
    t_first_ns: int | None = None
    t_first_content_ns: int | None = None
    t_last_ns: int | None = None
    chunks: int = 0
    gaps_s: Spread = Spread(n=0)
    recent_gaps_s: tuple[float, ...] = ()
    reasoning: str = ""
    text: str = ""
    before: tuple[EarlierRequest, ...] = ()
    waterfall: Waterfall | None = None


WarningCode = Literal[
    "directory_removed", "not_on_disk", "not_synced", "save_refused", "host_silent", "host_orphaned", "too_long"
]  # fmt: skip


class SessionWarning(msgspec.Struct, frozen=True):
    """A problem with saving the session, a host or the trace, which is shown until it is solved."""

    code: WarningCode
    text: str


class LiveTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The replayed trace in this stage: sessions that ended, and the use of the prefix cache.

    `hit_rate` and `max_hit_rate` are those of the latest answers; `context` is the sum over the sessions that are live.
    """

    jobs: int
    hit_rate: float | None
    max_hit_rate: float | None
    context: int


# Seconds that the rate of a single stream covers.
RECENT_RATES = 8


class StreamRate(msgspec.Struct, frozen=True, array_like=True):
    """The tok/s of an agent while it writes, and its output in each of the last seconds (`recent`, the newest last)."""

    agent: int
    rate: float | None
    recent: tuple[float | None, ...]


class ProvisionalLevel(PerLevel, frozen=True, kw_only=True):
    """A level before it is measured completely: `done` of the `of` requests that make it one; figures are so far.

    `of` is None if the time makes it a level.
    """

    done: int
    of: int | None
    out_tps: float | None
    per_stream_tps: float | None
    ttft_s: float | None


# Upper bounds of the histogram of first tokens, in seconds.
TTFT_BOUNDS = (
    0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0,
    60.0, 120.0,
)  # fmt: skip


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start of the session, which only grow: all requests that ended, also warm-up; no cancelled ones.

    `ttft_counts` has the answers of up to each of `TTFT_BOUNDS`, and above the bound before; the last one is above all.
    """

    requests: int = 0
    errors: dict[str, int] = {}
    tokens_in: int = 0
    tokens_out: int = 0
    ttft_sum_s: float = 0.0
    ttft_counts: tuple[int, ...] = (0,) * (len(TTFT_BOUNDS) + 1)


class FirstTokens(msgspec.Struct, frozen=True):
    """The first tokens of a running level that its SLO judges, with those of requests in flight.

    `late` are the ones that came after `limit_s`, or are awaited for longer. `oldest_s` is the longest wait of a
    request that has none yet. `percentile_s` is the `percentile` that the limit is on, longer than that if `awaited`.
    Of those `in_time`, `in_flight` are of requests that have not ended, and are not in the number of requests so far.
    """

    limit_s: float
    percentile: int | None
    in_time: int
    late: int
    oldest_s: float | None
    percentile_s: float
    awaited: bool
    in_flight: int = 0


class Frame(ProtocolMessage, frozen=True):
    """The current state. Rates are over the last second; null is not known, or not in the journal that is replayed.

    `points` are the latest of the history; they are sent more than once, so that a client that misses frames still gets
    them. `search_result` is a sentence, `search` what a search has found so far, `kv_cliff` what it predicts. Rows
    count chunks, and `rates` are those of their agents; `tokens_per_chunk` is the mean so far. `load` is how load is
    applied in this stage. `rate` (requests per second) and `send_delay_s` (largest of the last seconds) are set in an
    open loop, `tasks` in mixed loads and at the end. `provisional` are levels that are not in `levels` yet. `limit` has
    C and the tok/s that the hardware allows at each of `levels`, where that is known. `outage_s` is how long the server
    has been away, `silent_s` how long requests have been in flight while nothing arrived. `steered`: under manual
    control, which only the user ends. `left_bound` says how exact `left_s` is: later levels may take longer, and a
    search with a deadline ends at it at the latest. `planned` are the levels of the sweep that runs or ran last, or its
    rates. `trace` is set while one is replayed. `tails` are those that clients watch. `slots` are those that the server
    or the user names. `answer` and `goodput` are set at the end. `slo` is the one that is judged, `slo_kept` has the
    requests of the running level that met each of its conditions, `first_tokens` what is known about its limit on them,
    null before a request is measured. `finished` counts all requests, also warm-up and cancelled ones; `measured` those
    of levels that ended, as the `n` of levels does. `begun` are the agents that got a first token in this stage, null
    once its requests are measured.
    """

    t_ns: int
    status: Status
    c: int
    errors: int
    error_counts: dict[str, int]
    levels: tuple[Level, ...]
    note: str = ""
    elapsed_s: float = 0.0
    left_s: float | None = None
    done: int = 0
    of: int | None = None
    run: int = 0
    runs: int = 1
    in_flight: int = 0
    waiting: int = 0
    out_tps: float | None = None
    per_stream_tps: float | None = None
    ttft_s: float | None = None
    finished: int = 0
    lag_ms: float | None = None
    worker_cpu: float | None = None
    coalesced_chunks: int | None = None
    clock_steps: int | None = None
    warnings: tuple[SessionWarning, ...] = ()
    limit: tuple[tuple[int, float], ...] = ()
    provisional: tuple[ProvisionalLevel, ...] = ()
    rows: tuple[StreamRow, ...] = ()
    rates: tuple[StreamRate, ...] = ()
    watched: WatchedStream | None = None
    points: tuple[HistoryPoint, ...] = ()
    telemetry: Telemetry | None = None
    quality: tuple[QualityLine, ...] = ()
    ttft_split: TtftSplit | None = None
    search_result: str = ""
    search: SearchState | None = None
    planned: tuple[float, ...] = ()
    kv_cliff: KvCliff | None = None
    servers: tuple[DiscoveredServer, ...] = ()
    tokens_per_chunk: float = 1.0
    load: str = "closed"
    steered: bool = False
    rate: float | None = None
    send_delay_s: float | None = None
    tasks: tuple[TaskFigures, ...] = ()
    outage_s: float | None = None
    silent_s: float | None = None
    left_bound: TimeBound = "exact"
    trace: LiveTrace | None = None
    tails: tuple[TextTail, ...] = ()
    slots: Slots | None = None
    answer: Answer | None = None
    goodput: tuple[Goodput, ...] = ()
    slo: str = ""
    slo_kept: tuple[KeptShare, ...] = ()
    first_tokens: FirstTokens | None = None
    measured: int = 0
    begun: int | None = None
    totals: Totals = Totals()

    @property
    def server_waiting(self) -> float | None:
        return self.telemetry.waiting if self.telemetry is not None else None

    @property
    def point(self) -> HistoryPoint:
        return copy_fields(HistoryPoint, self)


Ending = Literal["done", "stopped", "unusable", "failed", "interrupted"]


class Ended(ProtocolMessage, frozen=True):
    """The last message: how the session ended, and its directory, which is empty if nothing is saved.

    unusable: the endpoint could not be used; failed: wrong input, or an error of swarmtui; interrupted: a process of
    swarmtui died; unsaved: not everything could be saved.
    `fault`: it failed by an unexpected error of swarmtui itself.
    """

    ending: Ending | Literal["unsaved"]
    message: str
    directory: str
    fault: bool = False


SessionMessage = Hello | Frame | Ended

decode_command: Callable[[bytes], ClientCommand] = msgspec.msgpack.Decoder(ClientCommand).decode


def decode_message(body: bytes) -> SessionMessage:
    return _message_decoder().decode(body)


@cache
def _message_decoder() -> msgspec.msgpack.Decoder[SessionMessage]:
    """Make it for the first message: it takes 16 ms, and the setup screen has none to decode."""
    return msgspec.msgpack.Decoder(SessionMessage)
