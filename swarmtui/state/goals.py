"""Follow, by the journal, which sweep or search decides the next level."""

from __future__ import annotations

from swarmtui.model.findings import SearchState
from swarmtui.model.journal import Entry, Head, SearchEntry, StageStart, SweepEntry


def follow_sweep(planned: tuple[float, ...], entry: Entry) -> tuple[float, ...]:
    """Return the levels of the sweep that is running, or ran last; empty once another goal has ended it."""
    match entry:
        case Head(session=session):
            return session.plan.swept
        case SweepEntry(levels=levels):
            return tuple(map(float, levels))
        case SearchEntry():
            return ()
        case StageStart(phase="level", steered=True) if entry.c not in planned:
            return ()
    return planned


def follow_search(search: SearchState | None, entry: Entry) -> SearchState | None:
    """Return what a search knows after an entry of the journal; null once another goal has ended it."""
    match entry:
        case SearchEntry(search=found):
            return found
        case SweepEntry():
            return None
        case StageStart(phase="level") if search is not None and (entry.steered or entry.c != search.next_c):
            return None
    return search
