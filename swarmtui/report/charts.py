"""Build the charts of one or several sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice, pairwise
from math import ceil, exp, frexp, fsum, inf, isfinite, ldexp, log
from typing import TYPE_CHECKING, Literal, NamedTuple

from swarmtui.analysis.capacity.marks import LevelMarks, summary_marks
from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.analysis.limits.slo import read_slo, time_text
from swarmtui.model.answer_check import PASSES
from swarmtui.model.client_protocol import ProvisionalLevel
from swarmtui.model.plan import is_open_loop
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import Gpu, Telemetry
from swarmtui.report.chart import MOST_ABOVE, Chart, ChartHue, ChartSeries, Marks, Points, boundary_of
from swarmtui.report.colours import Hue
from swarmtui.report.levels import mark_code

if TYPE_CHECKING:
    from swarmtui.model.journal import StageStart

ParetoUnit = Literal["tok/s", "jobs/h"]
_PARETO_UNITS: tuple[ParetoUnit, ...] = ("tok/s", "jobs/h")

_MAX_POINTS = 600
# The charts that are drawn one above the other as the picture of a session.
PICTURE = ("throughput", "ttft")
_LARGEST = 1e15
# Levels that are closer than this factor are averaged, and how near they are to count for each other: the standard
# deviation of the logarithm of a level.
_NEAR_LEVELS, _NEAR_WIDTH = 1.34, 0.12

# A name, a hue, and how it is read from a level and all levels of its session.
Figure = tuple[str, Hue, Callable[[Level, Sequence[Level]], float | None]]
# The hues of more sessions than two, and of more GPUs than one.
_MORE: tuple[Hue, ...] = ("energy", "good", "queue", "bad")


class SessionData(NamedTuple):
    """A session to export. `name` distinguishes it from the others of the same report; `history` are earlier ones."""

    name: str
    summary: Summary
    records: Sequence[Record] = ()
    telemetry: Sequence[Telemetry] = ()
    stages: Sequence[StageStart] = ()
    history: Sequence[Summary] = ()


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
    t0_ns = first.summary.session.t0_ns
    own = (_side_tasks(first), *_gpu_charts(t0_ns, first.telemetry, first.stages))
    named = (chart._replace(title=f"{chart.title}: {first.name}") if first.name else chart for chart in own)
    return (*comparison_charts(sessions), *(chart for chart in named if any(series.points for series in chart.series)))


def curve_charts(
    levels: Sequence[Level],
    marks: LevelMarks,
    *,
    baseline: Sequence[Level] = (),
    baseline_name: str = "",
    provisional: Sequence[ProvisionalLevel] = (),
    planned: Sequence[float] = (),
    limit: Iterable[tuple[float, float | None]] = (),
    slo: str = "",
) -> tuple[Chart, Chart]:
    """Return the picture of a session: output tok/s, and below it the first token, over the same levels.

    `provisional` are levels that are being measured, `planned` those that will be. `limit` has C and the
    tok/s that the hardware allows; an open loop, whose levels are rates, has none. `slo` may limit the first token.
    """
    allowed = _curve("limit of the hardware", "dim", limit)._replace(stroke="sparse")
    tail = _curve("p90", "latency", ((level.offered_load, level.shown_ttft_s.p90) for level in levels))
    upper, lower = _picture(
        (
            _throughput("now" if baseline else "", "throughput", levels, marks),
            _so_far("throughput", ((level.offered_load, level.out_tps) for level in provisional)),
            _throughput(baseline_name, "dim", baseline)._replace(stroke="dotted", half_widths=()),
            *([] if is_open_loop((*levels, *provisional)) else [allowed]),
        ),
        (
            _first_token("median", "latency", levels),
            _so_far("latency", ((level.offered_load, level.ttft_s) for level in provisional)),
            # A line has two ends.
            tail._replace(stroke="dashed", points=tail.points if len(tail.points) > 1 else ()),
            _first_token("", "dim", baseline)._replace(stroke="dotted"),
            _first_token_limit(slo, (*levels, *provisional)),
        ),
        _unit((*levels, *provisional)),
    )
    measured = {level.offered_load for level in (*levels, *provisional)}
    missing = tuple(sorted(float(load) for load in planned if load not in measured))
    boundary = None
    if marks.by_slo and marks.best is not None and marks.past is not None:
        boundary = boundary_of(marks.best, marks.missed, (*measured, *missing))
    return upper._replace(planned=missing, boundary=boundary), lower._replace(planned=missing, boundary=boundary)


def _first_token_limit(slo: str, levels: Sequence[Level | ProvisionalLevel]) -> ChartSeries:
    """Return the limit of an SLO on the first token, from the first level to the last; without points if it is far off.

    A level may miss it although its median does not: the limit is on most of the requests.
    """
    known = read_slo(slo)
    limit = (known.strictest("ttft") if known else None) or inf
    loads = {level.offered_load for level in levels}
    times = [level.ttft_s if isinstance(level, ProvisionalLevel) else _median(level) for level in levels]
    if len(loads) < 2 or limit > MOST_ABOVE * max(time or 0.0 for time in times):
        return ChartSeries("", ())
    series = _curve(f"SLO {time_text(limit)}", "bad", ((min(loads), limit), (max(loads), limit)))
    return series._replace(stroke="sparse")


def _picture(upper: Iterable[ChartSeries], lower: Iterable[ChartSeries], x: str) -> tuple[Chart, Chart]:
    throughput, times = (tuple(series for series in part if series.points) for part in (upper, lower))
    largest = max((y for series in times for _, y in series.points), default=0.0)
    unit, factor = ("s", 1.0) if largest >= 1.0 else ("ms", 1e3)
    scaled = tuple(series._replace(points=tuple((x, y * factor) for x, y in series.points)) for series in times)
    return (
        Chart("throughput", "Output throughput", "levels", x, "output tok/s", throughput, linear=True),
        Chart("ttft", "Time to first token", "levels", x, f"first token (median), {unit}", scaled, linear=True),
    )


def _throughput(name: str, hue: ChartHue, levels: Sequence[Level], marks: LevelMarks | None = None) -> ChartSeries:
    series = _curve(name, hue, ((level.offered_load, level.headline_tps) for level in levels))
    widths = {level.offered_load: level.headline_hw for level in levels}
    codes = ((at, mark_code(marks, at)) for at, _ in series.points) if marks is not None else ()
    return series._replace(
        half_widths=drawn_half_widths(widths.get(at) for at, _ in series.points),
        marks=tuple((at, code) for at, code in codes if code),
        hollow=_weak(levels),
    )


def _first_token(name: str, hue: ChartHue, levels: Sequence[Level]) -> ChartSeries:
    series = _curve(name, hue, ((level.offered_load, _median(level)) for level in levels))
    return series._replace(hollow=_weak(levels))


def _median(level: Level) -> float | None:
    """Return the first token of a level; of one whose judged requests mostly waited past the limit, of all that came.

    These are late, too, and a curve that ends at the limit would hide by how much.
    """
    return level.ttft_s.median if level.shown_ttft_s.median is None else level.shown_ttft_s.median


def _curve(name: str, hue: ChartHue, values: Iterable[tuple[float, float | None]]) -> ChartSeries:
    drawn = ((float(x), _drawable(y)) for x, y in values)
    return ChartSeries(name, tuple(sorted((x, y) for x, y in drawn if y is not None)), hue=hue)


def _so_far(hue: ChartHue, values: Iterable[tuple[float, float | None]]) -> ChartSeries:
    series = _curve("measured now", hue, ((x, None if y is None else _rounded(y)) for x, y in values))
    return series._replace(stroke="points", hollow=frozenset(at for at, _ in series.points))


def _rounded(value: float) -> float:
    """Round to about 1 %, a dot of a chart, so that a value that hardly changes is not painted again."""
    fraction, exponent = frexp(value)
    return ldexp(round(fraction * 128) / 128, exponent)


def _weak(levels: Sequence[Level]) -> frozenset[float]:
    return frozenset(level.offered_load for level in levels if level.has_weak_output)


def comparison_charts(sessions: Sequence[SessionData]) -> list[Chart]:
    """Return the charts that show every session, if they have data; the first is what the others are compared with."""
    many = len(sessions) > 1
    stream: list[Figure] = [("", "throughput", lambda level, _: level.per_stream_tps.mean)]
    slowdown: list[Figure] = [
        ("", "throughput", lambda level, levels: _scaled(level.slowdown, 100.0) if len(levels) > 1 else None)
    ]
    worse: list[Figure] = [
        ("TTFT", "latency", lambda level, levels: _relative(level, levels, lambda one: one.ttft_s.mean)),
        ("TPOT", "throughput", lambda level, levels: _relative(level, levels, lambda one: one.tpot_s.mean)),
        ("e2e", "energy", lambda level, levels: _relative(level, levels, lambda one: one.e2e_s.median)),
    ]
    # Requests that were cut off at the end of a level have no mean e2e.
    latency, how = ("TTFT", "means") if many else ("latency", "means; e2e: median")
    charts = (
        *_curves(sessions),
        _level_chart(sessions, "stream", "Rate of one agent", "tok/s per agent", stream),
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


def session_curves(summary: Summary) -> tuple[Chart, Chart]:
    """Return the picture of a saved session."""
    limit = summary.speed_of_light.expected if summary.speed_of_light else ()
    slo = summary.answer.slo if summary.answer else ""
    return curve_charts(summary.levels, summary_marks(summary), limit=limit, slo=slo)


def _curves(sessions: Sequence[SessionData]) -> tuple[Chart, Chart]:
    """Return the picture of one session, or that of several in the same charts."""
    if len(sessions) == 1:
        return session_curves(sessions[0].summary)
    upper, lower = [], []
    for number, (name, summary, *_) in enumerate(sessions):
        rates = _throughput(name, _hue(number, "throughput"), summary.levels, summary_marks(summary))
        upper.append(_smoothed(rates, summary.levels))
        times = _first_token(name, _hue(number, "latency"), summary.levels)
        lower.append(times)
    slos = {session.summary.answer.slo if session.summary.answer else "" for session in sessions}
    levels = [level for session in sessions for level in session.summary.levels]
    if len(slos) == 1:
        lower.append(_first_token_limit(slos.pop(), levels))
    return _picture(upper, lower, _unit(levels))


def _smoothed(series: ChartSeries, levels: Sequence[Level]) -> ChartSeries:
    """Average levels that are so close that chance alone moves them up and down, so that curves do not tangle."""
    points = series.points
    if all(_NEAR_LEVELS * x <= after for (x, _), (after, _) in pairwise(points)):
        return series
    counts = {level.offered_load: level.n for level in levels}
    means = []
    for at, _ in points:
        weights = [max(1, counts[x]) * exp(-0.5 * (log(x / at) / _NEAR_WIDTH) ** 2) for x, _ in points]
        mean = fsum(weight * y for weight, (_, y) in zip(weights, points, strict=True)) / fsum(weights)
        means.append((at, mean))
    return series._replace(points=tuple(means))


def _unit(levels: Iterable[Level | ProvisionalLevel]) -> str:
    return "requests/s" if is_open_loop(levels) else "C"


def _hue(number: int, hue: Hue) -> ChartHue:
    """Return the hue of one of several sessions: that of the quantity for the second, compared with the first."""
    hues: tuple[ChartHue, ...] = ("dim", hue, *_MORE)
    return hues[number % len(hues)]


def main_first(count: int, hue: Hue) -> list[ChartHue]:
    """Return the hues of several curves of which the first is the one that counts."""
    hues: tuple[ChartHue, ...] = (hue, "dim", *_MORE)
    return [*islice(cycle(hues), count)]


def _relative(level: Level, levels: Sequence[Level], value: Callable[[Level], float | None]) -> float | None:
    base = next((one for one in levels if one.c == 1), None)
    return None if base is None or len(levels) < 2 else ratio(value(level), value(base))


def _level_chart(
    sessions: Sequence[SessionData], name: str, title: str, y: str, figures: Sequence[Figure], *, linear: bool = False
) -> Chart:
    """Chart figures by level; of several sessions only the first figure, to keep the curves readable."""
    many = len(sessions) > 1
    series = []
    for number, session in enumerate(sessions):
        levels = session.summary.levels
        for figure, hue, value_of in figures[:1] if many else figures:
            values = [(level.offered_load, value_of(level, levels)) for level in levels]
            shown = (session.name, _hue(number, hue)) if many else (figure, hue)
            series.append(_curve(*shown, values))
    drawn = tuple(curve for curve in series if curve.points)
    unit = _unit(level for session in sessions for level in session.summary.levels)
    return Chart(name, title, "levels", unit, y, drawn, linear=linear)


def _pareto(sessions: Sequence[SessionData], unit: ParetoUnit) -> Chart:
    """Chart what one agent gets against what one GPU gives: up and to the right is better.

    An open loop has no points, as its rate is not a number of agents. Without the GPUs of all servers, figures are
    those of the whole server.
    """
    per_gpu = all(session.summary.gpus for session in sessions)
    series: list[ChartSeries] = []
    for number, session in enumerate(sessions):
        points, gpus = [], len(session.summary.gpus) if per_gpu else 1
        for level in sorted(session.summary.levels, key=lambda level: level.c):
            agent, server = map(_drawable, _pareto_rates(level, unit))
            if level.rate is None and agent and server:
                points.append((agent, server / gpus, f"C={level.c}"))
        if len(points) > 1:
            hue = _hue(number, "throughput") if len(sessions) > 1 else "throughput"
            names = tuple(name for *_, name in points)
            series.append(ChartSeries(session.name, tuple((x, y) for x, y, _ in points), hue=hue, names=names))
    whole = "GPU" if per_gpu else "server"
    name, output = ("pareto", "output ") if unit == "tok/s" else ("pareto_jobs", "")
    title = f"Pareto: {unit} per agent against {unit} per {whole}"
    note = f"only of {series[0].name}" if len(sessions) > len(series) == 1 else ""
    return Chart(name, title, "xy", f"{unit} per agent", f"{output}{unit} per {whole}", tuple(series), note=note)


def _pareto_rates(level: Level, unit: ParetoUnit) -> tuple[float | None, float | None]:
    """Return what one agent and what the server gets."""
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
    series = ChartSeries("e2e", tuple(points), hue="latency")
    return Chart("side_tasks", f"Tasks at C={highest}: median e2e", "bars", "", "s", (series,), tuple(labels))


_READINGS: tuple[tuple[str, str, str, Hue, Callable[[Gpu], float | None], str], ...] = (
    ("gpu_power", "GPU power", "W", "energy", lambda gpu: gpu.power_w, "sampled, lags about a second"),
    ("gpu_memory", "GPU memory in use", "GiB", "throughput", lambda gpu: _scaled(gpu.memory_used, 2.0**-30), ""),
    (
        "gpu_utilisation", "GPU utilisation", "%", "good", lambda gpu: _scaled(gpu.utilisation, 100.0),
        "share of time busy",
    ),
    ("gpu_temperature", "GPU temperature", "°C", "bad", lambda gpu: gpu.temperature_c, ""),
)  # fmt: skip


def _gpu_charts(t0_ns: int, telemetry: Sequence[Telemetry], stages: Sequence[StageStart]) -> tuple[Chart, ...]:
    """Chart each reading over time. Partitions of a GPU are skipped: the readings of the whole GPU include them."""
    simulated = any(gpu.simulated for moment in telemetry for gpu in moment.gpus)
    marks = _marks(t0_ns, stages)
    charts = []
    for name, title, unit, hue, read, note in _READINGS:
        by_gpu: dict[tuple[int, str], list[tuple[float, float]]] = {}
        for moment in telemetry:
            for gpu in moment.serving_gpus:
                value = None if gpu.part_of else _drawable(read(gpu))
                if value is not None:
                    by_gpu.setdefault((gpu.index, gpu.uuid), []).append(((moment.t_ns - t0_ns) / 1e9, value))
        series = tuple(
            ChartSeries(f"GPU {index}", _thinned(points), hue=shown)
            for ((index, _), points), shown in zip(sorted(by_gpu.items()), main_first(len(by_gpu), hue), strict=True)
        )
        chart = Chart(name, f"{title} (SIMULATED)" if simulated else title, "time", "s", unit, series)
        charts.append(chart._replace(note=note, marks=marks if series else (), linear=unit == "%"))
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
    if each < 2:
        return tuple(points)
    parts = [points[start : start + each] for start in range(0, len(points), each)]
    return tuple((fsum(x for x, _ in part) / len(part), fsum(y for _, y in part) / len(part)) for part in parts)


def drawn_half_widths(values: Iterable[float | None]) -> tuple[float, ...]:
    """Return the half-widths of the points of a series, 0 for one that has none; empty if no point has one."""
    widths = tuple(_drawable(value) or 0.0 for value in values)
    return widths if any(widths) else ()


def _drawable(value: float | None) -> float | None:
    """Leave out values that no axis can show, and draw immeasurably small ones as 0: a journal may hold anything."""
    if value is None or not isfinite(value) or abs(value) > _LARGEST:
        return None
    return value if abs(value) >= 1 / _LARGEST else 0.0


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
