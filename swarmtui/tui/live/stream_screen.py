"""One agent: what it is doing, when its tokens came, its answer as it is written, and its answers before."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from swarmtui.model.client_protocol import WatchStream
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.frame_source import Past, Source
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.lines import Line, Lines
from swarmtui.tui.live import stream_view
from swarmtui.tui.pager import Page, Pager

if TYPE_CHECKING:
    from swarmtui.tui.keys import Action


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

    def compose(self) -> ComposeResult:
        yield Facts()
        with Container(id="texts"):
            yield self.page()
            yield Page("answers before", id="before")
        yield KeyLine()

    def page(self) -> Page:
        page = Page("answer", id="answer")
        page.follow = True
        return page

    def actions(self) -> list[Action]:
        return [
            action._replace(footer=True) if action.id.startswith("neighbour") else action
            for action in super().actions()
        ]

    def on_mount(self) -> None:
        super().on_mount()
        self._source.say(WatchStream(self._agent))
        self.set_interval(0.25, self.paint)
        self.call_after_refresh(self.paint)

    def on_unmount(self) -> None:
        self._source.say(WatchStream(None))

    def action_neighbour(self, by: int) -> None:
        """The next stream that there is, in the order of their numbers."""
        frame = self._source.track.frame
        agents = sorted(row.agent for row in frame.rows) if frame else []
        if self._agent in agents:
            self._agent = agents[(agents.index(self._agent) + by) % len(agents)]
            self._source.say(WatchStream(self._agent))
            self.query_one("#answer", Page).follow = True
            self.paint()

    def paint(self) -> None:
        track = self._source.track
        frame = track.frame
        if frame is None or self.app.behind:
            return
        watched = frame.watched if frame.watched is not None and frame.watched.agent == self._agent else None
        pace = track.paces.get(self._agent)
        facts, answer, before = self.query_one(Facts), self.query_one("#answer", Page), self.query_one("#before", Page)
        facts.show(stream_view.facts(self._agent, watched, frame, pace.rate if pace else None, self.size.width))
        kept = not isinstance(self._source, Past)
        answer.show(stream_view.answer(watched, kept, max(20, answer.size.width - 2)))
        before.show(stream_view.before(watched, max(20, before.size.width - 2)))
