"""The commands `demo`, `attach` and `replay`, which open the app on a session."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from swarmtui.cli import options as shared
from swarmtui.cli.app import is_terminal, report_and_exit, require_terminal, session_root
from swarmtui.cli.checked import CollectingCommand, check_each
from swarmtui.cli.options import commands
from swarmtui.model.base import BadInput
from swarmtui.text import echo

_DEMO = "sim:qwen36-27b-2x?speed=4"


@commands.command()
@shared.slow
@shared.session_dir
def demo(slow: bool, session_dir: str | None) -> None:
    """Open the app on the embedded simulator with a sweep running; needs no GPU or server."""
    from swarmtui.model.load import Closed
    from swarmtui.model.plan import Plan
    from swarmtui.model.run_request import RunRequest

    plan = Plan(load=Closed(runs=2, warmup=2))
    request = RunRequest(
        endpoints=(_DEMO,), workload="coding", plan=plan, session_root=str(session_root(session_dir)), label="demo"
    )
    if not is_terminal():
        from swarmtui.cli.run import run

        click.get_current_context().invoke(run, endpoints=(_DEMO,), session_dir=session_dir, label="demo")
    from swarmtui.tui.launch import open_run

    report_and_exit(open_run(request, slow=slow))


@commands.command(cls=CollectingCommand)
@click.argument("session", required=False)
@shared.slow
@shared.root
def attach(session: str | None, slow: bool, root: Path) -> None:
    """Open the app on a running session.

    SESSION is an id or the beginning of one; without it, the only running session.
    """
    from swarmtui.client.session_client import running_sessions

    def find_running(beginning: str) -> list[str]:
        if found := [name for name in running_sessions() if name.startswith(beginning)]:
            return found
        raise BadInput("no such session is running" if beginning else "no session is running", key=beginning)

    (found,) = check_each(find_running, session or "")
    if len(found) > 1:
        from swarmtui.tui.launch import describe_sessions

        echo("\n".join(describe_sessions(found)), err=True)
        raise BadInput("several sessions are running; choose one of these with `swarmtui attach ID`")
    require_terminal()
    from swarmtui.tui.launch import open_attached

    report_and_exit(open_attached(found[0], slow=slow))


@commands.command(cls=CollectingCommand)
@click.argument("session", default="last")
@shared.slow
@shared.root
def replay(session: str, slow: bool, root: Path) -> None:
    """Replay a saved session in the app.

    SESSION is an id, the beginning of one, or `last`.
    """
    from swarmtui.sessions.replay import open_replay

    (found,) = check_each(partial(open_replay, root), session)
    require_terminal("sessions show")
    from swarmtui.tui.launch import open_replayed

    open_replayed(found, root, slow=slow)
