"""A session as a report: facts, tables and sentences, the same for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.machine.energy import count_names
from swarmtui.analysis.quality.checks import checks_sentence
from swarmtui.model.session import Level, Spread, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import MISSING, factor, milliseconds, percent, seconds, significant
from swarmtui.sessions.export.comparison import comparison_tables
from swarmtui.sessions.export.curves import Source, title_of
from swarmtui.sessions.export.load_tables import load_tables
from swarmtui.sessions.export.structs import Table

FORMULAS = (
    "ttft = first output − sent; tok/s of a stream = (n − tokens of the first chunk) / (t_last − t_first); "
    "tpot = its inverse; e2e = last token − sent. steady = tokens while C requests were in flight, over that time; "
    "wall = all output tokens / makespan. real C = Σ e2e / makespan. lost = 1 − stream rate / stream rate at C=1; "
    "gain = steady / steady at C=1. A percentile needs n: p50 5, p90 29, p95 59, p99 299. "
    "clean: without answers that were cut at the token limit."
)


class Report(NamedTuple):
    title: str
    lead: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def report(summary: Summary) -> Report:
    return Report(
        title=title_of([Source("", summary)]),
        lead=_lead(summary),
        facts=_facts(summary),
        tables=tuple(table for table in _tables(summary) if table.rows),
        notes=_notes(summary),
    )


def _lead(summary: Summary) -> tuple[str, ...]:
    said = []
    if summary.state != "done":
        said.append(f"This session is {summary.state}" + (f": {summary.message}" if summary.message else "."))
    if summary.scaling is not None:
        said.append(summary.scaling.sentence)
    said.append(checks_sentence(summary.checks))
    return tuple(line[:1].upper() + line[1:] for line in said if line)


def _facts(summary: Summary) -> tuple[tuple[str, str], ...]:
    session, plan = summary.session, summary.session.plan
    each = f"{plan.duration_s:g} s" if plan.duration_s is not None else f"{plan.requests} requests"
    levels = ("rate = " if plan.rates else "C = ") + ", ".join(f"{at:g}" for at in plan.rates or plan.levels)
    facts = [
        ("Session", session.id),
        ("Measured", session.created),
        *(("Endpoint", " · ".join(filter(None, (e.url, e.model, e.engine)))) for e in session.endpoints),
        *(("Server", told) for told in dict.fromkeys(map(server_text, summary.servers))),
        ("Server flags", session.server_flags),
        ("GPUs", count_names(summary.gpus)),
        ("Workload", f"{session.workload} ({session.workload_digest[:12]})"),
        ("Plan", f"{plan.mode} over {levels}; {plan.runs} × {each} a level; warm-up {summary.warmup_requests}"),
        ("Token cap", "" if plan.max_tokens is None else str(plan.max_tokens)),
        ("Temperature", "" if plan.temperature is None else f"{plan.temperature:g}"),
        ("SLO", plan.slo),
        ("Client", f"swarmtui {session.client.version}, Python {session.client.python}, {session.client.cores} cores"),
        ("Schema", str(summary.schema)),
        ("Note", session.note),
        *((f"Tag {name}", value) for name, value in session.tags.items()),
    ]
    return tuple((name, value) for name, value in facts if value)


def server_text(server: DiscoveredServer) -> str:
    """As it was found: engine, version, seats, and how it was started."""
    flags = " ".join(f"{name} {value}".strip() for name, value in (server.flags or {}).items())
    seats = "" if server.slots is None else f"{server.slots} seats"
    return " · ".join(filter(None, (f"{server.engine} {server.version}".strip(), seats, flags)))


def _tables(summary: Summary) -> tuple[Table, ...]:
    levels = summary.levels
    return (
        _table("Throughput", levels, _THROUGHPUT, "output tok/s unless it says otherwise; ~ is an estimate"),
        _table("Latency", levels, _LATENCY, "median, or smallest–largest below 5 answers"),
        _table("Contention and speed-up", levels if len(levels) > 1 else (), _CONTENTION),
        *load_tables(summary),
        _table("Without cap hits", levels if any(level.cap_hits for level in levels) else (), _CLEAN),
        _table("Machine", [x for x in levels if x.energy or x.ttft_split], _MACHINE, _machine_note(levels)),
        _bandwidth(summary),
        goodput_table(summary),
        _scaling(summary),
        _checks(summary),
    )


Cell = Callable[[Level], str]


def _rate(level: Level, value: float | None) -> str:
    text = significant(value)
    return f"~{text}" if value is not None and level.token_source in ("chunks", "mixed") else text


def _middle(spread: Spread, unit: Callable[[float | None], str]) -> str:
    if spread.p50 is not None:
        return unit(spread.p50)
    if spread.min is None or spread.max is None:
        return MISSING
    low, high = unit(spread.min), unit(spread.max)
    return low if low == high else f"{low}–{high}"


_THROUGHPUT: tuple[tuple[str, Cell], ...] = (
    ("C", lambda level: f"{level.offered_load:g}"),
    ("runs", lambda level: str(level.runs)),
    ("n", lambda level: str(level.n)),
    ("errors", lambda level: str(level.errors)),
    ("cap hits", lambda level: str(level.cap_hits)),
    ("steady", lambda level: _rate(level, level.out_tps_steady)),
    ("wall", lambda level: _rate(level, level.out_tps_wall)),
    ("prompt", lambda level: significant(level.prompt_tps)),
    ("total", lambda level: _rate(level, level.total_tps)),
    ("a stream", lambda level: _rate(level, level.per_stream_tps.mean)),
    ("real C", lambda level: significant(level.c_achieved, 3)),
)
_LATENCY: tuple[tuple[str, Cell], ...] = (
    ("C", lambda level: f"{level.offered_load:g}"),
    ("TTFT", lambda level: _middle(level.ttft_s, seconds)),
    ("TTFT p90", lambda level: seconds(level.ttft_s.p90)),
    ("TTFT p99", lambda level: seconds(level.ttft_s.p99)),
    ("TPOT", lambda level: _middle(level.tpot_s, milliseconds)),
    ("TPOT p90", lambda level: milliseconds(level.tpot_s.p90)),
    ("e2e", lambda level: _middle(level.e2e_s, seconds)),
    ("e2e p90", lambda level: seconds(level.e2e_s.p90)),
    ("longest stall", lambda level: seconds(level.longest_stall_s)),
)
_CONTENTION: tuple[tuple[str, Cell], ...] = (
    ("C", lambda level: f"{level.offered_load:g}"),
    ("a stream, tok/s", lambda level: _rate(level, level.per_stream_tps.mean)),
    ("lost", lambda level: percent(level.contention)),
    ("gain", lambda level: factor(level.rate_speedup)),
    ("wall speed-up", lambda level: factor(level.wall_speedup)),
    ("token ratio", lambda level: significant(level.token_ratio, 3)),
    ("straggler", lambda level: significant(level.straggler, 3)),
    ("passed", lambda level: percent(level.pass_rate)),
)
_CLEAN: tuple[tuple[str, Cell], ...] = (
    ("C", lambda level: f"{level.offered_load:g}"),
    ("cut", lambda level: f"{level.cap_hits} of {level.ok}"),
    ("a stream, raw", lambda level: _rate(level, level.per_stream_tps.mean)),
    ("a stream, clean", lambda level: _rate(level, level.per_stream_tps_clean.mean)),
)


_MACHINE: tuple[tuple[str, Cell], ...] = (
    ("C", lambda level: f"{level.offered_load:g}"),
    ("GPU power, W", lambda level: significant(level.energy.mean_w) if level.energy else MISSING),
    ("J a token", lambda level: significant(level.energy.j_per_token, 3) if level.energy else MISSING),
    ("tokens a J", lambda level: significant(level.energy.tokens_per_j, 3) if level.energy else MISSING),
    ("GPU memory, GB", lambda level: _giga(level.energy.peak_memory) if level.energy else MISSING),
    ("throttled", lambda level: percent(level.energy.throttled) if level.energy else MISSING),
    ("TTFT: queue", lambda level: _part(level, "queue_s")),
    ("TTFT: prefill", lambda level: _part(level, "prefill_s")),
    ("TTFT: rest", lambda level: _part(level, "rest_s")),
)


def _part(level: Level, name: Literal["queue_s", "prefill_s", "rest_s"]) -> str:
    split = level.ttft_split
    value = getattr(split, name) if split else None
    return f"est. {seconds(value)}" if split and split.estimated and value is not None else seconds(value)


def _giga(count: int | None) -> str:
    return significant(None if count is None else count / 1e9, 3)


def _machine_note(levels: Sequence[Level]) -> str:
    said = []
    if any(level.energy and level.energy.simulated for level in levels):
        said.append("GPU figures are SIMULATED")
    if any(level.energy and level.energy.joules is not None for level in levels):
        said.append("W and J from the energy counters, GPUs only")
    if any(level.ttft_split for level in levels):
        said.append("TTFT: the mean, taken apart by the server's histograms")
    if any(level.ttft_split and level.ttft_split.estimated for level in levels):
        said.append("est.: from C=1, where the server does not tell")
    return "; ".join(said)


def _table(title: str, levels: Sequence[Level], columns: tuple[tuple[str, Cell], ...], note: str = "") -> Table:
    """Columns in which no level has anything are left out."""
    rows = [tuple(cell(level) for _, cell in columns) for level in levels]
    if any(level.rate is not None for level in levels):
        columns = (("rate", columns[0][1]), *columns[1:])
    kept = [place for place in range(len(columns)) if any(row[place] != MISSING for row in rows)]
    return Table(
        title,
        tuple(columns[place][0] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
        (True,) * len(kept),
        note,
    )


def _bandwidth(summary: Summary) -> Table:
    rows = tuple((str(u.c), significant(u.step_bytes / 1e9, 3), percent(u.share)) for u in summary.bandwidth)
    note = "from the bytes that the tags name, and the mean time per token"
    if any(used.share > 1.0 for used in summary.bandwidth):
        note += "; above 100 % cannot be: the bytes are wrong, or a step makes several tokens (speculative decoding)"
    return Table("Memory bandwidth", ("C", "GB a step", "of the GPU's"), rows, (True,) * 3, note)


def goodput_table(summary: Summary) -> Table:
    rows = tuple(
        (
            f"{found.offered_load:g}",
            f"{found.good} of {found.n}",
            percent(found.share),
            significant(found.per_s),
            significant(found.out_tps),
        )
        for found in summary.goodput
    )
    varied = "rate" if any(found.rate is not None for found in summary.goodput) else "C"
    columns = (varied, "kept the SLO", "share", "good requests/s", "good tok/s")
    return Table("Goodput", columns, rows, (True,) * 5, summary.session.plan.slo)


def _scaling(summary: Summary) -> Table:
    found = summary.scaling
    if found is None:
        return Table("Scaling", (), (), ())
    refused = found.refused
    step = MISSING
    if found.step_a_s is not None and found.step_c_s is not None:
        step = f"{significant(1e3 * found.step_a_s)} + {significant(1e3 * found.step_c_s)}·b ms"
    seats = found.slots
    rows = (
        ("decode step", step, refused.get("fit", f"off by at most {percent(found.fit_error)}")),
        ("seats", str(seats.total) if seats else MISSING, seats.reason if seats else "nobody said, no queue was seen"),
        ("σ", significant(found.sigma, 3), refused.get("ceiling", "share of a step that grows with each stream")),
        (
            "ceiling",
            significant(found.ceiling_tps),
            refused.get("ceiling", "tok/s with any number of seats; extrapolated"),
        ),
        ("knee", significant(found.knee, 3), refused.get("knee", "C at half of the ceiling")),
        ("sweet spot", str(found.sweet_spot or MISSING), refused.get("sweet spot", "")),
        *(
            (f"queue tax at C={x.c}", f"+{seconds(x.seconds)}", f"TTFT {factor(x.factor)}")
            for x in found.queueing_delay
        ),
    )
    return Table("Scaling", ("what", "value", "why"), rows, (False, True, False))


def _checks(summary: Summary) -> Table:
    rows = tuple((c.state, c.name, c.value, c.limit, c.sentence) for c in summary.checks)
    return Table("Fit to publish", ("state", "check", "value", "limit", ""), rows, (False,) * 5)


def _notes(summary: Summary) -> tuple[str, ...]:
    said: dict[str, list[str]] = {}
    for level in summary.levels:
        for flag in level.flags:
            said.setdefault(flag, []).append(f"{level.offered_load:g}")
    varied = "rate" if any(level.rate is not None for level in summary.levels) else "C"
    flags = [f"{varied}={', '.join(at)}: {flag}" for flag, at in said.items()]
    t0 = summary.session.t0_ns
    events = [
        f"+{(event.t_ns - t0) / 1e9:.1f} s {event.name}" + (f": {event.detail}" if event.detail else "")
        for event in summary.events
    ]
    return (*flags, *events, FORMULAS)


def report_of(sources: Sequence[Source]) -> Report:
    whole = [(source.name, report(source.summary)) for source in sources]
    if len(whole) == 1:
        return whole[0][1]
    first, *others = sources
    pairs = [(other.name, compare_pair(first.summary, other.summary)) for other in others]
    beside = [
        table._replace(title=f"{table.title}: A is {first.name}, B is {name}")
        for name, pair in pairs
        for table in comparison_tables(pair)
    ]
    each = [
        table._replace(title=f"{name}: {table.title}")
        for name, one in whole
        for table in (Table("Session", ("", ""), one.facts, (False, False)), *one.tables)
    ]
    notes = [f"{name}: {note}" for name, one in whole for note in (*one.lead, *one.notes) if note != FORMULAS]
    return Report(
        title=title_of(sources),
        lead=tuple(f"{name} against {first.name}: {pair.sentence}" for name, pair in pairs),
        facts=tuple(
            (name, "; ".join(map(str, (*pair.flags, *pair.differences))) or "no difference known")
            for name, pair in pairs
        ),
        tables=(*beside, *each),
        notes=(*notes, FORMULAS),
    )
