"""The embedded simulator, which writes vLLM's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.engines.base import Engine, ProbeReply, flag_number, positive
from swarmtui.engines.knobs import Knob
from swarmtui.engines.vllm import Vllm
from swarmtui.model.endpoint import SIMULATOR_PREFIX
from swarmtui.model.telemetry import DiscoveredServer

# The settings that a simulator always reports, and flags of the process that are no settings.
_SETTINGS = ("slots", "replicas", "speed")
_PROCESS = ("preset", "port", "watch-stdin")


def simulator_address(flags: Mapping[str, str] | None) -> str | None:
    """Return `sim:PRESET?SETTINGS`, by what an embedded simulator reports; None if that is not known."""
    if not flags or "preset" not in flags:
        return None
    # The order is the same, whatever was read first: the flags of the process, or what it reports.
    names = dict.fromkeys((*(name for name in _SETTINGS if name in flags), *sorted(flags)))
    settings = "&".join(f"{name}={flags[name]}" for name in names if name not in _PROCESS)
    return f"{SIMULATOR_PREFIX}{flags['preset']}" + (f"?{settings}" if settings else "")


class Simulator(Engine):
    name = "simulator"
    owners = ("swarmtui-sim",)
    command = r"swarmtui(\.|(\.pyz)? )sim"
    probe_paths = ("/server_info",)
    knobs = (
        Knob(name="--slots", stage="slots", values=(1, 2, 4, 8, 16, 32, 64), moves=("slots",)),
        Knob(name="--replicas", stage="parallelism", values=(1, 2), default=1, moves=("slots", "bandwidth")),
    )
    metric_prefixes = Vllm.metric_prefixes
    metric_values = Vllm.metric_values
    metric_histograms = Vllm.metric_histograms
    settings_metric = Vllm.settings_metric

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        info = replies["/server_info"].json()
        flags: dict[str, str] = {
            name: str(info[name]) for name in ("preset", "slots", "replicas", "speed") if name in info
        }
        changed = info.get("settings")
        if isinstance(changed, dict):
            flags |= {str(name): str(value) for name, value in changed.items()}
        return self._server(info, slots=self.slots(None, info), flags=flags)

    def kv_cache_from_settings(self, labels: Mapping[str, str]) -> tuple[int | None, int | None]:
        return Vllm().kv_cache_from_settings(labels)

    def slots_setting(self, slots: int) -> str:
        return f"slots={slots}"

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        info = info or {}
        per_replica = positive(info.get("slots")) or flag_number(flags, "slots")
        replicas = positive(info.get("replicas")) or flag_number(flags, "replicas") or 1
        return None if per_replica is None else per_replica * replicas
