"""llama.cpp's server, and llamafile and llama-cpp-python by their command lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, ProbeReply, flag_number, positive
from swarmtui.engines.knobs import CORES, Conflict, Knob
from swarmtui.model.telemetry import DiscoveredServer

_DEFAULT_SLOTS = 4
_QUANTISED = ("q8_0", "q4_0")


class LlamaCpp(Engine):
    name = "llama.cpp"
    ports = (8080,)
    owners = ("llamacpp",)
    server_header = "llama.cpp"
    command = r"llama-server|llama_cpp\.server|llamafile"
    probe_paths = ("/props",)
    environment = ("LLAMA_ARG_",)
    short_flags = {
        "a": "alias", "b": "batch-size", "c": "ctx-size", "cb": "cont-batching", "ctk": "cache-type-k",
        "ctv": "cache-type-v", "fa": "flash-attn", "kvu": "kv-unified", "m": "model", "md": "model-draft",
        "ngl": "n-gpu-layers", "np": "parallel", "sm": "split-mode", "t": "threads", "ts": "tensor-split",
        "ub": "ubatch-size",
    }  # fmt: skip
    slot_flags = ("--parallel",)
    total_context_flag = "--ctx-size"
    narrow_kv = "--cache-type-k q8_0 --cache-type-v q8_0"
    knobs = (
        Knob(
            name="--split-mode", spellings=("-sm",), stage="parallelism", values=("layer", "row"), default="layer",
            moves=("bandwidth", "compute"), needs=("gpus",),
        ),
        Knob(
            name="--n-cpu-moe", spellings=("-ncmoe",), stage="parallelism", values=(0, 4, 8, 16, 32), default=0,
            moves=("kv_capacity", "bandwidth"), needs=("gpu", "moe"),
        ),
        Knob(
            name="--threads", spellings=("-t",), stage="parallelism", values=(1, 2, 4, 8, 16, 32, 64),
            moves=("compute", "bandwidth"), at_most=(CORES,),
        ),
        # The context is that of all slots together.
        Knob(
            name="--parallel", spellings=("-np",), stage="slots", values=(1, 2, 4, 8, 16, 32, 64),
            default=_DEFAULT_SLOTS, moves=("slots", "kv_capacity"), takes_memory=True, scales=("--ctx-size",),
        ),
        Knob(
            name="--ubatch-size", spellings=("-ub",), stage="slots", values=(64, 128, 256, 512, 1024, 2048),
            default=512, moves=("prefill", "compute"), takes_memory=True, at_most=("--batch-size",),
        ),
        Knob(
            name="--batch-size", spellings=("-b",), stage="slots", values=(256, 512, 1024, 2048, 4096), default=2048,
            moves=("prefill",), takes_memory=True,
        ),
        Knob(
            name="--flash-attn", spellings=("-fa",), stage="cache", values=("on", "off"), default="auto",
            moves=("bandwidth", "kv_capacity"),
            excludes=tuple(
                Conflict(values=("off",), other=name, other_values=_QUANTISED)
                for name in ("--cache-type-v", "--cache-type-k")
            ),
        ),
        Knob(
            name="--ctx-size", spellings=("-c",), stage="cache", values=(4096, 8192, 16384, 32768, 65536, 131072),
            moves=("kv_capacity",), takes_memory=True, changes_quality=True,
        ),
        Knob(
            name="--cache-type-k", spellings=("-ctk",), stage="cache", values=("f16", *_QUANTISED), default="f16",
            moves=("kv_capacity", "bandwidth"), changes_quality=True,
        ),
        Knob(
            name="--cache-type-v", spellings=("-ctv",), stage="cache", values=("f16", *_QUANTISED), default="f16",
            moves=("kv_capacity", "bandwidth"), changes_quality=True,
        ),
        Knob(
            name="--draft-max", spellings=("--draft", "--draft-n", "--spec-draft-n-max"), stage="speculation",
            values=(2, 4, 8, 16), default=16, moves=("bandwidth", "launch_overhead"), needs_flags=("--model-draft",),
        ),
    )  # fmt: skip
    uncached_request = {"cache_prompt": False}
    metric_prefixes = ("llamacpp:", "llamacpp_")
    metric_values = {
        "requests_processing": "running",
        "requests_deferred": "waiting",
        "prompt_tokens_total": "prompt_tokens",
        "prompt_tokens_cached_total": "cached_tokens",
        "tokens_predicted_total": "output_tokens",
        "prompt_seconds_total": "prefill_seconds",
        "spec_decode_num_drafts_total": "drafts",
        "spec_decode_num_draft_tokens_total": "draft_tokens",
        "spec_decode_num_accepted_tokens_total": "accepted_tokens",
    }
    counts_tokens_at_end = True
    metrics_limits = "reports metrics only with --metrics, without KV cache use and latencies"

    def recognises(self, reply: ProbeReply) -> bool:
        return "total_slots" in reply.json() or self._is_loading(reply)

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        reply = replies["/props"]
        if self._is_loading(reply):
            return DiscoveredServer(url="", engine=self.name, reachable=False, problem="the model is loading")
        props = reply.json()
        generation = props.get("default_generation_settings")
        # What flags set, as far as the server tells; the context that it reports is that of one slot.
        given = {"parallel": props.get("total_slots"), "model": props.get("model_path")}
        flags = {name: str(value) for name, value in given.items() if isinstance(value, str | int) and value}
        return DiscoveredServer(
            url="",
            engine=self.name,
            version=str(props.get("build_info", "")),
            context=positive(generation.get("n_ctx")) if isinstance(generation, Mapping) else None,
            slots=self.slots(None, props),
            block_size=1,
            flags=flags or None,
        )

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        reported = positive((info or {}).get("total_slots"))
        return reported or flag_number(flags, "parallel", "LLAMA_ARG_N_PARALLEL")

    def kv_tokens(self, found: DiscoveredServer, flags: Mapping[str, str] | None) -> int | None:
        """Return the context of all slots together; the server reports that of one slot.

        --ctx-size is that of all. Without it, the slots share one context with --kv-unified, which is the default for
        as many slots as are the default: then only the flags of its process can tell.
        """
        context, slots = found.context, found.slots
        if context is None or slots is None:
            return None
        given = flag_number(flags, "ctx-size", "LLAMA_ARG_CTX_SIZE")
        if given is not None:
            # It is rounded, and a slot has no more than the model was trained with.
            return min(max(given, context), context * slots)
        # A program that has the server inside may have other flags, or none.
        names = {name for name in flags or () if name.islower() or name.startswith("LLAMA_ARG_")}
        if slots != _DEFAULT_SLOTS or names & {"parallel", "LLAMA_ARG_N_PARALLEL"}:
            return context if names & {"kv-unified", "LLAMA_ARG_KV_UNIFIED"} else context * slots
        return context if names else None

    def context_flag(self, found: DiscoveredServer, slots: int) -> str:
        """Each slot has its part of --ctx-size, unless they share all of it with --kv-unified."""
        context, before, total = found.context, found.slots, found.kv_tokens
        if (
            context is None
            or before is None
            or total is None
            or {"kv-unified", "LLAMA_ARG_KV_UNIFIED"} & {*(found.flags or ())}
        ):
            return ""
        # It is rounded, and a slot has no more than the model was trained with.
        total = max(total, flag_number(found.flags, "ctx-size", "LLAMA_ARG_CTX_SIZE") or 0)
        divided = total > context * (before - 1)
        return f"{self.total_context_flag} {context * slots}" if divided and total // slots < context else ""

    def complete(self, values: dict[str, float]) -> None:
        """Add the cached tokens to the prompt tokens, which here are only those that were processed."""
        cached = values.get("cached_tokens")
        if cached is not None and "prompt_tokens" in values:
            values["prompt_tokens"] += cached
            values["cache_queries"], values["cache_hits"] = values["prompt_tokens"], cached

    def _is_loading(self, reply: ProbeReply) -> bool:
        return reply.status == 503 and reply.server == self.server_header
