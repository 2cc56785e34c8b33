"""GPUs over time, from the beginning of the session, with the places where C became another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, fsum

from swarmtui.model.session import StageStart
from swarmtui.model.telemetry import Gpu, Telemetry
from swarmtui.sessions.export.structs import Chart, Marks, Points, Series

_MOST_POINTS = 600

_READINGS: tuple[tuple[str, str, str, Callable[[Gpu], float | None], str], ...] = (
    ("gpu_power", "GPU power", "W", lambda gpu: gpu.power_w, "sampled, lags about a second"),
    ("gpu_memory", "GPU memory in use", "GB", lambda gpu: _times(gpu.memory_used, 1e-9), ""),
    ("gpu_utilisation", "GPU utilisation", "%", lambda gpu: _times(gpu.utilisation, 100.0), "time with work on it"),
    ("gpu_temperature", "GPU temperature", "°C", lambda gpu: gpu.temperature_c, ""),
)


def gpu_charts(t0_ns: int, telemetry: Sequence[Telemetry], stretches: Sequence[StageStart]) -> tuple[Chart, ...]:
    """One for each reading that there is; parts of a card are in the figures of the whole."""
    simulated = any(gpu.simulated for moment in telemetry for gpu in moment.gpus)
    marks = _marks(t0_ns, stretches)
    made = []
    for name, title, unit, read, note in _READINGS:
        by_gpu: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for moment in telemetry:
            for gpu in moment.gpus:
                value = None if gpu.part_of else read(gpu)
                if value is not None:
                    by_gpu.setdefault((gpu.index, gpu.uuid), []).append(((moment.t_ns - t0_ns) / 1e9, value))
        series = tuple(Series(f"GPU {index}", _thinned(points)) for (index, _), points in sorted(by_gpu.items()))
        named = f"{title} (SIMULATED)" if simulated else title
        made.append(Chart(name, named, "time", "s", unit, series, note=note, marks=marks if series else ()))
    return tuple(made)


def _marks(t0_ns: int, stretches: Sequence[StageStart]) -> Marks:
    marks: list[tuple[float, str]] = []
    for stretch in sorted(stretches, key=lambda stretch: stretch.t_ns):
        load = f"C={stretch.c}" if stretch.rate is None else f"{stretch.rate:g}/s"
        label = "warm-up" if stretch.phase == "warmup" else load
        if not marks or marks[-1][1] != label:
            marks.append(((stretch.t_ns - t0_ns) / 1e9, label))
    return tuple(marks)


def _thinned(points: Sequence[tuple[float, float]]) -> Points:
    """A long session in fewer points: each the mean of as many that follow each other."""
    each = ceil(len(points) / _MOST_POINTS)
    parts = [points[start : start + each] for start in range(0, len(points), each)] if each > 1 else []
    if not parts:
        return tuple(points)
    return tuple((fsum(x for x, _ in part) / len(part), fsum(y for _, y in part) / len(part)) for part in parts)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
