"""Simulated GPUs: memory, power, utilisation, energy and temperature follow the batch.

Times are those of the client's clock at any speed, so the energy counter is the integral of the power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from swarmtui.sim.metrics import family
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


_METRICS: tuple[tuple[str, Literal["gauge", "counter"], str, Callable[[Reading], float]], ...] = (
    ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda r: r.clock_mhz),
    ("GPU_TEMP", "gauge", "GPU temperature (in C).", lambda r: round(r.temperature_c)),
    ("POWER_USAGE", "gauge", "Power draw (in W).", lambda r: round(r.power_w, 3)),
    (
        "TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        lambda r: round(r.energy_j * 1e3),
    ),
    ("GPU_UTIL", "gauge", "GPU utilization (in %).", lambda r: round(100 * r.utilisation)),
    ("FB_USED", "gauge", "Framebuffer memory used (in MiB).", lambda r: round(r.used_mib)),
    ("FB_FREE", "gauge", "Framebuffer memory free (in MiB).", lambda r: round(r.free_mib)),
)


def render(card: Card, readings: Sequence[Reading]) -> Iterable[str]:
    """Render one reading per replica with the metric names of NVIDIA's DCGM exporter, one line for each card."""
    cards = [
        (
            {"gpu": str(n), "UUID": f"GPU-{MARK}-{n}", "device": f"nvidia{n}", "modelName": f"{MARK} {card.name}"},
            one,
        )
        for replica, one in enumerate(readings)
        for n in range(replica * card.count, (replica + 1) * card.count)
    ]
    for name, kind, meaning, value in _METRICS:
        yield from family(f"DCGM_FI_DEV_{name}", kind, meaning, [("", labels, value(one)) for labels, one in cards])
