"""Open the app, and report on the terminal after it. Does not import click, so that the first screen appears sooner."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from swarmtui.model.base import BadInput
from swarmtui.text import echo

if TYPE_CHECKING:
    from swarmtui.tui.app import AppResult


def open_app(session_dir: str | None, *, slow: bool) -> NoReturn:
    require_terminal()
    from swarmtui.tui.launch import open_setup

    report_and_exit(open_setup(session_root(session_dir), slow=slow))


def session_root(directory: str | None) -> Path:
    from swarmtui.files import sessions_root

    return Path(directory).resolve() if directory else sessions_root()


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def require_terminal(alternative: str = "run") -> None:
    if not is_terminal():
        raise BadInput(f"no terminal; over SSH use `ssh -t HOST swarmtui`, or without one `swarmtui {alternative}`")


def report_and_exit(result: AppResult) -> NoReturn:
    """Print the answer of the last run that ended, those of earlier ones in a line, and how to attach to another.

    Two of them fit a small terminal.
    """
    from swarmtui.cli.follow import Outputs, report, report_earlier
    from swarmtui.cli.progress import open_progress

    outputs = Outputs(open_progress(sys.stderr, False))
    for ended in result.ended[:-1]:
        report_earlier(ended, outputs)
    code = report(result.ended[-1], (), outputs, brief=True) if result.ended else 0
    if result.running_id:
        echo(f"the run continues in the background: swarmtui attach {result.running_id}", err=True)
    sys.exit(code)
