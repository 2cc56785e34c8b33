"""Build the history of probes: a row per probe with a bar, how much they vary, and whether they have drifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from swarmtui.analysis.compare.probe_history import ProbeHistory, ProbeResult, probe_history
from swarmtui.numbers import local_time, percent, seconds, significant
from swarmtui.report.chart import Chart, ChartSeries
from swarmtui.report.table import Block, Cell, Code, Column, Sentence, Table, tabulate
from swarmtui.sessions.probes import probes_by_target

_BAR = 24
_SHOWN = 40
_TICKS = 5
_STEPS = "▏▎▍▌▋▊▉█"


class _Probe(NamedTuple):
    probe: ProbeResult
    rolling: float
    drifted: bool


def probe_table(history: ProbeHistory, latest: int | None = None) -> Table:
    """Tabulate the probes, or the latest ones; ✗ marks those at which the rate had drifted."""
    states = history.drift or (None,) * len(history.probes)
    drifted = [state is not None and state.drifted for state in states]
    rows = [_Probe(*row) for row in zip(history.probes, history.rolling, drifted, strict=True)][-(latest or 0) :]
    rates = [row.probe.tps or 0.0 for row in rows]
    low, high = min(rates), max(rates)
    floor = low - 0.25 * (high - low) if high > low else 0.0
    columns: list[Column[_Probe]] = [
        Column("drift", "", lambda row: Cell("✗", "missed") if row.drifted else ""),
        Column("created", "when", lambda row: local_time(row.probe.created), right=False),
        Column("tps", "tok/s", lambda row: row.probe.tps),
        Column("engine", "engine", lambda row: row.probe.engine_tps),
        Column("ttft", "TTFT", lambda row: row.probe.ttft_s, seconds),
        Column("rolling", "rolling median", lambda row: row.rolling, short="rolling"),
        Column("runs", "runs", lambda row: len(row.probe.runs)),
        Column(
            "bar", f"tok/s from {significant(floor, 3)}",
            lambda row: _bar(((row.probe.tps or 0.0) - floor) / ((high - floor) or 1.0)), right=False,
        ),
    ]  # fmt: skip
    more = len(history.probes) - len(rows)
    return tabulate("", rows, columns, f"{more} earlier probes not shown" if more else "", drop=("bar", "runs"))


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(1.0, share)) * _BAR * 8)
    rest = _STEPS[eighths % 8 - 1] if eighths % 8 else ""
    return "█" * (eighths // 8) + rest or _STEPS[0]


def probe_chart(history: ProbeHistory) -> Chart:
    """Chart the probes with the smoothed rate and its limits; at the drifted ones it was outside of them."""
    points = [(probe.at.timestamp(), probe.tps or 0.0) for probe in history.probes]
    states = history.drift or (None,) * len(points)
    known = [(x, state) for (x, _), state in zip(points, states, strict=True) if state is not None]
    series = (
        ChartSeries(
            "probe", tuple(points), hue="throughput", stroke="points",
            marks=tuple((x, "failed") for x, state in known if state.drifted),
        ),
        ChartSeries("smoothed", tuple((x, state.smoothed) for x, state in known), hue="latency", stroke="solid"),
        ChartSeries("drift limits", tuple((x, state.low) for x, state in known), hue="dim", stroke="dotted"),
        ChartSeries("", tuple((x, state.high) for x, state in known), hue="dim", stroke="dotted"),
    )  # fmt: skip
    shown = tuple(found for found in series if found.points)
    ticks = _times([x for x, _ in points])
    return Chart("probes", "Probes", "time", "", "tok/s", shown, linear=True, from_zero=False, ticks=ticks)


def _times(xs: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """Label the time axis with days, or with hours for a short history."""
    first, last = xs[0], xs[-1]
    form = "%d %b" if last - first > 3 * 86_400 else "%d %b %H:%M" if last - first > 86_400 else "%H:%M"
    times = [first + (last - first) * part / (_TICKS - 1) for part in range(_TICKS)] if last > first else [first]
    return tuple((time, local_time(time, form)) for time in times)


def probe_sentences(history: ProbeHistory) -> list[Sentence]:
    """Say whether the latest probe has drifted, and how much probes vary."""
    codes: dict[bool | None, tuple[str, Code]] = {True: ("✗", "missed"), False: ("✓", "ok"), None: ("?", "unknown")}
    sign, code = codes[history.drifted]
    spread = f"range {significant(history.low)} to {significant(history.high)} tok/s"
    for name, cv in (("probes", history.cv_between), ("runs of a probe", history.cv_within)):
        spread += "" if cv is None else f"; {name} differ by {percent(cv, 1)}"
    return [Sentence(f"{sign} {history.sentence}", code), Sentence(spread)]


def history_blocks(histories: Mapping[str, ProbeHistory]) -> list[Block]:
    blocks: list[Block] = []
    for target, history in histories.items():
        blocks.append(Sentence(target, "title"))
        blocks += [probe_table(history, _SHOWN), *probe_sentences(history)] if history.probes else [
            Sentence("no probe measured a rate")
        ]  # fmt: skip
    return blocks or [Sentence("no probes yet: run `swarmtui probe --endpoint URL`")]


def probe_line(root: Path, session: str) -> str:
    """`2026-11-15T01:44:55Z 76.9 tok/s, engine 77.1, TTFT 120 ms; 7 days before: median …`"""
    for probes in probes_by_target(root).values():
        latest = next((probe for probe in probes if probe.id == session), None)
        if latest is not None and latest.runs:
            wall = " (whole request: the response arrived in one piece)" if latest.wall else ""
            engine = "" if latest.engine_tps is None else f", engine {significant(latest.engine_tps)}"
            ttft = "" if latest.ttft_s is None else f", TTFT {seconds(latest.ttft_s)}"
            said = f"{latest.created} {significant(latest.tps)} tok/s{wall}{engine}{ttft}"
            return f"{said}; {probe_history(probes).sentence}"
    return f"{session}: no rate was measured"
