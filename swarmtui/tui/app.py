"""The app: open screens by name, start runs, and quit with or without stopping what is running."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.theme import Theme

from swarmtui.client.session_client import SessionClient, attach, start_session
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended, Stop, Subscribe
from swarmtui.model.config import Config
from swarmtui.model.run_request import RunRequest
from swarmtui.processes.exits import exit_if_stuck
from swarmtui.text import sanitize
from swarmtui.tui.frame_source import LiveSource, ReplaySource, SavedSource
from swarmtui.tui.keys import Action, Keymap, bindings, keymap
from swarmtui.tui.screens import SCREENS, ScreenName, key_context, make_screen
from swarmtui.tui.textual_patches import PatchedApp
from swarmtui.tui.themes import SWARM, SWARM_LIGHT, kept_theme, line_styles

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.model.tuning import ExperimentStatus
    from swarmtui.tui.live_model import LiveModel

SMALLEST = Size(60, 16)
_LIVE_CONTEXTS = ("live", "replay", "watch")
_TERMINAL_CHECK_S = 1.0
_TOAST_S = 3.0


class AppResult(msgspec.Struct, frozen=True):
    """What the command line reports after the app: the runs that ended, or the id of one that continues."""

    ended: tuple[Ended, ...] = ()
    running_id: str = ""
    detached: bool = False


class SwarmApp(PatchedApp[AppResult]):
    """Started with a run, a saved session or the directory of a tune; without any, with the setup screen."""

    TITLE = "swarmtui"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal"), (170, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall"), (54, "-high")]
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("everywhere")]

    def __init__(
        self,
        *,
        config: Config | None = None,
        source: LiveSource | ReplaySource | None = None,
        request: RunRequest | None = None,
        session_root: Path | None = None,
        tune: Path | None = None,
        hz: float = 4.0,
    ) -> None:
        self.config = config or Config()
        super().__init__((SWARM, SWARM_LIGHT), kept_theme(self.config.theme))
        self.line_styles = line_styles(self.current_theme, self.console.color_system)
        self.keys = Keymap(self.config.keymap)
        self.hz = hz
        self.stream_text = self.config.stream_text
        self._session_root = session_root
        self._source = source
        self._request = request
        self._tune = tune
        self._ended: dict[str, Ended] = {}
        self._quitting = False
        self._quit_dialog: Screen[Any] | None = None
        self._too_small: Screen[Any] | None = None

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._theme_changed)
        self.set_keymap(keymap(self.config.keymap))
        if self.console.color_system in ("standard", "windows"):
            # Otherwise the 16 colours of our styles are converted to RGB and back, and latency is as red as an error.
            self.ansi_color = True
            if not self.is_headless:
                # The nearest of 16 to a colour of our themes may be that of the background.
                self.theme = {SWARM.name: "ansi-dark", SWARM_LIGHT.name: "ansi-light"}.get(self.theme, self.theme)
        if not self.is_headless:
            self._detach_on_signals()
            self.set_interval(_TERMINAL_CHECK_S, self._exit_without_terminal)
        gc.freeze()
        gc.enable()

    # screens

    def first_screen(self) -> Screen[Any]:
        if self._tune is not None:
            return make_screen("tune", self._tune)
        match self._source:
            case LiveSource():
                return make_screen("run", self._source, self._request)
            case ReplaySource():
                return make_screen("replay", self._source)
            case None:
                return make_screen("setup")

    def open_screen(self, name: ScreenName, *args: Any, callback: Callable[[Any], None] | None = None) -> Screen[Any]:
        """Open a screen by name; `callback` receives the result of a dialog."""
        screen = make_screen(name, *args)
        self.remove_toast()
        self.push_screen(screen, callback)
        return screen

    def pop_screen(self) -> AwaitComplete:
        """Close the screen with its message, which is about what was done there."""
        self.remove_toast()
        return super().pop_screen()

    def open_sessions(self) -> None:
        """Show the list of sessions; from a result or a comparison that was opened there, go back to it."""
        before = [key_context(screen) for screen in self.screen_stack[-2:]]
        if before[:-1] == ["sessions"] and (before[-1] in ("result", "compare") or not self._is_running):
            self.screen.dismiss()
        else:
            self.open_screen("sessions", self.session_root)

    def _open_once(self, name: ScreenName, *args: Any) -> None:
        if type(self.screen).__name__ != SCREENS[name].partition(":")[2]:
            self.open_screen(name, *args)

    def action_tuning_log(self) -> None:
        self._open_once("log", self.session_root)

    def action_probe_history(self) -> None:
        self._open_once("probes", self.session_root)

    def action_tunes(self) -> None:
        self._open_once("tunes", self.session_root)

    def action_help(self) -> None:
        topic = getattr(self.screen, "help_topic", None)
        self._open_once("help", self._available(self.screen), topic() if topic else None)

    def _available(self, screen: Screen[Any]) -> list[Action]:
        """Return the actions that a screen has at this moment."""
        return [action for action in self.keys.actions(key_context(screen)) if screen.check_action(action.id, ())]

    def action_palette(self) -> None:
        self._open_once("palette")

    def on_resize(self, event: Resize) -> None:
        too_small = event.size.width < SMALLEST.width or event.size.height < SMALLEST.height
        if too_small and self._too_small is None:
            self._too_small = self.open_screen("too_small", SMALLEST)
        elif not too_small and self._too_small is not None:
            if self.screen is self._too_small:
                self.pop_screen()
            self._too_small = None

    def toast(self, text: str) -> None:
        """Show a message for a short time, in place of the one before."""
        self.remove_toast()
        self.notify(sanitize(text), markup=False, timeout=_TOAST_S)

    @contextmanager
    def toasting(self) -> Iterator[None]:
        """Show a mistake of the user, or of a file, as a toast; what follows it in the block is not done."""
        try:
            yield
        except BadInput as problem:
            self.toast(str(problem))

    def remove_toast(self) -> bool:
        """Remove the message that is shown; False if there is none."""
        holders = self.screen.query("ToastHolder")
        found = bool(holders)
        holders.remove()
        self.clear_notifications()
        return found

    # runs

    @property
    def session_root(self) -> Path:
        from swarmtui.files import sessions_root

        return self._session_root or sessions_root()

    def open_run(self, request: RunRequest) -> None:
        """Start a session process and show its run in place of the current live screen or result."""
        from swarmtui.sessions.marked import marked_session

        self._close_source()
        if marked := marked_session(self.session_root):
            request = msgspec.structs.replace(request, previous=marked, repeats=False)
        self._show_run(start_session(request, self._subscription), request)

    def attach(self, session_id: str) -> None:
        """Show a run that another program started; that of this app is already below the current screen."""
        if session_id == self.running_id:
            while key_context(self.screen) != "live":
                super().pop_screen()
        elif self._is_running:
            self.toast(f"another run is in progress here; elsewhere: swarmtui attach {session_id}")
        else:
            with self.toasting():
                client = attach(session_id, self._subscription)
                self._close_source()
                self._show_run(client, None)

    @property
    def _subscription(self) -> Subscribe:
        return Subscribe(hz=self.hz, rows=True)

    def _show_run(self, client: SessionClient, request: RunRequest | None) -> None:
        self._source = LiveSource(client)
        for screen in self.screen_stack:
            if key_context(screen) in _LIVE_CONTEXTS:
                # Stops the server watch of an earlier run: it must not send requests while this run is measured.
                self.workers.cancel_node(screen)
        screen = make_screen("run", self._source, request)
        self.remove_toast()
        # A saved result or a comparison, too: the new one is compared with it, and Esc leads to the list.
        if key_context(self.screen) in (*_LIVE_CONTEXTS, "result", "compare") and len(self.screen_stack) > 1:
            self.switch_screen(screen)
        else:  # Textual cannot replace the first screen
            self.push_screen(screen)

    def run_again(self, live: LiveModel, request: RunRequest | None, *, restarted: bool = False) -> None:
        """Repeat a run with the same seed; a new salt changes the nonces, so that no prompt is cached.

        The label, and the flags that the user typed, are not those of a server that was restarted.
        """
        if request is None:
            self.toast("this run was started elsewhere and its credentials are not known here; start a new one")
            return
        session = live.session
        label = "" if restarted else session.label if session else request.label
        server_flags = "" if restarted else request.server_flags
        # A run without a level is no baseline.
        has_levels = session is not None and live.frame is not None and bool(live.frame.levels)
        if session and has_levels:
            request = msgspec.structs.replace(request, previous=session.id, repeats=True)
        salt = os.urandom(4).hex()
        self.open_run(msgspec.structs.replace(request, label=label, server_flags=server_flags, salt=salt))

    async def repeat_saved(self, summary: Summary, *, surer: bool = False) -> None:
        """Repeat a saved session with it as the baseline, if its server answers; `surer`: without a limit of time."""
        from swarmtui.client.request_builder import repeat_request

        if surer and not summary.session.plan.is_quick:
            self.toast("only a quick search can be asked again, 99 % sure; R runs the same plan again")
            return
        try:
            request = await asyncio.to_thread(repeat_request, summary, self.config, self.session_root)
        except BadInput as problem:
            self.toast(f"cannot run it again: {problem}")
        else:
            if surer:
                request = msgspec.structs.replace(request, plan=request.plan.surer())
            self.open_run(request)

    async def open_replay(self, root: Path, session_id: str) -> None:
        from swarmtui.sessions.replay import open_replay

        with self.toasting():
            replay = await asyncio.to_thread(open_replay, root, session_id)
            self.open_screen("replay", ReplaySource(replay, self.hz))

    async def open_result(self, root: Path, session_id: str) -> None:
        """Show the result of a saved session."""
        from swarmtui.experiments.store import latest_effect
        from swarmtui.report.tuning import since_texts
        from swarmtui.sessions.store import read_summary

        with self.toasting():
            summary = await asyncio.to_thread(read_summary, root, session_id)
            change = await asyncio.to_thread(latest_effect, root, session_id)
            since = since_texts(change) if change is not None else ()
            self.open_screen("result", SavedSource(summary, str(root / session_id), since))

    async def open_comparison(self, root: Path, session_ids: Sequence[str]) -> None:
        """Compare saved sessions; the first one is the baseline."""
        from swarmtui.analysis.compare.differences import session_names
        from swarmtui.sessions.store import read_for_comparison

        with self.toasting():
            summaries, history = await asyncio.to_thread(read_for_comparison, root, session_ids)
            names = zip(session_names(summaries), summaries, strict=True)
            shown = {summary.session.id: sanitize(name) for name, summary in names}
            self.open_screen("compare", root, summaries, shown, history)

    def run_ended(self, ended: Ended) -> None:
        """Keep the result under the session's id: the session may be moved to another directory later."""
        self._ended[Path(ended.directory).name] = ended
        if self._quitting:
            self.exit(self._result())
        elif self._quit_dialog is not None and self.screen is self._quit_dialog and self._tune is None:
            self._quit_dialog.dismiss("back")
            self.toast("the run has ended; q quits")

    def resumed(self) -> None:
        super().resumed()
        if isinstance(self._source, LiveSource):  # for the history of the time in which the app was stopped
            self._source.send(self._subscription)

    # quitting

    @property
    def running_id(self) -> str:
        """The id of the run that would continue without the app; empty if none is running."""
        session = self._source.live.session if self._source is not None and self._is_running else None
        return session.id if session else ""

    @property
    def _is_running(self) -> bool:
        return isinstance(self._source, LiveSource) and self._source.live.ended is None

    def action_leave(self) -> None:
        if self._quit_dialog is not None and self.screen is self._quit_dialog:
            self._quit_dialog.dismiss("back")
        elif self._is_running:
            self._quit_dialog = self.open_screen("quit", "run", callback=self._quit_run)
        elif self._running_tune() is not None:
            self._quit_dialog = self.open_screen("quit", "tune", callback=self._quit_tune)
        else:
            self.exit(self._result())

    def _quit_run(self, choice: str | None) -> None:
        if choice == "detach":
            self.detach()
        elif choice == "stop" and isinstance(self._source, LiveSource):
            self._quitting = True
            self._source.send(Stop())
            self.toast("stopping, then saving …")
            if not self._is_running:
                self.exit(self._result())

    def _running_tune(self) -> ExperimentStatus | None:
        """The status of the tune that the app was started for, if it is running."""
        from swarmtui.experiments.store import read_tune

        try:
            found = read_tune(self._tune) if self._tune is not None else None
        except BadInput:
            return None
        return found.status if found is not None and not found.status.ended else None

    def _quit_tune(self, choice: str | None) -> None:
        from swarmtui.experiments.store import request_stop

        if choice == "detach":
            self.detach()
        elif choice == "stop" and (status := self._running_tune()) is not None:
            self._quitting = True
            request_stop(status)
            self.toast("stopping the server of this configuration …")

    def tune_ended(self) -> None:
        if self._quitting and self._tune is not None:
            self.exit(self._result())

    def detach(self) -> None:
        self.exit(msgspec.structs.replace(self._result(), running_id=self.running_id, detached=True))

    def _detach_on_signals(self) -> None:
        """Exit on SIGTERM and SIGINT; the run continues."""
        loop = asyncio.get_running_loop()

        def leave(number: int, frame: FrameType | None) -> None:
            # A terminal that accepts no output may block the event loop, but not this handler; the guard restores it.
            exit_if_stuck(outputs=(1,))
            with suppress(RuntimeError):  # the loop is closed: the app has ended
                loop.call_soon_threadsafe(self.detach)

        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, leave)

    def _result(self) -> AppResult:
        return AppResult(ended=tuple(self._ended.values()))

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()

    def on_unmount(self) -> None:
        self._close_source()

    def _exit_without_terminal(self) -> None:
        """Exit at once when the terminal is closed: there is nothing to restore, and the run has its own process."""
        if self.terminal_closed:
            os._exit(1)

    # themes and the command palette

    def action_theme(self) -> None:
        self._open_once("theme")

    def _theme_changed(self, theme: Theme) -> None:
        self.line_styles = line_styles(theme, self.console.color_system)
        for screen in self.screen_stack:
            for widget in screen.query("LineWidget"):
                widget.refresh()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Fill the command palette from the table of actions."""
        for action in self._available(screen):
            if action.group != "Move" and action.id != "palette":
                run = self._runner(action.full_name, screen)
                yield SystemCommand(f"{action.label} ({action.shown})", action.tooltip, run)

    def _runner(self, action: str, screen: Screen[Any]) -> Any:
        async def run() -> None:
            await self.run_action(action, screen)

        return run
