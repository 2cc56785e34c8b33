"""Tell the two parts of speculative decoding apart: tokens per step, which the text decides, and steps per second."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Speculation
from swarmtui.model.telemetry import ServerState


def speculation(level: Level, ok: Sequence[Record], seen: ServerState) -> Speculation | None:
    """Return the figures of a level by its answers, else by the counters of its servers; None without any draft."""
    told = [(record, record.engine) for record in ok if record.engine and record.engine.draft_tokens is not None]
    drafted, accepted, tokens = seen.draft_tokens or 0.0, seen.accepted_tokens or 0.0, seen.output_tokens or 0.0
    if told:
        drafted = float(sum(engine.draft_tokens or 0 for _, engine in told))
        accepted = float(sum(engine.accepted_tokens or 0 for _, engine in told))
        tokens = float(sum(record.tokens_out or 0 for record, _ in told))
    # A step writes the tokens that were accepted, and one more; some draft nothing.
    if not drafted or tokens <= accepted:
        return None
    tokens_per_step = tokens / (tokens - accepted)
    positions = seen.accepted_at.buckets if seen.accepted_at else ()
    return Speculation(
        tokens_per_step=tokens_per_step,
        steps_per_s=ratio(level.per_stream_tps.mean, tokens_per_step),
        drafted_per_step=drafted / (tokens - accepted),
        acceptance=accepted / drafted,
        by_position=tuple(bucket.count / seen.drafts for bucket in positions) if seen.drafts else (),
    )
