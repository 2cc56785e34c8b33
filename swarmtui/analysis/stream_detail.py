"""Build the detail view of one stream: its request chunk by chunk, and its finished requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from swarmtui.analysis.levels.stats import spread
from swarmtui.model import worker_protocol
from swarmtui.model.client_protocol import EarlierRequest, WatchedStream
from swarmtui.model.record import Record

# The newest gaps are shown individually, up to this number.
_MAX_GAPS = 240
# Each frame carries the previews of all finished requests of the agent.
_MAX_PREVIEW = 2_000
# The characters of an answer that a table of streams may show.
_MAX_TAIL = 200


def live_stream(
    update: worker_protocol.WatchedUpdate,
    times: Sequence[int],
    reasoning: str,
    text: str,
    before: tuple[EarlierRequest, ...],
) -> WatchedStream:
    """Return the detail of a request in flight; `times` are the timestamps of its chunks so far."""
    gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
    return WatchedStream(
        agent=update.agent,
        task=update.task,
        turn=update.turn,
        type=update.type,
        t_sched_ns=update.t_sched_ns,
        t_sent_ns=update.t_sent_ns,
        t_headers_ns=update.t_headers_ns,
        t_first_ns=times[0] if times else None,
        t_first_content_ns=update.t_first_content_ns,
        t_last_ns=times[-1] if times else None,
        chunks=len(times),
        gaps_s=spread(gaps),
        recent_gaps_s=tuple(gaps[-_MAX_GAPS:]),
        reasoning=reasoning,
        text=text,
        before=before,
    )


def recorded_stream(record: Record, now: int, before: tuple[EarlierRequest, ...]) -> WatchedStream:
    """Return the detail of a recorded request as it was at `now`, with its text in proportion to its chunks."""
    times = [t_ns for t_ns in record.chunk_times_ns() if t_ns <= now]
    reasoning, text = _written(record, len(times))
    update = worker_protocol.WatchedUpdate(
        record.agent, record.task, record.turn, record.type,
        _past(record.t_sched_ns, now), _past(record.t_sent_ns, now), _past(record.t_headers_ns, now),
        _past(record.t_first_content_ns, now),
    )  # fmt: skip
    return live_stream(update, times, reasoning, text, before)


def recorded_tail(record: Record, chunks: int) -> worker_protocol.TextTail:
    """Return the end of the text of a recorded request after this many of its chunks."""
    text = "".join(_written(record, chunks))
    return worker_protocol.TextTail(record.agent, len(text), text[-_MAX_TAIL:])


def _written(record: Record, chunks: int) -> tuple[str, str]:
    """Return the reasoning and the text, in proportion to the chunks."""
    reasoning, text = record.reasoning or "", record.text or ""
    written = (len(reasoning) + len(text)) * chunks // record.chunks if record.chunks else 0
    return reasoning[:written], text[: max(0, written - len(reasoning))]


def _past(t_ns: int | None, now: int) -> int | None:
    return t_ns if t_ns is not None and t_ns <= now else None


def earlier_request(record: Record) -> EarlierRequest:
    return EarlierRequest(
        task=record.task,
        turn=record.turn,
        type=record.type,
        error=record.error,
        verdict=record.verdict,
        ttft_s=record.ttft_s,
        tokens_out=record.tokens_out,
        decode_tps=record.decode_tps,
        e2e_s=record.e2e_s,
        preview=(record.text or record.reasoning or "")[:_MAX_PREVIEW],
    )
