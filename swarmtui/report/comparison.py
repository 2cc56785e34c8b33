"""Build the comparison of sessions: what differs, their levels side by side, the verdicts, and a leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from swarmtui.analysis.compare.agents import AgentsWord
from swarmtui.analysis.compare.differences import Difference, option_name
from swarmtui.analysis.compare.leaderboard import LeaderboardRow
from swarmtui.analysis.compare.sessions import (
    FIGURES,
    Comparison,
    ComparisonRow,
    Figure,
    MachineRow,
    Pair,
    headline_row,
)
from swarmtui.analysis.compare.verdicts import VerdictWord, interval_text, verdict_text
from swarmtui.model.plan import load_title
from swarmtui.numbers import milliseconds, seconds, short_percent, signed_percent
from swarmtui.report.scales import value_axis
from swarmtui.report.table import Block, Cell, Code, Column, Sentence, Table, Value, tabulate

_CODES: dict[str, Code] = {
    "faster": "faster", "slower": "slower", "same": "same", "refused": "refused",
    "more agents": "faster", "fewer agents": "slower",
}  # fmt: skip
# What is better, worse, as good or not decided, wherever something is compared.
SIGNS: dict[Code, str] = {"faster": "▲", "slower": "▼", "same": "=", "unsure": "?", "refused": "✗"}
# The cells of a bar on each side of zero.
_BAR = 16
_FIGURES: dict[Figure, str] = {"out_tps_steady": "steady tok/s", "out_tps_wall": "wall tok/s"}
_NOTE = (
    "A and B: all requests of a level; change: B compared with A. The interval is that of the change between runs or "
    "sessions. Beside a verdict it is the one that decides: 95 % for all levels together (Holm), 90 % for same; "
    "elsewhere it is 95 %."
)


def verdict_cell(word: VerdictWord | AgentsWord | Literal["refused"] | None, before: str = "") -> Cell:
    """Show a verdict, or how many runs there must be for one."""
    text = "not comparable" if word == "refused" else word or verdict_text(None)
    code = _CODES.get(word or "", "unsure")
    return Cell(f"{SIGNS[code]} {before}{text}", code)


def comparison_blocks(found: Comparison, names: Mapping[str, str]) -> list[Block]:
    """Compare each session with the first, then list all; `names` are shown beside the ids."""
    blocks = [block for pair in found.pairs for block in pair_blocks(pair, names)]
    return blocks + (leaderboard_blocks(found.leaderboard) if len(found.leaderboard) > 2 else [])


def pair_blocks(pair: Pair, names: Mapping[str, str]) -> list[Block]:
    sides = (("A", pair.a, pair.only_a_names), ("B", pair.b, pair.only_b_names))
    labels = [names.get(name) or name for _, name, _ in sides]
    blocks: list[Block] = [
        Sentence(f"{side}: {label if name in label else f'{label} ({name})'}", "title" if side == "A" else "lead")
        for (side, name, _), label in zip(sides, labels, strict=True)
    ]
    blocks += [Sentence(pair.sentence, "lead")]
    blocks += [Sentence(f"✗ {refusal}", "refused") for refusal in pair.refused]
    blocks += [Sentence(f"note: {note}", "note") for note in pair.notes]
    flags = [flag for flag in pair.flags if not _is_named(flag, labels)]
    blocks += [Sentence(f"flags: {flag}", "difference") for flag in flags]
    others = [difference for difference in pair.differences if not _follows(difference, pair.flags)]
    blocks += [Sentence(f"other: {difference}", "difference") for difference in others]
    blocks += [*change_tables(pair), *comparison_tables(pair)]
    headline = headline_row(pair)
    blocks += [
        Sentence(f"{row.name}, {FIGURES[row.figure]}: {row.verdict.sentence}", "detail")
        for row in pair.rows
        if row.verdict and (row is not headline or pair.agents)
    ]
    return blocks + [Sentence(f"only in {side}: {', '.join(only)}", "detail") for side, _, only in sides if only]


def _is_named(flag: Difference, labels: Sequence[str]) -> bool:
    """Whether the names of both sessions already have the flag."""
    sides = zip((flag.before, flag.after), labels, strict=True)
    return all(value and f"{option_name(flag.what)} {value}" in label for value, label in sides)


def _follows(difference: Difference, flags: Sequence[Difference]) -> bool:
    """Whether the slots or the context changed by the same factor as a flag did, which says it: replicas share it."""
    value = _numbers(difference) if difference.code in ("slots", "context") else None
    return value is not None and any(
        found is not None and found[0] * value[1] == found[1] * value[0] for found in map(_numbers, flags)
    )


def _numbers(difference: Difference) -> tuple[int, int] | None:
    before, after = difference.before or "", difference.after or ""
    return (int(before), int(after)) if before.isdecimal() and after.isdecimal() else None


def comparison_tables(pair: Pair) -> list[Table]:
    """Return a table of verdicts and one of machine figures; none if there is no common level."""
    refused = bool(pair.refused)

    def figure(value: float | None, row: ComparisonRow) -> Value:
        return None if value is None else seconds(value, 4) if row.figure == "ttft_s" else value

    load = load_title(pair.rows)
    verdicts: list[Column[ComparisonRow]] = [
        Column("load", load, lambda row: f"{row.offered_load:g}"),
        Column("figure", "figure", lambda row: _FIGURES.get(row.figure, FIGURES[row.figure]), right=False, least=8),
        Column("a", "A", lambda row: figure(row.before, row)),
        Column("b", "B", lambda row: figure(row.after, row)),
        Column("change", "change", lambda row: row.change, signed_percent),
        Column(
            "interval", "interval",
            lambda row: interval_text(row.interval, " … ") if row.interval else None,
        ),
        Column(
            "verdict", "verdict",
            lambda row: verdict_cell("refused") if refused else verdict_cell(row.verdict.word) if row.verdict else "",
            right=False,
        ),
    ]  # fmt: skip
    machine: list[Column[MachineRow]] = [
        Column("load", load, lambda row: f"{row.offered_load:g}"),
        Column("figure", "machine", lambda row: f"{row.figure}, {row.unit}", right=False),
        Column("a", "A", lambda row: row.before),
        Column("b", "B", lambda row: row.after),
    ]
    tables = (
        tabulate("Side by side", pair.rows, verdicts, "" if refused else _NOTE, drop=("interval",)),
        tabulate("Machines", pair.machine, machine),
    )
    return [table for table in tables if table.rows]


def change_tables(pair: Pair) -> list[Table]:
    """Show the change of each level as a bar around zero with its interval; none if no level was compared."""
    rows = [row for row in pair.rows if row.leads and row.change is not None]
    known = [
        abs(value)
        for row in rows
        for value in (row.change, *((row.interval.low, row.interval.high) if _is_known(row) and row.interval else ()))
        if value is not None
    ]
    top = value_axis(known, 2).high if any(known) else 0.01
    code = {row.key: verdict_cell(row.verdict.word if row.verdict else None) for row in rows}
    ends = f"−{short_percent(top)} ", f" +{short_percent(top)}"
    columns: list[Column[ComparisonRow]] = [
        Column("load", load_title(pair.rows), lambda row: f"{row.offered_load:g}"),
        Column("verdict", "verdict", lambda row: code[row.key], right=False),
        Column("change", "change", lambda row: Cell(signed_percent(row.change), code[row.key].code)),
        Column(
            "bar", f"{ends[0]:·<{_BAR}}0{ends[1]:·>{_BAR}}",
            lambda row: Cell(change_bar(row, top), code[row.key].code), right=False,
        ),
        Column("interval", "interval", lambda row: interval_text(row.interval, " … ") if row.interval else None),
    ]  # fmt: skip
    figure = next((FIGURES[row.figure] for row in rows), "")
    return [tabulate(f"Change of {figure}", rows, columns, drop=("interval",))] if rows else []


def _is_known(row: ComparisonRow) -> bool:
    return row.interval is not None and interval_text(row.interval, "").startswith(("+", "−"))


def change_bar(row: ComparisonRow, top: float) -> str:
    """Draw a change around zero: `·····│━━━├●┤·`; the brackets are the ends of its interval."""

    def place(value: float) -> int:
        return _BAR + round(min(1.0, max(-1.0, value / top)) * _BAR)

    cells = ["·"] * (2 * _BAR + 1)
    at = place(row.change or 0.0)
    cells[min(_BAR, at) : max(_BAR, at) + 1] = "━" * (abs(at - _BAR) + 1)
    if _is_known(row) and row.interval is not None:
        low, high = place(row.interval.low), place(row.interval.high)
        cells[low : high + 1] = "─" * (high - low + 1)
        cells[low], cells[high] = "├", "┤"
    cells[_BAR] = "│"
    cells[at] = "●"
    return "".join(cells)


def leaderboard_blocks(rows: Sequence[LeaderboardRow]) -> list[Block]:
    """Tabulate all sessions, then what changed from each to the next."""
    columns: list[Column[LeaderboardRow]] = [
        Column("best", "", lambda row: Cell("▸", "best") if row.best_of_model else ""),
        Column("session", "session", lambda row: row.id, right=False, least=20),
        Column("label", "label", lambda row: row.label, right=False, least=8),
        Column("model", "model", lambda row: row.model, right=False, least=6),
        Column("alone", "C=1 tok/s", lambda row: row.out_tps_alone),
        Column("best_tps", "best tok/s", lambda row: row.best_out_tps),
        Column("at", "at", lambda row: row.best_at or None),
        Column("tpot", "TPOT", lambda row: row.tpot_s, milliseconds),
        Column("ttft", "TTFT", lambda row: row.ttft_s, seconds),
    ]
    title = "All sessions in the given order; ▸ is the best of its model"
    changes = [Sentence(f"{row.id}: {'; '.join(row.changes)}", "difference") for row in rows if row.changes]
    return [Sentence(title, "title"), tabulate("", rows, columns, drop=("label", "model", "tpot")), *changes]
