"""Build the report of a session: facts, tables and sentences, for the terminal and for exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.capacity.agents import capacity_sentences, cost_per_million
from swarmtui.analysis.capacity.marks import summary_marks
from swarmtui.analysis.capacity.scaling import best_level
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.slo import usable_slo
from swarmtui.analysis.machine.energy import count_names
from swarmtui.analysis.quality.checklist import checklist_sentence
from swarmtui.model.endpoint import api_text
from swarmtui.model.findings import Check, Goodput
from swarmtui.model.plan import Plan, is_open_loop, load_title
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import MISSING, factor, seconds, short, short_percent, significant
from swarmtui.report.answer import answer_rows
from swarmtui.report.changes import change_tables
from swarmtui.report.charts import SessionData, session_title
from swarmtui.report.comparison import answer_lines, comparison_tables
from swarmtui.report.figure_tables import clean_table, load_tables, machine_table, throughput_tables, time_table
from swarmtui.report.level_columns import tokens
from swarmtui.report.levels import first_tokens_over, level_table, slo_cells, slo_counts
from swarmtui.report.limits import limit_facts, limit_table
from swarmtui.report.remarks import remarks
from swarmtui.report.table import Block, Cell, Column, Facts, Sentence, Table, tabulate
from swarmtui.report.tasks import task_tables

FORMULAS = (
    "TTFT = first output − sent; per agent = Σ (n − tokens up to the first chunk) / Σ (t_end − t_first) over the "
    "answers, t_end: last output, or the end if tokens without text follow; tpot = its inverse; e2e = last token − "
    "sent. steady = all output tokens from the first measured send to the send after the last one / that time "
    "(recorded sessions: to the last one; without pre-roll requests: while C were in flight). In a closed loop, per "
    "agent and TTFT are of this time, too, and e2e has the answers cut off at its end by Kaplan and Meier's estimate. "
    "wall = all output tokens / makespan. in flight = Σ (last token − sent) / makespan (mean). "
    "slowdown = 1 − per agent / per agent at C=1; scaling = steady / steady at C=1 (batches: wall). "
    "Samples needed for a percentile: p50 5, p90 29, p95 59, p99 299. "
    "cap hit: an answer cut at the token limit; clean: without cap hits."
)


class Report(NamedTuple):
    """A report for Markdown and HTML, in this order: the answer in one sentence and as named lines, then all else."""

    title: str
    headline: str
    answer: tuple[tuple[str, str], ...]
    lead: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


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
        for table in (*change_tables(pair), *comparison_tables(pair))
    ]
    tables = [
        table._replace(title=f"{name}: {table.title}")
        for name, report in reports
        for table in (_fact_table(report.facts), *report.tables)
    ]
    notes = [
        f"{name}: {note}"
        for name, report in reports
        for note in (report.headline, *map(": ".join, report.answer), *report.lead, *report.notes)
        if note and note != FORMULAS
    ]
    return Report(
        title=session_title(sessions),
        headline=f"{pairs[0][0]} compared with {first.name}: {pairs[0][1].sentence}",
        answer=tuple((line.name, line.signed) for line in answer_lines(pairs[0][1])[1:]),
        lead=tuple(f"{name} compared with {first.name}: {pair.sentence}" for name, pair in pairs[1:]),
        facts=tuple(
            (name, "; ".join(map(str, (*pair.flags, *pair.differences))) or "no known difference")
            for name, pair in pairs
        ),
        tables=(*comparisons, *tables),
        notes=(*notes, FORMULAS),
    )


def _session_report(summary: Summary) -> Report:
    levels = summary.levels
    tables = (
        *throughput_tables(levels), *load_tables(summary), *task_tables(summary), time_table(levels),
        clean_table(levels), machine_table(levels), _limits(summary), goodput_table(summary), _scaling(summary),
        _check_table(summary.checks),
    )  # fmt: skip
    headline = summary.answer.headline.sentence if summary.answer else ""
    why = f": {summary.message}" if summary.message else "."
    ended = [] if summary.state == "done" else [f"this session is {summary.state}{why}"]
    return Report(
        title=session_title([SessionData("", summary)]),
        headline=_capital(headline),
        answer=tuple((name, text) for name, text in answer_rows(summary) if text != headline),
        lead=tuple(map(_capital, (*ended, *(found.text for found in finding_sentences(summary))))),
        facts=session_facts(summary),
        tables=tuple(table for table in tables if table.rows),
        notes=(*remarks(levels), *event_lines(summary), FORMULAS),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fact_table(facts: Sequence[tuple[str, str]]) -> Table:
    columns = tuple(Column[object](name, "", right=False) for name in ("name", "value"))
    return Table("Session", columns, tuple((Cell(name), Cell(value)) for name, value in facts))


def session_facts(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Describe what was measured, with what and how, by name and text."""
    session, plan = summary.session, summary.session.plan
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
        ("Hardware limit", _missing_limit(summary)),
        ("Workload", f"{session.workload} ({session.workload_digest[:12]})"),
        ("Plan", f"{_plan_text(plan)}; warm-up {summary.warmup_requests}"),
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


def _plan_text(plan: Plan) -> str:
    """`sweep over C = 1, 4; 1 × 2C requests per level`; a search chooses its levels and their requests itself."""
    if plan.goal == "capacity":
        search = "search for the capacity"
        return search if plan.budget_s is None else f"quick {search}, {plan.budget_s:g} s"
    load = plan.load
    levels = ("rate = " if load.by_rate else "C = ") + ", ".join(f"{at:g}" for at in load.rates or load.levels)
    over = "search for the cliff" if plan.goal == "cliff" else f"{plan.goal} over {levels}"
    return f"{over}; {load.runs} × {load.run_length} per level"


def _missing_limit(summary: Summary) -> str:
    """Say why it is not known what the hardware allows; empty if it is, and for a simulator."""
    found = summary.speed_of_light
    if summary.session.simulated or found is None or any(level.limit_tps for level in found.levels):
        return ""
    return f"not known: {'; '.join(fact.text for fact in found.missing)}" if found.missing else ""


def _server_description(server: DiscoveredServer) -> str:
    flags = " ".join(f"{name} {value}".strip() for name, value in (server.flags or {}).items())
    slots = "" if server.slots is None else f"{server.slots} slots"
    return " · ".join(filter(None, (f"{server.engine} {server.version}".strip(), slots, flags)))


# single tables


def _limits(summary: Summary) -> Table:
    """Tabulate the limit of each level; above 100 % of it, the facts about model or GPU are wrong."""
    found = summary.speed_of_light
    if found is None or all(level.limit_tps is None for level in found.levels):
        return Table("", (), ())
    facts = "; ".join(f"{name}: {text}" for name, text in limit_facts(found))
    return limit_table(found, note="; ".join([facts, *(fact.text for fact in found.missing)]))


_SLO_CELLS = {True: Cell("kept", "ok"), False: Cell("missed", "missed"), None: Cell("not sure yet", "unknown")}


def goodput_table(summary: Summary) -> Table:
    estimated = {level.key for level in summary.levels if level.tokens_estimated}
    counts = slo_counts(summary.goodput, summary.search)

    def met(found: Goodput) -> tuple[int, int]:
        _, good, n = counts[found.offered_load]
        return good, n

    columns: list[Column[Goodput]] = [
        Column("load", load_title(summary.goodput), lambda found: f"{found.offered_load:g}"),
        Column("good", "met the SLO", lambda found: "{} of {}".format(*met(found))),
        Column("share", "share", lambda found: ratio(*met(found)), short_percent),
        Column("slo", "SLO", lambda found: _SLO_CELLS[found.kept], right=False),
        Column("good_s", "good/s", lambda found: found.per_s),
        Column("good_tps", "good tok/s", lambda of: tokens(of.key in estimated and bool(of.out_tps), of.out_tps)),
    ]
    slo = summary.capacity.slo if summary.capacity else summary.session.plan.slo
    return tabulate("Goodput", summary.goodput, columns, slo)


def _scaling(summary: Summary) -> Table:
    found = summary.scaling
    if found is None:
        return Table("Scaling", (), ())
    refused = {name: why.text for name, why in found.refused.items()}
    step = None
    if found.step_a_s is not None and found.step_c_s is not None:
        step = f"{significant(1e3 * found.step_a_s)} + {significant(1e3 * found.step_c_s)}·b ms"
    slots, ceiling = found.slots, refused.get("ceiling")
    reason = slots.reason if slots else refused.get("slots", "not reported, no queue observed")
    sigma = ceiling or "share of a step that grows with the number of streams"
    delay = "mean TTFT {} that of the highest C with a slot for each"
    rows: list[tuple[str, str | None, str]] = [
        ("decode step", step, refused.get("fit", f"error at most {short_percent(found.fit_error)}")),
        ("slots", str(slots.total) if slots else None, reason),
        ("σ", significant(found.sigma, 3), sigma),
        ("ceiling", significant(found.ceiling_tps), ceiling or "tok/s with any number of slots; extrapolated"),
        ("knee", significant(found.knee, 3), refused.get("knee", "C at half of the ceiling")),
        ("sweet spot", str(found.sweet_spot or MISSING), refused.get("sweet spot", "")),
    ]
    for x in found.queueing_delay:
        value = f"{'−' if x.seconds < 0 else '+'}{seconds(abs(x.seconds))}"
        rows.append((f"queueing delay at C={x.c}", value, delay.format(factor(x.factor))))
    columns: list[Column[tuple[str, str | None, str]]] = [
        Column("quantity", "quantity", lambda row: row[0], right=False),
        Column("value", "value", lambda row: row[1]),
        Column("basis", "basis", lambda row: row[2], right=False),
    ]
    return tabulate("Scaling", rows, columns)


# publication checklist

_CHECK_CELLS = {
    "ok": Cell("✓ ok", "ok"),
    "not ok": Cell("✗ not ok", "missed"),
    "unknown": Cell("? unknown", "unknown"),
    "not applicable": Cell("– n/a", "not applicable"),
}


def _check_table(checks: Sequence[Check]) -> Table:
    columns: list[Column[Check]] = [
        Column("state", "state", lambda check: _CHECK_CELLS[check.state], right=False),
        Column("check", "check", lambda check: check.name, right=False),
        Column("value", "value", lambda check: check.value, right=False),
        Column("limit", "limit", lambda check: check.limit, right=False),
        Column("meaning", "", lambda check: check.sentence, right=False),
    ]
    return tabulate("Publication checklist", checks, columns)


def check_sentences(checks: Sequence[Check]) -> list[Sentence]:
    found = []
    for check in checks:
        text, code = _CHECK_CELLS[check.state]
        reason = check.state if check.state == "not applicable" else f"{check.value}; required {check.limit}"
        found.append(Sentence(f"{text[0]} {check.name}: {reason}: {check.sentence}", code))
    return found


# in the terminal


def session_blocks(summary: Summary) -> list[Block]:
    """Show a whole session: what was measured, its tables, findings and events."""
    session = summary.session
    facts = (
        *session_facts(summary),
        ("State", f"{summary.state}: {summary.message}" if summary.message else summary.state),
        ("Client host", session.client.host),
        ("Label", session.label),
        ("Repeats" if session.repeats else "Baseline", session.previous),
    )
    return [
        *answer_blocks(summary),
        Facts(tuple((name, value) for name, value in facts if value)),
        *level_blocks(summary.levels, summary),
        *result_tables(summary),
        Sentence(""),
        *finding_sentences(summary),
        *check_sentences([check for check in summary.checks if check.state != "ok"]),
        Sentence(""),
        *map(Sentence, event_lines(summary)),
    ]


def answer_blocks(summary: Summary) -> list[Block]:
    rows = answer_rows(summary)
    return [Facts(rows, answer=True)] if rows else []


def level_blocks(levels: Sequence[Level], summary: Summary | None = None) -> list[Block]:
    """Show the levels, with what the summary of their session says about them, and remarks on single ones."""
    if not levels:
        return [Sentence("nothing was measured")]
    table = level_table(levels)
    if summary is not None:
        met = slo_cells(summary.goodput, summary.search)
        slo = summary.answer.slo if summary.answer else summary.session.plan.slo
        over = first_tokens_over(levels, summary.goodput, usable_slo(slo))
        table = level_table(
            levels, summary.tasks, marks=summary_marks(summary), slo=met, over=over, search=summary.search,
            judged=summary.goodput,
        )  # fmt: skip
    return [table, *map(Sentence, remarks(levels))]


def result_tables(summary: Summary) -> list[Table]:
    """Return the tables of the load mode, the SLO and the machine; none for a plain closed loop without telemetry."""
    levels = summary.levels
    modes = (*load_tables(summary), *task_tables(summary))
    tables = (*modes, time_table(levels), goodput_table(summary), machine_table(levels))
    return [table for table in tables if table.rows]


def finding_sentences(summary: Summary) -> list[Sentence]:
    """Return what the answer leaves out: the sweet spot and the cliff, the cost, and the publication checklist."""
    border = summary.answer.border if summary.answer else ""
    sentences = capacity_sentences(summary.capacity, beside_border=bool(border)) if summary.capacity else []
    sentences += _scaling_sentences(summary)
    slots = summary.scaling.reported_slots if summary.scaling else None
    cost = cost_per_million(best_level(summary.levels, slots), summary.session.plan.price_per_hour)
    if cost is not None and not summary.capacity:
        sentences.append(f"{short(cost)} per million output tokens at the best level")
    sentences += [checklist_sentence(summary.checks)] if summary.checks else []
    return [Sentence(text, "lead") for text in sentences]


def _scaling_sentences(summary: Summary) -> list[str]:
    """Return how throughput scales; beside an answer without an SLO, which says it, only what is odd about it."""
    found, answer = summary.scaling, summary.answer
    if found is None or (len(summary.levels) < 2 and not is_open_loop(summary.levels)):
        return []
    if answer is None or answer.agents is not None:
        return [found.sentence]
    return list(map(str, found.anomalies))


def event_lines(summary: Summary) -> list[str]:
    t0 = summary.session.t0_ns
    return [
        f"+{(event.t_ns - t0) / 1e9:.1f} s {event.name}" + (f": {event.detail}" if event.detail else "")
        for event in summary.events
    ]
