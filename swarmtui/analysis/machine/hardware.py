"""The cards that a session was measured on, in words: a name alone hides a power limit."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.telemetry import Discovered, Gpu, Telemetry


def cards(telemetry: Sequence[Telemetry], servers: Sequence[Discovered]) -> tuple[str, ...]:
    """Those that the servers are known to use, else all that were seen; parts of a card are not told apart."""
    seen: dict[str, Gpu] = {gpu.uuid: gpu for moment in telemetry for gpu in moment.gpus if not gpu.part_of}
    used = {uuid for server in servers for uuid in server.gpus} & set(seen)
    kept = [gpu for uuid, gpu in seen.items() if not used or uuid in used]
    return tuple(_told(gpu) for gpu in sorted(kept, key=lambda gpu: gpu.index))


def _told(gpu: Gpu) -> str:
    parts = [gpu.name or "GPU"]
    if gpu.memory_total is not None:
        parts.append(f"{gpu.memory_total / 1e9:.0f} GB")
    if gpu.power_limit_w is not None:
        parts.append(f"{gpu.power_limit_w:.0f} W")
    return ", ".join(parts) + (" (SIMULATED)" if gpu.simulated and "SIMULATED" not in gpu.name.upper() else "")


def counted(names: Sequence[str]) -> str:
    """`2 × NVIDIA H200, 151 GB, 700 W`"""
    numbers = {name: names.count(name) for name in names}
    return "; ".join(name if n == 1 else f"{n} × {name}" for name, n in numbers.items())
