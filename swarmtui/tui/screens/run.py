"""A run that goes on: keys become commands."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from swarmtui.model import frame as said
from swarmtui.model.plan import MAX_STREAMS, parse_levels
from swarmtui.model.schema import BadInput
from swarmtui.tui.keys import bindings
from swarmtui.tui.screens.live import LiveScreen
from swarmtui.tui.source import Live
from swarmtui.tui.widgets.prompt import Prompt

_CLIFF_UP_TO = 1024


class RunScreen(LiveScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live")]

    def __init__(self, source: Live) -> None:
        super().__init__(source)
        self._stopping = self._pausing = False

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
                chosen = parse_levels(text)
                self.source.say(said.Sweep(chosen, session.plan.runs if session else 1))
                self.app.remember_plan("sweep", chosen)

        if self._can_steer():
            planned = ",".join(map(str, session.plan.levels)) if session else ""
            usual = planned if planned.count(",") else "1,2,4,8"
            self.query_one(Prompt).ask("sweep over C", usual, parse_levels, done)

    def action_find_cliff(self) -> None:
        if self._can_steer():
            self.source.say(said.FindCliff(_CLIFF_UP_TO))
            self.app.remember_plan("cliff", (1,))
            self.app.say("looking for the cliff: C doubles until it brings nothing")

    def action_next_level(self) -> None:
        if self._can_steer():
            self.source.say(said.NextLevel())

    def action_pause(self) -> None:
        frame = self.source.track.frame
        if not self._can_steer():
            return
        paused = frame is not None and frame.status == "paused"
        if paused or (self._pausing and frame is not None and frame.status == "draining"):
            self._pausing = False
            self.source.say(said.Resume())
        else:
            self._pausing = True
            self.source.say(said.Pause())
            self.app.say("pausing: what is in flight comes to its end first; p goes on")

    def action_stop(self) -> None:
        if not self._can_steer():
            return
        self.source.say(said.Stop(grace_s=0.0) if self._stopping else said.Stop())
        if not self._stopping:
            self.app.say("stopping: up to 5 s for what is in flight; once more stops at once")
        self._stopping = True

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


def _streams(text: str) -> None:
    if not text.isdigit() or not 1 <= int(text) <= MAX_STREAMS:
        raise BadInput(f"a number from 1 to {MAX_STREAMS}")
