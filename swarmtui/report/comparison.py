"""Build the comparison of sessions: what differs, their levels side by side, the verdicts, and a leaderboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, context_change, follows_flag
from swarmtui.analysis.compare.levels import FIGURES, TIMES, ComparisonRow, Figure
from swarmtui.analysis.compare.machine import MachineRow
from swarmtui.analysis.compare.sessions import Comparison, Pair, headline_row
from swarmtui.analysis.compare.verdicts import MIN_RUNS, interval_text
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.experiments.baseline import describe_changes
from swarmtui.model.plan import LevelKey, load_title, offered_load
from swarmtui.numbers import percent, rate, seconds, seconds_change, signed_percent, significant
from swarmtui.report.answer import app_step, leading_steps, steps_text
from swarmtui.report.changes import change_tables
from swarmtui.report.lists import leaderboard_blocks
from swarmtui.report.table import Block, Cell, Code, Facts, Fields, Sentence, Table, Value, keyed, tabulate
from swarmtui.report.verdicts import SIGNS, change_cell, change_percent, pair_code, row_code

# Codes of differences that are named before the answer.
_UNLIKE = ("model", "quantisation", "workload", "simulated", "client_version")
_FIGURES: dict[Figure, str] = {"out_tps_steady": "steady tok/s", "out_tps_wall": "wall tok/s"}
_NOTE = "A and B: all requests of a level; change: B compared with A; △ ▽: likely better, worse."
_UNSURE = " ?: may be chance."
# Why two numbers of agents are known to differ.
_DECIDES = ("beyond_repeats", "same_levels")
# Notes that are lines of the answer.
_SAID_FIRST = ("same_output", "machine_changed", "disturbed_level", "disturbed_runs")
_REPEAT = "compare sessions of the same plan: R on a result, or `swarmtui run --baseline`, repeats one"
# A rate of each agent that falls by this much is part of the price of more agents.
_SLOWER = 0.1
_MORE_RUNS = f"start a run with {MIN_RUNS} in the field runs of the setup screen"


class AnswerLine(NamedTuple):
    """One line of the answer of a comparison; the code of the first says whether it is better."""

    name: str
    text: str
    code: Code | None = None

    @property
    def signed(self) -> str:
        return f"{SIGNS[self.code]} {self.text}" if self.code else self.text


def comparison_blocks(found: Comparison, names: Mapping[str, str]) -> list[Block]:
    """Compare each session with the first, then list all; `names` are shown beside the ids."""
    blocks: list[Block] = []
    for pair in found.pairs:
        unlike = unlike_text(pair)
        blocks += [Sentence(unlike, "note")] if unlike else []
        blocks += [pair_answer(pair, names), *pair_blocks(pair)]
    return [*blocks, *leaderboard_blocks(found.leaderboard)]


def closing_answers(found: Comparison, names: Mapping[str, str]) -> list[Block]:
    """Repeat the verdict of each pair, for the end of what may have scrolled away."""
    several = len(found.pairs) > 1
    rows = (
        (line.name, f"{names.get(pair.b) or pair.b}: {line.signed}" if several else line.signed)
        for pair in found.pairs
        for line in answer_lines(pair)[:1]
    )
    return [Facts(tuple(rows), answer=True)]


def unlike_text(pair: Pair) -> str:
    """Name what makes two sessions different things to measure; empty if nothing does."""
    found = [difference for difference in pair.differences if difference.code in _UNLIKE]
    return f"not alike: {', '.join(map(str, found))}" if found else ""


def pair_answer(pair: Pair, names: Mapping[str, str]) -> Facts:
    """Say in a few lines what changed, whether it helped, why, and what to try next."""
    sides = (("A", pair.a), ("B", pair.b))
    head = "; ".join(
        f"{side}: {label if name in label else f'{label} ({name})'}"
        for side, name in sides
        if (label := names.get(name) or name)
    )
    rows = tuple((line.name, line.signed) for line in answer_lines(pair))
    return Facts(rows, answer=True, head=head)


def answer_lines(pair: Pair, *, in_app: bool = False) -> list[AnswerLine]:
    """Return the answer of a comparison: agents before and after, what changed, how sure it is, and the rest of it.

    That is how the same load ran on both, the one thing to do next, and the limit if it is another one now. What is not
    known is left out. `in_app`: a key is named instead of a command, and only the price of the change, as a table shows
    how the same load ran.
    """
    lines = [
        AnswerLine("Agents" if pair.agents else "Result", pair.headline_text, pair_code(pair)),
        AnswerLine("Doubt", name_doubts(pair.doubts)),
        AnswerLine("Changed", _changed(pair)),
        AnswerLine("How sure", _how_sure(pair)),
        AnswerLine("Note", "; ".join(note.text for note in pair.notes if note.code in _SAID_FIRST)),
        *([] if in_app else [_same_load(pair)]),
        AnswerLine("Price", price_text(pair) if in_app else _context_text(pair)),
        AnswerLine("Try next", _try_next(pair, in_app)),
        AnswerLine("Why no more", _limits(pair)),
    ]
    return [line for line in lines if line.text]


def price_text(pair: Pair) -> str:
    """Say what a change took from each agent: a part of its rate, and of its context."""
    return "; ".join(filter(None, (_slower_text(pair), _context_text(pair))))


def change_text(pair: Pair) -> str:
    """`--parallel 2 → 4`: a context that fell is the price of it."""
    return describe_changes(pair, context=not _context_text(pair))


def _changed(pair: Pair) -> str:
    """`--parallel 2 → 4 since the run of 12:01; the run of 12:10 is left out: the host was busy`"""
    since = f" since the run of {pair.since}" if pair.since else ""
    return "; ".join(filter(None, (f"{change_text(pair)}{since}", pair.left_out)))


def _same_load(pair: Pair) -> AnswerLine:
    """Compare what both did with as many agents, the most that both kept.

    `Both at 8  810 → 1,110 tok/s in total (+37 %); first token 996 → 490 ms; each writes 437 → 190 tok/s (likely …)`
    Without capacities the first line has the output, and only the first token is left.
    """
    rows = {found.figure: found for found in pair.rows if found.key == pair.headline}
    lead, first, stream = headline_row(pair), rows.get("ttft_s"), rows.get("per_stream_tps")
    if lead is None or pair.refused:
        return AnswerLine("", "")
    times = ""
    if first and first.before is not None and first.after is not None:
        times = seconds_change(first.before, first.after)
    if not pair.agents:
        return AnswerLine("First token", f"{times} {lead.where} (median)" if times else "")
    decided = lead.word not in (None, "not sure yet")
    total = f"{lead.rates} in total ({change_percent(lead)})" if lead.change is not None else ""
    each = f"each writes {_sure_change(stream)}" if stream and stream.change is not None else ""
    whole = rows.get("e2e_s")
    answers = ""
    if whole and whole.before is not None and whole.after is not None:
        answers = f"a whole answer {seconds_change(whole.before, whole.after)}"
    parts = (
        pair.throughput if decided else total,
        f"first token {times}" if times else "",
        each,
        answers,
    )
    kept = lead.rate is None and lead.c <= min(pair.agents.before, pair.agents.after)
    name = f"Both at {lead.c}" if kept else f"At {lead.c}"
    return AnswerLine(name, "; ".join(filter(None, parts)), row_code(lead))


def _context_text(pair: Pair) -> str:
    """`each agent has 8,192 → 4,096 tokens of context`: known without a measurement; empty unless it fell."""
    before, now = context_change(pair.differences, pair.flags) or (0, 0)
    return f"each agent has {before:,} → {now:,} tokens of context" if now < before else ""


def _slower_text(pair: Pair) -> str:
    """`each agent writes 149 → 65 tok/s (likely −56 %) with 8 agents, but a whole answer takes 2.80 → 1.21 s (? −57 %)`

    A time that hardly changed is left out; runs in doubt do not tell.
    """
    at = {row.figure: row for row in pair.rows if row.key == pair.headline}
    stream, whole = at.get("per_stream_tps"), at.get("e2e_s")
    claims = pair.agents and pair.flags and not pair.refused and not pair.doubts
    if not claims or stream is None or (stream.change or 0.0) > -_SLOWER:
        return ""
    each = f"each agent writes {_sure_change(stream)} {stream.where}"
    takes = ""
    if whole and whole.before and whole.after and abs(whole.after / whole.before - 1.0) >= _SLOWER:
        but = "but " if whole.after < whole.before else ""
        takes = f"{but}a whole answer takes {seconds_change(whole.before, whole.after)} ({_sure_percent(whole)})"
    return ", ".join(filter(None, (each, takes)))


def _sure_change(row: ComparisonRow) -> str:
    """`437 → 190 tok/s (likely −57 %)`"""
    return f"{row.rates} ({_sure_percent(row)})"


def _sure_percent(row: ComparisonRow) -> str:
    """`likely −57 %`, or `? −16 %`: a change that is as sure as its bar shows."""
    change = change_percent(row)
    return f"likely {change}" if row.likely else f"{SIGNS['unsure']} {change}" if row_code(row) == "unsure" else change


def _how_sure(pair: Pair) -> str:
    """Say what the verdict is based on."""
    row = headline_row(pair)
    if pair.refused or (not pair.agents and (row is None or row.verdict is None or row.verdict.claim != "sessions")):
        return ""
    if pair.agents:
        but = ", but the runs are in doubt" if pair.doubts and pair.agents.reason in _DECIDES else ""
        return f"{pair.agents.why}{but}"
    if pair.verdict is None:
        return f"{MIN_RUNS} runs of each are needed"
    return "one session each, and restarts of a server can differ, too: `swarmtui ab` tests that"


def _try_next(pair: Pair, in_app: bool) -> str:
    """Say the one thing to do next: what decides, if the verdict is open, else what the figures point to."""
    if pair.refused:
        return _REPEAT
    adds_flag = any(step.code == "left_out_flag" for step in pair.next)
    if not adds_flag and (again := _more_runs_step(pair, in_app)):
        return again
    steps = leading_steps(pair.next)
    return steps_text([app_step(step) for step in steps] if in_app else steps)


def _more_runs_step(pair: Pair, in_app: bool) -> str:
    """Say how a comparison of levels gets a verdict; empty if it has one, or if agents are compared."""
    row = headline_row(pair)
    if pair.agents or pair.verdict not in (None, "not sure yet") or row is None or row.verdict is None:
        return ""
    if not in_app:
        return f"measure it again: {pair.again}" if pair.again else ""
    if pair.verdict is None:
        return _MORE_RUNS
    if pair.measured_again and not pair.doubtful:
        return ""
    return "R: measure this server again"


def large_change(pair: Pair) -> tuple[str, str, Code | None]:
    """Return what to show large, with its unit: agents before and after, or the change if it is known to be one."""
    code, row = pair_code(pair), headline_row(pair)
    if pair.agents:
        # Two numbers without an upper end are no change, and would look like one.
        return "" if pair.agents.reason == "no_limit" else "→".join(pair.agents.numbers), "agents", code
    if row is None or row.change is None or row.word not in ("faster", "slower"):
        return "", "", code
    return (
        f"{SIGNS[code]}{percent(abs(row.change), int(abs(row.change) < 0.1))}".replace(" ", ""),
        "tok/s",
        code,
    )


def figure_blocks(found: Comparison) -> list[Block]:
    """Show what is behind the answers of the app's screen, which has the changes beside it."""
    blocks = [block for pair in found.pairs for block in (*_remarks(pair), *comparison_tables(pair), *_alone(pair))]
    return [*blocks, *leaderboard_blocks(found.leaderboard)]


def _limits(pair: Pair) -> str:
    """Say which limit is reached now; empty if it is still the same one, which the result explains."""
    before, now = pair.limit_a, pair.limit_b
    if pair.refused or now is None or now.code == "not_known" or (before and before.code == now.code):
        return ""
    return now.sentence


def pair_blocks(pair: Pair) -> list[Block]:
    """Show what is behind the answer: what weakens it, all differences, and the figures of each level."""
    return [*_remarks(pair), *change_tables(pair), *comparison_tables(pair), *_alone(pair)]


def _remarks(pair: Pair) -> list[Block]:
    shown = (*_UNLIKE, "context") if context_change(pair.differences, pair.flags) else _UNLIKE
    others = [found for found in pair.differences if not follows_flag(found, pair.flags) and found.code not in shown]
    if not pair.flags:  # the answer names what differs about the server and the plan
        others = [found for found in others if found.code in CLIENT_DIFFERENCES]
    also = f"also different: {', '.join(map(str, others))}"
    notes = [Sentence(f"note: {note}", "note") for note in pair.notes if note.code not in _SAID_FIRST]
    return [*notes, *([Sentence(also, "difference")] if others else [])]


def _alone(pair: Pair) -> list[Block]:
    """Name the levels that only one session has."""
    sides = (("A", pair.only_a_names), ("B", pair.only_b_names))
    return [Sentence(f"only in {side}: {', '.join(only)}", "detail") for side, only in sides if only]


def comparison_tables(pair: Pair) -> list[Table]:
    """Return the figures of each level side by side; none if there is no common level."""
    levels: dict[LevelKey, list[dict[str, Value]]] = {}
    for row in pair.rows:
        levels.setdefault(row.key, []).append(_figure_cells(row))
    # The parts of the first token beside it, then what the machine used.
    for part in sorted(pair.machine, key=lambda part: part.unit != "s"):
        levels.setdefault(part.key, []).append(_machine_cells(part))
    for key, rows in levels.items():
        rows[0]["load"] = f"{offered_load(key):g}"
    columns = [
        keyed("load", load_title(pair.rows)),
        keyed("figure", "figure", right=False, least=17),
        keyed("a", "A"),
        keyed("b", "B"),
        keyed("change", "change"),
        keyed("interval", "95 % interval"),
    ]
    every: list[Fields] = [row for rows in levels.values() for row in rows]
    unsure = any(isinstance(cell := row["change"], Cell) and cell.code == "unsure" for row in every)
    note = "" if pair.refused else f"{_NOTE}{_UNSURE if unsure else ''}"
    table = tabulate("Side by side", every, columns, note, drop=("interval",))
    return [table.without_missing()] if every else []


def _figure_cells(row: ComparisonRow) -> dict[str, Value]:
    before, after = (
        None if value is None else seconds(value, 4) if row.figure in TIMES else rate(value, half_width)
        for value, half_width in zip((row.before, row.after), row.half_widths, strict=True)
    )
    return {
        "figure": _FIGURES.get(row.figure, FIGURES[row.figure]),
        "a": before,
        "b": after,
        "change": None if row.change is None else change_cell(row),
        "interval": interval_text(row.interval, " … ") if row.interval else Cell("", "missing"),
    }


def _machine_cells(row: MachineRow) -> dict[str, Value]:
    before, after = (
        None if value is None else seconds(value, 4) if row.unit == "s" else f"{significant(value)} {row.unit}"
        for value in (row.before, row.after)
    )
    change = "" if row.change is None else signed_percent(row.change)
    return {"figure": row.figure, "a": before, "b": after, "change": change, "interval": Cell("", "missing")}
