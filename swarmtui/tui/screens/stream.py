"""One agent: what it is doing, when its tokens came, and the text of its answer as it is written."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from swarmtui.model.frame import WatchStream
from swarmtui.model.wire import StreamRow
from swarmtui.text import plain, plain_lines
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.paint import Line, Lines, left, wrapped
from swarmtui.tui.screens.pager import Page, Pager
from swarmtui.tui.source import Past, Source
from swarmtui.tui.views.numbers import NOTHING, rate, seconds, spark
from swarmtui.tui.widgets.footer import KeyLine

_LABEL = 16


class Facts(Lines):
    lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        self.lines = lines
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        return self.lines


class StreamScreen(Pager):
    where: Where = "stream"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("stream")]

    def __init__(self, source: Source, agent: int) -> None:
        super().__init__()
        self._source, self._agent = source, agent
        self._shown_task = -1
        self._gaps: tuple[float | None, ...] = ()
        self._seen = (0, 0)

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.page()
        yield KeyLine()

    def page(self) -> Page:
        page = Page("answer")
        page.follow = True
        return page

    def on_mount(self) -> None:
        super().on_mount()
        self._source.track.forget_text()
        self._source.say(WatchStream(self._agent))
        self.set_interval(0.25, self.paint)
        self.call_after_refresh(self.paint)

    def on_unmount(self) -> None:
        self._source.say(WatchStream(None))

    def paint(self) -> None:
        frame = self._source.track.frame
        if frame is None or self.app.behind:
            return
        row = next((row for row in frame.rows if row.agent == self._agent), None)
        if row is not None and row.task != self._shown_task:
            # Another request: the text of the one before has been seen.
            self._shown_task, self._gaps = row.task, ()
            self._source.track.forget_text()
        self._note_gap(row, frame.t_ns)
        pace = self._source.track.paces.get(self._agent)
        self.query_one(Facts).show(self._facts(row, pace.rate if pace else None, frame.tokens_per_chunk))
        page = self.query_one(Page)
        page.show(self._text(max(20, self.size.width - 2)))

    def _note_gap(self, row: StreamRow | None, t_ns: int) -> None:
        """Chunks in each quarter of a second: where they stop, the stream stalls."""
        if row is None:
            return
        before, at = self._seen
        if t_ns - at >= 200_000_000:
            self._gaps = (*self._gaps[-79:], float(max(0, row.total - before)) if row.total >= before else None)
            self._seen = (row.total, t_ns)

    def _facts(self, row: StreamRow | None, now: float | None, tokens_per_chunk: float) -> list[Line]:
        if row is None:
            return [[(f" agent {self._agent}", "title"), ("  has no stream at this moment", "dim")]]
        top = max((gap for gap in self._gaps if gap is not None), default=0.0)
        facts = (
            ("state", plain(row.state)),
            ("task", f"{row.task} {plain(row.type)}" if row.task >= 0 else NOTHING),
            ("TTFT", seconds(row.ttft_s)),
            ("tokens", f"{row.total * tokens_per_chunk:,.0f} in {row.total:,} chunks"),
            ("tok/s", rate(now)),
            ("chunks / 0.25 s", f"{spark(self._gaps, top)} max {top:.0f}"),
        )
        lines: list[Line] = [[(f" agent {self._agent}", "title")]]
        lines += [
            [(f" {left(name, _LABEL)}", "dim"), (value, "bold" if name == "state" else "")] for name, value in facts
        ]
        return lines

    def _text(self, width: int) -> list[Line]:
        text = self._source.track.text
        if not text:
            past = isinstance(self._source, Past)
            why = "texts are not kept in this session (run with --keep-text)" if past else "no text yet"
            return [[(f" {why}", "dim")]]
        return [[(f" {part}", "")] for line in plain_lines(text) for part in wrapped(line, width)]
