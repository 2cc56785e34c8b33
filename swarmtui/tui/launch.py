"""From the command line into the app and back: what must be set before Textual is imported, and what is said after."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmtui.client.client import Client, attach, start
from swarmtui.client.spawn import start_conductor
from swarmtui.model.client_protocol import Hello, Subscribe
from swarmtui.model.run_request import Order
from swarmtui.text import plain

if TYPE_CHECKING:
    from swarmtui.tui.frame_source import Live, Past

SLOW_HZ = 2.0

# The alternate screen, as Textual enters and leaves it.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[H", "\x1b[?1049l"


def run_order(order: Order, *, slow: bool) -> Any:
    """The conductor is imported beside Textual. It gets its order, and has others started, when that is over."""
    conductor = start_conductor()
    config = _config()
    hz = SLOW_HZ if slow else config.refresh
    return _live(lambda: start(order, Subscribe(hz=hz, rows=True), conductor), config, hz, order)


def join(session_id: str, *, slow: bool) -> Any:
    config = _config()
    hz = SLOW_HZ if slow else config.refresh
    client = attach(session_id, Subscribe(hz=hz, rows=True))
    return _live(lambda: client, config, hz, None)


def describe(session_ids: list[str]) -> list[str]:
    """A line for each running session, as its conductor tells it."""
    lines = []
    for session_id in session_ids:
        client = attach(session_id, Subscribe(hz=0.1))
        hello = client.next(1.0)
        client.close()
        words = ""
        if isinstance(hello, Hello):
            session = hello.session
            models = [endpoint.model for endpoint in session.endpoints[:1]]
            words = "  ".join(plain(part) for part in (*models, session.workload, session.label) if part)
        lines.append(f"{session_id}  {words}".rstrip())
    return lines


def set_up(session_root: Path | None, *, slow: bool) -> Any:
    config = _config()
    return _run(None, config=config, session_root=session_root, hz=SLOW_HZ if slow else config.refresh)


def watch_tune(directory: Path) -> Any:
    """The sessions of its cells lie where the tune itself is kept."""
    config = _config()
    return _run(None, config=config, tune=directory, session_root=directory.parent.parent, hz=config.refresh)


def watch_again(root: Path, which: str, *, slow: bool) -> Any:
    from swarmtui.sessions.replay import open_replay

    config = _config()
    hz = SLOW_HZ if slow else config.refresh
    replay = open_replay(root, which)

    def source() -> Past:
        from swarmtui.tui.frame_source import Past

        return Past(replay, hz)

    return _run(source, config=config, session_root=root, hz=hz)


def _live(client: Callable[[], Client], config: Any, hz: float, order: Order | None) -> Any:
    def source() -> Live:
        from swarmtui.tui.frame_source import Live

        return Live(client())

    root = Path(order.session_root) if order else None
    return _run(source, config=config, order=order, session_root=root, hz=hz)


def _config() -> Any:
    _prepare()
    from swarmtui.tui.config import read_config

    return read_config()


def _prepare() -> None:
    """Textual reads these when it is imported; nothing made meanwhile is garbage, so none is looked for."""
    gc.disable()
    os.environ.setdefault("TEXTUAL_FPS", "20")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")


def _run(source: Callable[[], Live | Past] | None, **given: Any) -> Any:
    """Whatever becomes of the app, the terminal is left as it was."""
    from swarmtui.tui.terminal_guard import Guard

    _prepare()
    guard = Guard()
    try:
        return _show(source, given)
    finally:
        guard.dismiss()


def _show(source: Callable[[], Live | Past] | None, given: dict[str, Any]) -> Any:
    """The source is made last: what has come from it by then is in the first picture."""
    _greet()
    ready = False
    try:
        from swarmtui.tui.app import Outcome, SwarmApp

        ready = True
    finally:
        # Whatever ended it, also Ctrl-C: from here on nobody else would give the terminal back.
        if not ready:
            sys.stdout.write(_LEAVE)
    app = SwarmApp(source=source() if source else None, **given)
    # Without the mouse a terminal keeps its own way to select and copy, and nothing is sent for every movement.
    outcome = app.run(mouse=False)
    if app.crash is not None:
        _own_up(app.crash, app.running_id)
        return Outcome(goes_on=app.running_id, detached=True)
    return outcome or Outcome()


def _greet() -> None:
    """Something to see while Textual is being imported, on the screen that it is going to use."""
    sys.stdout.write(f"{_ENTER} swarmtui  starting …")
    sys.stdout.flush()


def _own_up(error: BaseException, running_id: str) -> None:
    """The terminal is as it was; the traceback goes to a file."""
    import traceback

    from platformdirs import user_state_dir

    from swarmtui.sessions.files import write_whole

    path = Path(user_state_dir("swarmtui")) / "crash.txt"
    kept = f"; details are in {path}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, "".join(traceback.format_exception(error)).encode())
    except OSError:
        kept = ""
    sys.stderr.write(f"swarmtui: the screen failed ({type(error).__name__}){kept}\n")
    if running_id:
        sys.stderr.write("swarmtui: the run is not hurt\n")
