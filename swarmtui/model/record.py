"""The record of one request: the journal line from which every figure is derived."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, islice
from math import fsum
from typing import Literal, TypeVar

import msgspec

from swarmtui.model.base import Stored
from swarmtui.model.trace import ReplayedRequest

TokenSource = Literal["usage_chunks", "usage", "engine", "tokenize", "chunks"]
# preroll and filler: unmeasured requests of a closed loop, before and after the measured ones, that keep C in flight.
# serial: the tasks of a level in sequence, as the baseline of its speed-up.
# canary: a question with a checkable answer, in a stage of its own or between the measured requests of a level.
# unfinished: a request of a level that was cancelled, when the window of the level was over or by the user.
Phase = Literal["warmup", "preroll", "level", "unfinished", "filler", "serial", "canary"]

# The phases of requests that a stage of a level sends.
LEVEL_PHASES: tuple[Phase, ...] = ("preroll", "level", "unfinished", "filler", "canary")

CANCELLED = "cancelled"

T = TypeVar("T", bound=msgspec.Struct)

_COUNTED_BY_SERVER = ("usage_chunks", "usage", "engine")

# The same timestamp of the kernel may differ by this much in two reads: the offset to our clock is measured again.
SAME_STAMP_NS = 1000
# A rate rests on at least this many tokens after the first chunk, and arrivals of chunks that were read together: the
# time of fewer is as much that of sending and reading them. A server may send a whole answer in two or three chunks.
LEAST_DECODED = 3

# A server may send the text of one token in two chunks, such as a character it held back; few of an answer.
_CHUNKS_PER_TOKEN = 1.1

# detail.json leaves these out: they are most of the bytes.
JOURNAL_ONLY_FIELDS = ("chunk_us", "chunk_tokens")


class EngineTimings(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """What a server itself measured of one request; null is not reported.

    `queue_s` is the time until it was scheduled. Of the prompt, `computed_tokens` were read, and `local_cached_tokens`
    and `external_cached_tokens` found in the KV cache of the GPU and in a store elsewhere; `evicted_blocks` made room
    for it. Speculative decoding drafted `draft_tokens` of which `accepted_tokens` were right.
    """

    queue_s: float | None = None
    computed_tokens: int | None = None
    local_cached_tokens: int | None = None
    external_cached_tokens: int | None = None
    evicted_blocks: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None


class Waterfall(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """The time of requests in parts, in seconds: of `n` of them together, or the mean of `n` requests or jobs.

    A part is null if no server reported it; its time is then in `first_token_s`. `prefill_s` went into prompt tokens
    that the server had not read before, `recomputed_s` into those that it had read, and no longer had in its cache;
    where its cache is not known, all is in `prefill_s`. `tool_s` are the pauses between the requests of a job,
    `client_s` is the time that passed outside of the server.
    """

    n: int
    per: Literal["request", "job"] = "request"
    queue_s: float | None = None
    prefill_s: float | None = None
    recomputed_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    tool_s: float | None = None
    client_s: float | None = None

    @property
    def known_parts(self) -> tuple[tuple[str, float], ...]:
        """The parts that are not null, in order of time, by their names on screen."""
        values = ((name, getattr(self, field)) for field, name in WATERFALL_PARTS.items())
        return tuple((name, value) for name, value in values if value is not None)

    @property
    def total_s(self) -> float:
        return fsum(value for _, value in self.known_parts)


WATERFALL_PARTS = {
    "queue_s": "queue", "prefill_s": "prefill", "recomputed_s": "recomputed", "first_token_s": "first token",
    "decode_s": "decode", "tool_s": "tools", "client_s": "client",
}  # fmt: skip


class Record(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Times are monotonic nanoseconds; a null time: it did not happen.

    `t_sched_ns` is when the request was due, `t_event_ns` the first event of the stream, `t_first_ns` the first output.
    `chunk_us` has the time of each chunk with output: microseconds since the previous chunk, the first since
    `t_first_ns`. `chunk_tokens` has the tokens of each chunk; null if the server only reports their sum. In very long
    sessions both are empty for most requests, and `stall_us` is the longest gap. `first_tokens` is the part of
    `tokens_out` up to the first chunk. `t_finish_ns` is the event that stands for a token without output: the finish
    reason at the end of a sequence. `coalesced_chunks` counts chunks that were read together with the chunk before, and
    have its timestamp, `first_coalesced` those with the timestamp of the first one: it may have come earlier, by up
    to `first_error_s`. `retried`: the server had closed the idle connection, and the request was sent again;
    `new_connection`: it does so after each response, and connections are no longer reused. `left_out` names request
    fields that were omitted because the server refused them. `replayed` is the recorded request of a trace. `turn`
    counts from 0 in a conversation of `turns`.
    """

    task: int
    turn: int = 0
    turns: int = 1
    id: str = ""
    type: str = ""
    stage: int = 0
    c: int = 0
    run: int = 0
    phase: Phase = "level"
    agent: int = 0
    endpoint: int = 0
    t_sched_ns: int | None = None
    t_sent_ns: int | None = None
    t_headers_ns: int | None = None
    t_event_ns: int | None = None
    t_first_ns: int | None = None
    t_first_reasoning_ns: int | None = None
    t_first_content_ns: int | None = None
    t_last_ns: int | None = None
    t_finish_ns: int | None = None
    t_done_ns: int | None = None
    stamp: Literal["kernel", "read"] = "read"
    chunks: int = 0
    coalesced_chunks: int = 0
    first_coalesced: int = 0
    chunk_us: tuple[int, ...] = ()
    chunk_tokens: tuple[int, ...] | None = None
    stall_us: int | None = None
    first_tokens: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: TokenSource | None = None
    engine_decode_tps: float | None = None
    engine_prefill_s: float | None = None
    engine: EngineTimings | None = None
    finish_reason: str | None = None
    cap_hit: bool = False
    degenerate: bool = False
    retried: bool = False
    new_connection: bool = False
    left_out: tuple[str, ...] = ()
    error: str | None = None
    error_detail: str = ""
    verdict: str | None = None
    text: str | None = None
    reasoning: str | None = None
    replayed: ReplayedRequest | None = None

    def without_chunks(self) -> Record:
        """Return a copy without chunks and text, for keeping many records in memory."""
        return msgspec.structs.replace(self, chunk_us=(), chunk_tokens=None, text=None, reasoning=None)

    @property
    def key(self) -> tuple[int, int, int]:
        """Return the numbers that identify a request within its session."""
        return self.stage, self.task, self.turn

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def cancelled(self) -> bool:
        """Whether we ended it: that is no failure of the server."""
        return self.error == CANCELLED

    @property
    def failed(self) -> bool:
        return self.error is not None and self.error != CANCELLED

    @property
    def ended_at_once(self) -> bool:
        """Whether the model ended the answer before any output: what the server counted was the end of the sequence."""
        counted = self.token_source in _COUNTED_BY_SERVER and bool(self.tokens_out)
        return self.ok and self.t_first_ns is None and counted

    @property
    def ends_task(self) -> bool:
        """Whether no other turn follows: it is the last one, or has not succeeded."""
        return self.error is not None or self.turn + 1 >= self.turns

    @property
    def send_delay_s(self) -> float | None:
        """How much later than due the request was sent; None if it was not scheduled."""
        return _seconds(self.t_sched_ns, self.t_sent_ns)

    @property
    def ttft_s(self) -> float | None:
        return _seconds(self.t_sent_ns, self.t_first_ns)

    def waited_s(self, *, scheduled: bool) -> float | None:
        """Return the TTFT as workers report it: of scheduled requests from when they were due, also if sent late."""
        due = scheduled and self.t_sched_ns is not None
        return _seconds(self.t_sched_ns if due else self.t_sent_ns, self.t_first_ns)

    @property
    def first_error_s(self) -> float | None:
        """How much earlier than `t_first_ns` the first token may have come, since later chunks have its timestamp.

        They came about as far apart as the chunks after them, and after what was read before.
        """
        if self.t_first_ns is None or self.t_last_ns is None:
            return None
        if not self.first_coalesced:
            return 0.0
        known = [t for t in (self.t_sent_ns, self.t_headers_ns, self.t_event_ns) if t is not None]
        earlier = [t for t in known if self.t_first_ns - t > SAME_STAMP_NS]
        most_s = (self.t_first_ns - max(earlier, default=self.t_first_ns)) / 1e9
        later = self.chunks - 1 - self.first_coalesced
        return min(most_s, self.first_coalesced * (self.t_last_ns - self.t_first_ns) / 1e9 / later) if later else most_s

    @property
    def miscounted(self) -> bool:
        """Whether the server counted no token of an answer with text, or clearly fewer than the chunks with output."""
        if self.tokens_out is None or self.token_source not in _COUNTED_BY_SERVER:
            return False
        return bool(self.chunks and not self.tokens_out) or self.chunks > _CHUNKS_PER_TOKEN * self.tokens_out + 2

    @property
    def ttfo_s(self) -> float | None:
        """Time to the first content, after any reasoning."""
        return _seconds(self.t_sent_ns, self.t_first_content_ns)

    @property
    def e2e_s(self) -> float | None:
        return _seconds(self.t_sent_ns, self.t_last_ns)

    @property
    def t_end_ns(self) -> int | None:
        """The last token: the last chunk, or the finish reason if the server counted tokens that no chunk carried.

        An end-of-sequence token takes a decode step of its own, and arrives with the finish reason only.
        """
        hidden = self.token_source in _COUNTED_BY_SERVER and (self.tokens_out or 0) > self.chunks
        if not hidden or self.t_last_ns is None or self.t_finish_ns is None:
            return self.t_last_ns
        return max(self.t_last_ns, self.t_finish_ns)

    @property
    def left_ns(self) -> int:
        """When the request was no longer in flight."""
        return self.t_done_ns or self.t_last_ns or self.t_sent_ns or 0

    @property
    def age_s(self) -> float:
        """How long the request was in flight."""
        return (self.left_ns - (self.t_sent_ns or self.left_ns)) / 1e9

    @property
    def decoded(self) -> tuple[int, float] | None:
        """n − tokens up to the first chunk, and t_end − t_first in seconds; needs two chunks and a known n.

        Not known if it rests on too few tokens or arrivals, or if most chunks have the timestamp of the first one: it
        may have come any time before.
        """
        if self.tokens_out is None or self.first_tokens is None or 2 * self.first_coalesced >= self.chunks > 1:
            return None
        span = _seconds(self.t_first_ns, self.t_end_ns)
        later = self.tokens_out - self.first_tokens
        steps = min(later, self.chunks - 1 - self.coalesced_chunks) if self.coalesced_chunks else later
        return (later, span) if span and span > 0 and steps >= LEAST_DECODED else None

    @property
    def decode_tps(self) -> float | None:
        decoded = self.decoded
        return decoded[0] / decoded[1] if decoded else None

    @property
    def tpot_s(self) -> float | None:
        rate = self.decode_tps
        return 1.0 / rate if rate else None

    def chunk_times_ns(self) -> list[int]:
        """Return the arrival time of each chunk, to the microsecond; evenly spaced if the times were not kept."""
        if self.t_first_ns is None:
            return []
        first = self.t_first_ns
        if not self.chunk_us and self.chunks:
            span, steps = (self.t_last_ns or first) - first, max(1, self.chunks - 1)
            return [first + span * step // steps for step in range(self.chunks)]
        return [first + 1000 * offset for offset in accumulate(self.chunk_us)]

    def chunks_until(self, bounds_ns: Sequence[int]) -> list[int]:
        """Return how many chunks had arrived at each of some moments, without a list of all their times.

        Chunk times are rounded: those read together with the last one may be after it, and are counted with it.
        """
        first, last = self.t_first_ns, self.t_last_ns
        if first is None:
            return [0] * len(bounds_ns)
        if not self.chunk_us:
            times = self.chunk_times_ns()
            return [bisect_right(times, bound) for bound in bounds_ns]
        offsets = list(accumulate(self.chunk_us))
        count = len(offsets)
        found = [bisect_right(offsets, (bound - first) // 1000) for bound in bounds_ns]
        if last is None:
            return found
        return [count if bound >= last else min(n, count - 1) for n, bound in zip(found, bounds_ns, strict=True)]

    @property
    def longest_gap_us(self) -> int | None:
        """The longest gap between two chunks; None if there were fewer than two."""
        return max(islice(self.chunk_us, 1, None), default=self.stall_us)

    def tokens_per_chunk(self) -> list[float]:
        """Return the tokens of each chunk: as reported, or the first chunk's and an equal share for the others."""
        if self.chunk_tokens is not None:
            return [float(n) for n in self.chunk_tokens]
        if not self.chunks or self.tokens_out is None:
            return [0.0] * self.chunks
        first = float(self.first_tokens or 0)
        if self.chunks == 1:
            return [float(self.tokens_out)]
        rest = (self.tokens_out - first) / (self.chunks - 1)
        return [first, *([rest] * (self.chunks - 1))]

    def tokens_of_chunks(self, start: int, end: int) -> float:
        """Return the tokens of the chunks from number `start` up to `end`, without a list of all chunks."""
        if self.chunk_tokens is not None or self.tokens_out is None or self.chunks < 2:
            return fsum(self.tokens_per_chunk()[start:end])
        if start >= end:
            return 0.0
        first = float(self.first_tokens or 0)
        rest = (self.tokens_out - first) / (self.chunks - 1)
        return (end - start) * rest if start else first + (end - 1) * rest


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


def shift_times(value: T, by_ns: int) -> T:
    """Move all times of a record, or of another struct with fields `t_…_ns`; its latencies stay."""
    known = {name: t_ns + by_ns for name in time_fields(type(value)) if (t_ns := getattr(value, name)) is not None}
    return msgspec.structs.replace(value, **known)


@cache
def time_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields that hold a time, `t_…_ns`."""
    return tuple(name for name in kind.__struct_fields__ if name.startswith("t_") and name.endswith("_ns"))
