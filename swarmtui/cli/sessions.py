"""Commands on what was measured: sessions, compare, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from swarmtui.cli.app import sessions_in
from swarmtui.cli.options import Whole, as_text, commands, session_dir_option

# As `sessions.finding` and `sessions.export` have them; no command waits for those before its words are read.
BY = ("newest", "best", "model", "workload")
FORMATS = ("md", "csv", "json", "toml", "html", "png", "svg")


@commands.group(invoke_without_command=True)
@click.option("--find", metavar="WORDS", default="", help="Those that hold all words: id, label, model, tag, state …")
@click.option("--by", type=click.Choice(BY), default="newest", show_default=True, help="The order.")
@click.option("-n", "--most", type=Whole(1), metavar="N", help="So many at most.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def sessions(
    context: click.Context, find: str, by: Any, most: int | None, as_json: bool, session_dir: str | None
) -> None:
    """Saved sessions, newest first.

    \b
    swarmtui sessions --find 'qwen coding' --by best -n 10
    """
    context.obj = session_dir
    if context.invoked_subcommand is None:
        from swarmtui.cli.render.table import session_table
        from swarmtui.sessions.finding import ordered
        from swarmtui.sessions.store import list_sessions

        root = sessions_in(session_dir)
        every = list_sessions(root)
        rows = ordered(every, by, find)[:most]
        if as_json:
            click.echo(as_text(rows))
        elif rows:
            click.echo(session_table(rows), nl=False)
        else:
            click.echo(f"none of {len(every)} sessions holds {find!r}" if every else f"no sessions yet in {root}")


@sessions.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def show(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """One session: its figures, checks and events.

    SESSION is an id, the beginning of one, `last`, or `last~1` for the one before.
    """
    from swarmtui.cli.render.loads import loads_text
    from swarmtui.cli.render.machine import machine_table
    from swarmtui.cli.render.table import session_text
    from swarmtui.sessions.store import load, made_up_for, summary_json

    summary = made_up_for(load(sessions_in(session_dir or context.obj), session))
    tables = "\n\n".join(part.rstrip("\n") for part in (loads_text(summary), machine_table(summary.levels)) if part)
    text = summary_json(summary).decode() if as_json else session_text(summary, tables)
    click.echo(text, nl=as_json)


@sessions.command("save-to", short_help="Move a running session to another directory.")
@click.argument("session")
@click.argument("directory", type=click.Path(file_okay=False))
def save_to(session: str, directory: str) -> None:
    """Keep a running session in another directory from now on, with all that it has so far."""
    from swarmtui.client.client import move, running
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


@sessions.command("advice", short_help="What to try next, each with its evidence.")
@click.argument("session", default="last")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
@click.pass_context
def advice(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """What to try next, from the facts of a session alone, each with its evidence."""
    from swarmtui.cli.render.tuning import advice_text
    from swarmtui.experiments.advice import advice_of
    from swarmtui.sessions.store import load

    found = advice_of(load(sessions_in(session_dir or context.obj), session))
    click.echo(as_text(found) if as_json else advice_text(found), nl=as_json)


@sessions.command("log", short_help="The tuning log: changes, verdicts, kept or not.")
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
    from swarmtui.cli.render.tuning import log_text
    from swarmtui.experiments.tune_store import mark_change, read_log
    from swarmtui.model.schema import BadInput

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

    \b
    swarmtui compare last~1 last

    The replicates are runs; with A1+A2+… B1+B2+… they are sessions, and the verdict holds from one to the next.
    A SESSION may also be a result file (.json) of vllm bench serve, GuideLLM or AIPerf.
    """
    from swarmtui.analysis.compare.sessions import compare as side_by_side
    from swarmtui.cli.render.comparison import comparison_text
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
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: as the name after -o ends]")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The file; - is stdout.  [default: stdout]")
@click.option("--chart", metavar="NAME", help="One chart alone (png, svg): throughput ttft contention radar gpu …")
@session_dir_option
def export(session: tuple[str, ...], form: Any, output: str | None, chart: str | None, session_dir: str | None) -> None:
    """A session as a file for others; several beside each other (md, html, png, svg).

    \b
    swarmtui export last -o report.html
    swarmtui export last~1 last -o compared.md

    png and svg need matplotlib (pip install matplotlib); html has its charts without it.
    """
    from swarmtui.model.schema import BadInput
    from swarmtui.sessions.export import BINARY
    from swarmtui.sessions.export import export as render
    from swarmtui.sessions.store import load

    if form is None:
        form = Path(output or "").suffix.removeprefix(".")
        if form not in FORMATS:
            raise BadInput(f"say which, or name a file with -o that ends in one: {', '.join(FORMATS)}", key="--format")
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
