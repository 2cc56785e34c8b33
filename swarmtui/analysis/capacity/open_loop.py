"""Decide up to which arrival rate a server keeps up in an open loop."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.session import Level

# Completions / arrivals: from here on the server keeps up, below the other share requests pile up. Between them the
# answers that are still in flight at the end may explain the difference.
KEEPS_UP_SHARE, PILES_UP_SHARE = 0.97, 0.90
# A run shorter than this many mean e2e times ends before a queue shows.
MIN_DURATION_E2E = 10.0


def keeps_up(level: Level) -> bool | None:
    """Return whether completions follow arrivals; None if that cannot be decided."""
    if not level.arrived_per_s or not level.served_per_s:
        return None
    share = level.served_per_s / level.arrived_per_s
    if share < PILES_UP_SHARE:
        return False
    mean = level.e2e_s.mean
    long_enough = bool(mean) and level.n / level.arrived_per_s >= MIN_DURATION_E2E * (mean or 0.0)
    return True if share >= KEEPS_UP_SHARE and long_enough else None


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
    undecided = [level.name for level, kept in found if kept is None]
    if undecided:
        parts.append(f"undecided at {', '.join(undecided)}: use a longer run")
    return "; ".join(parts)
