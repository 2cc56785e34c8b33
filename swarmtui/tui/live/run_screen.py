"""The screen of a run in progress: keys become commands to the session process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from swarmtui.analysis.limits.slo import DEFAULT_SLO, validate_slo
from swarmtui.client.plan_builder import QUICK_ALPHA, QUICK_BUDGET_S, parse_levels
from swarmtui.model import client_protocol as protocol
from swarmtui.model.base import BadInput
from swarmtui.model.load import MAX_STREAMS, traits
from swarmtui.model.redaction import Secrets
from swarmtui.model.run_request import RunRequest
from swarmtui.model.workload import KINDS_WITH_JOBS
from swarmtui.tui.frame_source import LiveSource
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, relabel
from swarmtui.tui.live.header import server_notice
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.tui.dialogs import SessionDetails
    from swarmtui.tui.server_watch import ServerWatch

_MAX_CLIFF_C = 1024
_SWEEP_HINT = "] doubles C, s starts a sweep"
# Not offered for a workload with a fixed load mode.
_STEERING = ("more", "fewer", "double", "halve", "type_c", "sweep", "find_cliff", "find_capacity")
# What ends when the user takes control, and the action that begins it again.
_GOALS = {
    "sweep": ("the sweep", "sweep"),
    "cliff": ("the search for the cliff", "find_cliff"),
    "capacity": ("the search for the most agents", "find_capacity"),
}


class RunScreen(LiveScreen):
    """`request` is None for a run that was started elsewhere, which cannot be repeated from here."""

    key_context = "live"

    def __init__(self, source: LiveSource, request: RunRequest | None) -> None:
        super().__init__(source)
        self._request = request
        self._stopping = False
        # The action that was asked about, and the C of that moment.
        self._asked = ("", 0)
        self._server_watch: ServerWatch | None = None

    def _handle_end(self, live: LiveModel) -> None:
        if self._stopping:
            # Nothing is in flight any more.
            self._stopping = False
            self.app.remove_toast()
        super()._handle_end(live)
        session = live.session
        if self._server_watch is None and session is not None and not session.endpoints[0].embedded:
            from swarmtui.tui.server_watch import ServerWatch

            servers = live.frame.servers if live.frame else ()
            server = servers[-1] if servers else None
            secrets = self._request.secrets if self._request else Secrets()
            self._server_watch = ServerWatch(session.endpoints[0], secrets, server, self.data_changed)
            run_in_background(self, self._server_watch.run)

    def _server_notice(self) -> tuple[str, ...]:
        return server_notice(self._server_watch.down_s, self._server_watch.changes) if self._server_watch else ()

    def actions(self) -> list[Action]:
        session = self.source.live.session
        now = super().actions()
        if session is not None and session.plan.load.fixed:
            now = [action for action in now if action.id not in _STEERING]
        return relabel(now, {"pause": "resume"} if self._is_paused else {})

    @property
    def _is_paused(self) -> bool:
        """Whether no request is sent until p is pressed again; some may still be in flight."""
        frame = self.source.live.frame
        return frame is not None and frame.status in ("pausing", "paused")

    @property
    def _is_manual(self) -> bool:
        """Whether the user controls C, and a sweep would be another way to get levels."""
        frame = self.source.live.frame
        return self._is_in_progress and frame is not None and frame.steered

    def _level_hint(self) -> str:
        return _SWEEP_HINT if self._is_manual else ""

    # steering

    @property
    def target_c(self) -> int:
        frame = self.source.live.frame
        return self._requested_c if self._requested_c is not None else frame.c if frame else 0

    def _set_c(self, c: int) -> None:
        """Request another C; the present one is not requested, as it would restart the stage."""
        wanted = min(MAX_STREAMS, max(1, c))
        frame = self.source.live.frame
        if wanted == self.target_c and (frame is None or frame.steered):
            limit = "minimum" if c < wanted else "maximum"
            self.app.toast(f"C is already {wanted}" if wanted == c else f"C={wanted} is the {limit}")
            return
        self._requested_c = wanted
        self.source.send(protocol.SetConcurrency(wanted))
        self.update_panels()

    @property
    def _goal_now(self) -> str:
        """The sweep or search that is running; empty under manual control."""
        session, frame = self.source.live.session, self.source.live.frame
        if frame is None or frame.steered or self._requested_c is not None or session is None:
            return ""
        goal = "sweep" if frame.planned else session.plan.goal
        goal = goal if frame.search is None else frame.search.goal
        return goal if goal in _GOALS else ""

    def _may_end_goal(self, action: str) -> bool:
        """Ask before a key ends a sweep or a search: the same key again does it, unless another level has begun."""
        goal, frame = self._goal_now, self.source.live.frame
        asked, self._asked = self._asked, (action, frame.c if frame else 0)
        if not goal or asked == self._asked:
            self._asked = ("", 0)
            return True
        name, begins = _GOALS[goal]
        self.app.toast(f"{self._key(action)} again ends {name}; {self._key(begins)} begins it again")
        return False

    def _key(self, action: str) -> str:
        return next(known.shown for known in self.app.keys.actions(self.key_context) if known.id == action)

    def _set_plan(self, goal: Literal["sweep", "cliff", "capacity"], levels: tuple[int, ...], **fields: Any) -> None:
        """Run again repeats what the run was changed to."""
        if self._request is not None:
            plan = self._request.plan
            load = msgspec.structs.replace(plan.load.steered(), levels=levels)
            plan = msgspec.structs.replace(plan, goal=goal, load=load, **fields)
            self._request = msgspec.structs.replace(self._request, plan=plan)

    def _in_progress(self) -> bool:
        if self.source.live.ended is not None:
            self.app.toast("the run has ended; R runs the same plan again")
            return False
        return True

    def _can_steer(self) -> bool:
        """Whether the load may be changed by hand; explains to the user why not."""
        session, frame = self.source.live.session, self.source.live.frame
        if not self._in_progress():
            return False
        if session is not None and session.plan.load.fixed:
            self.app.toast(
                f"{session.workload} has load mode {session.plan.load.name}, which cannot be changed; x stops it"
            )
            return False
        if frame is not None and not (traits(frame.load).holds_c or traits(frame.load).replayed):
            self.app.toast("manual control: closed loop from here on")
        return True

    def _change_c(self, action: str, step: Callable[[int], int]) -> None:
        frame = self.source.live.frame
        if frame is not None and frame.rate is not None and self._requested_c is None:
            self.app.toast("an open loop has a rate, not a C; c sets one and switches to manual control")
        elif self._can_steer() and self._may_end_goal(action):
            self._set_c(step(self.target_c))

    def action_more(self) -> None:
        self._change_c("more", lambda c: c + 1)

    def action_fewer(self) -> None:
        self._change_c("fewer", lambda c: c - 1)

    def action_double(self) -> None:
        self._change_c("double", lambda c: c * 2)

    def action_halve(self) -> None:
        self._change_c("halve", lambda c: c // 2)

    def action_type_c(self) -> None:
        def done(text: str | None) -> None:
            if text:
                self._set_c(int(text))

        if self._can_steer():
            ends = "" if not self._goal_now else "sweep" if self._goal_now == "sweep" else "search"
            label = f"C (ends the {ends}):" if ends else "C (number of agents):"
            self.query_one(InputLine).ask(label, "", _check_streams, done)

    def action_sweep(self) -> None:
        session = self.source.live.session

        def done(text: str | None) -> None:
            if text:
                levels = parse_levels(text)
                self.source.send(protocol.Sweep(levels, session.plan.load.runs if session else 1))
                self._set_plan("sweep", levels)

        if self._can_steer():
            planned = ",".join(map(str, session.plan.load.levels)) if session else ""
            suggested = planned if planned.count(",") else "1,2,4,8"
            self.query_one(InputLine).ask("sweep over C:", suggested, parse_levels, done, enter="starts")

    def action_find_cliff(self) -> None:
        if self._can_steer() and self._may_end_goal("find_cliff"):
            self.source.send(protocol.FindCliff(_MAX_CLIFF_C))
            self._set_plan("cliff", (1,))
            self.app.toast("searching for the cliff: C doubles until requests queue")

    def action_find_capacity(self) -> None:
        """Search for the capacity in this run; after its end, in a new one of the same endpoint.

        After a quick search it is the same one without a limit of its time.
        """
        session, ended = self.source.live.session, self.source.live.ended is not None
        if self._may_be_surer and session is not None and self._request is not None:
            self._request = msgspec.structs.replace(self._request, plan=session.plan.surer())
            self.action_again()
            return

        def done(text: str | None) -> None:
            if not text:
                return
            quick = {"slo": text, "alpha": QUICK_ALPHA, "budget_s": QUICK_BUDGET_S}
            self._set_plan("capacity", (1,), **quick)
            if ended:
                self.action_again()
            else:
                self.source.send(protocol.FindCapacity(text, alpha=QUICK_ALPHA, budget_s=QUICK_BUDGET_S))
                self.app.toast("searching for the most agents: C doubles until the SLO is missed")

        if ended and self._request is None:
            self.app.toast("this run was started elsewhere; start a new one on the setup screen (Esc)")
        elif ended and session is not None and session.plan.load.fixed:
            self.app.toast(f"{session.workload} has load mode {session.plan.load.name}, which has no other levels")
        elif ended or self._can_steer():
            slo = session.plan.slo if session else ""
            has_jobs = session is None or session.workload_spec.get("kind") in KINDS_WITH_JOBS
            check = partial(validate_slo, has_jobs=has_jobs)
            self.query_one(InputLine).ask("SLO of each agent:", slo or DEFAULT_SLO, check, done, enter="starts")

    def action_next_level(self) -> None:
        if self._in_progress():
            self.source.send(protocol.NextLevel())

    def action_pause(self) -> None:
        if not self._in_progress():
            return
        if self._is_paused:
            self.source.send(protocol.Resume())
        else:
            self.source.send(protocol.Pause())
            self.app.toast("pausing: requests in flight finish first; p resumes")

    def action_stop(self) -> None:
        if not self._in_progress():
            return
        self.source.send(protocol.Stop(grace_s=0.0) if self._stopping else protocol.Stop())
        if not self._stopping:
            self.app.toast("stopping: requests in flight get up to 5 s; x again stops at once")
        self._stopping = True

    def action_again(self) -> None:
        if self.source.live.ended is None:
            self.app.toast("this run is still in progress; x stops it")
        elif self._server_watch is not None and self._server_watch.is_down:
            self.app.toast("the server is down; press R when it is back")
        else:
            restarted = self._server_watch is not None and bool(self._server_watch.changes)
            self.app.run_again(self.source.live, self._request, restarted=restarted)

    # label, note and directory

    def action_describe(self) -> None:
        from swarmtui.tui.dialogs import SessionDetails

        live = self.source.live
        session = live.session
        if session is None or not live.directory or (live.ended is not None and not live.ended.directory):
            self.app.toast("the session has not started" if live.ended is None else "nothing is saved")
            return
        before = SessionDetails(session.label, session.note, str(Path(live.directory).parent))

        def done(details: SessionDetails | None) -> None:
            if details is not None:
                self._describe(before, details)

        self.app.open_screen("save", before, callback=done)

    def _describe(self, before: SessionDetails, details: SessionDetails) -> None:
        """Send the details to the session process; after its end, edit the saved files."""
        live = self.source.live
        if live.ended is not None:
            run_in_background(self, partial(self._describe_saved, before, details))
            return
        self.source.send(protocol.Describe(details.label, details.note))
        live.describe(details.label, details.note)
        if details.directory != before.directory:
            self.source.send(protocol.SaveTo(details.directory))
            # The hello that answers a subscription contains the new directory; a refusal is sent as a warning.
            self.source.send(protocol.Subscribe(hz=self.app.hz, rows=True))
        self.update_panels()

    async def _describe_saved(self, before: SessionDetails, details: SessionDetails) -> None:
        from swarmtui.sessions import edit

        live = self.source.live
        directory = Path(live.directory)
        try:
            if details.directory != before.directory:
                directory = await asyncio.to_thread(edit.move_session, directory, Path(details.directory))
                live.set_directory(str(directory))
            await asyncio.to_thread(edit.set_description, directory, details.label, details.note)
        except BadInput as problem:
            self.app.toast(f"not saved: {problem}")
            return
        live.describe(details.label, details.note)
        if live.ended is not None:
            self.app.run_ended(live.ended)
        self.app.toast(f"saved: {directory}")
        self.update_panels()

    # leaving

    @property
    def _first_back_label(self) -> str:
        return super()._first_back_label if self._is_in_progress else "new run"

    def _back_from_first_screen(self) -> None:
        if self.source.live.ended is not None:
            self.app.open_screen("setup")
        elif not self.reset_choice():
            self.app.toast("a run is in progress: x stops it, d detaches, q quits")

    def action_detach(self) -> None:
        self.app.detach()


def _check_streams(text: str) -> None:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAX_STREAMS:
        raise BadInput(f"a number from 1 to {MAX_STREAMS:,}")
