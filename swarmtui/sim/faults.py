"""Which requests fail, and how: decided by a request's number, so that the share asked for is met in any stretch."""

from __future__ import annotations

from typing import Literal

from swarmtui.sim.presets import Failures

Fault = Literal["http_500", "http_503", "reset", "cut", "error_event", "stall"]

_FAULTS: tuple[Fault, ...] = ("http_500", "http_503", "reset", "cut", "error_event", "stall")
_GOLDEN = 0.6180339887498949


def fault_for(number: int, failures: Failures, seed: int) -> Fault | None:
    """Multiples of the golden ratio lie evenly between 0 and 1: of n requests in a row about share × n fail."""
    place = ((number + 1) * _GOLDEN + seed * 0.7548776662466927) % 1.0
    for fault in _FAULTS:
        share: float = getattr(failures, fault)
        if place < share:
            return fault
        place -= share
    return None
