"""Choose which requests fail, and how, by their number, so that any sequence of requests has the configured shares."""

from __future__ import annotations

from typing import Literal

from swarmtui.sim.presets import Failures

Fault = Literal["http_500", "http_503", "reset", "cut", "error_event", "stall"]

_FAULTS: tuple[Fault, ...] = ("http_500", "http_503", "reset", "cut", "error_event", "stall")
_GOLDEN = 0.6180339887498949


def fault_for(number: int, failures: Failures, seed: int) -> Fault | None:
    """Multiples of the golden ratio are evenly spread over 0 to 1: of n successive requests about share × n fail."""
    position = ((number + 1) * _GOLDEN + seed * 0.7548776662466927) % 1.0
    for fault in _FAULTS:
        share: float = getattr(failures, fault)
        if position < share:
            return fault
        position -= share
    return None
