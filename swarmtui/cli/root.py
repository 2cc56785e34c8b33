"""The group of all commands, and what they share. Imports are inside functions, so that --help is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from swarmtui import __version__


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, invoke_without_command=True
)
@click.version_option(__version__, message="swarmtui %(version)s")
@click.option("--slow", is_flag=True, help="Two frames a second, for a thin line.")
@click.option("--session-dir", metavar="DIR", hidden=True)
@click.pass_context
def commands(context: click.Context, slow: bool, session_dir: str | None) -> None:
    """Live benchmarking of LLM endpoints under the load of an agent swarm; without a command, the app.

    \b
    Exit codes: 0 done; 1 a limit was missed; 2 wrong usage or a bad file;
    3 the endpoint could not be used; 4 stopped, what was measured is saved.
    """
    if context.invoked_subcommand is None:
        need_terminal()
        from swarmtui.tui.launch import set_up

        after(set_up(sessions_in(session_dir), slow=slow))


def session_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--session-dir", metavar="DIR", help="Where sessions are kept.")(command)


def slow_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--slow", is_flag=True, help="Two frames a second, for a thin line.")(command)


def sessions_in(directory: str | None) -> Path:
    from swarmtui.sessions.paths import sessions_root

    return Path(directory).resolve() if directory else sessions_root()


def as_text(value: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def need_terminal() -> None:
    from swarmtui.model.schema import BadInput

    if not is_terminal():
        raise BadInput("this needs a terminal; over SSH: ssh -t HOST swarmtui. Without one there is `swarmtui run`")


def after(outcome: Any) -> NoReturn:
    """What stays on the normal screen: the table and the path of each run that ended, or how to join again."""
    from swarmtui.headless.progress import progress_on
    from swarmtui.headless.run import report

    code = 0
    for ended in outcome.ended:
        code = report(ended, as_json=False, progress=progress_on(sys.stderr, False))
    if outcome.goes_on:
        click.echo(f"the run goes on: swarmtui attach {outcome.goes_on}", err=True)
    sys.exit(code)
