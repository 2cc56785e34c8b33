"""Metrics for Prometheus: of a running session for `--metrics-port`, and of levels as OpenMetrics, to be pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.model.client_protocol import TTFT_BOUNDS, Frame
from swarmtui.model.session import Level, Session, Spread
from swarmtui.model.telemetry import Gpu, ServerState
from swarmtui.text import sanitize
from swarmtui.version import __version__

if TYPE_CHECKING:
    from swarmtui.report.charts import SessionData

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUALITY_VALUES = {"ok": 0, "note": 1, "doubtful": 2, "wrong": 2}
TTFT = "swarmtui_ttft_seconds"

Sample = tuple[dict[str, str], float | None]


class Family(NamedTuple):
    """One metric of a level: a single value, or the quantiles of a spread. OpenMetrics requires the unit's suffix."""

    name: str
    unit: str
    help: str
    value: Callable[[Level], Spread | float | None]


FAMILIES = (
    Family("steady_tokens_per_second", "", "Output tokens per second while C requests were in flight",
           lambda level: level.out_tps_steady),
    Family("wall_tokens_per_second", "", "Output tokens per second from the first request to the last token",
           lambda level: level.out_tps_wall),
    Family("stream_tokens_per_second", "", "Decode rate of one stream, mean",
           lambda level: level.per_stream_tps.mean),
    Family("ttft_seconds", "seconds", "Time to first token", lambda level: level.ttft_s),
    Family("tpot_seconds", "seconds", "Time per output token", lambda level: level.tpot_s),
    Family("e2e_seconds", "seconds", "Time from the request to its last token", lambda level: level.e2e_s),
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


class Metric(NamedTuple):
    """A gauge or counter, and its samples in a frame; one that is not known is left out."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Callable[[Frame], list[Sample]]


def _one(value: Callable[[Frame], float | None]) -> Callable[[Frame], list[Sample]]:
    return lambda frame: [({}, value(frame))]


def _per_gpu(value: Callable[[Gpu], float | None]) -> Callable[[Frame], list[Sample]]:
    return lambda frame: [
        ({"gpu": str(gpu.index), "name": gpu.name, "host": gpu.host}, value(gpu))
        for gpu in (frame.telemetry.gpus if frame.telemetry is not None else ())
    ]


def _per_server(value: Callable[[ServerState], float | None]) -> Callable[[Frame], list[Sample]]:
    return lambda frame: [
        ({"server": str(number), "engine": server.engine}, value(server))
        for number, server in enumerate(frame.telemetry.servers if frame.telemetry is not None else ())
    ]


def _capacity(frame: Frame) -> list[Sample]:
    """What a search has shown so far: at least `low`, and below `high`."""
    search = frame.search
    if search is None or search.goal != "capacity":
        return []
    return [({"bound": "low"}, search.at_least), ({"bound": "high"}, search.high)]


METRICS = (
    Metric("status", "gauge", "1 for what the session is doing now", lambda frame: [({"status": frame.status}, 1)]),
    Metric("elapsed_seconds", "gauge", "Time since the start of the session", _one(lambda frame: frame.elapsed_s)),
    Metric("concurrency", "gauge", "C: agents that send requests at the same time", _one(lambda frame: frame.c)),
    Metric("offered_requests_per_second", "gauge", "Rate of an open loop", _one(lambda frame: frame.rate)),
    Metric("requests_in_flight", "gauge", "Requests in flight", _one(lambda frame: frame.in_flight)),
    Metric("requests_waiting", "gauge", "Requests in flight without a first token", _one(lambda frame: frame.waiting)),
    Metric("output_tokens_per_second", "gauge", "Output tokens per second, over the last second",
           _one(lambda frame: frame.out_tps)),
    Metric("stream_tokens_per_second", "gauge", "Decode rate of one stream", _one(lambda frame: frame.per_stream_tps)),
    Metric("requests_total", "counter", "Requests that ended, also unmeasured ones; no cancelled ones",
           _one(lambda frame: frame.totals.requests)),
    Metric("request_errors_total", "counter", "Requests that failed, by error",
           lambda frame: [({"error": name}, count) for name, count in sorted(frame.totals.errors.items())]),
    Metric("prompt_tokens_total", "counter", "Prompt tokens of the answered requests",
           _one(lambda frame: frame.totals.tokens_in)),
    Metric("output_tokens_total", "counter", "Output tokens of the answered requests",
           _one(lambda frame: frame.totals.tokens_out)),
    Metric("capacity_agents", "gauge", "What a search for the capacity knows so far", _capacity),
    Metric("quality", "gauge", "Measurement quality: 0 ok, 1 a note, 2 doubtful",
           lambda frame: [({"code": line.code}, QUALITY_VALUES[line.state]) for line in frame.quality]),
    Metric("client_lag_seconds", "gauge", "How late the event loop of the load generator is",
           _one(lambda frame: None if frame.lag_ms is None else frame.lag_ms / 1e3)),
    Metric("client_cpu_ratio", "gauge", "Share of a core that the busiest worker uses",
           _one(lambda frame: frame.worker_cpu)),
    Metric("server_requests_running", "gauge", "Requests that the server processes, as it reports",
           _per_server(lambda server: server.running)),
    Metric("server_requests_waiting", "gauge", "Requests that the server queues, as it reports",
           _per_server(lambda server: server.waiting)),
    Metric("server_kv_use_ratio", "gauge", "Share of the KV cache in use", _per_server(lambda server: server.kv_use)),
    Metric("gpu_power_watts", "gauge", "Power of the GPU", _per_gpu(lambda gpu: gpu.power_w)),
    Metric("gpu_utilisation_ratio", "gauge", "Share of the time in which the GPU was busy",
           _per_gpu(lambda gpu: gpu.utilisation)),
    Metric("gpu_memory_used_bytes", "gauge", "Memory of the GPU in use", _per_gpu(lambda gpu: gpu.memory_used)),
    Metric("gpu_memory_total_bytes", "gauge", "Memory of the GPU", _per_gpu(lambda gpu: gpu.memory_total)),
    Metric("gpu_temperature_celsius", "gauge", "Temperature of the GPU", _per_gpu(lambda gpu: gpu.temperature_c)),
    Metric("gpu_energy_joules_total", "counter", "Energy since the driver was loaded",
           _per_gpu(lambda gpu: gpu.energy_j)),
)  # fmt: skip


def render_live(session: Session | None, frame: Frame | None) -> bytes:
    """Render the newest frame; before the first one only the version is known."""
    lines = [*_lines("swarmtui_build_info", "gauge", "The version of swarmtui", [({"version": __version__}, 1)])]
    if session is not None:
        labels = _session_labels(session) | {"goal": session.plan.goal}
        lines += _lines("swarmtui_session_info", "gauge", "What is measured", [(labels, 1)])
    if frame is not None:
        for metric in METRICS:
            lines += _lines(f"swarmtui_{metric.name}", metric.kind, metric.help, metric.samples(frame))
        lines += [*_ttft_histogram(frame), *_level_lines([({}, level) for level in frame.levels])]
    return ("\n".join(lines) + "\n").encode()


def render_openmetrics(sessions: Sequence[SessionData]) -> bytes:
    """Write one sample per level and figure; what was not measured has no sample."""
    lines = ["# TYPE swarmtui_session info", "# HELP swarmtui_session What was measured"]
    levels: list[tuple[dict[str, str], Level]] = []
    for session in sessions:
        summary, labels = session.summary, _session_labels(session.summary.session)
        engine = ",".join(sorted({server.engine for server in summary.servers}))
        described = labels | {"label": summary.session.label, "engine": engine}
        lines.append(f"swarmtui_session_info{_format_labels(described)} 1")
        named = {name: labels[name] for name in ("session", "model")}
        levels += [(named, level) for level in summary.levels]
    return "\n".join([*lines, *_level_lines(levels), "# EOF", ""]).encode()


def _lines(name: str, kind: str, text: str, samples: Iterable[Sample], unit: str = "") -> Iterator[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if known:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        if unit:
            yield f"# UNIT {name} {unit}"
        for labels, value in known:
            yield f"{name}{_format_labels(labels) if labels else ''} {value!r}"


def _ttft_histogram(frame: Frame) -> Iterator[str]:
    totals = frame.totals
    yield f"# HELP {TTFT} Time to first token of the answered requests"
    yield f"# TYPE {TTFT} histogram"
    counts = list(accumulate(totals.ttft_counts))
    for bound, count in zip((*map(repr, TTFT_BOUNDS), "+Inf"), counts, strict=True):
        yield f'{TTFT}_bucket{{le="{bound}"}} {count}'
    yield f"{TTFT}_sum {totals.ttft_sum_s!r}"
    yield f"{TTFT}_count {counts[-1]}"


def _level_lines(levels: Sequence[tuple[dict[str, str], Level]]) -> Iterator[str]:
    for family in FAMILIES:
        samples: list[Sample] = []
        kind = "gauge"
        for labels, level in levels:
            named = labels | ({"c": str(level.c)} if level.rate is None else {"rate": f"{level.rate:g}"})
            value = family.value(level)
            if isinstance(value, Spread):
                kind = "summary"
                samples += [(named | {"quantile": at}, getattr(value, part)) for at, part in _QUANTILES.items()]
            else:
                samples.append((named, value))
        yield from _lines(f"swarmtui_level_{family.name}", kind, family.help, samples, family.unit)


def _session_labels(session: Session) -> dict[str, str]:
    """Name the session and what distinguishes it in a dashboard."""
    return {
        "session": session.id,
        "model": session.endpoints[0].model if session.endpoints else "",
        "workload": session.workload,
        "simulated": str(session.simulated).lower(),
    }


def _format_labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return sanitize(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
