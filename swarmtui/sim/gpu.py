"""Simulated GPUs: memory, power, utilisation, energy and temperature follow the batch.

Times are those of the client's clock at any speed, so the energy counter is the integral of the power.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from swarmtui.sim.metrics import Labels, Sample, family
from swarmtui.sim.presets import Card

MARK = "SIMULATED"

_MIN_LOAD = 0.55  # share of the range from idle to full power with one request
_LAG_S = 1.0  # power and utilisation are means over about this time
_HEATING_S = 20.0
_AMBIENT_C, _C_PER_W = 28.0, 0.13
_OVERHEAD_GIB = 1.0
_RESERVED = 0.92  # share of the memory for weights and KV cache
_IDLE_MHZ, _BUSY_MHZ = 210, 1695


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    used_mib: float
    free_mib: float
    power_w: float
    energy_j: float
    utilisation: float
    temperature_c: float
    clock_mhz: int


class Cards:
    """The GPUs of one replica; all do the same, as in tensor parallelism."""

    def __init__(self, card: Card, slots: int, at: float) -> None:
        self._card = card
        self._slots = slots
        self._at = at
        self._energy_j = 0.0
        self._power_w = card.idle_w
        self._busy = 0.0
        self._temperature_c = _AMBIENT_C + _C_PER_W * card.idle_w

    def work(self, start: float, end: float, batch: int) -> None:
        """Add a step with `batch` requests; the cards were idle before it."""
        self._settle(start, 0)
        self._settle(end, batch)

    def read(self, now: float, batch: int, kv_usage: float) -> Reading:
        """Return the readings; `batch` is that of the current step."""
        self._settle(now, batch)
        card = self._card
        room = max(_RESERVED * card.memory_gib - card.weights_gib - _OVERHEAD_GIB, 0.0)
        used = min(card.weights_gib + _OVERHEAD_GIB + room * min(kv_usage, 1.0), card.memory_gib)
        return Reading(
            used_mib=used * 1024,
            free_mib=(card.memory_gib - used) * 1024,
            power_w=self._power_w,
            energy_j=self._energy_j,
            utilisation=self._busy,
            temperature_c=self._temperature_c,
            clock_mhz=_BUSY_MHZ if self._busy > 0.02 else _IDLE_MHZ,
        )

    def _settle(self, until: float, batch: int) -> None:
        seconds = until - self._at
        if seconds <= 0:
            return
        card = self._card
        share = _MIN_LOAD + (1 - _MIN_LOAD) * min(batch / self._slots, 1.0) if batch else 0.0
        watts = card.idle_w + (card.max_w - card.idle_w) * share
        self._energy_j += watts * seconds
        keep = math.exp(-seconds / _LAG_S)
        self._power_w = watts + (self._power_w - watts) * keep
        busy = 1.0 if batch else 0.0
        self._busy = busy + (self._busy - busy) * keep
        target = _AMBIENT_C + _C_PER_W * watts
        self._temperature_c = target + (self._temperature_c - target) * math.exp(-seconds / _HEATING_S)
        self._at = until


def render(card: Card, readings: Sequence[Reading]) -> Iterable[str]:
    """Render one reading per replica with the metric names of NVIDIA's DCGM exporter, one line for each card."""
    cards: list[tuple[Labels, Reading]] = []
    for replica, reading in enumerate(readings):
        for i in range(card.count):
            number = replica * card.count + i
            labels = {
                "gpu": str(number),
                "UUID": f"GPU-{MARK}-{number}",
                "device": f"nvidia{number}",
                "modelName": f"{MARK} {card.name}",
            }
            cards.append((labels, reading))

    def gauge(name: str, meaning: str, values: list[float]) -> Iterable[str]:
        samples: list[Sample] = [("", labels, value) for (labels, _), value in zip(cards, values, strict=True)]
        return family(f"DCGM_FI_DEV_{name}", "gauge", meaning, samples)

    each = [reading for _, reading in cards]
    yield from gauge("SM_CLOCK", "SM clock frequency (in MHz).", [r.clock_mhz for r in each])
    yield from gauge("GPU_TEMP", "GPU temperature (in C).", [round(r.temperature_c) for r in each])
    yield from gauge("POWER_USAGE", "Power draw (in W).", [round(r.power_w, 3) for r in each])
    samples: list[Sample] = [("", labels, round(r.energy_j * 1e3)) for labels, r in cards]
    meaning = "Total energy consumption since boot (in mJ)."
    yield from family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", meaning, samples)
    yield from gauge("GPU_UTIL", "GPU utilization (in %).", [round(100 * r.utilisation) for r in each])
    yield from gauge("FB_USED", "Framebuffer memory used (in MiB).", [round(r.used_mib) for r in each])
    yield from gauge("FB_FREE", "Framebuffer memory free (in MiB).", [round(r.free_mib) for r in each])
