"""`swarmtui compare` as plain text: what differs, levels side by side, verdicts, and the stages of many sessions."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.sessions import FIGURES, Comparison, Pair, Row, Stage
from swarmtui.cli.render.table import aligned, narrowed, wrapped
from swarmtui.sessions.export.comparison import comparison_tables
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.text import plain


def comparison_text(found: Comparison) -> str:
    labels = {stage.id: stage.label for stage in found.stages}
    parts = [_pair(pair, labels) for pair in found.pairs]
    if len(found.stages) > 2:
        parts.append(stages_text(found.stages))
    return "\n\n".join(parts) + "\n"


def stages_text(stages: Sequence[Stage]) -> str:
    """One change a row, as far as people changed one thing at a time; ▸ is the best of its model."""
    titles = ["", "session", "label", "model", "C=1 tok/s", "best tok/s", "at", "TPOT ms", "TTFT s"]
    rows = [
        [
            "▸" if stage.best_of_model else "",
            plain(stage.id),
            plain(stage.label),
            plain(stage.model),
            amount(stage.out_tps_alone),
            amount(stage.best_out_tps),
            stage.best_at or NOTHING,
            amount(None if stage.tpot_s is None else 1e3 * stage.tpot_s, 3),
            amount(stage.ttft_s, 3),
        ]
        for stage in stages
    ]
    right = [False] * 4 + [True] * 5
    lines = aligned(titles, narrowed(titles, rows, {1: 20, 2: 8, 3: 6}), right=right)
    changes = [
        line
        for stage in stages
        if stage.changes
        for line in wrapped(f"{plain(stage.id)}: {plain('; '.join(stage.changes))}")
    ]
    return "\n".join([*lines, "", *changes])


def _pair(pair: Pair, labels: dict[str, str]) -> str:
    head = [f"{side}  {plain(f'{name}  {labels[name]}'.rstrip())}" for side, name in (("A", pair.a), ("B", pair.b))]
    lists = (
        ("flags", [str(difference) for difference in pair.flags]),
        ("other", [str(difference) for difference in pair.differences]),
        ("note", list(pair.notes)),
    )
    head += [line for name, items in lists for item in items for line in wrapped(f"{name:<6} {plain(item)}")]
    parts = ["\n".join(head)]
    for table in comparison_tables(pair):
        lines = aligned(list(table.columns), [list(row) for row in table.rows], right=list(table.right))
        parts.append("\n".join([*lines, *([""] if table.note else []), *wrapped(table.note)]))
    tail = [line for row in pair.rows if _explained(row) for line in wrapped(_explanation(row))]
    for name, only in (("A", pair.only_a), ("B", pair.only_b)):
        if only:
            tail.append(f"only in {name}: {','.join(f'{at:g}' for at in only)}")
    return "\n\n".join([*parts, "\n".join([*wrapped(plain(pair.sentence)), *tail])])


def _explained(row: Row) -> bool:
    return row.figure == "out_tps_steady" and row.verdict is not None


def _explanation(row: Row) -> str:
    return f"{row.name}, {FIGURES[row.figure][0]}: {row.verdict.sentence}" if row.verdict else ""
