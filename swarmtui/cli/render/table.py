"""Render sessions and levels as aligned plain text whose tables are also valid Markdown."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.capacity.agents import capacity_sentences, cost_per_million
from swarmtui.analysis.capacity.scaling import best_level
from swarmtui.analysis.quality.checklist import checklist_sentence
from swarmtui.model.findings import Check
from swarmtui.model.load import traits
from swarmtui.model.plan import is_open_loop, load_title
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import MISSING, factor, percent, short, significant
from swarmtui.sessions.export.load_tables import load_tables
from swarmtui.sessions.export.markdown import markdown_table
from swarmtui.sessions.export.report import (
    event_lines,
    goodput_table,
    machine_table,
    remarks,
    session_facts,
    token_rate,
)
from swarmtui.sessions.index import SessionRow
from swarmtui.text import display_width, sanitize, truncate

BEST, INCOMPLETE = "▸", "○"
MAX_WIDTH = 100
_MIN_WIDTH = 40
_SIGNS = {"not ok": "✗", "unknown": "?", "not applicable": "–"}


class _Column(NamedTuple):
    key: str
    title: str
    cell: Callable[[Level], str]
    unit: str = ""


_COLUMNS = (
    _Column("n", "n", lambda level: str(level.n)),
    _Column("errors", "err", lambda level: str(level.errors)),
    _Column("cap_hits", "cap", lambda level: str(level.cap_hits)),
    _Column("steady", "steady", lambda level: token_rate(level, level.out_tps_steady)),
    _Column("wall", "wall", lambda level: token_rate(level, level.out_tps_wall)),
    _Column("stream", "stream", lambda level: token_rate(level, level.per_stream_tps.mean)),
    _Column("ttft", "TTFT", lambda level: significant(level.ttft_s.median, 3), " s"),
    _Column("tpot", "TPOT", lambda level: token_rate(level, level.tpot_s.mean, 1e3), " ms"),
    _Column("e2e", "e2e", lambda level: significant(level.e2e_s.median, 3), " s"),
    _Column("in_flight", "in flight", lambda level: significant(level.c_achieved, 3)),
    _Column("slowdown", "slowdown", lambda level: percent(level.slowdown)),
    _Column("scaling", "scaling", lambda level: factor(level.rate_speedup)),
)
# Dropped in this order on a narrow terminal: first what can be derived from other columns.
_OPTIONAL_COLUMNS = ("tpot", "e2e", "slowdown", "in_flight", "scaling", "wall", "cap_hits", "errors", "n")


def _legend(batches: bool, has_best: bool, counted: str) -> str:
    """`counted` says which time the steady rate is about."""
    headline = "wall" if batches else "steady"
    best = f" {BEST}: best {headline} before a cliff, at the lowest C within 1 % of it." if has_best else ""
    return (
        f"steady, wall and stream are output tok/s: {counted}, from the first request to the last "
        "token, and of one stream (mean). TTFT and e2e in s: median. TPOT in ms: "
        "mean. in flight: mean, Σ (last token − sent) / wall. slowdown: of the stream rate compared with C=1. "
        f"scaling: {headline} compared with C=1.{best}"
    )


_OPEN_LOOP_LEGEND = (
    "rate: requests per second, open loop. wall and stream are output tok/s: from the first request to the last "
    "token, and of one stream (mean). TTFT and e2e in s (median) count "
    "from the time at which a request was due. in flight: mean, from when a request was sent."
)


def level_table(levels: Sequence[Level]) -> str:
    """The levels, a legend of the columns, and notes on single levels."""
    if not levels:
        return "nothing was measured\n"
    unused = set() if any(level.cap_hits for level in levels) else {"cap_hits"}
    if is_open_loop(levels):
        unused |= {"steady", "slowdown", "scaling"}
    best = best_level(levels)
    table, left_out = _fit_table(levels, best, unused)
    batches = not any(level.headline_is_steady for level in levels)
    sessions = any(traits(level.load).replayed for level in levels)
    counted = "while C sessions were played" if sessions else "while C requests were in flight"
    legend = _OPEN_LOOP_LEGEND if is_open_loop(levels) else _legend(batches, best is not None, counted)
    if not all(level.has_complete_run for level in levels):
        legend += f" {INCOMPLETE}: incomplete, not compared with the others."
    notes = [line for remark in remarks(levels) for line in wrap(sanitize(remark))]
    return "\n".join([*table, "", *left_out, *wrap(legend), *notes]) + "\n"


def _fit_table(levels: Sequence[Level], best: Level | None, unused: set[str]) -> tuple[list[str], list[str]]:
    """The table with as many columns as fit the page, and a line that names the dropped ones."""
    dropped: list[_Column] = []
    units = True
    while True:
        shown = [column for column in _COLUMNS if column.key not in unused and column not in dropped]
        titles = [load_title(levels), *(column.title + (column.unit if units else "") for column in shown)]
        rows = [
            [f"{_mark(level, best)}{level.offered_load:g}", *(column.cell(level) for column in shown)]
            for level in levels
        ]
        table = align_table(titles, rows, right=[True] * len(titles))
        optional = [column for key in _OPTIONAL_COLUMNS for column in shown if column.key == key]
        if display_width(table[0]) <= page_width() or not (units or optional):
            break
        if units:
            units = False
        else:
            dropped.append(optional[0])
    names = ", ".join(column.title for column in dropped)
    hint = f"not shown for lack of space: {names}. A wider terminal or `swarmtui export` shows them."
    return table, wrap(hint) if dropped else []


def _mark(level: Level, best: Level | None) -> str:
    return BEST if level is best else "" if level.has_complete_run else INCOMPLETE


def tables_text(summary: Summary) -> str:
    """The tables of the load mode, the SLO and the machine; empty for a plain closed loop without telemetry."""
    parts = []
    for table in (*load_tables(summary), goodput_table(summary), machine_table(summary.levels)):
        if not table.rows:
            continue
        rows = [[sanitize(cell) for cell in row] for row in table.rows]
        lines = [sanitize(table.title), "", *align_table(list(table.columns), rows, table.right)]
        lines += ["", *wrap(sanitize(table.note))] if table.note else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""


def findings_text(summary: Summary) -> str:
    """The capacity, the sweet spot and the cliff, the cost, and the publication checklist in a sentence."""
    enough = len(summary.levels) > 1 or is_open_loop(summary.levels)
    sentences = capacity_sentences(summary.capacity) if summary.capacity else []
    sentences += [summary.scaling.sentence] if summary.scaling and enough else []
    cost = cost_per_million(best_level(summary.levels), summary.session.plan.price_per_hour)
    if cost is not None and not summary.capacity:
        sentences.append(f"{short(cost)} per million output tokens at the best level")
    sentences += [checklist_sentence(summary.checks)] if summary.checks else []
    return "".join(f"{line}\n" for sentence in sentences for line in wrap(sanitize(sentence)))


def session_table(sessions: Sequence[SessionRow]) -> str:
    if not sessions:
        return "no sessions yet\n"
    titles = ["id", "state", "model", "workload", "label", "requests", "best tok/s"]
    rows = [
        [
            sanitize(row.id),
            row.state or "unreadable",
            sanitize(f"(sim) {row.model}" if row.simulated else row.model),
            sanitize(row.workload),
            sanitize(row.label),
            MISSING if row.requests is None else str(row.requests),
            f"{'~' if row.chunks_counted else ''}{significant(row.best_out_tps)} at {row.best_at}"
            if row.best_at
            else MISSING,
        ]
        for row in sessions
    ]
    right = [False] * 5 + [True] * 2
    problems = [
        line for row in sessions if row.problem for line in wrap(f"{sanitize(row.id)}: {sanitize(row.problem)}")
    ]
    table = align_table(titles, rows, right, {0: 20, 2: 6, 3: 8, 4: 5})
    return "\n".join([*table, *([""] if problems else []), *problems]) + "\n"


def workload_table(rows: Sequence[tuple[str, str, int | None, str, str]]) -> str:
    """Rows of name, kind, number of prompts, input and output length."""
    cells = [
        [sanitize(name), kind, MISSING if prompts is None else str(prompts), sanitize(length_in), sanitize(length_out)]
        for name, kind, prompts, length_in, length_out in rows
    ]
    titles = ["name", "kind", "prompts", "in", "out"]
    right = [False, False, True, False, False]
    return "\n".join(align_table(titles, cells, right, {3: 12, 4: 12})) + "\n"


def session_text(summary: Summary) -> str:
    """A whole session: what was measured, its tables, findings and events."""
    session = summary.session
    facts = (
        *session_facts(summary),
        ("State", f"{summary.state}: {summary.message}" if summary.message else summary.state),
        ("Client host", session.client.host),
        ("Label", session.label),
        ("Baseline", session.previous),
    )
    lines = [
        line
        for name, value in facts
        if value
        for line in textwrap.wrap(
            sanitize(value), page_width(), initial_indent=f"{name.lower():<12} ", subsequent_indent=" " * 13
        )
    ]
    found = "\n".join([findings_text(summary).rstrip("\n"), *_failed_checks(summary.checks)]).strip("\n")
    tables = [text.rstrip("\n") for text in (level_table(summary.levels), tables_text(summary))]
    parts = ["\n".join(lines), *tables, found, "\n".join(map(sanitize, event_lines(summary)))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _failed_checks(checks: Sequence[Check]) -> list[str]:
    """The lines of the publication checklist that do not pass, with value and limit."""
    return [
        line
        for check in checks
        if check.state != "ok"
        for line in wrap(sanitize(f"{_SIGNS[check.state]} {check.name}: {_reason(check)}: {check.sentence}"))
    ]


def _reason(check: Check) -> str:
    return check.state if check.state == "not applicable" else f"{check.value}; required {check.limit}"


def page_width() -> int:
    """The width of the terminal, at most 100; always 100 if stdout is a pipe or a file."""
    if not sys.stdout.isatty():
        return MAX_WIDTH
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return MAX_WIDTH
    return max(_MIN_WIDTH, min(MAX_WIDTH, columns)) if columns else MAX_WIDTH


def wrap(text: str) -> list[str]:
    return textwrap.wrap(text, page_width(), subsequent_indent="  ")


def align_table(
    titles: list[str], rows: Sequence[Sequence[str]], right: Sequence[bool], least: dict[int, int] | None = None
) -> list[str]:
    """Lay out a Markdown table; `least` maps the columns that may be truncated to their smallest width."""
    return markdown_table(titles, _shrink_columns(titles, rows, least or {}), right, page_width())


def _shrink_columns(titles: list[str], rows: Sequence[Sequence[str]], least: dict[int, int]) -> list[list[str]]:
    """Truncate cells until the table fits, widest column first.

    If that is not enough, the spaces next to the bars are dropped too, and cells keep that room.
    """
    rows = [[cell.replace("|", "¦") for cell in row] for row in rows]
    full = [max(map(display_width, column)) for column in zip(titles, *rows, strict=True)]
    for separator in (3, 2, 1):
        widths, room = list(full), page_width() - separator * len(full) - 1
        while sum(widths) > room and (wider := [column for column, width in least.items() if widths[column] > width]):
            widths[max(wider, key=lambda column: widths[column])] -= 1
        if sum(widths) <= room:
            break
    return [[truncate(cell, w) for cell, w in zip(row, widths, strict=True)] for row in rows]
