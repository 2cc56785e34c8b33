"""The panel of measurement quality: each check of the measurement with its value."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.limits.slo import read_slo
from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import Frame
from swarmtui.model.telemetry import QualityLine
from swarmtui.numbers import MISSING, count, fixed, percent
from swarmtui.report.table import Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import Page
from swarmtui.tui.lines import Line, ljust, wrap, wrapped_note
from swarmtui.tui.live.header import QUALITY_SIGNS
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.tables import block_lines

_NAME, _VALUE = 20, 38
_SIDE_BY_SIDE = 100


# The worst first: these are what a doubtful result points to.
_ORDER = ("wrong", "doubtful", "note", "ok")


def _load_generator_lines(frame: Frame | None) -> tuple[QualityLine, ...]:
    """The state of the load generator, shown until there are checks."""
    if frame is None:
        return ()
    lag = MISSING if frame.lag_ms is None else f"{fixed(frame.lag_ms, 1)} ms"
    rows = (
        ("client_lag", "client lag", lag, "delay of the load generator's event loop"),
        ("client_cpu", "client CPU", percent(frame.worker_cpu), "of one core, the busiest worker"),
        ("coalesced_chunks", "coalesced chunks", count(frame.coalesced_chunks), "chunks without their own timestamp"),
        ("client_clock", "clock steps", count(frame.clock_steps), "jumps of the wall clock"),
    )
    return tuple(
        QualityLine(code=code, name=name, state="note", value=value, sentence=text) for code, name, value, text in rows
    )


class QualityPanel(LivePanel, Page):
    key, title, place = 6, "measurement quality", "quality"

    def __init__(self) -> None:
        super().__init__(title="measurement quality")

    def update_from(self, data: LiveData) -> None:
        self.show(quality_lines(data.shown.frame, self.inner_size.width))


def quality_lines(frame: Frame | None, width: int) -> list[Line]:
    """Return what the checks mean for the number of agents, then the checks, the worst first.

    Before there are any, the state of the load generator stands for them.
    """
    known = frame.quality if frame is not None else ()
    checks = sorted(known or _load_generator_lines(frame), key=lambda line: _ORDER.index(line.state))
    empty = [] if known else wrapped_note("not known yet: it needs a few requests", width)
    meaning = _for_agents(frame.answer, checks) if frame is not None and known else []
    return [*empty, *block_lines(meaning, width), *(part for check in checks for part in _draw_line(check, width))]


def _for_agents(answer: Answer | None, checks: Sequence[QualityLine]) -> list[Sentence]:
    """Say which lines may change the number of agents, by the figures of its SLO, or that none does."""
    if answer is None or answer.agents is None or all(check.state == "ok" for check in checks):
        return []
    slo = read_slo(answer.slo)
    figures = slo.figures if slo is not None else frozenset()
    names = [
        check.name
        for check in checks
        if check.state in ("doubtful", "wrong") and not (check.inexact and figures.isdisjoint(check.inexact))
    ]
    if names:
        return [Sentence(f"may change the number of agents: {', '.join(names)}", "note")]
    return [Sentence("none of these remarks changes the number of agents", "ok")]


def _draw_line(line: QualityLine, width: int) -> list[Line]:
    """Return the lines of one check; a narrow panel has the sentence below the value unless both fit."""
    sign, style = QUALITY_SIGNS[line.state]
    value, sentence = sanitize(line.value), sanitize(line.sentence)
    head: Line = [(f" {sign} ", style), (ljust(sanitize(line.name), _NAME) + " ", "")]
    side_by_side = width >= _SIDE_BY_SIDE
    values = wrap(value, _VALUE if side_by_side else max(16, width - _NAME - 5))
    beside = side_by_side or (len(values) == 1 and len(value) + len(sentence) < width - _NAME - 8)
    room = width - _NAME - 6 - (_VALUE if side_by_side else len(value) + 2) if beside else width - 6
    sentences = wrap(sentence, max(16, room)) if sentence else []
    if not beside:
        below = [*([(" " * (_NAME + 4), ""), (text, "bold")] for text in values[1:])]
        return [[*head, (values[0], "bold")], *below, *([(" " * 5, ""), (text, "dim")] for text in sentences)]
    lines: list[Line] = []
    for at in range(max(len(values), len(sentences))):
        shown = values[at] if at < len(values) else ""
        shown = ljust(shown, _VALUE) + " " if side_by_side else shown + "  "
        start: Line = head if not at else [(" " * (_NAME + 4), "")]
        lines.append([*start, (shown, "bold"), (sentences[at] if at < len(sentences) else "", "dim")])
    return lines
