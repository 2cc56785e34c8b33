"""Why a GPU's clocks are lowered, in words; NVML and DCGM number the reasons alike."""

from __future__ import annotations

_WORDS = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal",
    0x040: "hardware thermal",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}


def reasons(bits: int) -> tuple[str, ...]:
    """An idle GPU (0x001) lowers its clocks too, and that is no reason for concern: it is left out."""
    return tuple(word for bit, word in _WORDS.items() if bits & bit)
