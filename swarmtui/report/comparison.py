"""Build the comparison of sessions: what differs, their levels side by side, the verdicts, and a leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from swarmtui.analysis.compare.agents import AgentsWord
from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, Difference, option_name
from swarmtui.analysis.compare.leaderboard import LeaderboardRow
from swarmtui.analysis.compare.machine import MachineRow
from swarmtui.analysis.compare.sessions import (
    FIGURES,
    Comparison,
    ComparisonRow,
    Figure,
    Pair,
    headline_row,
)
from swarmtui.analysis.compare.verdicts import EQUIVALENT, MIN_RUNS, VerdictWord, interval_text, verdict_text
from swarmtui.analysis.quality.doubts import name_doubts
from swarmtui.experiments.baseline import describe_changes
from swarmtui.model.plan import load_title
from swarmtui.numbers import milliseconds, percent, rate, seconds, short_percent, signed_percent, significant
from swarmtui.report.answer import leading_steps, step_text
from swarmtui.report.scales import value_axis
from swarmtui.report.table import Block, Cell, Code, Column, Facts, Sentence, Table, Value, tabulate
from swarmtui.text import count_noun

_CODES: dict[str, Code] = {
    "faster": "faster", "slower": "slower", "same": "same", "refused": "refused",
    "more agents": "faster", "fewer agents": "slower",
}  # fmt: skip
# What is better, worse, as good or not decided, wherever something is compared.
SIGNS: dict[Code, str] = {
    "faster": "▲", "slower": "▼", "same": "=", "likely faster": "△", "likely slower": "▽",
    "unsure": "?", "refused": "✗",
}  # fmt: skip
_LIKELY: dict[str | None, Code] = {
    "faster": "likely faster", "slower": "likely slower", None: "unsure",
    "more agents": "likely faster", "fewer agents": "likely slower",
}  # fmt: skip
# Codes of differences that are named before the answer.
_UNLIKE = ("model", "quantisation", "workload", "simulated", "client_version")
# Half-widths below this leave tenths of a percent.
_FINE = 0.01
# The cells of a bar on each side of zero.
_BAR = 12
# A figure that is worse by less than this share may be so by chance.
_DRIFT = 0.1
# A change that is not sure is far from the others beyond this multiple of their median; a small one never is.
_FAR, _NEAR = 3.0, 0.2
# A change, or an end of its interval, that is outside the axis, below and above.
_OUTSIDE = "←→"
_FIGURES: dict[Figure, str] = {"out_tps_steady": "steady tok/s", "out_tps_wall": "wall tok/s"}
_DECIDED: dict[Code, str] = {"faster": "faster", "slower": "slower", "same": "the same within 2 %"}
_NOTE = "A and B: all requests of a level; change: B compared with A; ?: not sure yet; △ ▽: likely better, worse."
_REPEAT = "compare sessions of the same plan: R on a result, or `swarmtui run --baseline`, repeats one"
# More searches of each side tell hardly more.
_ENOUGH_SEARCHES = 3
_MORE_RUNS = f"start a run with {MIN_RUNS} in the field runs of the setup screen"


class AnswerLine(NamedTuple):
    """One line of the answer of a comparison; the code of the first says whether it is better."""

    name: str
    text: str
    code: Code | None = None

    @property
    def signed(self) -> str:
        return f"{SIGNS[self.code]} {self.text}" if self.code else self.text


def verdict_cell(
    word: VerdictWord | AgentsWord | Literal["refused"] | None, before: str = "", likely: str | None = None
) -> Cell:
    """Show a verdict, what is likely, or how many runs are missing; after agents or a change, the sign may do."""
    text = "not comparable" if word == "refused" else word or verdict_text(None)
    said = before and (likely or word) in ("more agents", "fewer agents", "not sure yet")
    if likely:
        text = "likely" if before else f"likely {likely}"
    code = _CODES.get(word or "", _LIKELY[likely])
    return Cell(f"{SIGNS[code]} {before.rstrip() if said else before + text}", code)


def row_code(row: ComparisonRow) -> Code:
    """Return the code of a change: its verdict, what it likely is with too few runs for one, or that it is not sure."""
    word = row.verdict.word if row.verdict else None
    return _CODES.get(word or "", _LIKELY[row.likely])


def change_cell(row: ComparisonRow) -> Cell:
    """Show the change of a level with its verdict, or what it likely is."""
    return verdict_cell(row.verdict.word if row.verdict else None, f"{change_percent(row)} ", row.likely)


def comparison_blocks(found: Comparison, names: Mapping[str, str]) -> list[Block]:
    """Compare each session with the first, then list all; `names` are shown beside the ids."""
    blocks = [block for pair in found.pairs for block in (*_unlike(pair), pair_answer(pair, names), *pair_blocks(pair))]
    return blocks + (leaderboard_blocks(found.leaderboard) if len(found.leaderboard) > 2 else [])


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


def _unlike(pair: Pair) -> list[Block]:
    text = unlike_text(pair)
    return [Sentence(text, "note")] if text else []


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

    That is what it costs, what to try next, why there are no more, and how the same load ran on both. What is not known
    is left out. `in_app`: a key is named instead of a command.
    """
    row = headline_row(pair)
    first = next((found for found in pair.rows if found.figure == "ttft_s" and found.key == pair.headline), None)
    times = ""
    if first and first.before is not None and first.after is not None and not pair.refused:
        times = f"{seconds(first.before)} → {seconds(first.after)}"
    output = AnswerLine("First token", f"{times} {_where(first)} (median)" if first and times else "")
    if pair.agents and row and row.verdict:
        rates, chosen = pair.throughput, _chosen_level(pair, row)
        if row.verdict.word == "not sure yet":  # the verdict is about the agents
            where, chosen = ", ".join(filter(None, (_where(row), chosen))), ""
            before, after = (rate(*of) for of in zip((row.before, row.after), row.half_widths, strict=True))
            rates = f"{where}: {before} → {after} tok/s, {change_percent(row)}"
        text = (rates, f"first token {times} (median)" if times else "", chosen)
        output = AnswerLine("Output", "; ".join(filter(None, text)), "unsure" if pair.doubts else row_code(row))
    lines = [
        AnswerLine("Agents" if pair.agents else "Result", pair.sentence, pair_code(pair)),
        AnswerLine("Changed", _changed(pair)),
        AnswerLine("Prediction", pair.predicted),
        AnswerLine("How sure", _how_sure(pair, in_app)),
        AnswerLine("At capacity", _at_capacity(pair)),
        AnswerLine("Costs", _costs(pair)),
        *(() if pair.agents else (output,)),
        AnswerLine(
            "Try next", "; then ".join(map(step_text, leading_steps(pair.next))) if not pair.refused else _REPEAT
        ),
        AnswerLine("Why no more", _limits(pair)),
        *((output,) if pair.agents else ()),
    ]
    return [line for line in lines if line.text]


def _chosen_level(pair: Pair, row: ComparisonRow) -> str:
    """Say which of the levels that both sessions measured was chosen."""
    both_kept = row.rate is None and all(at is not None and row.c <= at.c for at in (pair.at_a, pair.at_b))
    return "the most that both kept" if both_kept else ""


def _changed(pair: Pair) -> str:
    """`--parallel 2 → 4 since the run of 12:01; the run of 12:10 is left out: the host was busy`"""
    since = f" since the run of {pair.since}" if pair.since else ""
    return "; ".join(filter(None, (f"{describe_changes(pair)}{since}", pair.left_out)))


class _Change(NamedTuple):
    """A figure at two capacities; `worse` if it is a cost, null if it does not matter, or may be chance."""

    text: str
    worse: bool


def _at_capacity(pair: Pair) -> str:
    """`310 → 380 tok/s in total; first token 1.8 s → 1.4 s (p90)`: the figures that more agents do not cost."""
    found = [change.text for change in _changes_at_capacity(pair) if not change.worse]
    return f"{_last_searches(pair)}{'; '.join(found)}" if found else ""


def _costs(pair: Pair) -> str:
    """`each writes 210 → 82 tok/s (−61 %)`: what a change costs; empty if nothing is worse."""
    found = _changes_at_capacity(pair)
    text = "; ".join(change.text for change in found if change.worse)
    return f"{_last_searches(pair)}{text}" if text and all(change.worse for change in found) else text


def _last_searches(pair: Pair) -> str:
    """Say which agents the figures are of, where the numbers above are means."""
    if pair.agents is None or not pair.agents.average or pair.at_a is None or pair.at_b is None:
        return ""
    return f"last searches, {pair.at_a.c} → {pair.at_b.c} agents: "


def _changes_at_capacity(pair: Pair) -> list[_Change]:
    """Return the figures of both capacities; one is worse if drift and half-width do not explain it."""
    a, b, found = pair.at_a, pair.at_b, list[_Change]()
    if a is not None and b is not None and a.out_tps is not None and b.out_tps is not None:
        of_a, of_b = a.half_width, b.half_width
        least = max(_DRIFT, of_a or 0.0, of_b or 0.0)

        def rates(before: float, after: float) -> tuple[str, bool]:
            text = f"{rate(before, of_a)} → {rate(after, of_b)} tok/s"
            return text, after < (1.0 - least) * before

        text, worse = rates(a.out_tps, b.out_tps)
        found.append(_Change(f"{text} in total", worse))
        if a.per_stream_tps is not None and b.per_stream_tps is not None:
            text, worse = rates(a.per_stream_tps, b.per_stream_tps)
            share = f" ({signed_percent(b.per_stream_tps / a.per_stream_tps - 1.0, 0)})" if a.per_stream_tps else ""
            found.append(_Change(f"each writes {text}{share}", worse))
        if a.e2e_s is not None and b.e2e_s is not None:
            text = f"a whole answer takes {seconds(a.e2e_s)} → {seconds(b.e2e_s)}"
            found.append(_Change(text, b.e2e_s > (1.0 + _DRIFT) * a.e2e_s))
        first = [value for value in (a.ttft_p90_s, b.ttft_p90_s) if value is not None]
        shown = [seconds(value) for value in first]
        if len({*shown}) == 2:
            found.append(_Change(f"first token {' → '.join(shown)} (p90)", first[1] > (1.0 + _DRIFT) * first[0]))
    if context := _context(pair):
        found.append(_Change(f"context {context[0]:,} → {context[1]:,}", context[1] < context[0]))
    return found


def _context(pair: Pair) -> tuple[int, int] | None:
    """Return the tokens of a request before and after: slots may share what the server has; null if it is the same."""
    found = next((item for item in pair.differences if item.code == "context"), None)
    return _numbers(found) if found and pair.agents and not _follows(found, pair.flags) else None


def pair_code(pair: Pair) -> Code:
    """Return the code of the verdict, which has its sign and its colour."""
    return _CODES.get(pair.verdict or "", _LIKELY[pair.likely])


def _how_sure(pair: Pair, in_app: bool) -> str:
    """Say what the verdict is based on and, if it is not sure, the one step that makes it surer."""
    row = headline_row(pair)
    if pair.refused or (not pair.agents and (row is None or row.verdict is None or row.verdict.claim != "sessions")):
        return ""
    again, why = step_to_decide(pair) if in_app else "", "two sessions can differ by chance"
    if pair.verdict is None:
        again, why = _MORE_RUNS if in_app else "", f"{MIN_RUNS} runs of each are needed"
    if pair.agents:
        why = pair.agents.why
        if pair.doubts and pair.agents.reason == "beyond_chance":
            why = f"{why}; but {name_doubts(pair.doubts)}"
    if not in_app and pair.again and (pair.verdict == "not sure yet" or not pair.agents):
        again = f"measure it again: {pair.again}"
    return "; ".join(filter(None, (why, again)))


def step_to_decide(pair: Pair) -> str:
    """Say what makes a verdict surer, with the key of the app: the run that was disturbed has to be repeated.

    Empty if two capacities are decided, or more searches would hardly tell more.
    """
    if pair.agents and pair.verdict != "not sure yet":
        return ""
    earlier, later = sorted((pair.a, pair.b))
    repeat_earlier = earlier in pair.doubtful
    if pair.agents and not pair.doubtful:
        searches = dict(zip((pair.a, pair.b), pair.agents.searches, strict=True))
        if pair.agents.scatter or min(searches.values()) >= _ENOUGH_SEARCHES:
            return ""
        repeat_earlier = searches[later] > searches[earlier] + 1
    elif pair.measured_again and not pair.doubtful:
        return ""
    if not repeat_earlier:
        takes = f" ({pair.takes})" if pair.takes else ""
        return f"press R to {'repeat the later run' if later in pair.doubtful else 'measure this server again'}{takes}"
    then = [(flag.what, flag.before if pair.a == earlier else flag.after) for flag in pair.flags]
    flags = " ".join(f"{option_name(name)} {value or ''}".strip() for name, value in then if value is not None)
    as_then = f"with {flags}" if flags else "as it was then"
    both = "press R to repeat the later run; " if later in pair.doubtful else ""
    return f"{both}to repeat the earlier run, start the server {as_then} and press R"


def large_change(pair: Pair) -> tuple[str, str, Code | None]:
    """Return what to show large, with its unit: agents before and after, or the change if it is known to be one."""
    code, row = pair_code(pair), headline_row(pair)
    if pair.agents:
        return "→".join(pair.agents.numbers), "agents", code
    if row is None or row.change is None or row.verdict is None or row.verdict.word not in ("faster", "slower"):
        return "", "", code
    return (
        f"{SIGNS[code]}{percent(abs(row.change), int(abs(row.change) < 0.1))}".replace(" ", ""),
        "tok/s",
        code,
    )


def figure_blocks(found: Comparison) -> list[Block]:
    """Show what is behind the answers of the app's screen, which has the changes beside it."""
    blocks = [block for pair in found.pairs for block in (*_remarks(pair), *comparison_tables(pair), *_alone(pair))]
    return blocks + (leaderboard_blocks(found.leaderboard) if len(found.leaderboard) > 2 else [])


def _where(row: ComparisonRow) -> str:
    return f"at {row.name}" if row.rate is not None else f"with {count_noun(row.c, 'agent', 'agents')}"


def _limits(pair: Pair) -> str:
    """Say which limit was reached before and after, or that it is still the same one."""
    if pair.refused:
        return ""
    before, after = pair.limit_a, pair.limit_b
    if before and after and before.code == after.code != "not_known":
        return f"the same limit as before: {after.sentence}"
    sides = (("before", before), ("now", after))
    known = [f"{name}, {limit.sentence}" for name, limit in sides if limit and limit.code != "not_known"]
    return "; ".join(known)


def pair_blocks(pair: Pair) -> list[Block]:
    """Show what is behind the answer: what weakens it, all differences, and the figures of each level."""
    return [*_remarks(pair), *change_tables(pair), *comparison_tables(pair), *_alone(pair)]


def _remarks(pair: Pair) -> list[Block]:
    blocks: list[Block] = [Sentence(f"note: {note}", "note") for note in pair.notes]
    shown = (*_UNLIKE, "context") if _context(pair) else _UNLIKE
    others = [
        difference
        for difference in pair.differences
        if not _follows(difference, pair.flags) and difference.code not in shown
    ]
    if not pair.flags:  # the answer names what differs about the server and the plan
        others = [difference for difference in others if difference.code in CLIENT_DIFFERENCES]
    also = f"also different: {', '.join(map(str, others))}"
    return [*blocks, *([Sentence(also, "difference")] if others else [])]


def _alone(pair: Pair) -> list[Block]:
    """Name the levels that only one session has."""
    sides = (("A", pair.only_a_names), ("B", pair.only_b_names))
    return [Sentence(f"only in {side}: {', '.join(only)}", "detail") for side, only in sides if only]


def _follows(difference: Difference, flags: Sequence[Difference]) -> bool:
    """Whether the slots or the context changed by the same factor as a flag did, which says it: replicas share it."""
    value = _numbers(difference) if difference.code in ("slots", "context") else None
    return value is not None and any(
        found is not None and found[0] * value[1] == found[1] * value[0] for found in map(_numbers, flags)
    )


def _numbers(difference: Difference) -> tuple[int, int] | None:
    before, after = difference.before or "", difference.after or ""
    return (int(before), int(after)) if before.isdecimal() and after.isdecimal() else None


def change_percent(row: ComparisonRow | MachineRow) -> str:
    """`−16 %`: a change without an interval of its own has no more digits than the figures leave."""
    coarse = isinstance(row, ComparisonRow) and not _is_known(row) and (row.half_width or 0.0) >= _FINE
    return signed_percent(row.change, 0 if coarse else 1)


def comparison_tables(pair: Pair) -> list[Table]:
    """Return the figures of each level side by side; none if there is no common level."""

    def name(row: ComparisonRow | MachineRow) -> str:
        return row.figure if isinstance(row, MachineRow) else _FIGURES.get(row.figure, FIGURES[row.figure])

    def figure(value: float | None, row: ComparisonRow | MachineRow, side: int) -> Value:
        if value is None:
            return None
        if isinstance(row, ComparisonRow) and row.figure != "ttft_s":
            return rate(value, row.half_widths[side])
        unit = row.unit if isinstance(row, MachineRow) else "s"
        return seconds(value, 4) if unit == "s" else f"{significant(value)} {unit}"

    def change(row: ComparisonRow | MachineRow) -> Value:
        """A change without a verdict of its own is not sure, unless its interval tells its direction."""
        if row.change is None:
            return "" if isinstance(row, MachineRow) else None
        code: Code | None = row_code(row) if isinstance(row, ComparisonRow) else "unsure"
        interval = row.interval if isinstance(row, ComparisonRow) and not row.verdict else None
        if interval and interval.low * interval.high > 0:
            code = None
        text = change_percent(row)
        return Cell(f"{SIGNS[code]} {text}", code) if code else Cell(text)

    def interval(row: ComparisonRow | MachineRow) -> Value:
        known = row.interval if isinstance(row, ComparisonRow) else None
        return interval_text(known, " … ") if known else Cell("", "missing")

    # The parts of the first token beside it, then what the machine used.
    machine = sorted(pair.machine, key=lambda row: row.unit != "s")
    every: list[ComparisonRow | MachineRow] = [*pair.rows, *machine]
    rows = [row for key in dict.fromkeys(row.key for row in every) for row in every if row.key == key]
    first = {id(row) for before, row in zip((None, *rows), rows, strict=False) if not before or before.key != row.key}
    columns: list[Column[ComparisonRow | MachineRow]] = [
        Column("load", load_title(pair.rows), lambda row: f"{row.offered_load:g}" if id(row) in first else ""),
        Column("figure", "figure", name, right=False, least=17),
        Column("a", "A", lambda row: figure(row.before, row, 0)),
        Column("b", "B", lambda row: figure(row.after, row, 1)),
        Column("change", "change", change),
        Column("interval", "95 % interval", interval),
    ]
    table = tabulate("Side by side", rows, columns, "" if pair.refused else _NOTE, drop=("interval",))
    return [table.without_missing()] if rows else []


def change_tables(pair: Pair) -> list[Table]:
    """Show the change of each level as a bar around zero with its interval; none if no level was compared."""
    rows = [row for row in pair.rows if row.leads and row.change is not None]
    top = _axis_end(rows)
    words = {row.key: verdict_text(row.verdict.word if row.verdict else None) for row in rows}
    codes = {row.key: row_code(row) for row in rows}
    words |= {row.key: f"likely {row.likely}" for row in rows if row.likely}
    bars = {row.key: change_bar(row, top) for row in rows}
    ends = f"−{short_percent(top)} ", f" +{short_percent(top)}"

    def change(row: ComparisonRow) -> Cell:
        return Cell(f"{SIGNS[codes[row.key]]} {change_percent(row)}", codes[row.key])

    def verdict(row: ComparisonRow) -> Cell | None:
        return None if pair.searched and codes[row.key] not in _DECIDED else Cell(words[row.key], codes[row.key])

    columns: list[Column[ComparisonRow]] = [
        Column("load", load_title(pair.rows), lambda row: f"{row.offered_load:g}"),
        Column("change", "change", change),
        Column(
            "bar", f"{ends[0]:·<{_BAR}}0{ends[1]:·>{_BAR}}",
            lambda row: Cell(bars[row.key], codes[row.key]), right=False,
        ),
        Column("interval", "interval", lambda row: interval_text(row.interval, " … ") if row.interval else None),
        Column("verdict", "verdict", verdict, right=False),
    ]  # fmt: skip
    figure = next((FIGURES[row.figure] for row in rows), "")
    note = " ".join([_legend(codes.values(), bars.values()), *_more_runs(rows)])
    table = tabulate(f"Change of {figure}", rows, columns, note, drop=("interval", "verdict"))
    return [table.without_missing()] if rows else []


def _axis_end(rows: Sequence[ComparisonRow]) -> float:
    """Return where the axis of changes ends: at the largest one, unless it is not sure and far from most others.

    One noisy level, or a wide interval, would make all changes one dot: what is outside has an arrow.
    """
    sizes = [abs(row.change or 0.0) for row in rows]
    far = max(_NEAR, _FAR * median(sizes)) if sizes else 0.0
    largest = max(
        (size for size, row in zip(sizes, rows, strict=True) if size <= far or row_code(row) != "unsure"), default=0.0
    )
    return value_axis([max(EQUIVALENT, 1.1 * largest)], 2).high


def compared_rows(pair: Pair) -> range:
    """Return which rows of the table of changes matter most: from one capacity to the other, else the headline."""
    loads = [row.offered_load for row in pair.rows if row.leads and row.change is not None]
    row = headline_row(pair)
    ends = (pair.agents.before, pair.agents.after) if pair.agents else (row.offered_load,) * 2 if row else (0.0, 0.0)
    first = max((at for at, load in enumerate(loads) if load <= min(ends)), default=0)
    last = next((at for at, load in enumerate(loads) if load >= max(ends)), len(loads) - 1)
    return range(first, last + 1)


def _legend(codes: Iterable[Code], bars: Iterable[str]) -> str:
    """Explain the signs that are used."""
    used = set(codes)
    decided = ", ".join(f"{SIGNS[code]} {text}" for code, text in _DECIDED.items() if code in used)
    parts = [f"{decided}, 95 % sure over all levels together" if decided else ""]
    likely = [code for code in SIGNS if code in used and code in ("likely faster", "likely slower")]
    parts.append(
        f"{', '.join(f'{SIGNS[code]} {code}' for code in likely)}, with too few runs to be sure" if likely else ""
    )
    parts.append(f"{SIGNS['unsure']} not sure yet" if "unsure" in used else "")
    drawn = set("".join(bars))
    outside = " ".join(sign for sign in _OUTSIDE if sign in drawn)
    ends = "├ ┤: the interval of the change" if drawn & {"├", "┤"} else ""
    drawn_as = "; ".join(filter(None, (ends, f"{outside}: outside the axis" if outside else "")))
    return f"{'; '.join(filter(None, parts))}.{f' {drawn_as}.' if drawn_as else ''}"


def _more_runs(rows: Sequence[ComparisonRow]) -> list[str]:
    """Say how many runs the levels need that are not decided yet."""
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    if any(verdict.word is None for verdict in verdicts):
        return [f"A verdict needs {MIN_RUNS} runs of each."]
    open_ = [verdict for verdict in verdicts if verdict.word == "not sure yet"]
    needed = [verdict.needed for verdict in open_ if verdict.needed and verdict.needed > min(verdict.n_a, verdict.n_b)]
    detected = short_percent(verdicts[0].detect) if verdicts else ""
    return [f"?: {max(needed)} runs of each would very likely show a difference of {detected}."] if needed else []


def _is_known(row: ComparisonRow) -> bool:
    return row.interval is not None and interval_text(row.interval, "").startswith(("+", "−"))


def change_bar(row: ComparisonRow, top: float) -> str:
    """Draw a change around zero: `·····│━━━├●┤·`; brackets end its interval, and what is outside has an arrow."""

    def place(value: float) -> int:
        return _BAR + round(min(1.0, max(-1.0, value / top)) * _BAR)

    cells = ["·"] * (2 * _BAR + 1)
    at = place(row.change or 0.0)
    cells[min(_BAR, at) : max(_BAR, at) + 1] = "━" * (abs(at - _BAR) + 1)
    if _is_known(row) and row.interval is not None:
        low, high = place(row.interval.low), place(row.interval.high)
        cells[low : high + 1] = "─" * (high - low + 1)
        cells[low] = "├" if row.interval.low >= -top else _OUTSIDE[0]
        cells[high] = "┤" if row.interval.high <= top else _OUTSIDE[1]
    cells[_BAR] = "│"
    cells[at] = "●" if abs(row.change or 0.0) <= top else _OUTSIDE[at > _BAR]
    return "".join(cells)


def leaderboard_blocks(rows: Sequence[LeaderboardRow]) -> list[Block]:
    """Tabulate all sessions, then what changed from each to the next."""
    columns: list[Column[LeaderboardRow]] = [
        Column("best", "", lambda row: Cell("▸", "best") if row.best_of_model else ""),
        Column("session", "session", lambda row: row.id, right=False, least=20),
        Column("label", "label", lambda row: row.label, right=False, least=8),
        Column("model", "model", lambda row: row.model, right=False, least=6),
        Column("alone", "C=1 tok/s", lambda row: row.out_tps_alone, rate),
        Column("best_tps", "best tok/s", lambda row: row.best_out_tps, rate),
        Column("at", "at", lambda row: row.best_at or None),
        Column("tpot", "TPOT", lambda row: row.tpot_s, milliseconds),
        Column("ttft", "TTFT", lambda row: row.ttft_s, seconds),
    ]
    title = "All sessions in the given order; ▸ is the best of its model"
    changes = [Sentence(f"{row.id}: {'; '.join(row.changes)}", "difference") for row in rows if row.changes]
    return [Sentence(title, "title"), tabulate("", rows, columns, drop=("label", "model", "tpot")), *changes]
