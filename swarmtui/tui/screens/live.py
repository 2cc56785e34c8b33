"""The screen of a run, present or past: panels that show frames, keys that become commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from swarmtui.model import frame as said
from swarmtui.model.plan import MAX_STREAMS, parse_levels
from swarmtui.model.schema import BadInput
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.paint import Lines
from swarmtui.tui.previous import previous_levels
from swarmtui.tui.source import Live, Past, Source
from swarmtui.tui.views import head, history, levels, machine, streams
from swarmtui.tui.widgets.curve import Curve
from swarmtui.tui.widgets.figures import Figures
from swarmtui.tui.widgets.footer import KeyLine
from swarmtui.tui.widgets.gpus import Gpus
from swarmtui.tui.widgets.header import Header
from swarmtui.tui.widgets.history import History, Strip
from swarmtui.tui.widgets.levels import Levels
from swarmtui.tui.widgets.prompt import Prompt
from swarmtui.tui.widgets.streams import Streams
from swarmtui.tui.widgets.trust import TrustPanel

if TYPE_CHECKING:
    from swarmtui.model.session import Level
    from swarmtui.tui.app import SwarmApp

_PANELS: tuple[type[Lines], ...] = (Streams, History, Gpus, Levels, Curve, TrustPanel)
_BUSY_S = 0.1
_CLIFF_UP_TO = 1024


class LiveScreen(Screen[None]):
    """Subclasses differ in their keys: a past run cannot be steered, but time can."""

    where: Where = "live"
    app: SwarmApp
    _past = False
    AUTO_FOCUS = ""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self._order: streams.Order = "agent"
        self._filter = ""
        self._alone: type[Lines] | None = None
        self._frozen = False
        self._asked_c: int | None = None
        self._late = False
        self._previous: tuple[Level, ...] = ()
        self._previous_name = ""
        self._looked_back = False
        self._table: tuple[tuple[Level, ...], levels.LevelsView] | None = None
        self._curve: tuple[tuple[tuple[Level, ...], str], levels.CurveView] | None = None

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
            self.app.note_end(track.ended)
        if not self._looked_back and track.session is not None and track.frame is not None:
            self._looked_back = True
            self.run_worker(self._look_back(track.directory), exit_on_error=False)
        if self.app.behind:
            if not self._late:
                self._late = True
                self.set_timer(_BUSY_S, self._catch_up)
            return
        if not self._frozen and self.is_current:
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
        track = self.source.track
        frame, session = track.frame, track.session
        t0_ns = session.t0_ns if session else 0
        done = frame.levels if frame else ()
        match panel:
            case Header():
                panel.show(head.head_view(session, frame, track.ended, self._clock()), self._frozen)
            case Figures():
                panel.show(head.figures(frame, self._asked_c))
            case Strip():
                panel.show(history.strip_view(track.points, t0_ns, panel.columns))
            case Streams():
                panel.move(panel.cursor)
                panel.show(streams.streams_view(frame, track.paces, self._order, self._filter, panel.top, panel.rows))
            case History():
                panel.show(history.history_view(track.points, t0_ns, panel.columns, self._alone is History))
            case Gpus():
                telemetry = frame.telemetry if frame else None
                panel.show(machine.gpus_view(telemetry, track.power, track.memory, self._past))
            case Levels():
                panel.show(self._levels_view(done))
            case Curve():
                panel.show(self._curve_view(done))
            case TrustPanel():
                panel.show(machine.trust_view(frame, self._past))

    def _levels_view(self, done: tuple[Level, ...]) -> levels.LevelsView:
        """Frames repeat levels that have not changed: what was made of them is kept."""
        if self._table is None or self._table[0] != done:
            self._table = (done, levels.levels_view(done))
        return self._table[1]

    def _curve_view(self, done: tuple[Level, ...]) -> levels.CurveView:
        key = (done, self._previous_name)
        if self._curve is None or self._curve[0] != key:
            self._curve = (key, levels.curve_view(done, self._previous, self._previous_name))
        return self._curve[1]

    def _clock(self) -> head.Clock | None:
        return None

    async def _look_back(self, directory: str) -> None:
        """The newest session of the same model and workload becomes the ghost line."""
        session = self.source.track.session
        if session is not None and directory:
            found = await asyncio.to_thread(previous_levels, Path(directory).parent, session)
            self._previous_name, self._previous = found

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

    @property
    def _is_over(self) -> bool:
        return self.source.track.ended is not None

    def action_order(self) -> None:
        place = streams.ORDERS.index(self._order) + 1
        self._order = streams.ORDERS[place % len(streams.ORDERS)]
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
            from swarmtui.tui.screens.stream import StreamScreen

            self.app.push_screen(StreamScreen(self.source, agent))

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self.paint()

    def action_export(self) -> None:
        self.app.export(self.source.track)

    def action_sessions(self) -> None:
        self.app.open_sessions()

    # load

    @property
    def target(self) -> int:
        frame = self.source.track.frame
        return self._asked_c if self._asked_c is not None else frame.c if frame else 0

    def _set_c(self, c: int) -> None:
        if not self._can_steer():
            return
        self._asked_c = min(MAX_STREAMS, max(1, c))
        self.source.say(said.SetConcurrency(self._asked_c))
        self.paint()

    def _can_steer(self) -> bool:
        if self.source.track.ended is not None:
            self.app.say("the run has ended; R runs the same plan again")
            return False
        return True

    def action_more(self) -> None:
        self._set_c(self.target + 1)

    def action_fewer(self) -> None:
        self._set_c(self.target - 1)

    def action_double(self) -> None:
        self._set_c(self.target * 2)

    def action_halve(self) -> None:
        self._set_c(self.target // 2)

    def action_type_c(self) -> None:
        def done(text: str | None) -> None:
            if text:
                self._set_c(int(text))

        if self._can_steer():
            self.query_one(Prompt).ask("streams", "", _streams, done)

    def action_sweep(self) -> None:
        session = self.source.track.session

        def done(text: str | None) -> None:
            if text:
                self.source.say(said.Sweep(parse_levels(text), session.plan.runs if session else 1))

        if self._can_steer():
            planned = ",".join(map(str, session.plan.levels)) if session else ""
            usual = planned if planned.count(",") else "1,2,4,8"
            self.query_one(Prompt).ask("sweep over C", usual, parse_levels, done)

    def action_find_cliff(self) -> None:
        if self._can_steer():
            self.source.say(said.FindCliff(_CLIFF_UP_TO))
            self.app.say("looking for the cliff: C doubles until it brings nothing")

    def action_next_level(self) -> None:
        if self._can_steer():
            self.source.say(said.NextLevel())

    def action_pause(self) -> None:
        frame = self.source.track.frame
        if self._can_steer():
            paused = frame is not None and frame.status == "paused"
            self.source.say(said.Resume() if paused else said.Pause())

    def action_stop(self) -> None:
        if self._can_steer():
            self.source.say(said.Stop())
            self.app.say("stopping: up to 5 s for what is in flight; once more stops at once")

    def action_again(self) -> None:
        if self.source.track.ended is None:
            self.app.say("this run is still on; x stops it")
        else:
            self.app.run_again(self.source.track)

    def action_describe(self) -> None:
        from swarmtui.tui.screens.dialogs import NoteDialog

        session = self.source.track.session
        if session is None or not self._can_steer():
            return

        def done(words: tuple[str, str] | None) -> None:
            if words is not None:
                self.source.say(said.Describe(*words))
                self.source.track.describe(*words)
                self.paint()

        self.app.push_screen(NoteDialog(session.label, session.note), done)

    def action_detach(self) -> None:
        self.app.detach()


class RunScreen(LiveScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live")]

    def __init__(self, source: Live) -> None:
        super().__init__(source)


class ReplayScreen(LiveScreen):
    where = "replay"
    _past = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(self, source: Past) -> None:
        super().__init__(source)
        self._time = source

    @property
    def _is_over(self) -> bool:
        return True

    def on_unmount(self) -> None:
        self._time.close()

    def _clock(self) -> head.Clock:
        past = self._time
        return head.Clock(past.at_s, past.length_s, past.speed, past.playing)

    def action_play(self) -> None:
        self._time.toggle()

    def action_faster(self) -> None:
        self._time.faster(1)

    def action_slower(self) -> None:
        self._time.faster(-1)

    def action_seek(self, by_s: int) -> None:
        self._time.seek(self._time.at_s + by_s)


def _streams(text: str) -> None:
    if not text.isdigit() or not 1 <= int(text) <= MAX_STREAMS:
        raise BadInput(f"a number from 1 to {MAX_STREAMS}")
