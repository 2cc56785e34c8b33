"""Follow the streams by what workers send and what records tell: their rates, and what those that are watched write."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.stats import spread
from swarmtui.analysis.machine.waterfall import waterfall
from swarmtui.model.base import copy_fields
from swarmtui.model.client_protocol import RECENT_RATES, EarlierRequest, StreamRate, WatchedStream
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import LEAST_DECODED, Record
from swarmtui.model.worker_protocol import StreamRow, TextTail, WatchedUpdate, WorkerFrame

_SECOND_NS = 1_000_000_000
# From then on it is said that nothing arrives.
_SILENT_NS = 2 * _SECOND_NS
_RECENT_NS = 10 * _SECOND_NS
# Chunks that the rate of a single stream covers, unless the last seconds have fewer.
_ENOUGH_CHUNKS = 50
# Chunks that arrive within less than this came at once, from a buffer: they tell no rate.
_LEAST_SPAN_S = 0.01
# Finished requests that are kept per agent, and characters of the current answer.
_FINISHED_REQUESTS = 8
_MAX_TEXT = 32 << 10
# The newest gaps are shown individually, up to this number.
_MAX_GAPS = 240
# Each frame carries the previews of all finished requests of the agent.
_MAX_PREVIEW = 2_000


class Written(NamedTuple):
    """Answers that began, chunks that followed another one of their answer, and the time that these took."""

    begun: int = 0
    chunks: int = 0
    span_s: float = 0.0

    @classmethod
    def total(cls, parts: Iterable[tuple[int, int, float]]) -> Written:
        return cls(*map(sum, zip(*parts, strict=True)))

    def tps(self, tokens_per_chunk: float) -> float | None:
        """Return the rate; None for chunks of a buffer, and for answers too short to have one."""
        tokens = self.chunks * tokens_per_chunk
        known = self.span_s >= _LEAST_SPAN_S and tokens >= LEAST_DECODED * self.begun
        return tokens / self.span_s if known else None


class Throughput:
    """The newest row of each stream, and what all streams together wrote in the last seconds."""

    def __init__(self) -> None:
        self.rows: dict[int, StreamRow] = {}
        # Per agent: the last row of the request before the current one, and the latest request with a record.
        self._replaced: dict[int, StreamRow] = {}
        self._recorded: dict[int, tuple[int, int]] = {}
        # Chunks of each frame, and those that arrived since the last one in answers that ended.
        self._chunk_counts: deque[tuple[int, int]] = deque()
        self._later_chunks = 0
        self._ttfts: deque[tuple[LevelKey, int, float]] = deque(maxlen=32)
        # When chunks arrived last at this level.
        self._received_ns: int | None = None
        # C and the rate, a time, and what was written until then.
        self._written: deque[tuple[LevelKey, int, Written]] = deque()

    def restart(self) -> None:
        """Forget what was received: the next level begins without requests in flight."""
        self._chunk_counts.clear()
        self._written.clear()
        self._ttfts.clear()
        self._later_chunks, self._received_ns = 0, None

    def add_frame(self, key: LevelKey, frame: WorkerFrame) -> None:
        produced, self._later_chunks = self._later_chunks, 0
        written: list[tuple[int, int, float]] = []
        for row in frame.rows:
            agent, request = row.agent, row.request
            before = self.rows.get(agent)
            if self._recorded.get(agent) != request:
                produced += row.chunks
                written.append(row.written_since(before))
            if before is not None and before.request != request:
                self._replaced[agent] = before
            if row.ttft_s is not None and row.chunks == row.total:
                self._ttfts.append((key, frame.t_ns, row.ttft_s))
            self.rows[agent] = row
        self._received_ns = frame.t_ns if produced else self._received_ns
        counts = self._chunk_counts
        counts.append((frame.t_ns, produced))
        while len(counts) > 1 and counts[1][0] <= frame.t_ns - _SECOND_NS:
            counts.popleft()
        self._written.append((key, frame.t_ns, Written.total(written)))
        while self._written[0][1] < frame.t_ns - _RECENT_NS:
            self._written.popleft()

    def add_end(self, key: LevelKey, record: Record, ttft_s: float | None) -> None:
        """Count the chunks of an answer that arrived after its last row, and its TTFT if it had none."""
        first_ns, last_ns, sent_ns = record.t_first_ns, record.t_last_ns, record.t_sent_ns or 0
        span_s = (last_ns - first_ns) / 1e9 if first_ns is not None and last_ns is not None else 0.0
        end = StreamRow(record.agent, "", record.task, record.type, sent_ns, 0, record.chunks, ttft_s, span_s)
        rows = (self.rows.get(end.agent), self._replaced.get(end.agent))
        before = next((row for row in rows if row is not None and row.request == end.request), None)
        self._recorded[end.agent] = end.request
        if ttft_s is not None and (before is None or before.ttft_s is None):
            self._ttfts.append((key, record.left_ns, ttft_s))
        self._later_chunks += max(0, end.total - (before.total if before else 0))
        self._written.append((key, record.left_ns, Written(*end.written_since(before))))

    def chunks_per_s(self) -> float | None:
        """Return those of the last second: after its first frame, divided by the time since that frame."""
        span = self._chunk_counts[-1][0] - self._chunk_counts[0][0] if self._chunk_counts else 0
        if span < _SECOND_NS // 4:
            return None
        return (sum(chunks for _, chunks in self._chunk_counts) - self._chunk_counts[0][1]) * 1e9 / span

    def silent_s(self, now_ns: int) -> float | None:
        """Return for how long nothing arrived; null for a moment, and before the first chunk of a level."""
        silent_ns = now_ns - self._received_ns if self._received_ns is not None else 0
        return silent_ns / 1e9 if silent_ns >= _SILENT_NS else None

    def stream_tps(self, key: LevelKey, tokens_per_chunk: float) -> float | None:
        """Return the tok/s of a stream while it writes, over the last seconds at the current load."""
        return Written.total(part for at, _, part in self._written if at == key).tps(tokens_per_chunk)

    def median_ttft_s(self, key: LevelKey) -> float | None:
        """Return that of the last seconds at the current load; older ones would delay the median."""
        known = [(t_ns, ttft_s) for at, t_ns, ttft_s in self._ttfts if at == key]
        newest_ns = known[-1][0] if known else 0
        recent = sorted(ttft_s for t_ns, ttft_s in known if t_ns >= newest_ns - _RECENT_NS)
        return recent[len(recent) // 2] if recent else None


class StreamTally:
    """The tok/s of one stream: its output of each second in `recent`, the newest last.

    `rate` is that of the stream while it writes, without its time to first token, over as many of the latest seconds
    in which it wrote as it takes to count enough chunks.
    """

    __slots__ = ("_earlier", "_row", "_since_ns", "_unrated", "_written", "rate", "recent")

    def __init__(self, t_ns: int) -> None:
        self._since_ns = t_ns
        self._row: StreamRow | None = None
        # Of the current second: chunks without a rate (first ones of answers), and what was written after them.
        self._unrated, self._written = 0, Written()
        self._earlier: tuple[Written, ...] = ()
        self.rate: float | None = None
        self.recent: tuple[float | None, ...] = ()

    def update(self, t_ns: int, row: StreamRow, tokens_per_chunk: float) -> None:
        """Add what arrived since the last update."""
        if row is not self._row:
            more = row.written_since(self._row)
            self._unrated, self._written, self._row = self._unrated + more[0], Written.total((self._written, more)), row
        passed = t_ns - self._since_ns
        if passed < _SECOND_NS:
            return
        produced = self._unrated + self._written.chunks
        known = produced > 0 or row.state in ("writing", "thinking", "prefill", "waiting")
        newest = produced * tokens_per_chunk * 1e9 / passed if known else None
        self.recent = (*self.recent[1 - RECENT_RATES :], newest)
        if not known:
            self._earlier = ()
        elif self._written.span_s:
            self._earlier = (*self._earlier, self._written)[-RECENT_RATES:]
        self.rate = self._mean_rate(tokens_per_chunk)
        self._since_ns, self._unrated, self._written = t_ns, 0, Written()

    def restart(self) -> None:
        """Forget the rate under another load; the chunks of the current second still count in `recent`."""
        self._earlier, self._unrated, self._written = (), self._unrated + self._written.chunks, Written()

    def view(self, agent: int) -> StreamRate:
        return StreamRate(agent, self.rate, self.recent)

    def _mean_rate(self, tokens_per_chunk: float) -> float | None:
        parts, chunks = list[Written](), 0
        for part in reversed(self._earlier):
            parts.append(part)
            chunks += part.chunks
            if chunks >= _ENOUGH_CHUNKS:
                break
        return Written.total(parts).tps(tokens_per_chunk)


class WatchedStreams:
    """Collects the current request of one selected agent, the last requests of all agents, and the tails of some."""

    def __init__(self) -> None:
        self._agent: int | None = None
        self._latest: WatchedUpdate | None = None
        self._times: list[int] = []
        self._reasoning = self._text = ""
        self._finished: defaultdict[int, deque[Record]] = defaultdict(partial(deque[Record], maxlen=_FINISHED_REQUESTS))
        self._tails: dict[int, TextTail] = {}

    def select(self, agent: int | None) -> None:
        self._agent, self._latest = agent, None
        self._times, self._reasoning, self._text = [], "", ""

    def select_tails(self, agents: tuple[int, ...]) -> None:
        """Keep the end of the text of these agents, empty until it arrives."""
        self._tails = {agent: self._tails.get(agent) or TextTail(agent, 0, "") for agent in agents}

    def update(self, update: WatchedUpdate) -> None:
        """Add what arrived; between two requests the last answer stays."""
        if update.agent != self._agent or update.task < 0:
            return
        if self._latest is None or (update.task, update.turn) != (self._latest.task, self._latest.turn):
            self._times, self._reasoning, self._text = [], "", ""
        self._latest = update
        self._times += update.times
        self._reasoning = (self._reasoning + update.reasoning)[-_MAX_TEXT:]
        self._text = (self._text + update.text)[-_MAX_TEXT:]

    def update_tails(self, tails: tuple[TextTail, ...]) -> None:
        # A worker may send some after a client has stopped watching them.
        self._tails |= {tail.agent: tail for tail in tails if tail.agent in self._tails}

    def add_record(self, record: Record) -> None:
        preview = (record.text or record.reasoning or "")[:_MAX_PREVIEW]
        kept = msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None, text=preview, reasoning=None)
        self._finished[record.agent].appendleft(kept)

    @property
    def tails(self) -> tuple[TextTail, ...]:
        return tuple(self._tails.values())

    def view(self) -> WatchedStream | None:
        if self._agent is None:
            return None
        latest, times, records = self._latest, self._times, tuple(self._finished.get(self._agent, ()))
        finished = tuple(map(_earlier, records, (*records[1:], None)))
        time_spent = waterfall(record for record in records if record.stage == records[0].stage)
        if latest is None:
            return WatchedStream(agent=self._agent, before=finished, waterfall=time_spent)
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
        return copy_fields(
            WatchedStream,
            latest,
            t_first_ns=times[0] if times else None,
            t_last_ns=times[-1] if times else None,
            chunks=len(times),
            gaps_s=spread(gaps),
            recent_gaps_s=tuple(gaps[-_MAX_GAPS:]),
            reasoning=self._reasoning,
            text=self._text,
            before=finished,
            waterfall=time_spent,
        )


def _earlier(record: Record, before: Record | None) -> EarlierRequest:
    """Describe a request; what passes between two stages is no part of its time."""
    spent = waterfall([record], before=before if before and before.stage == record.stage else None)
    return copy_fields(EarlierRequest, record, waterfall=spent, preview=record.text or "")
