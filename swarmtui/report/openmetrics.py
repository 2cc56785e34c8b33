"""Export the figures of levels in the OpenMetrics text format, to be pushed to a metrics store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.model.session import Level, Spread
from swarmtui.report.charts import SessionData
from swarmtui.text import sanitize


class Family(NamedTuple):
    """One metric of a level: a single value, or with `spread` its quantiles. OpenMetrics requires the unit's suffix."""

    name: str
    unit: str
    help: str
    value: Callable[[Level], float | None] = lambda level: None
    spread: Callable[[Level], Spread] | None = None


FAMILIES = (
    Family("steady_tokens_per_second", "", "Output tokens per second while C requests were in flight",
           lambda level: level.out_tps_steady),
    Family("wall_tokens_per_second", "", "Output tokens per second from the first request to the last token",
           lambda level: level.out_tps_wall),
    Family("stream_tokens_per_second", "", "Decode rate of one stream, mean",
           lambda level: level.per_stream_tps.mean),
    Family("ttft_seconds", "seconds", "Time to first token", spread=lambda level: level.ttft_s),
    Family("tpot_seconds", "seconds", "Time per output token", spread=lambda level: level.tpot_s),
    Family("e2e_seconds", "seconds", "Time from the request to its last token", spread=lambda level: level.e2e_s),
    Family("held_streams", "", "Mean requests in flight while the client had work for C streams",
           lambda level: level.c_held),
    Family("arrivals_per_second", "", "Requests due per second in an open loop", lambda level: level.arrived_per_s),
    Family("completions_per_second", "", "Requests completed per second in an open loop",
           lambda level: level.served_per_s),
    Family("gpu_joules_per_token", "", "Energy of the GPUs per output token",
           lambda level: level.energy.j_per_token if level.energy else None),
    Family("requests_succeeded", "", "Measured requests that were answered", lambda level: level.ok),
    Family("requests_failed", "", "Requests that failed, also unmeasured ones", lambda level: level.errors),
)  # fmt: skip
_QUANTILES = {"0.5": "p50", "0.9": "p90", "0.95": "p95", "0.99": "p99", "1": "max"}


def render_openmetrics(sessions: Sequence[SessionData]) -> bytes:
    """Write one sample per level and figure; what was not measured has no sample."""
    lines = ["# TYPE swarmtui_session info", "# HELP swarmtui_session What was measured"]
    lines += [f"swarmtui_session_info{format_labels(_session_labels(session))} 1" for session in sessions]
    for family in FAMILIES:
        name = f"swarmtui_level_{family.name}"
        samples = [
            f"{name}{format_labels(_level_labels(session, level) | quantile)} {value!r}"
            for session in sessions
            for level in session.summary.levels
            for quantile, value in family_values(family, level)
        ]
        if samples:
            lines.append(f"# TYPE {name} {'gauge' if family.spread is None else 'summary'}")
            lines += [f"# UNIT {name} {family.unit}"] if family.unit else []
            lines += [f"# HELP {name} {family.help}", *samples]
    return "\n".join([*lines, "# EOF", ""]).encode()


def family_values(family: Family, level: Level) -> list[tuple[dict[str, str], float]]:
    if family.spread is None:
        value = family.value(level)
        return [] if value is None else [({}, value)]
    spread = family.spread(level)
    found = [({"quantile": quantile}, getattr(spread, field)) for quantile, field in _QUANTILES.items()]
    return [(label, value) for label, value in found if value is not None]


def _session_labels(session: SessionData) -> dict[str, str]:
    """Name the session and what distinguishes it in a dashboard."""
    of = session.summary.session
    return {
        "session": of.id,
        "model": of.endpoints[0].model if of.endpoints else "",
        "workload": of.workload,
        "label": of.label,
        "engine": ",".join(sorted({server.engine for server in session.summary.servers})),
        "simulated": str(of.simulated).lower(),
    }


def _level_labels(session: SessionData, level: Level) -> dict[str, str]:
    of = session.summary.session
    load = {"c": str(level.c)} if level.rate is None else {"rate": f"{level.rate:g}"}
    return {"session": of.id, "model": of.endpoints[0].model if of.endpoints else "", **load}


def format_labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return sanitize(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
