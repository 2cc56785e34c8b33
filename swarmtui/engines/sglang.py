"""SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, ProbeReply, flag_number, objects, positive, settings
from swarmtui.engines.knobs import GPUS, Knob
from swarmtui.model.telemetry import DiscoveredServer


class Sglang(Engine):
    name = "SGLang"
    ports = (30000,)
    owners = ("sglang",)
    command = "sglang"
    probe_paths = ("/server_info",)
    environment = ("SGLANG_", "SGL_")
    slot_flags = ("--max-running-requests",)
    narrow_kv = "--kv-cache-dtype fp8_e5m2"
    tensor_parallel_flags = ("tensor-parallel-size", "tp-size", "tp")
    knobs = (
        Knob(
            name="--tp-size", spellings=("--tp", "--tensor-parallel-size"), stage="parallelism", values=(1, 2, 4, 8),
            default=1, moves=("bandwidth", "compute", "kv_capacity"), at_most=(GPUS,), needs=("gpu",),
        ),
        Knob(
            name="--dp-size", spellings=("--dp", "--data-parallel-size"), stage="parallelism", values=(1, 2, 4, 8),
            default=1, moves=("slots", "compute"), at_most=(GPUS,), needs=("gpu",), takes_memory=True,
        ),
        Knob(
            name="--max-running-requests", stage="slots", values=(4, 8, 16, 32, 64, 128, 256, 512),
            moves=("slots",), takes_memory=True,
        ),
        Knob(
            name="--chunked-prefill-size", stage="slots", values=(1024, 2048, 4096, 8192, 16384),
            moves=("prefill",), takes_memory=True,
        ),
        Knob(
            name="--schedule-policy", stage="slots", values=("fcfs", "lpm"), default="fcfs", moves=("prefill",),
        ),
        Knob(
            name="--attention-backend", stage="cache", values=("flashinfer", "fa3", "triton"),
            moves=("bandwidth", "launch_overhead"), needs=("gpu",),
        ),
        Knob(
            name="--mem-fraction-static", stage="cache", values=(0.75, 0.8, 0.85, 0.9), moves=("kv_capacity",),
            takes_memory=True, needs=("gpu",),
        ),
        Knob(
            name="--kv-cache-dtype", stage="cache", values=("auto", "fp8_e5m2"), default="auto",
            moves=("kv_capacity", "bandwidth"), changes_quality=True,
        ),
        Knob(
            name="--speculative-num-draft-tokens", stage="speculation", values=(2, 4, 8, 16),
            moves=("bandwidth", "launch_overhead"), needs_flags=("--speculative-algorithm",),
        ),
    )  # fmt: skip
    metric_prefixes = ("sglang:", "sglang_")
    metric_values = {
        "num_running_reqs": "running",
        "num_queue_reqs": "waiting",
        "token_usage": "kv_use",
        "prompt_tokens_total": "prompt_tokens",
        "generation_tokens_total": "output_tokens",
        "cached_tokens_total": "cached_tokens",
        "load_back_tokens_total": "external_tokens",
        "evicted_tokens_total": "evicted_tokens",
        "num_requests_total": "finished",
        "num_retracted_reqs_total": "preemptions",
    }
    metric_histograms = {
        "time_to_first_token_seconds": "ttft",
        "inter_token_latency_seconds": "itl",
        "time_per_output_token_seconds": "itl",
        "queue_time_seconds": "queue",
        "e2e_request_latency_seconds": "e2e",
    }
    rank_labels = ("tp_rank", "pp_rank", "moe_ep_rank")
    breakdown_label = "priority"
    metrics_limits = "reports metrics only with --enable-metrics"

    def recognises(self, reply: ProbeReply) -> bool:
        info = reply.json()
        return "max_running_requests" in info or "internal_states" in info

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        info = replies["/server_info"].json()
        return self._server(
            info,
            context=positive(info.get("context_length")),
            slots=self.slots(None, info),
            kv_tokens=_kv_tokens(info),
            block_size=positive(info.get("page_size")),
            flags=settings(info) or None,
        )

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        info = info or {}
        configured = positive(info.get("max_running_requests")) or flag_number(flags, "max-running-requests")
        return configured or _chosen_slots(info)

    def complete(self, values: dict[str, float]) -> None:
        if "cached_tokens" in values and "prompt_tokens" in values:
            values["cache_queries"], values["cache_hits"] = values["prompt_tokens"], values["cached_tokens"]


def _kv_tokens(info: Mapping[str, Any]) -> int | None:
    """Return the sum over data-parallel engines; older versions report only that of one."""
    states = (state.get("memory_usage") for state in objects(info.get("internal_states")))
    sizes = [positive(state.get("token_capacity")) if isinstance(state, Mapping) else None for state in states]
    if sizes and all(sizes):
        return sum(size or 0 for size in sizes)
    one = positive(info.get("max_total_num_tokens"))
    return None if one is None else one * (positive(info.get("dp_size")) or 1)


def _chosen_slots(info: Mapping[str, Any]) -> int | None:
    """Return the limit that the server chose itself, which it reports per data-parallel engine."""
    engines = objects(info.get("internal_states"))
    per_engine = positive(engines[0].get("effective_max_running_requests_per_dp")) if engines else None
    return None if per_engine is None else per_engine * (positive(info.get("dp_size")) or 1)
