"""Build the charts of one or several sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, fsum, isfinite
from typing import Literal, NamedTuple

from swarmtui.analysis.capacity.marks import summary_marks
from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.answer_check import PASSES
from swarmtui.model.plan import is_open_loop
from swarmtui.model.record import Record
from swarmtui.model.session import Level, StageStart, Summary
from swarmtui.model.telemetry import Gpu, Telemetry

Points = tuple[tuple[float, float], ...]
Marks = tuple[tuple[float, str], ...]

ParetoUnit = Literal["tok/s", "jobs/h"]
_PARETO_UNITS: tuple[ParetoUnit, ...] = ("tok/s", "jobs/h")

_LONG_S = 10.0
_MAX_POINTS = 600
_LARGEST = 1e15

# A name, and how it is read from a level and all levels of its session.
Figure = tuple[str, Callable[[Level, Sequence[Level]], float | None]]


class SessionData(NamedTuple):
    """A session to export. `name` distinguishes it from the others of the same report; `history` are earlier ones."""

    name: str
    summary: Summary
    records: Sequence[Record] = ()
    telemetry: Sequence[Telemetry] = ()
    stages: Sequence[StageStart] = ()
    history: Sequence[Summary] = ()


class ChartSeries(NamedTuple):
    """A curve; `marks` are the x of points with what is special about them: the best level, the SLO.

    `half_widths` are those of the 95 % intervals of its points; 0 if a point has none. Empty: no point has one.
    """

    name: str
    points: Points
    marks: Marks = ()
    half_widths: tuple[float, ...] = ()


class Chart(NamedTuple):
    """A chart. `levels`: x is C, in equal steps; `bars`: one bar per label.

    `xy`: x and y are measured, and the marks of a series name its points in order. `marks` are positions on a time axis
    with the name of what starts there. Unless `linear`, as percentages are, a wide range of y is drawn logarithmically.
    """

    name: str
    title: str
    kind: Literal["levels", "time", "xy", "bars"]
    x: str
    y: str
    series: tuple[ChartSeries, ...]
    labels: tuple[str, ...] = ()
    note: str = ""
    marks: Marks = ()
    linear: bool = False


def session_title(sessions: Sequence[SessionData]) -> str:
    """Combine the labels and the models of the sessions."""
    infos = [session.summary.session for session in sessions]
    models = sorted({endpoint.model for info in infos for endpoint in info.endpoints})
    labels = [session.name or session.summary.session.label for session in sessions]
    name = ": ".join(filter(None, (", ".join(filter(None, labels)), ", ".join(models) or "no endpoint")))
    return f"{name} (SIMULATED)" if any(info.simulated for info in infos) else name


def build_charts(sessions: Sequence[SessionData]) -> tuple[Chart, ...]:
    """Return the charts that have data. Several sessions are drawn in the same charts."""
    first = sessions[0]
    charts = (
        *comparison_charts(sessions),
        *(
            chart._replace(title=f"{chart.title}: {first.name}") if first.name else chart
            for chart in (
                _side_tasks(first),
                *_gpu_charts(first.summary.session.t0_ns, first.telemetry, first.stages),
            )
        ),
    )
    return tuple(chart for chart in charts if any(series.points for series in chart.series))


def comparison_charts(sessions: Sequence[SessionData]) -> list[Chart]:
    """Return the charts that show every session, if they have data."""
    many = len(sessions) > 1
    largest = max((level.ttft_s.max or 0.0 for session in sessions for level in session.summary.levels), default=0.0)
    unit, times = ("ms", 1e3) if largest < _LONG_S else ("s", 1.0)
    rates: list[Figure] = [
        ("steady", lambda level, _: level.out_tps_steady),
        ("wall", lambda level, _: level.out_tps_wall),
        ("stream", lambda level, _: level.per_stream_tps.mean),
    ]
    ttft: list[Figure] = [
        ("median", lambda level, _: _scaled(level.ttft_s.median, times)),
        ("maximum", lambda level, _: _scaled(level.ttft_s.max, times)),
    ]
    slowdown: list[Figure] = [("", lambda level, levels: _scaled(level.slowdown, 100.0) if len(levels) > 1 else None)]
    worse: list[Figure] = [
        ("TTFT", lambda level, levels: _relative(level, levels, lambda one: one.ttft_s.mean)),
        ("TPOT", lambda level, levels: _relative(level, levels, lambda one: one.tpot_s.mean)),
        ("e2e", lambda level, levels: _relative(level, levels, lambda one: one.e2e_s.median)),
    ]
    if many:
        rates = [("", lambda level, _: level.headline_tps), rates[-1]]
    # Requests that were cut off at the end of a level have no mean e2e.
    latency, how = ("TTFT", "means") if many else ("latency", "means; e2e: median")
    charts = (
        _level_chart(
            sessions, "throughput", "Output throughput", "output tok/s", rates, marked=True,
            half_width=lambda level: level.out_tps_steady_hw if level.headline_is_steady else None,
        ),
        _level_chart(sessions, "ttft", "Time to first token", f"TTFT, {unit}", ttft, marked=True),
        *([_level_chart(sessions, "stream", "Rate of one stream", "stream tok/s", rates[1:])] if many else []),
        *(_pareto(sessions, unit) for unit in _PARETO_UNITS),
        _level_chart(
            sessions, "contention", "Contention: slowdown of a stream compared with C=1", "slowdown, %", slowdown,
            linear=True,
        ),
        _level_chart(
            sessions, "degradation", f"Degradation: {latency} relative to C=1 ({how})", f"{latency}, × that of C=1",
            worse,
        ),
    )  # fmt: skip
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _relative(level: Level, levels: Sequence[Level], value: Callable[[Level], float | None]) -> float | None:
    base = next((one for one in levels if one.c == 1), None)
    return None if base is None or len(levels) < 2 else ratio(value(level), value(base))


def _level_chart(
    sessions: Sequence[SessionData],
    name: str,
    title: str,
    y: str,
    figures: Sequence[Figure],
    *,
    marked: bool = False,
    linear: bool = False,
    half_width: Callable[[Level], float | None] | None = None,
) -> Chart:
    """Chart figures by level; of several sessions only the first figure, to keep the curves readable.

    `half_width` is that of the first figure.
    """
    series = []
    for session in sessions:
        levels = session.summary.levels
        for figure, value_of in figures if len(sessions) == 1 else figures[:1]:
            values = ((level, _drawable(value_of(level, levels))) for level in levels)
            drawn = [(level, value) for level, value in values if value is not None]
            points = tuple((float(level.offered_load), value) for level, value in drawn)
            curve = ChartSeries(figure if len(sessions) == 1 else session.name, points)
            if half_width is not None and value_of is figures[0][1]:
                widths = tuple(_drawable(half_width(level)) or 0.0 for level, _ in drawn)
                curve = curve._replace(half_widths=widths if any(widths) else ())
            series.append(_with_findings(curve, session) if marked and value_of is figures[0][1] else curve)
    x = "requests/s" if any(is_open_loop(session.summary.levels) for session in sessions) else "C"
    return Chart(name, title, "levels", x, y, tuple(curve for curve in series if curve.points), linear=linear)


def _with_findings(series: ChartSeries, session: SessionData) -> ChartSeries:
    """Mark the level to choose and the first one past it."""
    marks = summary_marks(session.summary)
    names = ("SLO kept", "SLO missed") if marks.by_slo else ("best", "cliff")
    places = zip((marks.best, marks.past), names, strict=True)
    drawn = {x for x, _ in series.points}
    return series._replace(marks=tuple((float(x), name) for x, name in places if x is not None and x in drawn))


def _pareto(sessions: Sequence[SessionData], unit: ParetoUnit) -> Chart:
    """Chart what one user gets against what one GPU gives: up and to the right is better.

    An open loop has no points, as its rate is not a number of users. Without the GPUs of all servers, figures are
    those of the whole server.
    """
    per_gpu = all(session.summary.gpus for session in sessions)
    series = []
    for session in sessions:
        points, gpus = [], len(session.summary.gpus) if per_gpu else 1
        for level in sorted(session.summary.levels, key=lambda level: level.c):
            user, server = map(_drawable, _pareto_rates(level, unit))
            if level.rate is None and user and server:
                points.append((user, server / gpus, f"C={level.c}"))
        if len(points) > 1:
            marks = tuple((x, name) for x, _, name in points)
            series.append(ChartSeries(session.name, tuple((x, y) for x, y, _ in points), marks))
    whole = "GPU" if per_gpu else "server"
    name, output = ("pareto", "output ") if unit == "tok/s" else ("pareto_jobs", "")
    title = f"Pareto: {unit} per user against {unit} per {whole}"
    note = f"only of {series[0].name}" if len(sessions) > len(series) == 1 else ""
    return Chart(name, title, "xy", f"{unit} per user", f"{output}{unit} per {whole}", tuple(series), note=note)


def _pareto_rates(level: Level, unit: ParetoUnit) -> tuple[float | None, float | None]:
    """Return what one user and what the server gets."""
    if unit == "tok/s":
        return level.per_stream_tps.mean, level.headline_tps
    replay = level.replay
    return (replay.jobs_per_h_user, replay.jobs_per_h) if replay is not None else (None, None)


def _side_tasks(session: SessionData) -> Chart:
    """Chart the median time of each task type at the highest level; labels count the passed answers."""
    highest = max((level.c for level in session.summary.levels), default=0)
    found = [r for r in session.records if r.phase == "level" and r.c == highest and r.type]
    types = tuple(sorted({record.type for record in found}))
    if len(types) < 2:
        return Chart("side_tasks", "", "bars", "", "", ())
    points, labels = [], []
    for index, kind in enumerate(types):
        of_kind = [record for record in found if record.type == kind]
        value = median(record.e2e_s for record in of_kind if record.ok and record.e2e_s is not None)
        verdicts = [record.verdict for record in of_kind if record.verdict is not None]
        passed = f" {sum(v in PASSES for v in verdicts)}/{len(verdicts)} passed" if verdicts else ""
        labels.append(f"{kind}{passed}")
        if value is not None:
            points.append((float(index), value))
    title = f"Tasks at C={highest}: median e2e"
    return Chart("side_tasks", title, "bars", "", "s", (ChartSeries("e2e", tuple(points)),), tuple(labels))


_READINGS: tuple[tuple[str, str, str, Callable[[Gpu], float | None], str], ...] = (
    ("gpu_power", "GPU power", "W", lambda gpu: gpu.power_w, "sampled, lags about a second"),
    ("gpu_memory", "GPU memory in use", "GiB", lambda gpu: _scaled(gpu.memory_used, 2.0**-30), ""),
    ("gpu_utilisation", "GPU utilisation", "%", lambda gpu: _scaled(gpu.utilisation, 100.0), "share of time busy"),
    ("gpu_temperature", "GPU temperature", "°C", lambda gpu: gpu.temperature_c, ""),
)


def _gpu_charts(t0_ns: int, telemetry: Sequence[Telemetry], stages: Sequence[StageStart]) -> tuple[Chart, ...]:
    """Chart each reading over time. Partitions of a GPU are skipped: the readings of the whole GPU include them."""
    simulated = any(gpu.simulated for moment in telemetry for gpu in moment.gpus)
    marks = _marks(t0_ns, stages)
    charts = []
    for name, title, unit, read, note in _READINGS:
        by_gpu: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for moment in telemetry:
            for gpu in moment.serving_gpus:
                value = None if gpu.part_of else _drawable(read(gpu))
                if value is not None:
                    by_gpu.setdefault((gpu.index, gpu.uuid), []).append(((moment.t_ns - t0_ns) / 1e9, value))
        series = tuple(ChartSeries(f"GPU {index}", _thinned(points)) for (index, _), points in sorted(by_gpu.items()))
        named = f"{title} (SIMULATED)" if simulated else title
        linear = unit == "%"
        charts.append(
            Chart(name, named, "time", "s", unit, series, note=note, marks=marks if series else (), linear=linear)
        )
    return tuple(charts)


def _marks(t0_ns: int, stages: Sequence[StageStart]) -> Marks:
    marks: list[tuple[float, str]] = []
    for stage in sorted(stages, key=lambda stage: stage.t_ns):
        load = f"C={stage.c}" if stage.rate is None else f"{stage.rate:g}/s"
        label = {"warmup": "warm-up", "canary": "canaries"}.get(stage.phase, load)
        if not marks or marks[-1][1] != label:
            marks.append(((stage.t_ns - t0_ns) / 1e9, label))
    return tuple(marks)


def _thinned(points: Sequence[tuple[float, float]]) -> Points:
    """Average neighbouring points so that at most _MAX_POINTS remain."""
    each = ceil(len(points) / _MAX_POINTS)
    parts = [points[start : start + each] for start in range(0, len(points), each)] if each > 1 else []
    if not parts:
        return tuple(points)
    return tuple((fsum(x for x, _ in part) / len(part), fsum(y for _, y in part) / len(part)) for part in parts)


def _drawable(value: float | None) -> float | None:
    """Leave out values that no axis can show, and draw immeasurably small ones as 0: a journal may hold anything."""
    if value is None or not isfinite(value) or abs(value) > _LARGEST:
        return None
    return value if abs(value) >= 1 / _LARGEST else 0.0


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
