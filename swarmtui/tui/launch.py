"""Start the app from the command line: prepare the terminal, import Textual, and report a crash."""

from __future__ import annotations

import gc
import os
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmtui.client.config_file import read_config
from swarmtui.client.session_client import SessionClient, attach, start_session
from swarmtui.files import config_path
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Hello, Subscribe
from swarmtui.model.config import Config
from swarmtui.model.run_request import RunRequest
from swarmtui.processes.exits import FAULT, write_crash_report
from swarmtui.processes.spawn import start_session_process
from swarmtui.text import sanitize, write_text

if TYPE_CHECKING:
    from swarmtui.sessions.replay import Replay
    from swarmtui.tui.app import AppResult
    from swarmtui.tui.frame_source import LiveSource, ReplaySource

SLOW_HZ = 2.0

# Enter and leave the alternate screen, as Textual does.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[H", "\x1b[?1049l"
# Reset colours, keyboard modes, focus, paste and mouse reports; show the cursor; leave the alternate screen.
_RESTORE = b"\x1b[0m\x1b[<u\x1b[?1004l\x1b[?2004l\x1b[?1000l\x1b[?1006l\x1b[?25h\x1b[?1049l"
_MESSAGE = b"\r\nswarmtui: the app was killed; a run in progress continues: swarmtui attach\r\n"
_IGNORED_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN,
)  # fmt: skip


def open_run(request: RunRequest, *, slow: bool) -> AppResult:
    """Start a run and show it; the session process starts while Textual is imported, and gets its request then."""
    process = start_session_process()
    config, hz = _read_config(slow)
    return _open_live(lambda: start_session(request, Subscribe(hz=hz, rows=True), process), config, hz, request)


def open_attached(session_id: str, *, slow: bool) -> AppResult:
    config, hz = _read_config(slow)
    client = attach(session_id, Subscribe(hz=hz, rows=True))
    return _open_live(lambda: client, config, hz, None)


def open_setup(session_root: Path | None, *, slow: bool) -> AppResult:
    config, hz = _read_config(slow)
    return _run(None, config=config, session_root=session_root, hz=hz)


def open_tune(directory: Path) -> AppResult:
    """Show a tune; the sessions of its configurations are in the directory that contains all tunes."""
    config, hz = _read_config()
    return _run(None, config=config, tune=directory, session_root=directory.parent.parent, hz=hz)


def open_replayed(replay: Replay, root: Path, *, slow: bool) -> AppResult:
    config, hz = _read_config(slow)

    def source() -> ReplaySource:
        from swarmtui.tui.frame_source import ReplaySource

        return ReplaySource(replay, hz)

    return _run(source, config=config, session_root=root, hz=hz)


def describe_sessions(session_ids: list[str]) -> list[str]:
    """Return one line per running session: id, model, workload and label."""
    lines = []
    for session_id in session_ids:
        client = attach(session_id, Subscribe(hz=0.1))
        hello = client.receive(1.0)
        client.close()
        description = ""
        if isinstance(hello, Hello):
            session = hello.session
            models = [endpoint.model for endpoint in session.endpoints[:1]]
            description = "  ".join(sanitize(part) for part in (*models, session.workload, session.label) if part)
        lines.append(f"{session_id}  {description}".rstrip())
    return lines


def _open_live(client: Callable[[], SessionClient], config: Config, hz: float, request: RunRequest | None) -> AppResult:
    def source() -> LiveSource:
        from swarmtui.tui.frame_source import LiveSource

        return LiveSource(client())

    root = Path(request.session_root) if request else None
    return _run(source, config=config, request=request, session_root=root, hz=hz)


def _read_config(slow: bool = False) -> tuple[Config, float]:
    """Return the configuration and the frames per second; set what Textual reads when it is imported."""
    # Importing makes no garbage: collection waits until the first screen.
    gc.disable()
    os.environ.setdefault("TEXTUAL_FPS", "20")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    config = read_app_config()
    return config, SLOW_HZ if slow else config.refresh


def read_app_config(directory: Path | None = None) -> Config:
    """Read config.toml; the key table, which imports much of Textual, is loaded only to check a [keymap]."""
    config = read_config(directory)
    if config.keymap:
        from swarmtui.tui.keys import known_ids

        known = known_ids()
        for name in config.keymap:
            if name not in known:
                text = f"no such action; known are {', '.join(sorted(known))}"
                raise BadInput(text, source=str(config_path(directory)), key=f"keymap.{name}")
    return config


def _run(source: Callable[[], LiveSource | ReplaySource] | None, **options: Any) -> AppResult:
    """Run the app, and restore the terminal however it ends."""
    guard = TerminalGuard()
    try:
        return _show(source, options)
    finally:
        guard.dismiss()


def _show(source: Callable[[], LiveSource | ReplaySource] | None, options: dict[str, Any]) -> AppResult:
    """Import and run the app; the source is opened last, so that the first paint shows its newest frame."""
    # Textual uses this screen too; the line is visible while it is imported.
    sys.stdout.write(_ENTER)
    write_text(sys.stdout, " swarmtui  starting …", end="")
    sys.stdout.flush()
    imported = False
    try:
        from swarmtui.tui.app import AppResult, SwarmApp

        imported = True
    finally:
        # Before the app runs, nothing else leaves the alternate screen, for example after Ctrl-C.
        if not imported:
            sys.stdout.write(_LEAVE)
    app = SwarmApp(source=source() if source else None, **options)
    result = app.run(mouse=app.config.mouse)
    if app.crash is not None:
        _report_crash(app.crash, app.running_id)
        sys.exit(FAULT)
    return result or AppResult()


def _report_crash(error: BaseException, running_id: str) -> None:
    """Write the traceback to a file and one line to stderr."""
    write_text(sys.stderr, f"swarmtui: the app failed ({type(error).__name__}){write_crash_report(error)}")
    if running_id:
        write_text(sys.stderr, f"swarmtui: the run is not affected: swarmtui attach {running_id}")


class TerminalGuard:
    """Restores the terminal from a small child process if the app is killed without a chance to do so itself.

    Create it before importing anything that starts threads; dismiss it when the app has exited normally.
    """

    def __init__(self) -> None:
        saved = termios.tcgetattr(sys.stdin.fileno())
        end, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                _watch(end, saved)
            finally:
                os._exit(0)
        os.close(end)

    def dismiss(self) -> None:
        os.write(self._alive, b".")
        os.close(self._alive)
        os.waitpid(self._pid, 0)


def _watch(end: int, saved: list[object]) -> None:
    """Wait until the app writes a byte, which means that it has exited normally, or dies."""
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, end)
    os.closerange(end + 1, 1024)
    if os.read(end, 1):
        return
    os.write(1, _RESTORE)
    termios.tcsetattr(0, termios.TCSANOW, saved)  # type: ignore[arg-type]
    os.write(2, _MESSAGE)
