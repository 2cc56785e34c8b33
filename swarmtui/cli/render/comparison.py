"""Render a comparison of sessions: what differs, their levels side by side, the verdicts, and a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.sessions import FIGURES, Comparison, LeaderboardRow, Pair, headline_row
from swarmtui.cli.render.table import BEST, align_table, wrap
from swarmtui.numbers import MISSING, significant
from swarmtui.sessions.export.comparison import comparison_tables
from swarmtui.text import sanitize


def comparison_text(found: Comparison) -> str:
    labels = {row.id: row.label for row in found.leaderboard}
    parts = [_pair(pair, labels) for pair in found.pairs]
    if len(found.leaderboard) > 2:
        parts.append(leaderboard_text(found.leaderboard))
    return "\n\n".join(parts) + "\n"


def leaderboard_text(sessions: Sequence[LeaderboardRow]) -> str:
    """One session per row and below it what changed since the previous one; ▸ marks the best of its model."""
    titles = ["", "session", "label", "model", "C=1 tok/s", "best tok/s", "at", "TPOT ms", "TTFT s"]
    rows = [
        [
            BEST if row.best_of_model else "",
            sanitize(row.id),
            sanitize(row.label),
            sanitize(row.model),
            significant(row.out_tps_alone),
            significant(row.best_out_tps),
            row.best_at or MISSING,
            significant(None if row.tpot_s is None else 1e3 * row.tpot_s, 3),
            significant(row.ttft_s, 3),
        ]
        for row in sessions
    ]
    right = [False] * 4 + [True] * 5
    lines = align_table(titles, rows, right, {1: 20, 2: 8, 3: 6})
    changes = [
        line
        for row in sessions
        if row.changes
        for line in wrap(f"{sanitize(row.id)}: {sanitize('; '.join(row.changes))}")
    ]
    return "\n".join([*lines, "", *changes])


def _pair(pair: Pair, labels: dict[str, str]) -> str:
    head = [f"{side}  {sanitize(f'{name}  {labels[name]}'.rstrip())}" for side, name in (("A", pair.a), ("B", pair.b))]
    lists = (
        ("flags", [str(difference) for difference in pair.flags]),
        ("other", [str(difference) for difference in pair.differences]),
        ("note", [note.text for note in pair.notes]),
    )
    head += [line for name, items in lists for item in items for line in wrap(f"{name:<6} {sanitize(item)}")]
    parts = ["\n".join(head)]
    for table in comparison_tables(pair):
        lines = align_table(list(table.columns), table.rows, table.right)
        parts.append("\n".join([*lines, *([""] if table.note else []), *wrap(table.note)]))
    headline = headline_row(pair)
    tail = [
        line
        for row in pair.rows
        if row.verdict and row is not headline
        for line in wrap(f"{row.name}, {FIGURES[row.figure]}: {row.verdict.sentence}")
    ]
    for name, only in (("A", pair.only_a_names), ("B", pair.only_b_names)):
        if only:
            tail.append(f"only in {name}: {', '.join(only)}")
    return "\n\n".join([*parts, "\n".join([*wrap(sanitize(pair.sentence)), *tail])])
