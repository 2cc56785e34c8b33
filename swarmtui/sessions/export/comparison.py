"""Two sessions beside each other as tables: the same for `swarmtui compare` and for reports."""

from __future__ import annotations

from swarmtui.analysis.compare.sessions import FIGURES, ComparisonRow, Figure, MachineRow, Pair
from swarmtui.numbers import MISSING, signed_percent, significant
from swarmtui.sessions.export.structs import Table

HOW = "A and B: over all requests of a level. change and 95 %: B over A, by the means of their runs."


def comparison_tables(pair: Pair) -> tuple[Table, ...]:
    """What was judged, and what the machine did beside it; nothing where they have no level in common."""
    varied = "rate" if any(row.rate is not None for row in pair.rows) else "C"
    judged = Table(
        "Side by side",
        (varied, "figure", "A", "B", "change", "95 %", "verdict"),
        tuple(_cells(row) for row in pair.rows),
        (True, False, True, True, True, True, False),
        "" if pair.refused else HOW,
    )
    machine = Table(
        "Machines",
        (varied, "machine", "A", "B"),
        tuple(_beside(beside) for beside in pair.machine),
        (True, False, True, True),
    )
    return tuple(table for table in (judged, machine) if table.rows)


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    found = row.verdict
    interval = found.interval if found else None
    return (
        f"{row.offered_load:g}",
        FIGURES[row.figure][0],
        _amount(row.figure, row.before),
        _amount(row.figure, row.after),
        MISSING if found is None or found.change is None else signed_percent(found.change),
        MISSING if interval is None else f"{signed_percent(interval.low)} … {signed_percent(interval.high)}",
        "refused" if found is None else found.word,
    )


def _beside(beside: MachineRow) -> tuple[str, ...]:
    return (
        f"{beside.offered_load:g}",
        f"{beside.figure}, {beside.unit}",
        significant(beside.before),
        significant(beside.after),
    )


def _amount(figure: Figure, value: float | None) -> str:
    if figure != "ttft_s" or value is None:
        return significant(value)
    return f"{significant(1e3 * value, 3)} ms" if value < 10 else f"{significant(value, 3)} s"
