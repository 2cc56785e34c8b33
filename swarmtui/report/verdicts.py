"""Show verdicts with their signs, colours and words, wherever something is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from swarmtui.analysis.compare.agents import AgentsWord
from swarmtui.analysis.compare.verdicts import VerdictWord, verdict_text
from swarmtui.numbers import signed_percent
from swarmtui.report.table import Cell, Code

if TYPE_CHECKING:
    from swarmtui.analysis.compare.levels import ComparisonRow
    from swarmtui.analysis.compare.sessions import Pair

Word = VerdictWord | AgentsWord | Literal["refused"] | None

_CODES: dict[str | None, Code] = {
    "faster": "faster", "slower": "slower", "same": "same", "refused": "refused",
    "more agents": "faster", "fewer agents": "slower",
}  # fmt: skip
_LIKELY: dict[str | None, Code] = {
    "faster": "likely faster", "slower": "likely slower",
}  # fmt: skip
# What is better, worse, as good or not decided.
SIGNS: dict[Code, str] = {
    "faster": "▲", "slower": "▼", "same": "=", "likely faster": "△", "likely slower": "▽",
    "unsure": "?", "refused": "✗",
}  # fmt: skip
# Half-widths below this leave tenths of a percent.
_FINE = 0.01


def verdict_code(word: Word, likely: str | None) -> Code:
    """Return the code of a verdict, which has its sign and its colour; without one, that of what is likely."""
    return _LIKELY[likely] if likely else _CODES.get(word, "unsure")


def pair_code(pair: Pair) -> Code:
    return verdict_code(pair.verdict, pair.likely)


def row_code(row: ComparisonRow) -> Code:
    return verdict_code(row.word, row.likely)


def change_cell(row: ComparisonRow, *, doubted: bool = False) -> Cell:
    """Show a change with the sign of its verdict; nothing of sessions that are `doubted` is sure."""
    code = "unsure" if doubted else row_code(row)
    return Cell(f"{SIGNS[code]} {change_percent(row)}", code)


def verdict_words(word: Word, likely: str | None) -> str:
    """Return a verdict, what is likely, or how many runs are missing."""
    if likely:
        return f"likely {likely}"
    return "not comparable" if word == "refused" else word or verdict_text(None)


def verdict_cell(word: Word, before: str = "", likely: str | None = None) -> Cell:
    """Show a verdict with its sign; after `before`, agents or a change, the sign may do."""
    code = verdict_code(word, likely)
    said = before and (likely or word) in ("more agents", "fewer agents", "not sure yet")
    words = "likely" if before and likely else verdict_words(word, likely)
    return Cell(f"{SIGNS[code]} {before.rstrip() if said else before + words}", code)


def change_percent(row: ComparisonRow) -> str:
    """`−16 %`: a change without an interval of its own has no more digits than the figures leave."""
    is_known = row.interval is not None and not row.interval.is_wide
    return signed_percent(row.change, 0 if not is_known and (row.half_width or 0.0) >= _FINE else 1)
