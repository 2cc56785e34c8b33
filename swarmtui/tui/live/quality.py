"""The panel of measurement quality: each check of the measurement with its value."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.model.client_protocol import Frame
from swarmtui.model.telemetry import QualityLine
from swarmtui.numbers import MISSING, count, fixed, percent
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Panel, ljust, wrap
from swarmtui.tui.live.header import QUALITY_SIGNS
from swarmtui.tui.live.live_panel import LiveData, LivePanel

_NAME, _VALUE = 20, 38
_SIDE_BY_SIDE = 100


class QualityView(NamedTuple):
    lines: tuple[QualityLine, ...]
    empty: str


def quality_view(frame: Frame | None) -> QualityView:
    if frame is None or not frame.quality:
        return QualityView(_load_generator_lines(frame), "not known yet: it needs a few requests")
    return QualityView(frame.quality, "")


def _load_generator_lines(frame: Frame | None) -> tuple[QualityLine, ...]:
    """The state of the load generator, shown until there are checks."""
    if frame is None:
        return ()
    lag = MISSING if frame.lag_ms is None else f"{fixed(frame.lag_ms, 1)} ms"
    rows = (
        ("client lag", lag, "delay of the load generator's event loop"),
        ("client CPU", percent(frame.worker_cpu), "of one core, the busiest worker"),
        ("coalesced chunks", count(frame.coalesced_chunks), "chunks without their own timestamp"),
        ("clock steps", count(frame.clock_steps), "jumps of the wall clock"),
    )
    return tuple(QualityLine(name=name, state="note", value=value, sentence=text) for name, value, text in rows)


class QualityPanel(LivePanel, Panel[QualityView]):
    key, title, place = 6, "measurement quality", "quality"

    def update_from(self, data: LiveData) -> None:
        self.show(quality_view(data.shown.frame))

    def draw(self, width: int, height: int) -> list[Line]:
        lines = [self.heading("", width)]
        if self.view is None:
            return lines
        if self.view.empty:
            lines.append([(f" {self.view.empty}", "dim")])
        explained = [part for line in self.view.lines for part in _draw_line(line, width, explain=True)]
        if len(lines) + len(explained) <= height:
            return [*lines, *explained]
        return [*lines, *(part for line in self.view.lines for part in _draw_line(line, width, explain=False))]


def _draw_line(line: QualityLine, width: int, explain: bool) -> list[Line]:
    """Return the lines of one check; a narrow panel has the sentence below, of those that passed only to `explain`."""
    sign, style = QUALITY_SIGNS[line.state]
    value, sentence = sanitize(line.value), sanitize(line.sentence)
    head: Line = [(f" {sign} ", style), (ljust(sanitize(line.name), _NAME) + " ", "")]
    if width >= _SIDE_BY_SIDE:
        first, *more = wrap(sentence, max(16, width - _NAME - _VALUE - 6))
        head += [(ljust(value, _VALUE) + " ", "bold"), (first, "dim")]
        indent = _NAME + _VALUE + 5
    else:
        head.append((value, "bold"))
        if line.state == "ok" and sentence and len(value) + len(sentence) < width - _NAME - 8:
            return [[*head, (f"  {sentence}", "dim")]]
        more = wrap(sentence, max(16, width - 6)) if sentence and (explain or line.state != "ok") else []
        indent = 5
    return [head, *([(" " * indent, ""), (text, "dim")] for text in more)]
