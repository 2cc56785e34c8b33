"""The command `share`: a card, a post and one file to send, of a session without anything private."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CollectingCommand, mistakes_of
from swarmtui.cli.options import OutputFile, WholeNumber, commands, print_blocks, to_json
from swarmtui.model.base import BadInput, writing
from swarmtui.text import echo

# A copy of those in `report.leaderboards`, so that --help does not import it.
LEADERBOARDS = ("localmaxxing", "mlperf-endpoints")


@commands.command(cls=CollectingCommand)
@click.argument("session", default="last")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputFile(),
    metavar="FILE",
    help="What to write, by the end of the name: .png .svg (card), .md (post), .swarm.json.gz (all figures); "
    "repeatable.  [default: all four, in the current directory]",
)
@click.option("--to", "leaderboard", type=click.Choice(LEADERBOARDS), help="Write a file for this leaderboard instead.")
@click.option("--level", type=WholeNumber(1), metavar="C", help="With --to: the level to write.")
@click.option("--label", default="", metavar="TEXT", help="A title to show; that of the session is not shared.")
@click.option("--model", default="", metavar="NAME", help="Name of the model to show.  [default: that of the server]")
@shared.json
@shared.root
@click.pass_context
def share(
    context: click.Context,
    /,
    session: str,
    outputs: tuple[str, ...],
    leaderboard: str | None,
    level: int | None,
    label: str,
    model: str,
    as_json: bool,
    root: Path,
) -> None:
    """Make a card, a post and one file to send of a session, and list what is in them.

    \b
    swarmtui share
    swarmtui share last -o card.png -o box.swarm.json.gz --label '2 × 3090, undervolted'
    swarmtui share box.swarm.json.gz -o card.svg

    They hold figures, hardware, engine, model, flags and workload; no prompts, answers, addresses, names of hosts and
    users, paths, keys, labels or notes. SESSION is an id, `last`, or a shared file. Others read the file with
    `swarmtui compare FILE last`, `swarmtui run --baseline FILE` or `swarmtui sessions import FILE`.
    Nothing is sent anywhere.
    """
    from swarmtui.report.leaderboards import LEADERBOARDS as known
    from swarmtui.report.sharing import default_names, prepare, render_files, shared_blocks, shared_format

    mistakes = mistakes_of(context)
    found = mistakes.catch(prepare, root, session, label=label, model=model)
    file = mistakes.catch(known[leaderboard], found.summary, level) if leaderboard and found else None
    if leaderboard is not None and len(outputs) > 1:
        mistakes.found.append(BadInput("one file is written with --to", key="-o"))
    elif leaderboard is None and not any(error.key == "--to" for error in mistakes.found):
        if level is not None:
            mistakes.found.append(BadInput("is for --to", key="--level"))
        for name in outputs:
            mistakes.catch(shared_format, name)
    mistakes.raise_all()
    assert found is not None  # else there was a mistake
    remarks: tuple[str, ...] = ()
    if file is None:
        names = list(outputs) or default_names(found)
        contents: Iterable[bytes] = render_files(found, names)
    else:
        names = list(outputs) or [f"{found.summary.session.id}.{leaderboard}.json"]
        contents, remarks = [file.content], file.remarks
        # It has a few figures of the session, which the user can read.
        found = found._replace(contains=())
    for name, content in zip(names, contents, strict=True):
        with writing(name):
            Path(name).write_bytes(content)
    if as_json:
        echo(to_json({"files": names, "contains": dict(found.contains), "left_out": found.left_out, "notes": remarks}))
        return
    hint = "--label TEXT and --model NAME are shown as you type them." if leaderboard is None else ""
    print_blocks(shared_blocks(found, ", ".join(names), remarks, hint))
