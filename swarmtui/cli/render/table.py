"""Results as aligned plain text that is also a Markdown table: to read in a terminal, to paste into a post."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.capacity.scaling import best_level
from swarmtui.analysis.quality.checks import checks_sentence
from swarmtui.cli.render.page import columns
from swarmtui.model.findings import Check
from swarmtui.model.session import Event, Level, Spread, Summary
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.sessions.store import Listed
from swarmtui.text import fit, pad, plain, width

BEST = "▸"
_SIGNS = {"not ok": "✗", "unknown": "?"}


class _Column(NamedTuple):
    title: str
    cell: Callable[[Level], str]


_COLUMNS = (
    _Column("n", lambda level: str(level.n)),
    _Column("err", lambda level: str(level.errors)),
    _Column("cap", lambda level: str(level.cap_hits)),
    _Column("steady", lambda level: _tokens(level, level.out_tps_steady)),
    _Column("wall", lambda level: _tokens(level, level.out_tps_wall)),
    _Column("stream", lambda level: _tokens(level, level.per_stream_tps.mean)),
    _Column("TTFT s", lambda level: _middle(level.ttft_s)),
    _Column("TPOT ms", lambda level: _tokens(level, level.tpot_s.mean, 1e3)),
    _Column("e2e s", lambda level: amount(level.e2e_s.mean, 3)),
    _Column("real C", lambda level: amount(level.c_achieved, 3)),
    _Column("lost", lambda level: _percent(level.contention)),
    _Column("gain", lambda level: _times(level.rate_speedup)),
)
# So they give way on a narrow terminal: what can be had from the others goes first.
_YIELDING = ("TPOT ms", "e2e s", "lost", "real C", "gain", "wall", "cap", "err", "n")
_LEGEND = (
    "steady, wall and stream are output tok/s: while C requests were in flight, from the first sent to the last token, "
    "and of one stream (mean). TTFT: median; a–b is smallest to largest where n is below 5. TPOT and e2e: means. "
    "real C: Σ e2e / wall. lost: stream rate lost against C=1. gain: steady against C=1."
)


_OPEN_LEGEND = (
    "rate: requests a second, an open loop. wall and stream are output tok/s: from the first due to the last token, "
    "and of one stream (mean). TTFT (median; a–b where n is below 5), TPOT and e2e count from when a request was due. "
    "real C: how many were in flight on average."
)


def varied(levels: Sequence[Level]) -> str:
    """The title of the column that tells levels apart."""
    return "rate" if any(level.rate is not None for level in levels) else "C"


def level_table(levels: Sequence[Level]) -> str:
    """The levels, what their columns mean, and what must be known beside them."""
    if not levels:
        return "nothing was measured\n"
    unused = set() if any(level.cap_hits for level in levels) else {"cap"}
    if varied(levels) == "rate":
        unused |= {"steady", "lost", "gain"}
    best = best_level(levels)
    table, left_out = _fitted(levels, best, unused)
    if any(level.rate is not None for level in levels):
        return "\n".join([*table, "", *left_out, *wrapped(_OPEN_LEGEND), *_notes(levels)]) + "\n"
    batches = any(level.load not in ("closed", "ramp") for level in levels)
    legend = _LEGEND.replace("gain: steady", "gain: wall") if batches else _LEGEND
    if best is not None:
        legend += f" {BEST}: best {'wall' if batches else 'steady'} before a cliff, within 1 % the lowest C."
    return "\n".join([*table, "", *left_out, *wrapped(legend), *_notes(levels)]) + "\n"


def _fitted(levels: Sequence[Level], best: Level | None, unused: set[str]) -> tuple[list[str], list[str]]:
    """The table with as many columns as there is room for, and a line that names the others."""
    gone: list[str] = []
    while True:
        shown = [column for column in _COLUMNS if column.title not in {*unused, *gone}]
        titles = [varied(levels), *(column.title for column in shown)]
        rows = [
            [f"{BEST if level is best else ''}{level.at:g}", *(column.cell(level) for column in shown)]
            for level in levels
        ]
        table = aligned(titles, rows, right=[True] * len(titles))
        yielding = [title for title in _YIELDING if title in titles]
        if width(table[0]) <= columns() or not yielding:
            break
        gone.append(yielding[0])
    said = f"no room for {', '.join(gone)}: a wider terminal, a pipe or `swarmtui export` has all columns."
    return table, wrapped(said) if gone else []


def findings_text(summary: Summary) -> str:
    """Where the sweet spot and the cliff are, and whether the figures are fit to be published."""
    enough = len(summary.levels) > 1 or any(level.rate is not None for level in summary.levels)
    said = [summary.scaling.sentence] if summary.scaling and enough else []
    said += [checks_sentence(summary.checks)] if summary.checks else []
    return "".join(f"{line}\n" for sentence in said for line in wrapped(plain(sentence)))


def session_table(sessions: Sequence[Listed]) -> str:
    if not sessions:
        return "no sessions yet\n"
    titles = ["id", "state", "model", "workload", "label", "requests", "best tok/s"]
    rows = [
        [
            plain(row.id),
            row.state or "unreadable",
            plain(f"(sim) {row.model}" if row.simulated else row.model),
            plain(row.workload),
            plain(row.label),
            NOTHING if row.requests is None else str(row.requests),
            f"{'~' if row.chunks_counted else ''}{amount(row.best_out_tps)} at {row.best_at}"
            if row.best_at
            else NOTHING,
        ]
        for row in sessions
    ]
    right = [False] * 5 + [True] * 2
    problems = [line for row in sessions if row.problem for line in wrapped(f"{plain(row.id)}: {plain(row.problem)}")]
    table = aligned(titles, narrowed(titles, rows, {0: 20, 2: 6, 3: 8, 4: 5}), right=right)
    return "\n".join([*table, *([""] if problems else []), *problems]) + "\n"


def workload_table(rows: Sequence[tuple[str, str, int | None, str, str]]) -> str:
    """Name, kind, number of prompts, tokens in, tokens out."""
    cells = [
        [plain(name), kind, NOTHING if prompts is None else str(prompts), plain(before), plain(after)]
        for name, kind, prompts, before, after in rows
    ]
    titles = ["name", "kind", "prompts", "in", "out"]
    right = [False, False, True, False, False]
    return "\n".join(aligned(titles, narrowed(titles, cells, {3: 12, 4: 12}), right=right)) + "\n"


def session_text(summary: Summary, machine: str = "") -> str:
    """`machine` is the second table, of what the GPUs took."""
    from swarmtui.sessions.export.report import server_text  # a run need not wait for it

    session, plan, client = summary.session, summary.session.plan, summary.session.client
    each = f"{plan.duration_s:g} s" if plan.duration_s is not None else f"{plan.requests} requests"
    levels = ",".join(f"{at:g}" for at in plan.rates or plan.levels)
    simulated = ", SIMULATED" if session.simulated else ""
    facts = [
        ("session", session.id),
        ("created", session.created),
        ("state", f"{summary.state}: {summary.message}" if summary.message else summary.state),
        *(("endpoint", f"{endpoint.url}, {endpoint.model}{simulated}") for endpoint in session.endpoints),
        *(("server", told) for told in dict.fromkeys(map(server_text, summary.servers))),
        ("flags", session.server_flags),
        ("previous", session.previous),
        ("workload", f"{session.workload}, {session.workload_digest[:12]}"),
        ("plan", f"{plan.mode} {levels}, {plan.runs} × {each} a level, {summary.warmup_requests} for warm-up"),
        ("client", f"swarmtui {client.version} on {client.host}, Python {client.python}"),
        ("label", session.label),
        ("note", session.note),
        ("tags", ", ".join(f"{key}={value}" for key, value in session.tags.items())),
    ]
    lines = [
        line
        for name, value in facts
        if value
        for line in textwrap.wrap(plain(value), columns(), initial_indent=f"{name:<9} ", subsequent_indent=" " * 10)
    ]
    events = [_event(event, session.t0_ns) for event in summary.events]
    found = "\n".join([findings_text(summary).rstrip("\n"), *_unmet(summary.checks)]).strip("\n")
    table = level_table(summary.levels).rstrip("\n")
    parts = ["\n".join(lines), table, machine.rstrip("\n"), found, "\n".join(events)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _unmet(checks: Sequence[Check]) -> list[str]:
    """What keeps a session from being fit to publish, each with its value and the limit."""
    return [
        line
        for check in checks
        if check.state != "ok"
        for line in wrapped(
            plain(f"{_SIGNS[check.state]} {check.name}: {check.value}; wanted {check.limit}: {check.sentence}")
        )
    ]


def _event(event: Event, t0_ns: int) -> str:
    what = f"{event.name}: {event.detail}" if event.detail else event.name
    return f"+{(event.t_ns - t0_ns) / 1e9:.1f} s {plain(what)}"


def _notes(levels: Sequence[Level]) -> list[str]:
    """Each sentence once, with the levels that it is said of."""
    said: dict[str, list[str]] = {}
    for level in levels:
        for flag in level.flags:
            said.setdefault(plain(flag), []).append(f"{level.at:g}")
    name = f"{varied(levels)}="
    return [line for flag, at in said.items() for line in wrapped(f"{name}{','.join(at)}: {flag}")]


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, columns(), subsequent_indent="  ")


def aligned(titles: list[str], rows: list[list[str]], right: list[bool]) -> list[str]:
    """Blanks beside the bars are left out where the table would be too wide with them."""
    widths = [max(2, *map(width, column)) for column in zip(titles, *rows, strict=True)]
    blank = " " if sum(widths) + 3 * len(widths) + 1 <= columns() else ""
    rule = [("-" * (w - 1) + ":" if to_right else "-" * w) for w, to_right in zip(widths, right, strict=True)]
    padded = [
        [pad(cell, w, right=to_right) for cell, w, to_right in zip(row, widths, right, strict=True)]
        for row in (titles, *rows)
    ]
    return [f"|{blank}{f'{blank}|{blank}'.join(row)}{blank}|" for row in (padded[0], rule, *padded[1:])]


def narrowed(titles: list[str], rows: list[list[str]], least: dict[int, int]) -> list[list[str]]:
    """Long names are cut, the longest column first, until the table fits; `least` is how far each column gives way.

    Where that is not enough, the blanks beside the bars are left out, and names keep what is won by it.
    """
    rows = [[cell.replace("|", "¦") for cell in row] for row in rows]
    whole = [max(map(width, column)) for column in zip(titles, *rows, strict=True)]
    for beside in (3, 1):
        widths, room = list(whole), columns() - beside * len(whole) - 1
        while sum(widths) > room and (able := [index for index, smallest in least.items() if widths[index] > smallest]):
            widths[max(able, key=lambda index: widths[index])] -= 1
        if sum(widths) <= room:
            break
    return [[fit(cell, w) for cell, w in zip(row, widths, strict=True)] for row in rows]


def _tokens(level: Level, value: float | None, factor: float = 1.0) -> str:
    """With a ~ where tokens were not counted by the server."""
    text = amount(None if value is None else value * factor)
    return f"~{text}" if value is not None and level.token_source in ("chunks", "mixed") else text


def _middle(spread: Spread) -> str:
    if spread.p50 is not None:
        return amount(spread.p50, 3)
    if spread.min is None or spread.max is None:
        return NOTHING
    low, high = amount(spread.min, 2), amount(spread.max, 2)
    return low if low == high else f"{low}–{high}"


def _percent(share: float | None) -> str:
    if share is None:
        return NOTHING
    return f"{round(100 * share)} %".replace("-", "−")


def _times(factor: float | None) -> str:
    return NOTHING if factor is None else f"{amount(factor, 3)}×"
