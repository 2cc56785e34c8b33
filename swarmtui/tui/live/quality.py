"""The panel of measurement quality: each check of the measurement with its value."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.model.client_protocol import Frame
from swarmtui.numbers import count, percent
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Panel, heading, ljust, wrap
from swarmtui.tui.live.header import QUALITY_SIGNS, StatusStyle

_NAME, _VALUE = 20, 38
_SIDE_BY_SIDE = 100


class QualityRow(NamedTuple):
    sign: str
    style: StatusStyle
    name: str
    value: str
    sentence: str


class QualityView(NamedTuple):
    rows: tuple[QualityRow, ...]
    empty: str


def quality_view(frame: Frame | None, is_replay: bool) -> QualityView:
    if frame is None or not frame.quality:
        if is_replay:
            return QualityView((), "not known yet: it is determined at the end of a run")
        return QualityView(_load_generator_rows(frame), "not known yet: it needs a few requests")
    return QualityView(
        tuple(
            QualityRow(*QUALITY_SIGNS[line.state], sanitize(line.name), sanitize(line.value), sanitize(line.sentence))
            for line in frame.quality
        ),
        "",
    )


def _load_generator_rows(frame: Frame | None) -> tuple[QualityRow, ...]:
    """The state of the load generator, shown until there are checks."""
    if frame is None:
        return ()
    return (
        QualityRow("·", "", "client lag", f"{frame.lag_ms:.1f} ms", "delay of the load generator's event loop"),
        QualityRow("·", "", "client CPU", percent(frame.worker_cpu), "of one core, the busiest worker"),
        QualityRow("·", "", "coalesced chunks", count(frame.coalesced_chunks), "chunks without their own timestamp"),
        QualityRow("·", "", "clock steps", count(frame.clock_steps), "jumps of the wall clock"),
    )


class QualityPanel(Panel[QualityView]):
    def draw(self, width: int, height: int) -> list[Line]:
        lines = [heading("6", "measurement quality", "", width)]
        if self.view is None:
            return lines
        if self.view.empty:
            lines.append([(f" {self.view.empty}", "dim")])
        for row in self.view.rows:
            lines += _side_by_side(row, width) if width >= _SIDE_BY_SIDE else _stacked(row, width)
        return lines


def _side_by_side(row: QualityRow, width: int) -> list[Line]:
    first, *more = wrap(row.sentence, max(16, width - _NAME - _VALUE - 6))
    return [
        [(f" {row.sign} ", row.style), (ljust(row.name, _NAME) + " ", ""), (ljust(row.value, _VALUE) + " ", "bold"),
         (first, "dim")],
        *([(" " * (_NAME + _VALUE + 5), ""), (text, "dim")] for text in more),
    ]  # fmt: skip


def _stacked(row: QualityRow, width: int) -> list[Line]:
    """In a narrow panel the sentence is below, and only if the check did not pass."""
    first = [(f" {row.sign} ", row.style), (ljust(row.name, _NAME) + " ", ""), (row.value, "bold")]
    sentence = wrap(row.sentence, max(16, width - 6)) if row.style != "good" else []
    return [first, *([("     ", ""), (text, "dim")] for text in sentence)]
