"""Compute how busy the host was during a level, from the counters of its CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swarmtui.analysis.levels.runs import Span
from swarmtui.analysis.levels.stats import largest_known, ratio
from swarmtui.model.telemetry import HostLoad, HostUse

# A level may be shorter than the time between two readings, which grows on a host that has no time for them.
_NEAR_NS = 5_000_000_000


def host_use(first: HostLoad, last: HostLoad) -> HostUse | None:
    """Return the shares of the time between two readings; None if they tell nothing."""
    passed_us = (last.t_ns - first.t_ns) / 1e3
    use = HostUse(
        pressure=ratio(_change(first.pressure_us, last.pressure_us), passed_us),
        waited=ratio(_change(first.waited_ns, last.waited_ns), 1e3 * passed_us),
        steal=ratio(_change(first.steal_ticks, last.steal_ticks), _change(first.ticks, last.ticks)),
    )
    return use if passed_us > 0 and use != HostUse() else None


def busiest(uses: Iterable[HostUse | None]) -> HostUse | None:
    """Return the largest of each share."""
    known = [use for use in uses if use is not None]
    return (
        HostUse(
            pressure=largest_known([use.pressure for use in known]),
            waited=largest_known([use.waited for use in known]),
            steal=largest_known([use.steal for use in known]),
        )
        if known
        else None
    )


def host_use_within(readings: Sequence[HostLoad], spans: Iterable[Span]) -> HostUse | None:
    """Return the shares of the busiest of these times; of a short one, between the readings next to it."""
    found = []
    for start, end in spans:
        near = [reading for reading in readings if start <= reading.t_ns <= end]
        if len(near) < 2:
            before = [reading for reading in readings if start - _NEAR_NS <= reading.t_ns < start]
            after = [reading for reading in readings if end < reading.t_ns <= end + _NEAR_NS]
            near = [*before[-1:], *near, *after[:1]]
        found.append(host_use(near[0], near[-1]) if len(near) > 1 else None)
    return busiest(found)


def _change(before: int | None, after: int | None) -> int | None:
    """Return the growth of a counter; a process that ended takes its part with it."""
    return None if before is None or after is None else max(0, after - before)
