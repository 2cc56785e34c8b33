"""What charts show, as data: the same points for the HTML report and for matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.stats import mean, ratio
from swarmtui.model.answer_check import PASSES
from swarmtui.model.record import Record
from swarmtui.model.session import Level, StageStart, Summary
from swarmtui.model.telemetry import Telemetry
from swarmtui.sessions.export.structs import Chart, Series
from swarmtui.sessions.export.timeline import gpu_charts

_LONG_S = 10.0


class Source(NamedTuple):
    """A session with what its charts are made of."""

    name: str
    summary: Summary
    records: Sequence[Record] = ()
    telemetry: Sequence[Telemetry] = ()
    stretches: Sequence[StageStart] = ()


def title_of(sources: Sequence[Source]) -> str:
    """What was measured: the label of each session, and the models of all."""
    sessions = [source.summary.session for source in sources]
    models = sorted({endpoint.model for session in sessions for endpoint in session.endpoints})
    labels = [source.name or source.summary.session.label for source in sources]
    name = ": ".join(filter(None, (", ".join(filter(None, labels)), ", ".join(models) or "no endpoint")))
    return f"{name} (SIMULATED)" if any(session.simulated for session in sessions) else name


def charts(sources: Sequence[Source]) -> tuple[Chart, ...]:
    """Those for which there is something to show; curves of several sessions lie over each other."""
    first = sources[0]
    made = (
        _throughput(sources),
        _ttft(sources),
        _contention(sources),
        _degradation(sources),
        _radar(sources),
        *(
            chart._replace(title=f"{chart.title}: {first.name}") if first.name else chart
            for chart in (
                _side_tasks(first),
                *gpu_charts(first.summary.session.t0_ns, first.telemetry, first.stretches),
            )
        ),
    )
    return tuple(chart for chart in made if any(series.points for series in chart.series))


def _varied(sources: Sequence[Source]) -> str:
    rates = any(level.rate is not None for source in sources for level in source.summary.levels)
    return "requests/s" if rates else "C"


def _curve(source: Source, name: str, of: Callable[[Level], float | None], many: bool) -> Series:
    levels = source.summary.levels
    points = tuple((float(level.offered_load), value) for level in levels if (value := of(level)) is not None)
    return Series(f"{source.name}: {name}" if many and name else name or source.name, points)


def _throughput(sources: Sequence[Source]) -> Chart:
    many = len(sources) > 1
    if many:
        series = [_curve(source, "", lambda level: level.headline_tps, many) for source in sources]
    else:
        series = [_curve(sources[0], "steady", lambda level: level.out_tps_steady, many)]
        series.append(_curve(sources[0], "wall", lambda level: level.out_tps_wall, many))
        series.append(_curve(sources[0], "one stream", lambda level: level.per_stream_tps.mean, many))
    return Chart("throughput", "Output throughput", "levels", _varied(sources), "tok/s", _filled(series))


def _ttft(sources: Sequence[Source]) -> Chart:
    """In milliseconds where none is above ten seconds."""
    many = len(sources) > 1
    most = max((level.ttft_s.max or 0.0 for source in sources for level in source.summary.levels), default=0.0)
    unit, factor = ("ms", 1e3) if most < _LONG_S else ("s", 1.0)

    def middle(level: Level) -> float | None:
        value = level.ttft_s.p50 if level.ttft_s.p50 is not None else level.ttft_s.mean
        return None if value is None else factor * value

    def largest(level: Level) -> float | None:
        return None if level.ttft_s.max is None else factor * level.ttft_s.max

    series = [_curve(source, "" if many else "median", middle, many) for source in sources]
    if not many:
        series.append(_curve(sources[0], "largest", largest, many))
    note = "below 5 answers the mean stands for the median"
    return Chart("ttft", "Time to first token", "levels", _varied(sources), unit, _filled(series), note=note)


def _contention(sources: Sequence[Source]) -> Chart:
    def lost(level: Level) -> float | None:
        return None if level.contention is None else 100 * level.contention

    series = [_curve(source, "", lost, len(sources) > 1) for source in sources if len(source.summary.levels) > 1]
    title = "Contention: rate that a stream loses against C=1"
    return Chart("contention", title, "levels", _varied(sources), "%", _filled(series))


def _degradation(sources: Sequence[Source]) -> Chart:
    """Each latency against its own at C=1; of several sessions TTFT alone, since nobody can follow nine curves."""
    many = len(sources) > 1
    names = ("TTFT",) if many else ("TTFT", "TPOT", "e2e")
    series = []
    for source in sources:
        alone = next((level for level in source.summary.levels if level.c == 1), None)
        if alone is None or len(source.summary.levels) < 2:
            continue
        for name in names:
            series.append(_curve(source, "" if many else name, _factor(f"{name.lower()}_s", alone), many))
    title = f"Degradation: {'TTFT' if many else 'latency'} against C=1 (means)"
    return Chart("degradation", title, "levels", _varied(sources), "×", _filled(series))


def _factor(field: str, alone: Level) -> Callable[[Level], float | None]:
    return lambda level: ratio(getattr(level, field).mean, getattr(alone, field).mean)


def _side_tasks(source: Source) -> Chart:
    """By type of task, at the highest level: how long it took; how many passed stands in its name."""
    highest = max((level.c for level in source.summary.levels), default=0)
    found = [r for r in source.records if r.phase == "level" and r.c == highest and r.type]
    types = tuple(sorted({record.type for record in found}))
    if len(types) < 2:
        return Chart("side_tasks", "", "bars", "", "", ())
    points, labels = [], []
    for place, kind in enumerate(types):
        of_kind = [record for record in found if record.type == kind]
        value = mean([record.e2e_s for record in of_kind if record.ok and record.e2e_s is not None])
        verdicts = [record.verdict for record in of_kind if record.verdict is not None]
        passed = f" {sum(v in PASSES for v in verdicts)}/{len(verdicts)} passed" if verdicts else ""
        labels.append(f"{kind}{passed}")
        if value is not None:
            points.append((float(place), value))
    title = f"Tasks at C={highest}: mean time"
    return Chart("side_tasks", title, "bars", "", "s", (Series("e2e", tuple(points)),), tuple(labels))


_AXES: tuple[tuple[str, Callable[[Summary], float | None]], ...] = (
    ("tok/s alone", lambda s: _at_first(s, lambda level: level.per_stream_tps.mean)),
    ("most tok/s", lambda s: max((level.headline_tps or 0.0 for level in s.levels), default=0.0) or None),
    ("TTFT alone", lambda s: ratio(1.0, _at_first(s, lambda level: level.ttft_s.mean))),
    ("TTFT loaded", lambda s: ratio(1.0, s.levels[-1].ttft_s.mean) if s.levels else None),
    ("stream kept", lambda s: _kept_at(s.levels)),
    ("answers passed", lambda s: s.levels[-1].pass_rate if s.levels else None),
)


def _at_first(summary: Summary, of: Callable[[Level], float | None]) -> float | None:
    return of(summary.levels[0]) if summary.levels and summary.levels[0].c == 1 else None


def _kept_at(levels: Sequence[Level]) -> float | None:
    lost = levels[-1].contention if len(levels) > 1 else None
    return None if lost is None else 1.0 - lost


def _radar(sources: Sequence[Source]) -> Chart:
    """Each axis as a share of the best session; only axes that all have, and only if three are left."""
    empty = Chart("radar", "", "radar", "", "", ())
    if len(sources) < 2:
        return empty
    rows = [(name, [of(source.summary) for source in sources]) for name, of in _AXES]
    full = [(name, [v for v in values if v]) for name, values in rows if all(values)]
    if len(full) < 3:
        return empty
    series = tuple(
        Series(source.name, tuple((float(k), values[place] / max(values)) for k, (_, values) in enumerate(full)))
        for place, source in enumerate(sources)
    )
    title = "Sessions beside each other, each axis as a share of the best"
    return Chart("radar", title, "radar", "", "", series, tuple(name for name, _ in full))


def _filled(series: Sequence[Series]) -> tuple[Series, ...]:
    return tuple(one for one in series if one.points)
