"""Saved sessions as a leaderboard, and two or more of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.text import plain
from swarmtui.tui.paint import Line, left, right, wrapped
from swarmtui.tui.views.numbers import NOTHING, rate, seconds

if TYPE_CHECKING:
    from swarmtui.analysis.compare import Comparison, Row
    from swarmtui.sessions.listing import Listed

By = Literal["newest", "best", "model", "workload"]
BY: tuple[By, ...] = ("newest", "best", "model", "workload")


class SessionLine(NamedTuple):
    id: str
    marked: bool
    cells: tuple[str, ...]
    doubtful: bool


def session_lines(rows: Sequence[Listed], by: By, words: str, marked: set[str]) -> list[SessionLine]:
    wanted = words.lower().split()
    kept = [row for row in rows if all(word in _searched(row) for word in wanted)]
    match by:
        case "best":
            kept.sort(key=lambda row: -(row.best_out_tps_steady or 0.0))
        case "model":
            kept.sort(key=lambda row: (row.model, -(row.best_out_tps_steady or 0.0)))
        case "workload":
            kept.sort(key=lambda row: (row.workload, -(row.best_out_tps_steady or 0.0)))
        case "newest":
            pass
    return [_line(row, row.id in marked) for row in kept]


def comparison_lines(found: Comparison, names: dict[str, str], width: int) -> list[Line]:
    """Each against the first: what changed, what it did, and how sure that is."""
    lines: list[Line] = []
    for pair in found.pairs:
        lines += [[(f" {names.get(pair.a, pair.a)}  →  {names.get(pair.b, pair.b)}", "title")]]
        lines += [[(f" {text}", "bold")] for text in wrapped(plain(pair.sentence), width - 2)]
        for why in pair.refused:
            lines += [[(f" ✖ {text}", "bad")] for text in wrapped(plain(why), width - 4)]
        for note in pair.notes:
            lines += [[(f" ▲ {text}", "warn")] for text in wrapped(plain(note), width - 4)]
        for difference in (*pair.flags, *pair.differences):
            lines.append([(f"   {plain(str(difference))}", "second")])
        lines.append([(f"   {'C':>4}  {'figure':<16}{'before':>10}{'after':>10}  verdict", "dim")])
        lines += [_row(row) for row in pair.rows]
        for only, name in ((pair.only_a, pair.a), (pair.only_b, pair.b)):
            if only:
                lines.append([(f"   only in {names.get(name, name)}: C={','.join(map(str, only))}", "dim")])
        lines.append([])
    return lines


def _row(row: Row) -> Line:
    names = {"out_tps_steady": "tok/s steady", "out_tps_wall": "tok/s wall", "per_stream_tps": "tok/s a stream"}
    words = seconds if row.figure == "ttft_s" else rate
    verdict = row.verdict
    change = "" if verdict is None or verdict.change is None else f"{verdict.change * 100:+.1f} % "
    styles = {"faster": "good", "better": "good", "slower": "bad", "worse": "bad"}
    said = NOTHING if verdict is None else f"{change}{verdict.word}"
    return [
        (f"   {row.c:>4}  {names.get(row.figure, 'TTFT'):<16}", ""),
        (f"{words(row.before):>10}{words(row.after):>10}  ", ""),
        (said, styles.get(verdict.word, "dim") if verdict else "dim"),
    ]


def _searched(row: Listed) -> str:
    tags = getattr(row, "tags", {})
    return " ".join([row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", str(tags)]).lower()


def _line(row: Listed, marked: bool) -> SessionLine:
    best = NOTHING if row.best_c is None else f"{rate(row.best_out_tps_steady)} at C={row.best_c}"
    model = f"(sim) {row.model}" if row.simulated else row.model
    cells = (
        left(row.created[:16].replace("T", " ") or row.id, 17),
        left(plain(row.label), 14),
        left(plain(model), 24),
        left(plain(row.workload), 14),
        right(best, 16),
        right(NOTHING if row.requests is None else f"{row.requests:,}", 9),
        "  " + plain(row.problem or row.state or "unreadable"),
    )
    return SessionLine(row.id, marked, cells, row.problem is not None or row.state in ("failed", "interrupted"))


TITLES = f"   {'made (UTC)':<17}{'label':<14}{'model':<24}{'workload':<14}{'best tok/s':>16}{'requests':>9}  state"
