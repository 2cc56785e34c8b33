"""vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, flag_number
from swarmtui.engines.knobs import GPUS, Knob


class Vllm(Engine):
    name = "vLLM"
    ports = (8000,)
    owners = ("vllm",)
    command = "vllm"
    probe_paths = ("/version",)
    environment = ("VLLM_",)
    short_flags = {
        "dp": "data-parallel-size",
        "pp": "pipeline-parallel-size",
        "q": "quantization",
        "tp": "tensor-parallel-size",
    }
    slot_flags = ("--max-num-seqs",)
    narrow_kv = "--kv-cache-dtype fp8"
    tensor_parallel_flags = ("tensor-parallel-size", "tp")
    knobs = (
        Knob(
            name="--tensor-parallel-size", spellings=("-tp",), stage="parallelism", values=(1, 2, 4, 8), default=1,
            moves=("bandwidth", "compute", "kv_capacity"), at_most=(GPUS,), needs=("gpu",),
        ),
        Knob(
            name="--data-parallel-size", spellings=("-dp",), stage="parallelism", values=(1, 2, 4, 8), default=1,
            moves=("slots", "compute"), at_most=(GPUS,), needs=("gpu",), takes_memory=True,
        ),
        Knob(
            name="--enable-expert-parallel", spellings=("-ep",), stage="parallelism", values=(False, True),
            default=False, moves=("bandwidth", "compute"), needs=("gpus", "moe"),
        ),
        Knob(
            name="--max-num-seqs", stage="slots", values=(4, 8, 16, 32, 64, 128, 256, 512),
            moves=("slots",), takes_memory=True,
        ),
        Knob(
            name="--max-num-batched-tokens", stage="slots", values=(1024, 2048, 4096, 8192, 16384, 32768),
            moves=("prefill",), takes_memory=True,
        ),
        Knob(
            name="--async-scheduling", negative="--no-async-scheduling", stage="slots", values=(True, False),
            moves=("launch_overhead",),
        ),
        Knob(
            name="--gpu-memory-utilization", stage="cache", values=(0.8, 0.85, 0.9, 0.95), default=0.9,
            moves=("kv_capacity",), takes_memory=True, needs=("gpu",),
        ),
        Knob(
            name="--enable-prefix-caching", negative="--no-enable-prefix-caching", stage="cache", values=(True, False),
            default=True, moves=("prefill",),
        ),
        Knob(
            name="--kv-cache-dtype", stage="cache", values=("auto", "fp8"), default="auto",
            moves=("kv_capacity", "bandwidth"), changes_quality=True,
        ),
        # How many tokens are drafted, if the command says by what.
        Knob(
            name="--speculative-config", stage="speculation", values=(1, 2, 3, 5, 8),
            moves=("bandwidth", "launch_overhead"), json_key="num_speculative_tokens",
            needs_flags=("--speculative-config",),
        ),
    )  # fmt: skip
    metric_prefixes = ("vllm:", "vllm_")
    # gpu_* and time_per_output_token_seconds are the names before 0.12.
    metric_values = {
        "num_requests_running": "running",
        "num_requests_waiting": "waiting",
        "kv_cache_usage_perc": "kv_use",
        "gpu_cache_usage_perc": "kv_use",
        "prompt_tokens_total": "prompt_tokens",
        "generation_tokens_total": "output_tokens",
        "prompt_tokens_cached_total": "cached_tokens",
        "prefix_cache_queries_total": "cache_queries",
        "gpu_prefix_cache_queries_total": "cache_queries",
        "prefix_cache_hits_total": "cache_hits",
        "gpu_prefix_cache_hits_total": "cache_hits",
        "external_prefix_cache_hits_total": "external_tokens",
        "num_preemptions_total": "preemptions",
        "spec_decode_num_drafts_total": "drafts",
        "spec_decode_num_draft_tokens_total": "draft_tokens",
        "spec_decode_num_accepted_tokens_total": "accepted_tokens",
        "request_success_total": "finished",
    }
    metric_histograms = {
        "time_to_first_token_seconds": "ttft",
        "inter_token_latency_seconds": "itl",
        "time_per_output_token_seconds": "itl",
        "request_queue_time_seconds": "queue",
        "request_prefill_time_seconds": "prefill",
        "request_decode_time_seconds": "decode",
        "e2e_request_latency_seconds": "e2e",
    }
    metric_positions = {"spec_decode_num_accepted_tokens_per_pos_total": "accepted_at"}
    settings_metric = "vllm:cache_config_info"
    settings_labels = ("block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks")

    def kv_cache_from_settings(self, labels: Mapping[str, str]) -> tuple[int | None, int | None]:
        blocks, size = flag_number(labels, "num_gpu_blocks"), flag_number(labels, "block_size")
        return flag_number(labels, "kv_cache_size_tokens") or (blocks * size if blocks and size else None), size

    def kv_token_bytes(self, labels: Mapping[str, str]) -> float | None:
        memory, tokens = labels.get("kv_cache_memory_bytes", ""), flag_number(labels, "kv_cache_size_tokens")
        return int(memory) / tokens if tokens and memory.isdigit() and len(memory) < 18 and int(memory) else None

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        """Return the flag's value; without it the number depends on the version and the hardware."""
        per_replica = flag_number(flags, "max-num-seqs")
        return None if per_replica is None else per_replica * (flag_number(flags, "data-parallel-size") or 1)
