"""The app itself: which screen is shown, and what becomes of a run when people leave."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from swarmtui.client.client import start
from swarmtui.model import client_protocol as said
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.config import Config
from swarmtui.tui.frame_source import Live, Past
from swarmtui.tui.keys import Keymap, Where, bindings, keymap
from swarmtui.tui.live_model import Track
from swarmtui.tui.terminal import Terminal
from swarmtui.tui.textual_patches import Picture

_LOOK_S = 1.0


class Outcome(msgspec.Struct, frozen=True):
    """What is said on the normal screen afterwards: runs that ended here, or the one that goes on."""

    ended: tuple[said.Ended, ...] = ()
    goes_on: str = ""
    detached: bool = False


class SwarmApp(Picture[Outcome]):
    """Started with a run, a past session, the directory of a tune, or nothing: then it asks what to run."""

    TITLE = "swarmtui"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    def __init__(
        self,
        *,
        config: Config | None = None,
        source: Live | Past | None = None,
        order: Order | None = None,
        session_root: Path | None = None,
        tune: Path | None = None,
        hz: float = 4.0,
    ) -> None:
        self.config = config or Config()
        super().__init__(self.config.theme)
        self.keys = Keymap(self.config.keymap)
        self.session_root = session_root
        self.hz = hz
        self.crash: Exception | None = None
        self._source = source
        self._order = order
        self._tune = tune
        self._baseline = ""
        self._ended: dict[str, said.Ended] = {}
        self._leaving = False

    def on_mount(self) -> None:
        self.set_keymap(keymap(self.config.keymap))
        if not self.is_headless:
            # To be ended from outside is to be left alone: the run goes on.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.detach)
            self.set_interval(_LOOK_S, self._leave_if_alone)
        gc.freeze()
        gc.enable()

    def first_screen(self) -> Screen[Any]:
        if self._tune is not None:
            from swarmtui.tui.tune.screen import TuneScreen

            return TuneScreen(self._tune)
        match self._source:
            case Live():
                from swarmtui.tui.live.run_screen import RunScreen

                return RunScreen(self._source, self._order)
            case Past():
                from swarmtui.tui.live.replay_screen import ReplayScreen

                return ReplayScreen(self._source)
            case None:
                from swarmtui.tui.setup.screen import SetupScreen

                return SetupScreen()

    # what screens ask for

    def say(self, words: str) -> None:
        self.notify(plain(words), markup=False, timeout=4)

    def note_end(self, ended: said.Ended) -> None:
        """Under the session's own name: it may be saved elsewhere afterwards."""
        self._ended[Path(ended.directory).name] = ended
        if self._leaving:
            self.exit(self._outcome())
        else:
            self._take_back_question()

    def _take_back_question(self) -> None:
        """What becomes of a run is no question any more when it has ended."""
        from swarmtui.tui.dialogs import QuitDialog

        if isinstance(self.screen, QuitDialog) and self.screen.what == "run":
            self.screen.dismiss("go on")
            self.say("the run has ended and is saved; q quits")

    def open_sessions(self) -> None:
        from swarmtui.tui.sessions.screen import SessionsScreen

        self.push_screen(SessionsScreen(self.session_root_or_default))

    def open_checklist(self, track: Track) -> None:
        from swarmtui.tui.sessions.checks_screen import ChecksScreen

        directory = Path(track.directory)
        if not track.directory:
            self.say("nothing to check yet: the session has not begun")
        else:
            self.push_screen(ChecksScreen(directory.parent, directory.name))

    def action_tuning_log(self) -> None:
        from swarmtui.tui.log.screen import LogScreen

        if not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(self.session_root_or_default))

    def action_probe_history(self) -> None:
        from swarmtui.tui.probes.screen import ProbesScreen

        if not isinstance(self.screen, ProbesScreen):
            self.push_screen(ProbesScreen(self.session_root_or_default))

    def action_tunes(self) -> None:
        from swarmtui.tui.tune.list_screen import TunesScreen

        if not isinstance(self.screen, TunesScreen):
            self.push_screen(TunesScreen(self.session_root_or_default))

    def open_setup(self) -> None:
        from swarmtui.tui.setup.screen import SetupScreen

        self.push_screen(SetupScreen())

    def open_run(self, order: Order) -> None:
        """A new conductor, and the screen of its run in the place of what was there."""
        from swarmtui.tui.live.run_screen import RunScreen
        from swarmtui.tui.live.screen import LiveScreen

        self._close_source()
        if self._baseline:
            order = msgspec.structs.replace(order, previous=self._baseline)
        self._source = Live(start(order, said.Subscribe(hz=self.hz, rows=True)))
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen):  # nobody looks at a server while it is measured
                self.workers.cancel_node(screen)
        if isinstance(self.screen, LiveScreen) and len(self.screen_stack) > 1:
            self.switch_screen(RunScreen(self._source, order))
        else:  # also where a run is the first screen: Textual has nothing to put in its place
            self.push_screen(RunScreen(self._source, order))

    def open_replay(self, source: Past) -> None:
        from swarmtui.tui.live.replay_screen import ReplayScreen

        self.push_screen(ReplayScreen(source))

    def run_again(self, track: Track, order: Order | None) -> None:
        """With the same seed: the same requests, but for the nonces at their start, so that no cache knows them."""
        if order is None:
            self.say("this run was started elsewhere; its secrets are not known here, so start it anew")
            return
        session = track.session
        label = session.label if session else order.label
        # Nothing can be held against a run that has no level.
        done = session is not None and track.frame is not None and bool(track.frame.levels)
        previous = session.id if session and done else order.previous
        salt = os.urandom(4).hex()
        self.open_run(msgspec.structs.replace(order, label=label, previous=previous, salt=salt))

    def mark_baseline(self, track: Track) -> None:
        """From the next run on, and until another is marked, this is the ghost line and what is compared with."""
        if track.session is None or track.frame is None or not track.frame.levels:
            self.say("no baseline yet: no level is done")
            return
        self._baseline = track.session.id
        self.say(f"baseline: {track.session.label or track.session.id}; the next runs are held against it")

    def export(self, track: Track) -> None:
        """The session as a Markdown report, where the app was started; an older one of the same session goes."""
        from swarmtui.sessions.export import export
        from swarmtui.sessions.store import load

        directory = Path(track.directory)
        if track.session is None or track.frame is None or not track.frame.levels:
            self.say("nothing to export yet: no level is done")
            return
        path = Path.cwd() / f"swarmtui-{track.session.id}.md"
        try:
            path.write_bytes(export([load(directory.parent, directory.name)], "md"))
        except (OSError, BadInput) as error:
            self.say(f"cannot export: {error}")
        else:
            self.say(f"written: {path}")

    @property
    def session_root_or_default(self) -> Path:
        from swarmtui.sessions.paths import sessions_root

        return self.session_root or sessions_root()

    # leaving

    @property
    def running_id(self) -> str:
        """The run that would go on without us; empty when there is none."""
        if not isinstance(self._source, Live) or self._source.track.ended is not None:
            return ""
        session = self._source.track.session
        return session.id if session else ""

    @property
    def _is_on(self) -> bool:
        return isinstance(self._source, Live) and self._source.track.ended is None

    def action_leave(self) -> None:
        from swarmtui.tui.dialogs import QuitDialog

        if isinstance(self.screen, QuitDialog):
            self.screen.dismiss("go on")
        elif self._is_on:
            self.push_screen(QuitDialog(), self._leave)
        elif self._tune_is_on:
            self.push_screen(QuitDialog("tune"), self._leave_tune)
        else:
            self.exit(self._outcome())

    def _leave(self, choice: str | None) -> None:
        if choice == "detach":
            self.detach()
        elif choice == "stop" and isinstance(self._source, Live):
            self._leaving = True
            self._source.say(said.Stop())
            self.say("stopping, then saving …")
            if not self._is_on:
                self.exit(self._outcome())

    @property
    def _tune_is_on(self) -> bool:
        return self._tune is not None and getattr(self.screen_stack[0], "is_on", False)

    def _leave_tune(self, choice: str | None) -> None:
        if choice == "detach":
            self.detach()
        elif choice == "stop":
            from swarmtui.tui.tune.screen import TuneScreen

            self._leaving = True
            screen = self.screen_stack[0]
            if isinstance(screen, TuneScreen):
                screen.stop()
            self.say("stopping the server of this cell …")

    def tune_is_over(self) -> None:
        if self._leaving and self._tune is not None:
            self.exit(self._outcome())

    def detach(self) -> None:
        outcome = msgspec.structs.replace(self._outcome(), goes_on=self.running_id, detached=True)
        self.exit(outcome)

    def _outcome(self) -> Outcome:
        return Outcome(ended=tuple(self._ended.values()))

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()

    def on_unmount(self) -> None:
        self._close_source()

    def _leave_if_alone(self) -> None:
        """Without a terminal there is nothing to restore and nobody to tell; the run is in a process of its own."""
        if isinstance(self._driver, Terminal) and self._driver.gone:
            os._exit(1)

    # looks

    def action_help(self) -> None:
        from swarmtui.tui.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.keys, self._where()))

    def action_palette(self) -> None:
        self.action_command_palette()

    def _where(self) -> Where:
        where: Where = getattr(self.screen, "where", "live")
        return where

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette is the table of actions, as far as it goes here."""
        where: Where = getattr(screen, "where", "live")
        for action in self.keys.actions(where):
            if action.group != "Move" and action.id != "palette":
                run = f"{'app' if 'everywhere' in action.where else 'screen'}.{action.id}"
                yield SystemCommand(f"{action.label} ({action.shown})", action.tooltip, self._runner(run, screen))

    def _runner(self, action: str, screen: Screen[Any]) -> Any:
        async def run() -> None:
            await self.run_action(action, screen)

        return run

    # a mistake of ours

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Nobody is served by a traceback on the terminal: the launcher says what happened, and where it is written."""
        self._exit_renderables.clear()
