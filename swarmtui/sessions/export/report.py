"""Build the report that Markdown and HTML show: facts, tables and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from swarmtui.analysis.capacity.agents import capacity_sentences
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.machine.energy import count_names
from swarmtui.analysis.quality.checklist import checklist_sentence
from swarmtui.model.endpoint import api_text
from swarmtui.model.findings import ALARMS
from swarmtui.model.plan import load_title
from swarmtui.model.session import Level, Spread, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import MISSING, factor, gib, milliseconds, seconds, short_percent, significant
from swarmtui.sessions.export.charts import session_title
from swarmtui.sessions.export.comparison import comparison_tables
from swarmtui.sessions.export.load_tables import load_tables
from swarmtui.sessions.export.structs import Report, SessionData, Table

FORMULAS = (
    "ttft = first output − sent; stream = Σ (n − tokens up to the first chunk) / Σ (t_end − t_first) over the answers, "
    "t_end: last output, or the end if tokens without text follow; tpot = its inverse; e2e = last token − sent. "
    "steady = tokens while C requests were in flight / that time; "
    "wall = all output tokens / makespan. in flight = Σ (last token − sent) / makespan (mean). "
    "slowdown = 1 − stream / stream at C=1; scaling = steady / steady at C=1 (batches: wall). "
    "Samples needed for a percentile: p50 5, p90 29, p95 59, p99 299. "
    "cap hit: an answer cut at the token limit; clean: without cap hits."
)


def build_report(sessions: Sequence[SessionData]) -> Report:
    """Report one session, or compare each of several with the first and then report all of them."""
    reports = [(session.name, _session_report(session.summary)) for session in sessions]
    if len(reports) == 1:
        return reports[0][1]
    first, *others = sessions
    pairs = [(other.name, compare_pair(first.summary, other.summary, history=first.history)) for other in others]
    comparisons = [
        table._replace(title=f"{table.title}: A is {first.name}, B is {name}")
        for name, pair in pairs
        for table in comparison_tables(pair)
    ]
    tables = [
        table._replace(title=f"{name}: {table.title}")
        for name, report in reports
        for table in (Table("Session", ("", ""), report.facts, (False, False)), *report.tables)
    ]
    notes = [
        f"{name}: {note}" for name, report in reports for note in (*report.lead, *report.notes) if note != FORMULAS
    ]
    return Report(
        title=session_title(sessions),
        lead=tuple(f"{name} compared with {first.name}: {pair.sentence}" for name, pair in pairs),
        facts=tuple(
            (name, "; ".join(map(str, (*pair.flags, *pair.differences))) or "no known difference")
            for name, pair in pairs
        ),
        tables=(*comparisons, *tables),
        notes=(*notes, FORMULAS),
    )


def _session_report(summary: Summary) -> Report:
    return Report(
        title=session_title([SessionData("", summary)]),
        lead=_lead(summary),
        facts=session_facts(summary),
        tables=tuple(table for table in _tables(summary) if table.rows),
        notes=(*remarks(summary.levels), *event_lines(summary), FORMULAS),
    )


def _lead(summary: Summary) -> tuple[str, ...]:
    lines = []
    if summary.state != "done":
        lines.append(f"This session is {summary.state}" + (f": {summary.message}" if summary.message else "."))
    if summary.capacity is not None:
        lines += capacity_sentences(summary.capacity)
    if summary.scaling is not None:
        lines.append(summary.scaling.sentence)
    lines.append(checklist_sentence(summary.checks))
    return tuple(line[:1].upper() + line[1:] for line in lines if line)


def session_facts(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Describe what was measured, with what and how, by name and text."""
    session, plan = summary.session, summary.session.plan
    load = plan.load
    levels = ("rate = " if load.by_rate else "C = ") + ", ".join(f"{at:g}" for at in load.rates or load.levels)
    simulated = "SIMULATED" if session.simulated else ""
    facts = [
        ("Session", session.id),
        ("Date", session.created),
        *(
            ("Endpoint", " · ".join(filter(None, (e.url, e.model, e.engine, api_text(e), simulated))))
            for e in session.endpoints
        ),
        *(("Server", text) for text in dict.fromkeys(map(_server_description, summary.servers))),
        ("Server flags", session.server_flags),
        ("GPUs", count_names(summary.gpus)),
        ("Workload", f"{session.workload} ({session.workload_digest[:12]})"),
        (
            "Plan",
            f"{plan.goal} over {levels}; {load.runs} × {load.run_length} per level; warm-up {summary.warmup_requests}",
        ),
        ("Token limit", "" if plan.max_tokens is None else str(plan.max_tokens)),
        ("Temperature", "" if plan.temperature is None else f"{plan.temperature:g}"),
        ("SLO", plan.slo),
        ("Client", f"swarmtui {session.client.version}, Python {session.client.python}, {session.client.cores} cores"),
        ("Hosts", ", ".join(f"{host.name} ({host.cores} cores)" for host in session.hosts)),
        ("Schema", str(summary.schema)),
        ("Note", session.note),
        ("Series", str(session.series or "")),
        ("Tags", ", ".join(f"{name}={value}" for name, value in session.tags.items())),
    ]
    return tuple((name, value) for name, value in facts if value)


def _server_description(server: DiscoveredServer) -> str:
    """Describe a server by engine, version, slots and flags."""
    flags = " ".join(f"{name} {value}".strip() for name, value in (server.flags or {}).items())
    slots = "" if server.slots is None else f"{server.slots} slots"
    return " · ".join(filter(None, (f"{server.engine} {server.version}".strip(), slots, flags)))


def _tables(summary: Summary) -> tuple[Table, ...]:
    levels = summary.levels
    return (
        _table("Throughput", levels, _THROUGHPUT, "output tok/s unless stated otherwise; ~: estimated"),
        _table("Latency", levels, _LATENCY, "median, below 5 answers with minimum and maximum"),
        _table("Contention and speed-up", levels if len(levels) > 1 else (), _CONTENTION),
        *load_tables(summary),
        _table("Without cap hits", levels if any(level.cap_hits for level in levels) else (), _CLEAN),
        machine_table(levels),
        _bandwidth(summary),
        goodput_table(summary),
        _scaling(summary),
        _checks(summary),
    )


Cell = Callable[[Level], str]


def token_rate(level: Level, value: float | None, factor: float = 1.0) -> str:
    """Format a figure per token, marked with ~ if the server did not count the tokens."""
    text = significant(None if value is None else value * factor)
    return f"~{text}" if value is not None and level.tokens_estimated else text


def _median_and_range(spread: Spread) -> str:
    shown = seconds(spread.median)
    if spread.p50 is not None or spread.min is None or spread.min == spread.max:
        return shown
    return f"{shown} ({seconds(spread.min)}–{seconds(spread.max)})"


_THROUGHPUT: tuple[tuple[str, Cell], ...] = (
    ("runs", lambda level: str(level.runs)),
    ("n", lambda level: str(level.n)),
    ("errors", lambda level: str(level.errors)),
    ("cap hits", lambda level: str(level.cap_hits)),
    ("steady", lambda level: token_rate(level, level.out_tps_steady)),
    ("wall", lambda level: token_rate(level, level.out_tps_wall)),
    ("prompt", lambda level: significant(level.prompt_tps)),
    ("prompt + output", lambda level: token_rate(level, level.total_tps)),
    ("stream", lambda level: token_rate(level, level.per_stream_tps.mean)),
    ("in flight", lambda level: significant(level.c_achieved, 3)),
)
_LATENCY: tuple[tuple[str, Cell], ...] = (
    ("TTFT", lambda level: _median_and_range(level.ttft_s)),
    ("TTFT p90", lambda level: seconds(level.ttft_s.p90)),
    ("TTFT p99", lambda level: seconds(level.ttft_s.p99)),
    ("TPOT mean", lambda level: milliseconds(level.tpot_s.mean)),
    ("TPOT p90", lambda level: milliseconds(level.tpot_s.p90)),
    ("e2e", lambda level: _median_and_range(level.e2e_s)),
    ("e2e p90", lambda level: seconds(level.e2e_s.p90)),
    ("longest stall", lambda level: seconds(level.longest_stall_s)),
)
_CONTENTION: tuple[tuple[str, Cell], ...] = (
    ("stream", lambda level: token_rate(level, level.per_stream_tps.mean)),
    ("slowdown", lambda level: short_percent(level.slowdown)),
    ("scaling", lambda level: factor(level.rate_speedup)),
    ("wall speed-up", lambda level: factor(level.wall_speedup)),
    ("token ratio", lambda level: significant(level.token_ratio, 3)),
    ("straggler", lambda level: significant(level.straggler, 3)),
    ("passed", lambda level: short_percent(level.pass_rate)),
)
_CLEAN: tuple[tuple[str, Cell], ...] = (
    ("cap hits", lambda level: f"{level.cap_hits} of {level.ok}"),
    ("stream, all", lambda level: token_rate(level, level.per_stream_tps.mean)),
    ("stream, clean", lambda level: token_rate(level, level.per_stream_tps_clean.mean)),
)


_MACHINE: tuple[tuple[str, Cell], ...] = (
    ("GPU W", lambda level: significant(level.energy.mean_w) if level.energy else MISSING),
    ("J/token", lambda level: token_rate(level, level.energy.j_per_token) if level.energy else MISSING),
    ("tokens/J", lambda level: token_rate(level, level.energy.tokens_per_j) if level.energy else MISSING),
    ("GPU GiB", lambda level: gib(level.energy.peak_memory) if level.energy else MISSING),
    ("throttled", lambda level: short_percent(level.energy.throttled) if level.energy else MISSING),
    ("TTFT: queue", lambda level: _part(level, "queue_s")),
    ("TTFT: prefill", lambda level: _part(level, "prefill_s")),
    ("TTFT: rest", lambda level: _part(level, "rest_s")),
)


def _part(level: Level, name: Literal["queue_s", "prefill_s", "rest_s"]) -> str:
    split = level.ttft_split
    value = getattr(split, name) if split else None
    return f"est. {seconds(value)}" if split and split.estimated and value is not None else seconds(value)


def machine_table(levels: Sequence[Level]) -> Table:
    """Tabulate GPU figures and the parts of TTFT by level; without rows if neither was measured."""
    return _table("Machine", [x for x in levels if x.energy or x.ttft_split], _MACHINE, _machine_note(levels))


def _machine_note(levels: Sequence[Level]) -> str:
    notes = []
    if any(level.energy and level.energy.simulated for level in levels):
        notes.append("GPU figures are SIMULATED")
    if any(level.energy and level.energy.joules is not None for level in levels):
        when = "steady" if any(level.headline_is_steady for level in levels) else "wall"
        notes.append(
            f"W and J from the energy counters over the time of {when}, GPUs only; W, J and GiB are sums over the GPUs"
        )
    if any(level.energy and level.energy.all_gpus for level in levels):
        notes.append("GPU figures are of all GPUs of the host in use: which of them the server uses is not known")
    if any(level.ttft_split and not level.ttft_split.estimated for level in levels):
        notes.append("TTFT: parts of the mean of all requests, also unmeasured ones, as the server reports them")
    if any(level.ttft_split and level.ttft_split.estimated for level in levels):
        notes.append("est.: estimated from C=1, where the server reported nothing in the time of a level")
    return "; ".join(notes)


def _table(title: str, levels: Sequence[Level], columns: tuple[tuple[str, Cell], ...], note: str = "") -> Table:
    """Build a table with one row per level, its C or rate first, without columns that are empty."""
    columns = ((load_title(levels), lambda level: f"{level.offered_load:g}"), *columns)
    rows = [tuple(cell(level) for _, cell in columns) for level in levels]
    kept = [index for index in range(len(columns)) if any(row[index] != MISSING for row in rows)]
    return Table(
        title,
        tuple(columns[index][0] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
        (True,) * len(kept),
        note,
    )


def _bandwidth(summary: Summary) -> Table:
    rows = tuple((str(u.c), significant(u.step_bytes / 2**30, 3), short_percent(u.share)) for u in summary.bandwidth)
    note = "from the model size in the tags and the mean time per token"
    if any(used.share > 1.0 for used in summary.bandwidth):
        note += "; above 100 % is impossible: the size is wrong, or a step yields several tokens (speculative decoding)"
    return Table("Memory bandwidth", ("C", "GiB per step", "share of peak"), rows, (True,) * 3, note)


_SLO_WORDS = {True: "kept", False: "missed", None: "undecided"}


def goodput_table(summary: Summary) -> Table:
    estimated = {level.key for level in summary.levels if level.tokens_estimated}
    rows = tuple(
        (
            f"{found.offered_load:g}",
            f"{found.good} of {found.n}",
            short_percent(found.share),
            _SLO_WORDS[found.kept],
            significant(found.per_s),
            f"{'~' if found.out_tps and found.key in estimated else ''}{significant(found.out_tps)}",
        )
        for found in summary.goodput
    )
    varied = load_title(summary.goodput)
    columns = (varied, "met the SLO", "share", "SLO", "good requests/s", "good tok/s")
    slo = summary.capacity.slo if summary.capacity else summary.session.plan.slo
    return Table("Goodput", columns, rows, (True, True, True, False, True, True), slo)


def _scaling(summary: Summary) -> Table:
    found = summary.scaling
    if found is None:
        return Table("Scaling", (), (), ())
    refused = {name: why.text for name, why in found.refused.items()}
    step = MISSING
    if found.step_a_s is not None and found.step_c_s is not None:
        step = f"{significant(1e3 * found.step_a_s)} + {significant(1e3 * found.step_c_s)}·b ms"
    slots = found.slots
    rows = (
        ("decode step", step, refused.get("fit", f"error at most {short_percent(found.fit_error)}")),
        (
            "slots",
            str(slots.total) if slots else MISSING,
            slots.reason if slots else refused.get("slots", "not reported, no queue observed"),
        ),
        (
            "σ",
            significant(found.sigma, 3),
            refused.get("ceiling", "share of a step that grows with the number of streams"),
        ),
        (
            "ceiling",
            significant(found.ceiling_tps),
            refused.get("ceiling", "tok/s with any number of slots; extrapolated"),
        ),
        ("knee", significant(found.knee, 3), refused.get("knee", "C at half of the ceiling")),
        ("sweet spot", str(found.sweet_spot or MISSING), refused.get("sweet spot", "")),
        *(
            (
                f"queueing delay at C={x.c}",
                f"{'−' if x.seconds < 0 else '+'}{seconds(abs(x.seconds))}",
                f"mean TTFT {factor(x.factor)} that of the highest C with a slot for each",
            )
            for x in found.queueing_delay
        ),
    )
    return Table("Scaling", ("quantity", "value", "basis"), rows, (False, True, False))


def _checks(summary: Summary) -> Table:
    rows = tuple((c.state, c.name, c.value, c.limit, c.sentence) for c in summary.checks)
    return Table("Publication checklist", ("state", "check", "value", "limit", ""), rows, (False,) * 5)


def remarks(levels: Sequence[Level]) -> list[str]:
    """Return each remark once, with the levels that it applies to; alarms are marked."""
    loads: dict[str, list[str]] = {}
    for level in levels:
        for flag in level.flags:
            loads.setdefault(flag.text, []).append(f"{level.offered_load:g}")
    alarms = {flag.text for level in levels for flag in level.flags if flag.code in ALARMS}
    title = load_title(levels)
    return [f"{'✗ ' if text in alarms else ''}{title}={','.join(at)}: {text}" for text, at in loads.items()]


def event_lines(summary: Summary) -> list[str]:
    t0 = summary.session.t0_ns
    return [
        f"+{(event.t_ns - t0) / 1e9:.1f} s {event.name}" + (f": {event.detail}" if event.detail else "")
        for event in summary.events
    ]
