"""Render the description of recorded traces as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.analysis.trace_stats import TraceStats
from swarmtui.cli.render.table import align_table
from swarmtui.model.session import Spread
from swarmtui.numbers import count, percent, seconds
from swarmtui.text import count_noun

_BARS = "▁▂▃▄▅▆▇█"


def traces_text(stats: TraceStats) -> str:
    agents = f", {count_noun(stats.subagents, 'sub-agent', 'sub-agents')} (up to {stats.fan_out} between two requests)"
    sessions = count_noun(stats.sessions, "session", "sessions")
    lines = [f"{sessions}, {count_noun(stats.requests, 'request', 'requests')}{agents if stats.subagents else ''}"]
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
    rows = [
        [name, *(text(value) for value in (found.min, found.p50, found.p90, found.max))]
        for name, found, text in samples
        if found is not None and found.n
    ]
    table = align_table(["per request", "min", "p50", "p90", "max"], rows, right=[False, True, True, True, True])
    end = count(len(stats.input_histogram) * stats.histogram_step)
    plot = f"prompt tokens, 0 to {end}: {_bars(stats.input_histogram)}"
    return "\n".join([*lines, "", *table, "", plot]) + "\n"


def _bars(counts: Sequence[int]) -> str:
    """Draw a bar per class; an empty class is a space."""
    highest = max(counts, default=0)
    return "".join(_BARS[(len(_BARS) - 1) * value // highest] if value else " " for value in counts)
