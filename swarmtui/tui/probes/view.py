"""The history of probes: each probe, the rolling median and the band around it, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from swarmtui.analysis.compare.probe_history import History, bands
from swarmtui.text import plain
from swarmtui.tui.lines import Line, left, right, wrapped
from swarmtui.tui.numbers import NOTHING, rate, seconds

_TICKS = 5
_MARGIN = 0.1


class Points(NamedTuple):
    xs: tuple[float, ...]
    ys: tuple[float, ...]


class ProbesView(NamedTuple):
    """Of one target. `outside` are probes beyond the band of their time; `low` and `high` are its edges."""

    target: str
    place: str
    inside: Points
    outside: Points
    median: Points
    low: Points
    high: Points
    bottom: float
    top: float
    ticks: tuple[tuple[float, str], ...]
    facts: tuple[Line, ...]
    rows: tuple[Line, ...]
    empty: str


def targets(found: Mapping[str, History], words: str) -> list[str]:
    """Endpoint, model and workload in one; only those that hold all of the words."""
    wanted = words.lower().split()
    return [target for target in found if all(word in target.lower() for word in wanted)]


def probes_view(found: Mapping[str, History], words: str, chosen: int) -> ProbesView:
    names = targets(found, words)
    if not names:
        nothing = Points((), ())
        none = "no probe yet: the plan “probe” makes one, `swarmtui probe --every 1h` one an hour"
        why = f"none fits “{words}”" if found else none
        return ProbesView("", "", nothing, nothing, nothing, nothing, nothing, 0.0, 1.0, (), (), (), why)
    place = min(chosen, len(names) - 1)
    return _view(names[place], f"{place + 1} of {len(names)}", found[names[place]])


def _view(target: str, place: str, history: History) -> ProbesView:
    xs = [probe.at.timestamp() for probe in history.probes]
    ys = [probe.tps or 0.0 for probe in history.probes]
    edges = bands(history)
    banded = [(x, edge) for x, edge in zip(xs, edges, strict=True) if edge is not None]
    out = [edge is not None and not edge[0] <= y <= edge[1] for y, edge in zip(ys, edges, strict=True)]
    shown = [*ys, *history.rolling, *(value for _, edge in banded for value in edge)]
    margin = _MARGIN * (max(shown) - min(shown)) or 1.0
    return ProbesView(
        target=plain(target),
        place=place,
        inside=_points([(x, y) for x, y, far in zip(xs, ys, out, strict=True) if not far]),
        outside=_points([(x, y) for x, y, far in zip(xs, ys, out, strict=True) if far]),
        median=Points(tuple(xs), history.rolling),
        low=_points([(x, edge[0]) for x, edge in banded]),
        high=_points([(x, edge[1]) for x, edge in banded]),
        bottom=max(0.0, min(shown) - margin),
        top=max(shown) + margin,
        ticks=_ticks(xs),
        facts=tuple(_facts(history)),
        rows=tuple(_rows(history, out)),
        empty="",
    )


def _points(pairs: Sequence[tuple[float, float]]) -> Points:
    return Points(tuple(x for x, _ in pairs), tuple(y for _, y in pairs))


def _ticks(xs: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """Days where the history has many, hours where it is of one day."""
    first, last = xs[0], xs[-1]
    form = "%d %b" if last - first > 3 * 86_400 else "%d %b %H:%M" if last - first > 86_400 else "%H:%M"
    places = [first + (last - first) * part / (_TICKS - 1) for part in range(_TICKS)] if last > first else [first]
    return tuple((place, datetime.fromtimestamp(place, UTC).strftime(form)) for place in places)


def _facts(history: History) -> list[Line]:
    cv = [
        f"CV {name} {NOTHING if value is None else f'{100 * value:.1f} %'}"
        for name, value in (("between probes", history.cv_between), ("within a probe", history.cv_within))
    ]
    style = "bad" if history.drifted else "good" if history.drifted is False else "warn"
    sign = "✖" if history.drifted else "●" if history.drifted is False else "▲"
    spread = f"range {rate(history.low)} to {rate(history.high)} tok/s"
    return [[(f"{sign} {history.sentence}", style)], [("; ".join([spread, *cv]), "")]]


def _rows(history: History, out: Sequence[bool]) -> list[Line]:
    """Newest first."""
    head: Line = [(f"   {'made (UTC)':<18}{'tok/s':>9}{'engine':>9}{'TTFT':>9}{'median':>9}{'runs':>6}", "dim")]
    rows = [
        [
            (" ✖ " if far else "   ", "bad"),
            (left(probe.created[:16].replace("T", " "), 18), "dim"),
            (right(rate(probe.tps), 9), "bold"),
            (right(rate(probe.engine_tps), 9) + right(seconds(probe.ttft_s), 9) + right(rate(middle), 9), ""),
            (right(str(len(probe.runs)), 6), "dim"),
        ]
        for probe, middle, far in zip(history.probes, history.rolling, out, strict=True)
    ]
    return [head, *reversed(rows)]


def fact_lines(view: ProbesView, width: int) -> list[Line]:
    """The sentences, broken for the room there is."""
    return [[(f" {part}", line[0][1])] for line in view.facts for part in wrapped(line[0][0], max(20, width - 1))]
