"""Build what commands list: workloads, servers, checks of this host, recorded traces, and compared sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.analysis.compare.leaderboard import LeaderboardRow
from swarmtui.analysis.trace_stats import TraceStats
from swarmtui.model.session import Spread
from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.model.workload import WorkloadDescription
from swarmtui.numbers import MISSING, count, milliseconds, percent, rate, seconds
from swarmtui.report.table import Block, Cell, Code, Column, Facts, Fields, Sentence, Table, keyed, tabulate
from swarmtui.text import count_noun

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_FLAGS = 12
_STATES: dict[str, tuple[str, Code]] = {
    "ok": ("✓", "ok"), "note": ("·", "detail"), "doubtful": ("?", "unknown"), "wrong": ("✗", "missed"),
}  # fmt: skip


def workload_table(rows: Sequence[WorkloadDescription]) -> Table:
    columns: list[Column[WorkloadDescription]] = [
        Column("name", "name", lambda row: row.name, right=False),
        Column("kind", "kind", lambda row: row.kind, right=False),
        Column("prompts", "prompts", lambda row: row.prompts),
        Column("in", "in", lambda row: row.input, right=False, least=12),
        Column("out", "out", lambda row: row.output, right=False, least=12),
    ]
    return tabulate("", rows, columns)


def check_blocks(line: QualityLine) -> list[Sentence]:
    """Return sign, state, name and value of a check, and what that means, or what to do."""
    sign, code = _STATES[line.state]
    return [Sentence(f"{sign} {line.state}: {line.name}: {line.value}", code), Sentence(line.sentence, "detail")]


def discovery_blocks(servers: Sequence[DiscoveredServer]) -> list[Block]:
    if not servers:
        return [Sentence("no inference server found on this host; `swarmtui sim` starts a simulated one")]
    return [_server(server) for server in servers]


def _server(server: DiscoveredServer) -> Facts:
    flags = [name if value == "true" else f"{name} {value}" for name, value in (server.flags or {}).items()]
    more = [f"and {len(flags) - _SHOWN_FLAGS} more (--json)"] if len(flags) > _SHOWN_FLAGS else []
    facts = (
        ("server", server.url if server.reachable else f"{server.url} (not responding)"),
        ("engine", f"{server.engine} {server.version}".strip() or "unknown"),
        ("models", ", ".join(server.models) or MISSING),
        ("context", MISSING if server.context is None else f"{server.context:,} tokens per request"),
        ("slots", MISSING if server.slots is None else str(server.slots)),
        ("process", MISSING if server.pid is None else str(server.pid)),
        ("user", server.user),
        ("GPUs", ", ".join(server.gpus)),
        ("flags", "unknown" if server.flags is None else ", ".join([*flags[:_SHOWN_FLAGS], *more]) or "none"),
        ("problem", server.problem),
    )
    return Facts(tuple((name, value) for name, value in facts if value))


def trace_blocks(stats: TraceStats) -> list[Block]:
    agents = f", {count_noun(stats.subagents, 'sub-agent')} (up to {stats.fan_out} between two requests)"
    sessions = count_noun(stats.sessions, "session")
    lines = [f"{sessions}, {count_noun(stats.requests, 'request')}{agents if stats.subagents else ''}"]
    if stats.arrivals_s is not None:
        lines.append(f"arrivals over {seconds(stats.arrivals_s)}")
    lines.append(f"prompt tokens {count(stats.input_tokens)}, output tokens {count(stats.output_tokens)} (sums)")
    if stats.hit_rate is None:
        lines.append("prefix-cache hit rate: unknown, the trace has no block ids")
    else:
        lines.append(f"prefix-cache hit rate: {percent(stats.hit_rate, 1)} at most (of a cache without a limit)")
    lines.append(f"context of a request, mean: {count(stats.mean_context)} tokens")
    samples: list[tuple[str, Spread | None, Callable[[float | None], str]]] = [
        ("turns per session", stats.turns, count),
        ("prompt tokens", stats.input, count),
        ("new prompt tokens", stats.new_tokens, count),
        ("output tokens", stats.output, count),
        ("think time", stats.think_s, seconds),
    ]
    rows: list[Fields] = [
        {"name": name, "min": text(found.min), "p50": text(found.p50), "p90": text(found.p90), "max": text(found.max)}
        for name, found, text in samples
        if found is not None and found.n
    ]
    columns = [keyed("name", "per request", right=False), *(keyed(name, name) for name in ("min", "p50", "p90", "max"))]
    end = count(len(stats.input_histogram) * stats.histogram_step)
    plot = Sentence(f"prompt tokens, 0 to {end}: {_bars(stats.input_histogram)}")
    return [*map(Sentence, lines), tabulate("", rows, columns), plot]


def _bars(counts: Sequence[int]) -> str:
    """Draw a bar per class; an empty class is a dot."""
    highest = max(counts, default=0)
    return "".join(_BARS[(len(_BARS) - 1) * value // highest] if value else "·" for value in counts)


def leaderboard_blocks(rows: Sequence[LeaderboardRow]) -> list[Block]:
    if len(rows) < 3:
        return []
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
