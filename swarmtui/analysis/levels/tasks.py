"""Compute the figures of a level by task type and turn: slowdown of the primary task, answers that pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from swarmtui.analysis.levels.stats import mean, spread, stream_rate
from swarmtui.model.level_key import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import TaskFigures

# More types than this are not worth a table.
_MAX_TYPES = 64


def task_figures(finished: Mapping[LevelKey, Sequence[Record]]) -> tuple[TaskFigures, ...]:
    """Return figures by level, type and turn, in order; empty where no task has a type or a check."""
    found: list[TaskFigures] = []
    for (c, rate), records in sorted(finished.items(), key=lambda pair: (pair[0][1] or 0.0, pair[0][0])):
        parts: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in sorted(records, key=lambda record: (record.task, record.turn)):
            parts[record.type, record.turn].append(record)
        if len(parts) > _MAX_TYPES or not any(r.type or r.verdict for r in records):
            continue
        found += [_figures(c, rate, kind, turn, part) for (kind, turn), part in parts.items()]
    return tuple(found)


def _figures(c: int, rate: float | None, kind: str, turn: int, records: Sequence[Record]) -> TaskFigures:
    ok = [record for record in records if record.ok]
    return TaskFigures(
        c=c,
        rate=rate,
        type=kind,
        turn=turn,
        n=len(records),
        ok=len(ok),
        ttft_s=spread([r.ttft_s for r in ok if r.ttft_s is not None]),
        per_stream_tps=stream_rate(ok),
        e2e_s=mean([r.e2e_s for r in ok if r.e2e_s is not None]),
        tokens_out=mean([r.tokens_out for r in ok if r.tokens_out is not None]),
        verdicts=dict(sorted(Counter(r.verdict for r in records if r.verdict is not None).items())),
    )
