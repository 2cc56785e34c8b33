"""Commands that open the app on a run: demo, attach, replay."""

from __future__ import annotations

import click

from swarmtui.cli.app import after, is_terminal, need_terminal, sessions_in
from swarmtui.cli.options import commands, session_dir_option, slow_option

_DEMO = "sim:qwen36-27b-2x?speed=4"


@commands.command()
@slow_option
@session_dir_option
def demo(slow: bool, session_dir: str | None) -> None:
    """The app on the embedded simulator, a sweep already running: no GPU and no server needed."""
    from swarmtui.model.plan import Plan, Requests
    from swarmtui.model.run_request import Order

    plan = Plan(levels=(1, 2, 4, 8), runs=2, requests=Requests(count=4), warmup=2)
    order = Order(
        endpoints=(_DEMO,),
        workload="coding",
        plan=plan,
        session_root=str(sessions_in(session_dir)),
        label="demo",
    )
    if not is_terminal():
        from swarmtui.cli.run import run

        click.get_current_context().invoke(run, endpoints=(_DEMO,), session_dir=session_dir, label="demo")
    from swarmtui.tui.launch import run_order

    after(run_order(order, slow=slow))


@commands.command()
@click.argument("session", required=False)
@slow_option
@session_dir_option
def attach(session: str | None, slow: bool, session_dir: str | None) -> None:
    """Join a running session; without SESSION the only one, or a list of them."""
    from swarmtui.client.client import running
    from swarmtui.model.schema import BadInput

    found = [name for name in running() if session is None or name.startswith(session)]
    if not found:
        raise BadInput("no session is running" if session is None else "no such session is running", key=session or "")
    if len(found) > 1:
        from swarmtui.tui.launch import describe

        click.echo("several are running; join one with `swarmtui attach ID`:\n" + "\n".join(describe(found)))
        return
    need_terminal()
    from swarmtui.tui.launch import join

    after(join(found[0], slow=slow))


@commands.command()
@click.argument("session", default="last")
@slow_option
@session_dir_option
def replay(session: str, slow: bool, session_dir: str | None) -> None:
    """Watch a saved session again. SESSION is an id, the beginning of one, or `last`."""
    need_terminal("sessions show")
    from swarmtui.tui.launch import watch_again

    watch_again(sessions_in(session_dir), session, slow=slow)
