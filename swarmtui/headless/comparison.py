"""`swarmtui compare` as plain text: what differs, levels side by side, verdicts, and the stages of many sessions."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare import FIGURES, Comparison, Figure, Pair, Row, Stage
from swarmtui.headless.table import aligned, narrowed, wrapped
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.text import plain


def comparison_text(found: Comparison) -> str:
    parts = [_pair(pair) for pair in found.pairs]
    if len(found.stages) > 2:
        parts.append(stages_text(found.stages))
    return "\n\n".join(parts) + "\n"


def stages_text(stages: Sequence[Stage]) -> str:
    """One change a row, as far as people changed one thing at a time; ▸ is the best of its model."""
    titles = ["session", "label", "model", "C=1 tok/s", "best tok/s", "at C", "TPOT ms", "TTFT s"]
    rows = [
        [
            f"{'▸' if stage.best_of_model else ''}{plain(stage.id)}",
            plain(stage.label),
            plain(stage.model),
            amount(stage.out_tps_alone),
            amount(stage.best_out_tps),
            NOTHING if stage.best_c is None else str(stage.best_c),
            amount(None if stage.tpot_s is None else 1e3 * stage.tpot_s, 3),
            amount(stage.ttft_s, 3),
        ]
        for stage in stages
    ]
    right = [False] * 3 + [True] * 5
    lines = aligned(titles, narrowed(titles, rows, {0: 20, 1: 5, 2: 6}), right=right)
    changes = [
        line
        for stage in stages
        if stage.changes
        for line in wrapped(f"{plain(stage.id)}: {plain('; '.join(stage.changes))}")
    ]
    return "\n".join([*lines, "", *changes])


def _pair(pair: Pair) -> str:
    head = [f"A  {plain(pair.a)}", f"B  {plain(pair.b)}"]
    lists = (
        ("flags", [str(difference) for difference in pair.flags]),
        ("other", [str(difference) for difference in pair.differences]),
        ("note", list(pair.notes)),
    )
    head += [line for name, items in lists for item in items for line in wrapped(f"{name:<6} {plain(item)}")]
    rows = aligned(
        [_varied(pair), "figure", "A", "B", "change", "95 %", "verdict"],
        [_cells(row) for row in pair.rows],
        right=[True, False, True, True, True, True, False],
    )
    if pair.machine:
        cells = [
            [f"{m.rate or m.c:g}", f"{m.figure}, {m.unit}", amount(m.before), amount(m.after)] for m in pair.machine
        ]
        rows += ["", *aligned([_varied(pair), "machine", "A", "B"], cells, right=[True, False, True, True])]
    tail = [line for row in pair.rows if _explained(row) for line in wrapped(_explanation(row))]
    for name, only in (("A", pair.only_a), ("B", pair.only_b)):
        if only:
            tail.append(f"only in {name}: {','.join(f'{at:g}' for at in only)}")
    return "\n".join([*head, "", *rows, "", *wrapped(plain(pair.sentence)), *tail])


def _varied(pair: Pair) -> str:
    return "rate" if any(row.rate is not None for row in pair.rows) else "C"


def _cells(row: Row) -> list[str]:
    found = row.verdict
    interval = found.interval if found else None
    return [
        f"{row.at:g}",
        FIGURES[row.figure][0],
        _amount(row.figure, row.before),
        _amount(row.figure, row.after),
        NOTHING if found is None or found.change is None else _signed(found.change),
        NOTHING if interval is None else f"{_signed(interval.low)} … {_signed(interval.high)}",
        "refused" if found is None else found.word,
    ]


def _explained(row: Row) -> bool:
    return row.figure == "out_tps_steady" and row.verdict is not None


def _explanation(row: Row) -> str:
    return f"{row.name}, {FIGURES[row.figure][0]}: {row.verdict.sentence}" if row.verdict else ""


def _amount(figure: Figure, value: float | None) -> str:
    if figure != "ttft_s" or value is None:
        return amount(value)
    return f"{amount(1e3 * value, 3)} ms" if value < 10 else f"{amount(value, 3)} s"


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{abs(100 * share):.1f} %"
