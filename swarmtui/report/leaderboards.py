"""Write the figures of a session as public leaderboards expect them. Nothing is sent: the files are for the user."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from swarmtui.analysis.compare.differences import quantisation_of
from swarmtui.model.base import BadInput
from swarmtui.model.session import Level, Summary
from swarmtui.report.environment import environment

# The engines that localmaxxing names in another way.
_ENGINES = {"vLLM": "vllm", "SGLang": "sglang", "Ollama": "ollama", "TGI": "tgi"}
_GIB = 1 << 30


class LeaderboardFile(NamedTuple):
    """The content of a file for a leaderboard; `remarks` say what the user has to know before sending it."""

    content: bytes
    remarks: tuple[str, ...]


def localmaxxing(summary: Summary, level: int | None = None) -> LeaderboardFile:
    """Return the body of POST /api/benchmarks for one level: that with one agent, else the lowest one."""
    at = _chosen(summary, level)
    payload = _payload(summary, at)
    hardware = payload["hardware"]
    required = {
        "hfId (organisation/model)": payload["hfId"],
        "engineName": payload["engineName"],
        "quantization": payload["quantization"],
        "hardware.gpuName": hardware.get("gpuName") or hardware["hwClass"] == "CPU_ONLY",
    }
    missing = ", ".join(name for name, value in required.items() if not value)
    remarks = [f"figures of {at.name}; --level chooses another one"]
    return _file(payload, summary, remarks + [f"to be filled in, since it is not known: {missing}"] * bool(missing))


def _payload(summary: Summary, at: Level) -> dict[str, Any]:
    known, session = environment(summary), summary.session
    server = summary.servers[0] if summary.servers else None
    model = session.endpoints[0].model if session.endpoints else ""
    engine = server.engine if server else session.endpoints[0].engine if session.endpoints else ""
    energy = at.energy
    payload = {
        "hfId": model if "/" in model else None,
        "hardware": _hardware(summary),
        "engineName": _ENGINES.get(engine, engine) or None,
        "engineVersion": server.version if server else None,
        "quantization": quantisation_of(summary) or None,
        "promptTokens": _each(at.tokens_in, at.ok),
        "outputTokens": _each(at.tokens_out, at.ok),
        "contextLength": server.context if server else None,
        "batchSize": at.c,
        # Alone, their own client counts the time between tokens.
        "tokSOut": _rounded((at.per_stream_tps.mean if at.c == 1 else None) or at.headline_tps),
        "tokSTotal": _rounded(at.total_tps),
        "ttftMs": _rounded(at.ttft_s.median and 1e3 * at.ttft_s.median),
        "peakVramGb": _rounded(energy.peak_memory / _GIB if energy and energy.peak_memory else None),
        "engineFlags": {"concurrency": at.c, "commandSnippet": known.flags or None},
        "notes": _notes(summary, at),
    }
    required = ("hfId", "engineName", "quantization")
    return {name: value for name, value in payload.items() if value is not None or name in required}


def _hardware(summary: Summary) -> dict[str, Any]:
    gpu = summary.speed_of_light.gpu if summary.speed_of_light else None
    if gpu is None and not summary.gpus:
        return {"hwClass": "DISCRETE_GPU", "gpuName": None}
    name = gpu.name if gpu else summary.gpus[0]
    found: dict[str, Any] = {"hwClass": "DISCRETE_GPU", "gpuName": name, "gpuCount": max(1, len(summary.gpus))}
    if gpu and gpu.memory:
        found["vramGb"] = round(gpu.memory / _GIB)
    return found


def _notes(summary: Summary, at: Level) -> str:
    """Say how it was measured, and whether it can be believed."""
    known, answer = environment(summary), summary.answer
    width = "" if at.half_width is None else f", ± {100 * at.half_width:.1f} % (95 %)"
    doubts = f"; not sure: {answer.doubts}" if answer and answer.doubts else ""
    simulated = "SIMULATED, not a measurement of hardware. " if summary.session.simulated else ""
    return f"{simulated}{known.tool}: {known.workload}, {at.name}, {at.n} requests{width}{doubts}"


def mlperf_endpoints(summary: Summary, level: int | None = None) -> LeaderboardFile:
    """Return the points of a Pareto curve by the metrics of MLPerf Endpoints; its own client makes a submission."""
    levels = [at for at in summary.levels if at.rate is None] if level is None else [_chosen(summary, level)]
    points = [_point(at) for at in levels]
    if not points:
        raise BadInput("has no level with a number of agents", key=summary.session.id)
    known = environment(summary)
    document = {
        "benchmark": "MLPerf Endpoints metrics, not a submission",
        "system": {"hardware": known.hardware, "engine": known.engine, "flags": known.flags},
        "model": known.model,
        "workload": known.workload,
        "tool": known.tool,
        "definitions": {
            "system_tps": "output tok/s of all agents while C requests were in flight",
            "tps_per_user": "1000 / tpot_p90_ms",
            "tpot_p90_ms": "p90 of the time per output token after the first chunk",
            "ttft_p90_ms": "p90 of the time to the first text, reasoning or tool call",
        },
        "points": points,
    }
    few = [f"C={point['concurrency']}" for point in points if point["tps_per_user"] is None]
    remarks = [f"p90 needs 29 answers, so it is null at {', '.join(few)}"] if few else []
    return _file(document, summary, remarks)


def _point(at: Level) -> dict[str, Any]:
    tpot, ttft = at.tpot_s.p90, at.ttft_s.p90
    return {
        "concurrency": at.c,
        "system_tps": at.headline_tps,
        "tps_per_user": 1.0 / tpot if tpot else None,
        "tpot_p90_ms": 1e3 * tpot if tpot is not None else None,
        "ttft_p90_ms": 1e3 * ttft if ttft is not None else None,
        "requests": at.n,
    }


def _chosen(summary: Summary, level: int | None) -> Level:
    levels = {at.c: at for at in summary.levels if at.rate is None}
    if not levels or (level is not None and level not in levels):
        measured = ", ".join(map(str, levels)) or "none"
        raise BadInput(f"no such level; measured are {measured}", key=f"--level {level}" if level else "--to")
    return levels[min(levels) if level is None else level]


def _file(document: dict[str, Any], summary: Summary, remarks: list[str]) -> LeaderboardFile:
    if summary.session.simulated:
        document = {"simulated": True} | document
        remarks = ["SIMULATED: these are no figures of hardware, and no leaderboard should get them", *remarks]
    content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    return LeaderboardFile(content, tuple(remarks))


def _each(total: int | None, answers: int) -> int | None:
    return round(total / answers) if total and answers else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


LEADERBOARDS = {"localmaxxing": localmaxxing, "mlperf-endpoints": mlperf_endpoints}
