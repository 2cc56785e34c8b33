"""GPU figures of a level: energy from the counters (sampled power lags by about 1 s), throttling, names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from math import fsum
from typing import NamedTuple

from swarmtui.analysis.levels.runs import Span
from swarmtui.analysis.levels.stats import ratio
from swarmtui.model.telemetry import DiscoveredServer, Energy, Gpu, Telemetry
from swarmtui.numbers import gib

# Clocks set by the user are not throttling.
THROTTLE_REASONS = frozenset(
    ("power cap", "hardware slowdown", "thermal", "hardware thermal", "power brake", "board limit", "reliability")
)
# A counter must have been read within this time of both ends of a span, and the memory if the span is too short.
_MAX_DISTANCE_NS = 1_500_000_000
# Power changes near the ends of a span, and between two readings it is not known when. Both intervals together must not
# be longer than this share of the span: the energy may then be off by 15 %, if a GPU idled before and after it.
_MAX_BLURRED = 1.0
# A GPU with less memory in use runs no server: a process that computes on it takes more.
_MIN_MEMORY = 256 << 20


class ServerGpus(NamedTuple):
    """The whole GPUs that figures are about; `known`: their processes are those of the servers."""

    uuids: frozenset[str]
    known: bool


def energy_used(
    readings: Sequence[Telemetry], spans: Sequence[Span], tokens_out: float | None, used: ServerGpus | None = None
) -> Energy | None:
    """Return the energy used in all spans by these GPUs, or by all; None if no reading has one of them.

    Joules are null unless each of these GPUs has counter readings near both ends of each span, and the spans are long
    enough for the time between readings. MIG devices have no counters and are part of the whole GPU.
    """
    chosen = [
        (reading.t_ns, [gpu for gpu in _whole_gpus(reading) if used is None or gpu.uuid in used.uuids])
        for reading in readings
    ]
    names = sorted({gpu.uuid for _, gpus in chosen for gpu in gpus})  # a fixed order, so that sums are reproducible
    if not names:
        return None
    inside = _within(chosen, spans)
    seconds = sum(end - start for start, end in spans) / 1e9
    joules: float | None = 0.0 if spans else None
    for uuid in names:
        read = {t: g.energy_j for t, gpus in chosen for g in gpus if g.uuid == uuid and g.energy_j is not None}
        counter = sorted(read.items())
        parts = [_joules(counter, span) for span in spans]
        known = [part for part in parts if part is not None]
        sharp = sum(blurred_ns for _, blurred_ns in known) <= _MAX_BLURRED * 1e9 * seconds
        if joules is not None:
            joules = joules + sum(found for found, _ in known) if sharp and len(known) == len(parts) else None
    throttled, why = throttled_share(map(lowered_by, inside))
    busy = [gpu.utilisation for gpus in inside for gpu in gpus if gpu.utilisation is not None]
    simulated = any(gpu.simulated for _, gpus in chosen for gpu in gpus)
    return Energy(
        seconds=seconds,
        joules=joules,
        mean_w=ratio(joules, seconds),
        j_per_token=ratio(joules, tokens_out),
        tokens_per_j=ratio(tokens_out, joules),
        peak_memory=_peak_memory(inside or _within(chosen, spans, _MAX_DISTANCE_NS)),
        throttled=throttled,
        throttle=why,
        utilisation=ratio(fsum(busy), len(busy)),
        simulated=simulated,
        all_gpus=not (used and used.known) and len(names) > 1 and not simulated,
    )


def _joules(counter: Sequence[tuple[int, float]], span: Span) -> tuple[float, int] | None:
    """Return the joules of a span and the time between the readings around its ends, 0 for a reading at an end."""
    start, end = span
    times = [t for t, _ in counter]
    first, last = max(bisect_left(times, start + 1) - 1, 0), min(bisect_left(times, end), len(times) - 1)
    near = counter[first : last + 1]
    if len(near) < 2 or any(later < earlier for (_, earlier), (_, later) in pairwise(near)):
        return None
    if near[0][0] > start + _MAX_DISTANCE_NS or near[-1][0] < end - _MAX_DISTANCE_NS:
        return None
    blurred = [(near[0], near[1])] * (start != near[0][0]) + [(near[-2], near[-1])] * (end != near[-1][0])
    joules = _interpolate(near[-2], near[-1], end) - _interpolate(near[0], near[1], start)
    return max(0.0, joules), sum(later - earlier for (earlier, _), (later, _) in blurred)


def _interpolate(one: tuple[int, float], other: tuple[int, float], t: int) -> float:
    """Return the counter at `t`, on the line through two readings."""
    return one[1] + (other[1] - one[1]) * (t - one[0]) / (other[0] - one[0])


def _within(readings: Sequence[tuple[int, list[Gpu]]], spans: Sequence[Span], distance_ns: int = 0) -> list[list[Gpu]]:
    """Return the readings during the spans, and up to this time before and after them."""
    return [gpus for t, gpus in readings if any(s - distance_ns <= t <= end + distance_ns for s, end in spans)]


def _peak_memory(readings: Sequence[Sequence[Gpu]]) -> int | None:
    """Return the most memory in use in all GPUs together, of the readings that have that of each."""
    known = ([gpu.memory_used for gpu in gpus if gpu.memory_used is not None] for gpus in readings)
    sums = (sum(used) for used, gpus in zip(known, readings, strict=True) if 0 < len(used) == len(gpus))
    return max(sums, default=None)


def lowered_by(gpus: Sequence[Gpu]) -> frozenset[str] | None:
    """Return why the clocks of these GPUs are lowered; None if none of them reports it."""
    reported = [gpu.throttle for gpu in gpus if gpu.throttle is not None]
    return THROTTLE_REASONS.intersection(chain(*reported)) if reported else None


def throttled_share(samples: Iterable[frozenset[str] | None]) -> tuple[float | None, tuple[str, ...]]:
    """Return the share of samples in which clocks were lowered, and the reasons."""
    known = [reasons for reasons in samples if reasons is not None]
    return ratio(sum(map(bool, known)), len(known)), tuple(sorted(set().union(*known)))


def server_gpus(telemetry: Sequence[Telemetry], servers: Sequence[DiscoveredServer]) -> ServerGpus:
    """Return the GPUs that the processes of the servers use; if that is not known, those of their hosts in use."""
    if servers and all(server.gpus for server in servers):
        named = {uuid for server in servers for uuid in server.gpus}
        found = (gpu.part_of or gpu.uuid for sample in telemetry for gpu in sample.gpus if gpu.uuid in named)
        return ServerGpus(frozenset(found), known=True)
    in_use = (
        gpu.uuid
        for sample in telemetry
        for gpu in _whole_gpus(sample)
        if gpu.memory_used is None or gpu.memory_used >= _MIN_MEMORY
    )
    return ServerGpus(frozenset(in_use), known=False)


def used_gpus(sample: Telemetry, servers: Sequence[DiscoveredServer]) -> tuple[Gpu, ...]:
    """Return the whole GPUs of a sample that the servers use."""
    used = server_gpus((sample,), servers)
    return tuple(gpu for gpu in _whole_gpus(sample) if gpu.uuid in used.uuids)


def session_gpus(telemetry: Sequence[Telemetry], servers: Sequence[DiscoveredServer]) -> tuple[Gpu, ...]:
    """Return the last readings of the GPUs that the servers use."""
    seen: dict[str, Gpu] = {gpu.uuid: gpu for sample in telemetry for gpu in _whole_gpus(sample)}
    used = server_gpus(telemetry, servers)
    return tuple(sorted((gpu for uuid, gpu in seen.items() if uuid in used.uuids), key=lambda gpu: gpu.index))


def gpu_names(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return tuple(map(_gpu_name, gpus))


def _whole_gpus(sample: Telemetry) -> list[Gpu]:
    """Return the GPUs of hosts that run an endpoint; MIG devices are part of their GPU."""
    return [gpu for gpu in sample.serving_gpus if not gpu.part_of]


def _gpu_name(gpu: Gpu) -> str:
    parts = [gpu.name or "GPU"]
    if gpu.memory_total is not None:
        parts.append(f"{gib(gpu.memory_total, 0)} GiB{' unified' if gpu.unified_memory else ''}")
    if gpu.power_limit_w is not None:
        parts.append(f"{gpu.power_limit_w:.0f} W")
    return ", ".join(parts)


def count_names(names: Sequence[str]) -> str:
    """`2 × NVIDIA H200, 140 GiB, 700 W`"""
    numbers = {name: names.count(name) for name in names}
    return "; ".join(name if n == 1 else f"{n} × {name}" for name, n in numbers.items())
