"""Say where the figures are in the results of `vllm bench serve`, GuideLLM and AIPerf."""

from __future__ import annotations

from typing import Any

from swarmtui.sessions.importers.reader import Document, Format


def _vllm(contents: list[Any]) -> list[Document] | None:
    """Return each result; `--append-result` writes one per line. With a concurrency, the rate is not the load."""
    if not all(isinstance(data, dict) and "output_throughput" in data and "completed" in data for data in contents):
        return None
    return [Document(data | {"request_rate": None} if data.get("max_concurrency") else data) for data in contents]


# `vllm bench serve --save-result`, and its predecessor benchmark_serving.py, which does not count failed requests.
VLLM = Format(
    tool="vllm bench serve",
    benchmarks=_vllm,
    paths={
        "model": "model_id",
        "created": "date",
        "c": "max_concurrency",
        "rate": "request_rate",
        "in_flight": "max_concurrent_requests",
        "ok": "completed",
        "failed": "failed",
        "planned": "num_prompts",
        "wall_s": "duration",
        "tokens_in": "total_input_tokens",
        "tokens_out": "total_output_tokens",
        "out_tps": "output_throughput",
    },
    times={"ttft": "{}_ttft_ms", "tpot": "{}_tpot_ms", "icl": "{}_itl_ms", "e2e": "{}_e2el_ms"},
)


def _guidellm(contents: list[Any]) -> list[Document] | None:
    """Return each benchmark with what is in different places of different versions in one: `totals` and `strategy`.

    Its distributions are those of successful requests, and have their percentiles beside the mean.
    """
    file = contents[0]
    if len(contents) > 1 or not isinstance(file, dict) or not isinstance(file.get("benchmarks"), list):
        return None
    documents = []
    for entry in (Document(entry) for entry in file["benchmarks"] if isinstance(entry, dict)):
        entry |= {
            "file": file,
            "totals": entry.table("metrics.request_totals request_totals run_stats.requests_made"),
            "strategy": entry.table("config.strategy args.strategy"),
        }
        match entry["strategy"].get("type_"):
            case "synchronous":
                entry["streams"] = 1
            case "throughput":
                entry["streams"] = entry["strategy"].get("max_concurrency")
        for name in entry.table("metrics"):
            found = entry.table(f"metrics.{name}.successful metrics.{name}")
            unit = "ms" if name.endswith("_ms") else "s"
            entry[name] = found.table("percentiles") | found | {"unit": unit, "count": None}
        documents.append(entry)
    return documents


# benchmarks.json, versions 0.2 to 0.8. Its inter-token latency is a mean per request, which is TPOT here.
GUIDELLM = Format(
    tool="GuideLLM",
    benchmarks=_guidellm,
    paths={
        "model": "config.backend.model worker.backend_model file.args.model file.config.spec.backend.model",
        "created": "start_time",
        "c": "strategy.streams streams",
        "rate": "strategy.rate",
        "in_flight": "request_concurrency.mean",
        "ok": "totals.successful",
        "failed": "totals.errored",
        "unfinished": "totals.incomplete",
        "wall_s": "duration",
        "mean_in": "prompt_token_count.mean",
        "mean_out": "output_token_count.mean",
        "out_tps": "output_tokens_per_second.mean",
    },
    times={"ttft": "time_to_first_token_ms.{}", "tpot": "inter_token_latency_ms.{}", "e2e": "request_latency.{}"},
)


def _aiperf(contents: list[Any]) -> list[Document] | None:
    """Return the file as one benchmark, with its load in one place.

    Version 0.1 had the metrics under `records`. Since 0.10 the load is in a list of phases that includes warm-up.
    """
    file = Document(contents[0]) if len(contents) == 1 and isinstance(contents[0], dict) else Document()
    file |= file.table("records")
    if not isinstance(file.get("output_token_throughput"), dict):
        return None
    config = file.table("input_config")
    phases = config["phases"] if isinstance(config.get("phases"), list) else []
    measured = [
        phase
        for phase in phases
        if isinstance(phase, dict)
        and not phase.get("exclude_from_results")
        and "warmup" not in (phase.get("name"), phase.get("kind"))
    ]
    return [Document(file, load=measured[-1] if measured else config.table("loadgen"))]


# profile_export_aiperf.json, versions 0.1 to 0.13. `total_output_tokens` excludes reasoning tokens.
AIPERF = Format(
    tool="AIPerf",
    benchmarks=_aiperf,
    paths={
        "model": "input_config.models.items.name input_config.models.items input_config.models.name"
        " input_config.models input_config.endpoint.model_names",
        "created": "start_time",
        "c": "load.concurrency load.users",
        "rate": "load.rate load.request_rate",
        "ok": "request_count.avg",
        "failed": "error_request_count.avg",
        "wall_s": "benchmark_duration.{}",
        "tokens_in": "total_isl.avg",
        "tokens_out": "total_osl.avg",
        "mean_in": "input_sequence_length.avg",
        "mean_out": "output_sequence_length.avg",
        "server_tokens": "total_usage_completion_tokens.avg",
        "out_tps": "output_token_throughput.avg",
    },
    times={
        "ttft": "time_to_first_token.{} ttft.{}",
        "ttfo": "time_to_first_output_token.{}",
        "tpot": "inter_token_latency.{}",
        "icl": "inter_chunk_latency.{}",
        "e2e": "request_latency.{}",
    },
)

FORMATS = (VLLM, GUIDELLM, AIPERF)
