"""Opening the app, and what stays on the normal screen after it. Without click, for which no picture should wait."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn


def open_app(session_dir: str | None, *, slow: bool) -> NoReturn:
    need_terminal()
    from swarmtui.tui.launch import set_up

    after(set_up(sessions_in(session_dir), slow=slow))


def sessions_in(directory: str | None) -> Path:
    from swarmtui.sessions.paths import sessions_root

    return Path(directory).resolve() if directory else sessions_root()


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def need_terminal(instead: str = "run") -> None:
    from swarmtui.model.schema import BadInput

    if not is_terminal():
        raise BadInput(f"this needs a terminal; over SSH: ssh -t HOST swarmtui. Without one: `swarmtui {instead}`")


def after(outcome: Any) -> NoReturn:
    """The table and the path of each run that ended, or how to join again."""
    from swarmtui.cli.follow import report
    from swarmtui.cli.progress import progress_on

    code = 0
    for ended in outcome.ended:
        code = report(ended, as_json=False, progress=progress_on(sys.stderr, False))
    if outcome.goes_on:
        sys.stderr.write(f"the run goes on: swarmtui attach {outcome.goes_on}\n")
    sys.exit(code)
