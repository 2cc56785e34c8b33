"""Make what workers would have sent from the records of a session, for a replay: frames, watched requests, tails."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import StreamRow, TextTail, WatchedUpdate, WorkerFrame

# The characters of an answer that a table of streams may show.
_MAX_TAIL = 600


class _Request:
    """A request in flight: its row as of the last frame."""

    __slots__ = ("_answered_ns", "_arrived_us", "_first_ns", "_ttft_s", "left_ns", "record", "state", "total")

    def __init__(self, record: Record, *, scheduled: bool) -> None:
        self.record, self.left_ns, self._first_ns = record, record.left_ns, record.t_first_ns or 0
        # Since the first chunk; evenly spaced if the times were not kept.
        self._arrived_us: Sequence[float] = tuple(accumulate(record.chunk_us))
        if not record.chunk_us:
            self._arrived_us = [(t_ns - self._first_ns) / 1000 for t_ns in record.chunk_times_ns()]
        self.total, self.state = 0, ""
        self._answered_ns = record.t_first_content_ns
        self._ttft_s = record.waited_s(scheduled=scheduled)

    def advance(self, t_ns: int) -> StreamRow | None:
        """Return the row at this time; None if it is that of the last frame."""
        before, record = self.total, self.record
        self.total = total = bisect_right(self._arrived_us, (t_ns - self._first_ns) / 1000, lo=before)
        if total:
            state = "writing" if self._answered_ns is not None and self._answered_ns <= t_ns else "thinking"
        else:
            state = "waiting" if record.t_headers_ns is None or record.t_headers_ns > t_ns else "prefill"
        if total == before and state == self.state:
            return None
        self.state = state
        span_s = (self._arrived_us[total - 1] - self._arrived_us[0]) / 1e6 if total else 0.0
        ttft_s = self._ttft_s if total else None
        sent_ns, measured = record.t_sent_ns or 0, record.phase in ("level", "unfinished")
        return StreamRow(
            record.agent, state, record.task, record.type, sent_ns, total - before, total, ttft_s, span_s, measured
        )


class RecordedWorker:
    """Stands for the workers of a saved session, with all its streams; it knows what the journal holds.

    Call `frame` with increasing times, and `seek` to continue at another one; `watched` and `tail` take any time.
    """

    def __init__(self, records: Iterable[Record], scheduled_stages: Iterable[int]) -> None:
        self._scheduled = frozenset(scheduled_stages)
        self._sent = sorted((r for r in records if r.t_sent_ns is not None), key=lambda record: record.t_sent_ns or 0)
        self._sent_ns = [record.t_sent_ns or 0 for record in self._sent]
        self._by_agent: defaultdict[int, list[Record]] = defaultdict(list)
        for record in self._sent:
            self._by_agent[record.agent].append(record)
        self._sent_ns_by_agent = {a: [r.t_sent_ns or 0 for r in sent] for a, sent in self._by_agent.items()}
        self._position = 0
        self._in_flight: dict[int, _Request] = {}

    @property
    def last_ns(self) -> int:
        return max((record.left_ns for record in self._sent), default=0)

    def _newest(self, agent: int, t_ns: int) -> Record | None:
        """Return the request that the agent sent last."""
        position = bisect_right(self._sent_ns_by_agent.get(agent, []), t_ns)
        return self._by_agent[agent][position - 1] if position else None

    def watched(self, agent: int, t_ns: int) -> WatchedUpdate | None:
        """Return the agent's latest request until this time, with its text in proportion to its chunks."""
        record = self._newest(agent, t_ns)
        if record is None:
            return None
        times = tuple(at for at in record.chunk_times_ns() if at <= t_ns)
        reasoning, text = _written(record, len(times))
        return WatchedUpdate(
            agent, record.task, record.turn, record.type,
            _past(record.t_sched_ns, t_ns), _past(record.t_sent_ns, t_ns), _past(record.t_headers_ns, t_ns),
            _past(record.t_first_content_ns, t_ns), times, reasoning, text,
        )  # fmt: skip

    def tail(self, agent: int, t_ns: int) -> TextTail:
        """Return the end of the text of the agent's request in flight; empty between two requests."""
        record = self._newest(agent, t_ns)
        if record is None or t_ns >= record.left_ns:
            return TextTail(agent, 0, "")
        text = "".join(_written(record, sum(at <= t_ns for at in record.chunk_times_ns())))
        return TextTail(agent, len(text), text[-_MAX_TAIL:])

    def seek(self, t_ns: int) -> None:
        """Continue as after the frame of this time."""
        self._position = bisect_right(self._sent_ns, t_ns)
        self._in_flight = {}
        for agent in self._by_agent:
            record = self._newest(agent, t_ns)
            if record is not None and record.left_ns > t_ns:
                self._start(record).advance(t_ns)

    def _start(self, record: Record) -> _Request:
        request = self._in_flight[record.agent] = _Request(record, scheduled=record.stage in self._scheduled)
        return request

    def frame(self, t_ns: int) -> WorkerFrame:
        ended = [agent for agent, request in self._in_flight.items() if request.left_ns <= t_ns]
        for agent in ended:
            del self._in_flight[agent]
        while self._position < len(self._sent) and self._sent_ns[self._position] <= t_ns:
            record = self._sent[self._position]
            self._position += 1
            if record.left_ns > t_ns:
                self._start(record)
        rows = [StreamRow(agent, "idle", -1, "", 0, 0, 0, None) for agent in ended if agent not in self._in_flight]
        waiting = 0
        for request in self._in_flight.values():
            row = request.advance(t_ns)
            waiting += not request.total
            if row is not None:
                rows.append(row)
        in_flight = len(self._in_flight)
        return WorkerFrame(
            t_ns, in_flight, in_flight, waiting, 0, tuple(rows), lag_ms=None, cpu_ns=None, clock_steps=None, drops=0
        )


def _written(record: Record, chunks: int) -> tuple[str, str]:
    """Return the reasoning and the text, in proportion to the chunks."""
    reasoning, text = record.reasoning or "", record.text or ""
    written = (len(reasoning) + len(text)) * chunks // record.chunks if record.chunks else 0
    return reasoning[:written], text[: max(0, written - len(reasoning))]


def _past(at_ns: int | None, t_ns: int) -> int | None:
    return at_ns if at_ns is not None and at_ns <= t_ns else None
