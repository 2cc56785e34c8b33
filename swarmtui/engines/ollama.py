"""Ollama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, ProbeReply, flag_number, objects, positive
from swarmtui.engines.knobs import Conflict, Knob
from swarmtui.model.telemetry import DiscoveredServer, ServerState


class Ollama(Engine):
    name = "Ollama"
    ports = (11434,)
    owners = ("library",)
    command = "ollama"
    probe_paths = ("/", "/api/ps", "/api/version")
    environment = ("OLLAMA_",)
    slot_flags = ("OLLAMA_NUM_PARALLEL",)
    knobs = (
        Knob(
            name="OLLAMA_SCHED_SPREAD", stage="parallelism", values=(False, True), default=False,
            moves=("kv_capacity", "bandwidth"), needs=("gpu",),
        ),
        Knob(
            name="OLLAMA_NUM_PARALLEL", stage="slots", values=(1, 2, 4, 8, 16, 32), default=1,
            moves=("slots", "kv_capacity"), takes_memory=True,
        ),
        Knob(
            name="OLLAMA_FLASH_ATTENTION", stage="cache", values=(0, 1), moves=("bandwidth", "kv_capacity"),
            excludes=(Conflict(values=(0,), other="OLLAMA_KV_CACHE_TYPE", other_values=("q8_0", "q4_0")),),
        ),
        Knob(
            name="OLLAMA_KV_CACHE_TYPE", stage="cache", values=("f16", "q8_0", "q4_0"), default="f16",
            moves=("kv_capacity", "bandwidth"), changes_quality=True,
        ),
    )  # fmt: skip
    metrics_path = "/api/ps"
    metrics_limits = "reports only the memory of loaded models: no requests, queue or tokens"

    def recognises(self, reply: ProbeReply) -> bool:
        return reply.text.startswith("Ollama is running")

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        loaded = objects(replies["/api/ps"].json().get("models"))
        contexts = [positive(model.get("context_length")) for model in loaded]
        context = next((context for context in contexts if context), None)
        return self._server(replies["/api/version"].json(), context=context)

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        """The default is one; it applies only if the environment could be read."""
        return None if flags is None else flag_number(flags, "OLLAMA_NUM_PARALLEL") or 1

    def parse_metrics(self, text: str) -> ServerState | None:
        models = ProbeReply(200, text=text).json().get("models")
        if not isinstance(models, list):
            return None
        sizes = [float(size) for model in objects(models) if isinstance(size := model.get("size_vram"), int | float)]
        return ServerState(engine=self.name, vram_bytes=sum(sizes) if sizes else None)
