"""Commands on what was measured: sessions, compare, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from swarmtui.cli.opening import sessions_in
from swarmtui.cli.root import as_text, commands, session_dir_option


@commands.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def sessions(context: click.Context, as_json: bool, session_dir: str | None) -> None:
    """Saved sessions, newest first."""
    context.obj = session_dir
    if context.invoked_subcommand is None:
        from swarmtui.headless.table import session_table
        from swarmtui.sessions.store import list_sessions

        rows = list_sessions(sessions_in(session_dir))
        click.echo(as_text(rows) if as_json else session_table(rows), nl=as_json)


@sessions.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def show(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """One session: its figures, its events. SESSION is an id, the beginning of one, or `last`."""
    from swarmtui.headless.loads import loads_text
    from swarmtui.headless.machine import machine_table
    from swarmtui.headless.table import session_text
    from swarmtui.sessions.store import load, made_up_for, summary_json

    summary = made_up_for(load(sessions_in(session_dir or context.obj), session))
    tables = "\n\n".join(part.rstrip("\n") for part in (loads_text(summary), machine_table(summary.levels)) if part)
    text = summary_json(summary).decode() if as_json else session_text(summary, tables)
    click.echo(text, nl=as_json)


@sessions.command("save-to")
@click.argument("session")
@click.argument("directory", type=click.Path(file_okay=False))
def save_to(session: str, directory: str) -> None:
    """Keep a running session in another directory from now on, with all that it has so far."""
    from swarmtui.conductor.client import move, running
    from swarmtui.model.schema import BadInput

    found = [name for name in running() if name.startswith(session)]
    if len(found) != 1:
        raise BadInput("no such session is running" if not found else f"fits {', '.join(found)}", key=session)
    click.echo(f"saved from now on in {move(found[0], Path(directory).resolve())}")


@sessions.command()
@click.argument("session", nargs=-1, required=True)
@session_dir_option
@click.pass_context
def rm(context: click.Context, session: tuple[str, ...], session_dir: str | None) -> None:
    """Remove sessions for good; one that runs is left alone."""
    from swarmtui.sessions.store import remove

    for name in session:
        click.echo(f"removed {remove(sessions_in(session_dir or context.obj), name)}")


@sessions.command("advice")
@click.argument("session", default="last")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def advice(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """What to try next, from the facts of a session alone, each with its evidence."""
    from swarmtui.headless.tuning_text import advice_text
    from swarmtui.sessions.store import load
    from swarmtui.tuning.advice import advice_of

    found = advice_of(load(sessions_in(session_dir or context.obj), session))
    click.echo(as_text(found) if as_json else advice_text(found), nl=as_json)


@sessions.command("log")
@click.argument("number", type=int, required=False)
@click.option("--kept", "mark", flag_value="kept", help="Change NUMBER stays.")
@click.option("--reverted", "mark", flag_value="reverted", help="Change NUMBER was taken back.")
@click.option("--note", metavar="TEXT", help="Why.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def change_log(
    context: click.Context, number: int | None, mark: Any, note: str | None, as_json: bool, session_dir: str | None
) -> None:
    """The tuning log: what was changed, what it gave, and whether it was kept."""
    from swarmtui.headless.tuning_text import log_text
    from swarmtui.model.schema import BadInput
    from swarmtui.tuning.kept import mark_change, read_log

    root = sessions_in(session_dir or context.obj)
    if number is not None:
        mark_change(root, number, mark, note)
    elif mark or note is not None:
        raise BadInput("say of which change: its number stands in the first column", key="sessions log")
    changes = read_log(root)
    click.echo(as_text(changes) if as_json else log_text(changes), nl=as_json)


@commands.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--baseline", metavar="SESSION", help="What the others are held against.  [default: the first]")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
def compare(session: tuple[str, ...], baseline: str | None, as_json: bool, session_dir: str | None) -> None:
    """Sessions side by side, with what differs between them and a verdict from their runs.

    The replicates are runs; with A1+A2+… B1+B2+… they are sessions, and the verdict holds from one to the next.
    A SESSION may also be a result file (.json) of vllm bench serve, GuideLLM or AIPerf.
    """
    from swarmtui.analysis.compare import compare as side_by_side
    from swarmtui.headless.comparison import comparison_text
    from swarmtui.model.schema import BadInput
    from swarmtui.sessions.sources import summary_of

    names = (baseline, *session) if baseline and baseline not in session else session
    if len(names) < 2:
        raise BadInput("two sessions at least are needed", key="compare")
    summaries = [summary_of(sessions_in(session_dir), name) for name in names]
    found = side_by_side(summaries, names.index(baseline) if baseline else 0)
    click.echo(as_text(found) if as_json else comparison_text(found), nl=as_json)


@commands.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--format", "form", required=True, type=click.Choice(["md", "csv", "json", "toml", "html", "png", "svg"]))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The file; - is stdout.  [default: stdout]")
@click.option("--chart", help="One chart alone (png, svg): throughput ttft contention degradation radar …")
@session_dir_option
def export(session: tuple[str, ...], form: Any, output: str | None, chart: str | None, session_dir: str | None) -> None:
    """A session as a file for others; charts of several lie over each other (html, png, svg).

    png and svg need matplotlib: pip install 'swarmtui[charts]'.
    """
    from swarmtui.model.schema import BadInput
    from swarmtui.sessions.export import BINARY
    from swarmtui.sessions.export import export as render
    from swarmtui.sessions.store import load

    if output is None and form in BINARY:
        if sys.stdout.isatty():
            raise BadInput("is not for a terminal; name a file with -o", key=f"--format {form}")
        output = "-"
    content = render([load(sessions_in(session_dir), name) for name in session], form, chart)
    if output in (None, "-"):
        sys.stdout.buffer.write(content)
        return
    try:
        Path(str(output)).write_bytes(content)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(output)) from None
