"""What telemetry and records say about the conditions of a measurement; null is not measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.record import Record
from swarmtui.model.schema import Stored
from swarmtui.model.telemetry import Telemetry

# Clocks rest between levels: only moments of real work tell whether they were lowered.
_BUSY = 0.5


class Observed(Stored, frozen=True, kw_only=True):
    """`throttle` are the reasons seen; `clock_spread` is (highest − lowest) / highest of the busiest GPU clock.

    `idle_before`: no request on the server before our first. `others` counts requests that were not ours.
    `engine_ratio` is the engine's decode rate over ours. `lag_p99_s` and `cpu` are those of the client.
    """

    throttle: tuple[str, ...] | None = None
    clock_spread: float | None = None
    idle_before: bool | None = None
    others: float | None = None
    preemptions: float | None = None
    cache_hits: float | None = None
    engine_ratio: float | None = None
    lag_p99_s: float | None = None
    cpu: float | None = None


def observe(
    records: Sequence[Record],
    telemetry: Sequence[Telemetry] = (),
    *,
    lag_p99_s: float | None = None,
    cpu: float | None = None,
) -> Observed:
    sent = [record.t_sent_ns for record in records if record.t_sent_ns is not None]
    ends = [record.t_done_ns or record.t_last_ns or 0 for record in records]
    during = [moment for moment in telemetry if sent and min(sent) <= moment.t_ns <= max(ends)]
    before = [moment for moment in telemetry if sent and moment.t_ns < min(sent)]
    return Observed(
        throttle=_throttle(during),
        clock_spread=_clock_spread(during),
        idle_before=_idle(before),
        others=_others(records, before, [moment for moment in telemetry if sent and moment.t_ns > max(ends)]),
        preemptions=_growth(telemetry, "preemptions"),
        cache_hits=_growth(telemetry, "cache_hits"),
        engine_ratio=_engine_ratio(records),
        lag_p99_s=lag_p99_s,
        cpu=cpu,
    )


def _throttle(during: Iterable[Telemetry]) -> tuple[str, ...] | None:
    seen = [gpu.throttle for moment in during for gpu in moment.gpus if gpu.throttle is not None]
    return tuple(sorted({reason for reasons in seen for reason in reasons})) if seen else None


def _clock_spread(during: Iterable[Telemetry]) -> float | None:
    by_gpu: dict[str, list[int]] = {}
    for moment in during:
        for gpu in moment.gpus:
            if gpu.sm_mhz and (gpu.utilisation is None or gpu.utilisation >= _BUSY):
                by_gpu.setdefault(gpu.uuid, []).append(gpu.sm_mhz)
    spreads = [(max(clocks) - min(clocks)) / max(clocks) for clocks in by_gpu.values() if len(clocks) > 1]
    return max(spreads, default=None)


def _idle(before: Sequence[Telemetry]) -> bool | None:
    """By the last look at the server before the first request."""
    servers = before[-1].servers if before else ()
    busy = [server.running + (server.waiting or 0.0) for server in servers if server.running is not None]
    return not any(busy) if busy else None


def _others(records: Sequence[Record], before: Sequence[Telemetry], after: Sequence[Telemetry]) -> float | None:
    """Finished on the server beyond those that we sent, from the last look before to the first look after."""
    counts = [sum(s.finished or 0.0 for s in moments.servers) for moments in (*before[-1:], *after[:1])]
    known = all(s.finished is not None for m in (*before[-1:], *after[:1]) for s in m.servers)
    if len(counts) < 2 or not known or not before[-1].servers:
        return None
    ours = sum(record.finish_reason is not None for record in records)
    grown = counts[1] - counts[0]
    return max(0.0, grown - ours) if grown >= 0 else None


def _growth(telemetry: Sequence[Telemetry], counter: str) -> float | None:
    """Of a counter from the first look to the last, over all servers; one that fell back was restarted: unknown."""
    total, known = 0.0, False
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for moment in telemetry:
        for place, server in enumerate(moment.servers):
            value: float | None = getattr(server, counter)
            if value is not None:
                if value < last.get(place, value):
                    return None
                first.setdefault(place, value)
                last[place] = value
    for place, value in last.items():
        total, known = total + value - first[place], True
    return total if known else None


def _engine_ratio(records: Iterable[Record]) -> float | None:
    """The middle of the answers' ratios."""
    ratios = [
        found
        for record in records
        if record.ok and record.phase == "level"
        if (found := ratio(record.engine_decode_tps, record.decode_tps)) is not None
    ]
    return median(ratios)
