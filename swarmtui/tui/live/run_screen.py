"""A run that goes on: keys become commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from textual.binding import BindingType

from swarmtui.model import client_protocol as said
from swarmtui.model.plan import MAX_STREAMS, parse_levels
from swarmtui.model.plan_options import IN_ONE_WAY
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.frame_source import Live
from swarmtui.tui.input_line import Prompt
from swarmtui.tui.keys import bindings
from swarmtui.tui.live.header_view import server_words
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import Track

if TYPE_CHECKING:
    from swarmtui.tui.dialogs import Words
    from swarmtui.tui.server_watch import Vigil

_CLIFF_UP_TO = 1024
# Not offered where a workload can be asked in one way alone.
_TURNING = ("more", "fewer", "double", "halve", "type_c", "sweep", "find_cliff")


class RunScreen(LiveScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("live")]

    """`order` is what was asked for, where we asked: the same can be asked again."""

    def __init__(self, source: Live, order: Order | None) -> None:
        super().__init__(source)
        self._asked_for = order
        self._stopping = self._pausing = self._offered = False
        self._vigil: Vigil | None = None

    def _end(self, track: Track) -> None:
        super()._end(track)
        session = track.session
        if self._vigil is None and session is not None and not session.endpoints[0].embedded:
            known = track.frame.servers if track.frame else ()
            from swarmtui.tui.server_watch import Vigil

            self._vigil = Vigil(session.endpoints[0].url, known[-1] if known else None, self.wake)
            self.run_worker(self._vigil.keep(), exit_on_error=False)

    def _server_news(self) -> str:
        return server_words(self._vigil.down_s, self._vigil.back) if self._vigil else ""

    def wake(self) -> None:
        super().wake()
        session = self.source.track.session
        if not self._offered and session is not None:
            self._offered = True
            if session.plan.load in IN_ONE_WAY and self.source.track.ended is None:
                actions = self.app.keys.actions(self.where)
                self.query_one(KeyLine).show([action for action in actions if action.id not in _TURNING])

    @property
    def target(self) -> int:
        frame = self.source.track.frame
        return self._asked_c if self._asked_c is not None else frame.c if frame else 0

    def _set_c(self, c: int) -> None:
        """The same C again would begin its stretch anew."""
        wanted = min(MAX_STREAMS, max(1, c))
        frame = self.source.track.frame
        if wanted == self.target and (frame is None or frame.steered):
            edge = "lowest" if c < wanted else "highest"
            self.app.say(f"C is {wanted} already" if wanted == c else f"C={wanted} is the {edge} there is")
            return
        self._asked_c = wanted
        self.source.say(said.SetConcurrency(self._asked_c))
        self.paint()

    def _remember_plan(self, mode: Literal["sweep", "cliff"], levels: tuple[int, ...]) -> None:
        """What people turned a run into is what they want to see again."""
        if self._asked_for is not None:
            plan = msgspec.structs.replace(self._asked_for.plan, mode=mode, levels=levels, load="closed", rates=())
            self._asked_for = msgspec.structs.replace(self._asked_for, plan=plan)

    def _can_steer(self) -> bool:
        if self.source.track.ended is not None:
            self.app.say("the run has ended; R runs the same plan again")
            return False
        return True

    def _can_turn(self) -> bool:
        """Whether people may take the wheel: some workloads make sense in one way alone."""
        session, frame = self.source.track.session, self.source.track.frame
        if not self._can_steer():
            return False
        if session is not None and session.plan.load in IN_ONE_WAY:
            self.app.say(f"{session.workload} is {session.plan.load}: it can be asked in no other way; x stops it")
            return False
        if frame is not None and frame.load not in ("closed", "ramp"):
            self.app.say("you have the wheel: from here on a closed loop")
        return True

    def _by(self, step: Callable[[int], int]) -> None:
        frame = self.source.track.frame
        if frame is not None and frame.rate is not None and self._asked_c is None:
            self.app.say("an open loop has a rate and no C; c types one, and takes the wheel")
        elif self._can_turn():
            self._set_c(step(self.target))

    def action_more(self) -> None:
        self._by(lambda c: c + 1)

    def action_fewer(self) -> None:
        self._by(lambda c: c - 1)

    def action_double(self) -> None:
        self._by(lambda c: c * 2)

    def action_halve(self) -> None:
        self._by(lambda c: c // 2)

    def action_type_c(self) -> None:
        def done(text: str | None) -> None:
            if text:
                self._set_c(int(text))

        if self._can_turn():
            self.query_one(Prompt).ask("C, the number of streams:", "", _streams, done)

    def action_sweep(self) -> None:
        session = self.source.track.session

        def done(text: str | None) -> None:
            if text:
                chosen = parse_levels(text)
                self.source.say(said.Sweep(chosen, session.plan.runs if session else 1))
                self._remember_plan("sweep", chosen)

        if self._can_turn():
            planned = ",".join(map(str, session.plan.levels)) if session else ""
            usual = planned if planned.count(",") else "1,2,4,8"
            self.query_one(Prompt).ask("sweep over C", usual, parse_levels, done)

    def action_find_cliff(self) -> None:
        if self._can_turn():
            self.source.say(said.FindCliff(_CLIFF_UP_TO))
            self._remember_plan("cliff", (1,))
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
        elif self._vigil is not None and self._vigil.is_down:
            self.app.say("the server is down; R when it is back")
        else:
            self.app.run_again(self.source.track, self._asked_for)

    def action_describe(self) -> None:
        from swarmtui.tui.dialogs import NoteDialog, Words

        track = self.source.track
        session = track.session
        if session is None or not track.directory or (track.ended is not None and not track.ended.directory):
            self.app.say("there is no session yet" if track.ended is None else "nothing was measured: nothing is kept")
            return
        before = Words(session.label, session.note, str(Path(track.directory).parent))

        def done(words: Words | None) -> None:
            if words is not None:
                self._describe(before, words)

        self.app.push_screen(NoteDialog(before), done)

    def _describe(self, before: Words, words: Words) -> None:
        """To the conductor while there is one; behind it, to the disk."""
        track = self.source.track
        if track.ended is not None:
            self.run_worker(self._describe_saved(before, words), exit_on_error=False)
            return
        self.source.say(said.Describe(words.label, words.note))
        track.describe(words.label, words.note)
        if words.place != before.place:
            self.source.say(said.SaveTo(words.place))
            # The hello to a new subscription tells the new place; a refusal comes as a warning.
            self.source.say(said.Subscribe(hz=self.app.hz, rows=True))
        self.paint()

    async def _describe_saved(self, before: Words, words: Words) -> None:
        from swarmtui.sessions import edit

        track = self.source.track
        directory = Path(track.directory)
        try:
            if words.place != before.place:
                directory = await asyncio.to_thread(edit.move, directory, Path(words.place))
                track.moved(str(directory))
            await asyncio.to_thread(edit.describe, directory, words.label, words.note)
        except BadInput as problem:
            self.app.say(f"not saved: {problem}")
            return
        track.describe(words.label, words.note)
        if track.ended is not None:
            self.app.note_end(track.ended)
        self.app.say(f"saved: {directory}")
        self.paint()

    def _leave_first(self) -> None:
        """When it has ended something else can be measured."""
        if self._is_over:
            self.app.open_setup()
        else:
            self.app.say("the run is on: x stops it, d leaves it, q asks")

    def action_detach(self) -> None:
        self.app.detach()


def _streams(text: str) -> None:
    if not text.isdigit() or not 1 <= int(text) <= MAX_STREAMS:
        raise BadInput(f"a number from 1 to {MAX_STREAMS:,}")
