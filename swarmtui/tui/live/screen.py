"""What the screens of a present and of a past run have in common: panels that show frames, and ways to look at them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen

from swarmtui.tui.baseline import Before, changed_flags, find_before, held_against, what_it_gave
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.frame_source import Source
from swarmtui.tui.input_line import Prompt
from swarmtui.tui.keys import Where
from swarmtui.tui.lines import Lines
from swarmtui.tui.live import header_view, history_view, levels_view, machine_view, streams_view
from swarmtui.tui.live.curve import Curve
from swarmtui.tui.live.gpus import Gpus
from swarmtui.tui.live.header import Header
from swarmtui.tui.live.history import History, Strip
from swarmtui.tui.live.levels import Levels
from swarmtui.tui.live.quality import TrustPanel
from swarmtui.tui.live.streams import Streams
from swarmtui.tui.live.tiles import Figures

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair
    from swarmtui.model.session import Level, Session, TaskFigures
    from swarmtui.model.telemetry import Discovered
    from swarmtui.tui.app import SwarmApp
    from swarmtui.tui.live_model import Track

_PANELS: tuple[type[Lines], ...] = (Streams, History, Gpus, Levels, Curve, TrustPanel)
_BUSY_S = 0.1


class LiveScreen(Screen[None]):
    """Its kinds differ in their keys: a past run cannot be steered, but time can."""

    where: Where = "live"
    app: SwarmApp
    _past = False
    AUTO_FOCUS = ""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self._order: streams_view.Order = "agent"
        self._filter = ""
        self._alone: type[Lines] | None = None
        self._frozen: Track | None = None
        self._asked_c: int | None = None
        self._late = False
        self._before = Before()
        self._looked_back = self._looked_forward = False
        self._told = ""
        self._pair: Pair | None = None
        self._paired: tuple[tuple[Level, ...], str] = ((), "")
        self._servers: tuple[Discovered, ...] = ()
        self._table: tuple[tuple[object, ...], levels_view.LevelsView] | None = None
        self._curve: tuple[tuple[tuple[Level, ...], str], levels_view.CurveView] | None = None

    def compose(self) -> ComposeResult:
        yield Header()
        yield Figures()
        yield Strip()
        with Horizontal(id="upper"):
            yield Streams()
            yield History()
        with Horizontal(id="lower"):
            yield Levels()
            yield Gpus()
            yield Curve()
            yield TrustPanel()
        yield Prompt()
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(self.app.keys.actions(self.where))
        for panel in self.query(Lines).exclude("KeyLine"):
            panel.refill = self._fill
        self.source.open(self.wake)

    def on_screen_resume(self) -> None:
        self.paint()

    # what is shown

    def wake(self) -> None:
        """Something new came. Where the terminal has not taken the last picture yet, this one waits for it."""
        track = self.source.track
        if self._asked_c is not None and track.frame is not None and track.frame.c == self._asked_c:
            self._asked_c = None
        if track.ended is not None:
            self._end(track)
        if not self._looked_back and track.session is not None and track.frame is not None:
            self._looked_back = True
            self.run_worker(self._look_back(track.directory), exit_on_error=False)
        if track.frame is not None and track.frame.servers != self._servers:
            self._servers = track.frame.servers
            self._tell_flags()
        self._hold(track)
        if self.app.behind:
            if not self._late:
                self._late = True
                self.set_timer(_BUSY_S, self._catch_up)
            return
        if self._frozen is None and self.is_current:
            self.paint()

    def _catch_up(self) -> None:
        self._late = False
        self.wake()

    def paint(self) -> None:
        for panel in self.query(Lines):
            if panel.is_on_screen and panel.size:
                self._fill(panel)

    def _fill(self, panel: Lines) -> None:
        """The view of this moment, for the room that the panel has."""
        track = self._frozen or self.source.track
        frame, session = track.frame, track.session
        t0_ns = session.t0_ns if session else 0
        done = frame.levels if frame else ()
        match panel:
            case Header():
                panel.show(
                    header_view.head_view(session, frame, track.ended, self._clock(), self._told, self._server_news()),
                    self._frozen is not None,
                )
            case Figures():
                panel.show(header_view.figures(frame, self._asked_c, streams_view.apart(session, frame, track.paces)))
            case Strip():
                panel.show(history_view.strip_view(track.points, t0_ns, panel.columns))
            case Streams():
                panel.move(panel.cursor)
                panel.show(
                    streams_view.streams_view(
                        frame, track.paces, self._order, self._filter, panel.top, panel.rows,
                        streams_view.primary_type(session),
                    )
                )  # fmt: skip
            case History():
                panel.show(history_view.history_view(track.points, t0_ns, panel.columns, self._alone is History))
            case Gpus():
                telemetry = frame.telemetry if frame else None
                panel.show(machine_view.gpus_view(telemetry, track.power, track.memory, self._past, panel.trail))
            case Levels():
                panel.show(self._levels_view(done, frame.tasks if frame else ()))
            case Curve():
                panel.show(self._curve_view(done))
            case TrustPanel():
                panel.show(machine_view.trust_view(frame, self._past))

    def _levels_view(self, done: tuple[Level, ...], tasks: tuple[TaskFigures, ...]) -> levels_view.LevelsView:
        """Frames repeat levels that have not changed: what was made of them is kept."""
        session = self.source.track.session
        key = (done, self._pair, tasks, session is not None and session.plan.mode == "sweep")
        if self._table is None or self._table[0] != key:
            self._table = (key, levels_view.levels_view(*key))
        return self._table[1]

    def _curve_view(self, done: tuple[Level, ...]) -> levels_view.CurveView:
        key = (done, self._before.name)
        if self._curve is None or self._curve[0] != key:
            self._curve = (key, levels_view.curve_view(done, self._before.levels, self._before.name))
        return self._curve[1]

    def _clock(self) -> header_view.Clock | None:
        return None

    def _server_news(self) -> str:
        """Of a server that is looked after when its run is over."""
        return ""

    async def _look_back(self, directory: str) -> None:
        """The session before becomes the ghost line, and its server is what this one is held against."""
        session = self.source.track.session
        if session is not None and directory:
            self._before = await asyncio.to_thread(find_before, Path(directory).parent, session)
            self._tell_flags()

    def _hold(self, track: Track) -> None:
        """Levels that are new are held against the ghost: in a thread, for many runs take their time."""
        key = (track.frame.levels if track.frame else (), self._before.name)
        if key != self._paired and track.session is not None and self._before.ghost is not None:
            self._paired = key
            self.run_worker(self._held(track.session, key[0]), exclusive=True, group="held", exit_on_error=False)

    async def _held(self, session: Session, done: tuple[Level, ...]) -> None:
        self._pair = await asyncio.to_thread(held_against, self._before, session, done)
        if self._frozen is None and self.is_current:
            self.paint()

    def _tell_flags(self) -> None:
        self._told = changed_flags(self._before, self._servers) if not self._past else ""

    def _end(self, track: Track) -> None:
        """Other keys make sense from here on, and what the run gave can be said."""
        if self._looked_forward or track.ended is None:
            return
        self._looked_forward = True
        self.set_class(True, "-ended")
        self.query_one(KeyLine).show(self.app.keys.actions(self.where), ended=True)
        if track.session and track.session.previous and track.ended.directory:
            self.run_worker(self._look_forward(track.ended.directory, track.session.previous), exit_on_error=False)
        self.app.note_end(track.ended)

    async def _look_forward(self, directory: str, previous: str) -> None:
        self._told = await asyncio.to_thread(what_it_gave, Path(directory), previous) or self._told
        self.paint()

    # looking

    def action_panel(self, number: int) -> None:
        kind = _PANELS[number - 1]
        self._show_alone(None if self._alone is kind else kind)

    def _show_alone(self, kind: type[Lines] | None) -> None:
        self._alone = kind
        self.set_class(kind is not None, "-alone")
        for panel in _PANELS:
            widget = self.query_one(panel)
            widget.set_class(panel is kind, "-this")
        for row in self.query("#upper, #lower"):
            row.set_class(kind is not None and self.query_one(kind).parent is row, "-this")

    def action_back(self) -> None:
        """One thing at a time: the filter, the panel alone, and, when nothing runs here, this screen."""
        if self._filter:
            self._filter = ""
            self.paint()
        elif self._alone is not None:
            self._show_alone(None)
        elif self._is_over and len(self.app.screen_stack) > 1:
            self.source.close()
            self.dismiss()
        else:
            self._leave_first()

    def _leave_first(self) -> None:
        """Nothing lies behind the screen that the app was started with."""
        self.app.say("nothing to go back to; q quits")

    @property
    def _is_over(self) -> bool:
        return self.source.track.ended is not None

    def action_order(self) -> None:
        place = streams_view.ORDERS.index(self._order) + 1
        self._order = streams_view.ORDERS[place % len(streams_view.ORDERS)]
        self.paint()

    def action_filter(self) -> None:
        def typed(words: str) -> None:
            self._filter = words
            self.paint()

        def done(words: str | None) -> None:
            typed(words or "")

        self.query_one(Prompt).ask("show streams with", self._filter, str, done, typed)

    def action_move(self, by: int) -> None:
        table = self.query_one(Streams)
        table.move(table.cursor + by)
        self.paint()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.query_one(Streams).rows))

    def action_edge(self, last: int) -> None:
        table = self.query_one(Streams)
        table.move(table.view.total if last and table.view else 0)
        self.paint()

    def action_open_stream(self) -> None:
        agent = self.query_one(Streams).chosen
        if agent is not None:
            from swarmtui.tui.live.stream_screen import StreamScreen

            self.app.push_screen(StreamScreen(self.source, agent))

    def action_freeze(self) -> None:
        self._frozen = self.source.track.still() if self._frozen is None else None
        self.paint()

    def action_export(self) -> None:
        self.app.export(self.source.track)

    def action_checklist(self) -> None:
        self.app.open_checklist(self.source.track)

    def action_baseline(self) -> None:
        self.app.mark_baseline(self.source.track)

    def action_sessions(self) -> None:
        self.app.open_sessions()
