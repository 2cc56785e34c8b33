"""Compute how busy the host was during a level, from the counters of its CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from swarmtui.analysis.levels.runs import Span
from swarmtui.analysis.levels.stats import largest_known, ratio
from swarmtui.analysis.quality import quality_limits as limits
from swarmtui.model.telemetry import HostLoad, HostUse, Program, ProgramTimes

# A level may be shorter than the time between two readings, which grows on a host that has no time for them.
_NEAR_NS = 5_000_000_000
# Programs that used fewer cores explain nothing; of the others, the busiest are named.
_LEAST_CORES, _MAX_PROGRAMS = 0.05, 2
# The kernel counts CPU time in ticks: less is what is left of a difference of sums.
_TICK_S = 0.0099

Reading = TypeVar("Reading", HostLoad, ProgramTimes)


def host_use(first: HostLoad, last: HostLoad) -> HostUse | None:
    """Return the shares of the time between two readings; None if they tell nothing.

    Whether tasks waited for another program is not known before all processes were read twice: until then, their
    waiting is not known either.
    """
    passed_us = (last.t_ns - first.t_ns) / 1e3
    others, programs = _used_by_others(first.programs, last.programs)
    known = last.programs is None or others is not None
    use = HostUse(
        pressure=ratio(_change(first.pressure_us, last.pressure_us), passed_us) if known else None,
        waited=ratio(_change(first.waited_ns, last.waited_ns), 1e3 * passed_us) if known else None,
        steal=ratio(_change(first.steal_ticks, last.steal_ticks), _change(first.ticks, last.ticks)),
        others=others,
        programs=programs,
    )
    return use if passed_us > 0 and use != HostUse() else None


def _used_by_others(first: ProgramTimes | None, last: ProgramTimes | None) -> tuple[float | None, tuple[Program, ...]]:
    """Return which share of the CPU time other programs used, and the busiest of them."""
    if first is None or last is None or last.t_ns <= first.t_ns:
        return None, ()
    passed_s = (last.t_ns - first.t_ns) / 1e9
    used_s = last.others_s - first.others_s
    share = used_s / (last.cpus * passed_s) if used_s >= _TICK_S else 0.0
    cores = {name: (used_s - first.by_name.get(name, 0.0)) / passed_s for name, used_s in last.by_name.items()}
    busiest_first = sorted(cores.items(), key=lambda item: (-item[1], item[0]))
    named = [(name, used) for name, used in busiest_first if used >= _LEAST_CORES][:_MAX_PROGRAMS]
    return share, tuple(Program(name=name, cores=used, pid=last.pids.get(name)) for name, used in named)


def busiest(uses: Iterable[HostUse | None]) -> HostUse | None:
    """Return the busiest of these, by all that makes a host busy together; and the largest steal."""
    known = [use for use in uses if use is not None]
    if not known:
        return None
    return msgspec.structs.replace(max(known, key=_busy), steal=largest_known([use.steal for use in known]))


def _busy(use: HostUse) -> float:
    """Return the smallest of the shares, each over its limit: a host is busy if all that is known is above."""
    shares = (
        (use.pressure, limits.CPU_PRESSURE.note),
        (use.waited, limits.CPU_WAIT.note),
        (use.others, limits.OTHER_PROGRAMS.ok),
    )
    return min((share / limit for share, limit in shares if share is not None), default=-1.0)


def host_use_within(readings: Sequence[HostLoad], spans: Iterable[Span]) -> HostUse | None:
    """Return the shares of the busiest of these times; of a short one, between the readings next to it."""
    scans = {reading.programs.t_ns: reading.programs for reading in readings if reading.programs is not None}
    found = []
    for span in spans:
        near, programs = _around(readings, span), _around(list(scans.values()), span)
        if len(near) < 2:
            continue
        if programs:
            near[0], near[-1] = (
                msgspec.structs.replace(reading, programs=scan)
                for reading, scan in ((near[0], programs[0]), (near[-1], programs[-1]))
            )
        found.append(host_use(near[0], near[-1]))
    return busiest(found)


def _around(readings: Sequence[Reading], span: Span) -> list[Reading]:
    """Return the readings of this time; if they are too few, with those next to it."""
    start, end = span
    inside = [reading for reading in readings if start <= reading.t_ns <= end]
    if len(inside) > 1:
        return inside
    before = [reading for reading in readings if start - _NEAR_NS <= reading.t_ns < start]
    after = [reading for reading in readings if end < reading.t_ns <= end + _NEAR_NS]
    return before[-1:] + inside + after[:1]


def _change(before: int | None, after: int | None) -> int | None:
    """Return the growth of a counter; a process that ended takes its part with it."""
    return None if before is None or after is None else max(0, after - before)
