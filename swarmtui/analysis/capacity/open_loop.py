"""What an open loop shows: up to which rate the server keeps up, and from which on requests pile up."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.session import Level

# Below this share of what came, what was served falls behind; the last answers alone explain no more than that.
KEEPS_UP = 0.9
# A run shorter than so many answers one after another ends before a queue shows.
LEAST_ANSWERS = 10.0


def keeps_up(level: Level) -> bool | None:
    """None where too little was seen of it."""
    if not level.arrived_per_s or not level.served_per_s:
        return None
    if level.served_per_s < KEEPS_UP * level.arrived_per_s:
        return False
    mean = level.e2e_s.mean
    return None if not mean or level.n / level.arrived_per_s < LEAST_ANSWERS * mean else True


def open_sentence(levels: Sequence[Level]) -> str:
    """`keeps up with 8 requests/s; at 12/s it serves 9.1 a second, and requests pile up`"""
    found = [(level, keeps_up(level)) for level in sorted(levels, key=lambda level: level.at)]
    behind = next((level for level, kept in found if kept is False), None)
    held = [level for level, kept in found if kept and (behind is None or level.at < behind.at)]
    parts = [f"keeps up with {held[-1].at:g} requests/s"] if held else []
    if behind is not None:
        parts.append(f"at {behind.name} it serves {behind.served_per_s:.3g} a second, and requests pile up")
    unsure = [level.name for level, kept in found if kept is None]
    if unsure:
        parts.append(f"{', '.join(unsure)}: too short to say")
    return "; ".join(parts)
