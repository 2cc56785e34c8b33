"""Hugging Face Text Generation Inference (TGI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, ProbeReply, flag_number, positive, settings
from swarmtui.model.telemetry import DiscoveredServer


class Tgi(Engine):
    name = "TGI"
    ports = (3000,)
    command = "text-generation-"
    probe_paths = ("/info",)
    environment = ("TGI_",)
    slot_flags = ("--max-batch-size", "--max-concurrent-requests")
    metric_prefixes = ("tgi_",)
    metric_values = {
        "queue_size": "waiting",
        "batch_current_size": "running",
        "request_success": "finished",
        "request_success_total": "finished",
        "request_input_length_sum": "prompt_tokens",
        "request_generated_tokens_sum": "output_tokens",
    }
    metric_histograms = {"request_queue_duration": "queue", "request_duration": "e2e"}
    metrics_limits = "reports no KV cache use, TTFT or inter-token latency"

    def recognises(self, reply: ProbeReply) -> bool:
        return isinstance(reply.json().get("model_id"), str)

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        info = replies["/info"].json()
        model = info.get("model_id")
        return self._server(
            info,
            models=(model,) if isinstance(model, str) else (),
            context=positive(info.get("max_total_tokens")),
            slots=self.slots(None, info),
            flags=settings(info) or None,
        )

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        """--max-concurrent-requests (128 by default) includes requests that wait, so it does not limit the batch."""
        return positive((info or {}).get("max_batch_size")) or flag_number(flags, "max-batch-size")
