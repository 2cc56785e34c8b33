"""Build the tables that compare two sessions, for `swarmtui compare` and for reports."""

from __future__ import annotations

from swarmtui.analysis.compare.sessions import FIGURES, ComparisonRow, Figure, Pair
from swarmtui.model.plan import load_title
from swarmtui.numbers import MISSING, seconds, signed_percent, significant
from swarmtui.sessions.export.structs import Table

_NOTE = (
    "A and B: all requests of a level; change: B compared with A. The interval is that of the change between runs or "
    "sessions. Beside a verdict it is the one that decides: 95 % for all levels together (Holm), 90 % for equivalent; "
    "elsewhere it is 95 %."
)


def comparison_tables(pair: Pair) -> tuple[Table, ...]:
    """Return a table of verdicts and one of machine figures; none if there is no common level."""
    varied = load_title(pair.rows)
    verdicts = Table(
        "Side by side",
        (varied, "figure", "A", "B", "change", "interval", "verdict"),
        tuple(_cells(row, bool(pair.refused)) for row in pair.rows),
        (True, False, True, True, True, True, False),
        "" if pair.refused else _NOTE,
    )
    machine = Table(
        "Machines",
        (varied, "machine", "A", "B"),
        tuple(
            (f"{row.offered_load:g}", f"{row.figure}, {row.unit}", significant(row.before), significant(row.after))
            for row in pair.machine
        ),
        (True, False, True, True),
    )
    return tuple(table for table in (verdicts, machine) if table.rows)


def _cells(row: ComparisonRow, refused: bool) -> tuple[str, ...]:
    interval = row.interval
    return (
        f"{row.offered_load:g}",
        FIGURES[row.figure],
        _value(row.figure, row.before),
        _value(row.figure, row.after),
        signed_percent(row.change),
        MISSING if interval is None else f"{signed_percent(interval.low)} … {signed_percent(interval.high)}",
        "refused" if refused else row.verdict.word if row.verdict else "",
    )


def _value(figure: Figure, value: float | None) -> str:
    return seconds(value, 4) if figure == "ttft_s" else significant(value)
