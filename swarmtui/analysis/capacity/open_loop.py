"""Decide up to which arrival rate a server keeps up in an open loop."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.session import Level

# Completions below this share of arrivals fall behind; the answers still in flight at the end explain no more.
MIN_COMPLETED_SHARE = 0.9
# A run shorter than this many mean e2e times ends before a queue shows.
MIN_DURATION_E2E = 10.0


def keeps_up(level: Level) -> bool | None:
    """Return whether completions follow arrivals; None for a run too short to tell."""
    if not level.arrived_per_s or not level.served_per_s:
        return None
    if level.served_per_s < MIN_COMPLETED_SHARE * level.arrived_per_s:
        return False
    mean = level.e2e_s.mean
    return None if not mean or level.n / level.arrived_per_s < MIN_DURATION_E2E * mean else True


def open_loop_sentence(levels: Sequence[Level]) -> str:
    """`keeps up with 8 requests/s; at 12/s it completes 9.1 requests/s, and the queue grows`"""
    found = [(level, keeps_up(level)) for level in sorted(levels, key=lambda level: level.offered_load)]
    behind = next((level for level, kept in found if kept is False), None)
    sustained = [
        level for level, kept in found if kept and (behind is None or level.offered_load < behind.offered_load)
    ]
    parts = [f"keeps up with {sustained[-1].offered_load:g} requests/s"] if sustained else []
    if behind is not None:
        parts.append(f"at {behind.name} it completes {behind.served_per_s:.3g} requests/s, and the queue grows")
    unsure = [level.name for level, kept in found if kept is None]
    if unsure:
        parts.append(f"{', '.join(unsure)}: too short to tell")
    return "; ".join(parts)
