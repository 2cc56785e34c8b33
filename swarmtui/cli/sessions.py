"""The commands `sessions`, `compare` and `export`, on saved sessions."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CollectingCommand, check_each, mistakes_of
from swarmtui.cli.options import OutputFile, WholeNumber, commands, parse_share, print_blocks, print_result, to_json
from swarmtui.model.base import BadInput, writing
from swarmtui.report import FORMATS, format_of
from swarmtui.text import echo, write_document

if TYPE_CHECKING:
    from swarmtui.model.session import Summary
    from swarmtui.report.table import Block

# A copy of the choices in `sessions.index`, so that --help does not import it.
BY = ("newest", "best", "model", "workload")


@commands.group(invoke_without_command=True)
@click.option(
    "--find", metavar="WORDS", default="", help="Only sessions that match all words, in id, label, model, tag, state …"
)
@click.option("--by", type=click.Choice(BY), default="newest", show_default=True, help="Sort order.")
@click.option("-n", "--most", type=WholeNumber(1), metavar="N", help="List at most N.")
@click.option("--all", "every", is_flag=True, help="Also list each session of an experiment.")
@shared.json
@shared.root
@click.pass_context
def sessions(
    context: click.Context, find: str, by: Any, most: int | None, every: bool, as_json: bool, root: Path
) -> None:
    """List saved sessions, newest first; the sessions of an A/B test, a tune or a series of probes are one line.

    \b
    swarmtui sessions --find 'qwen coding' --by best -n 10
    """
    context.obj = str(root)
    if context.invoked_subcommand is None:
        from swarmtui.experiments.groups import describe_groups, group_id, group_sessions, list_rows, session_flags
        from swarmtui.experiments.store import baseline_effects
        from swarmtui.report.session_list import session_list
        from swarmtui.sessions.index import list_sessions, search_sessions

        saved = list_sessions(root)
        found = search_sessions(saved, by, find)
        if as_json:
            echo(to_json([msgspec.to_builtins(row) | {"group": group_id(row) or None} for row in found[:most]]))
        elif found:
            rows = list_rows(group_sessions(found, describe_groups(root, found))[:most], None if every else ())
            print_blocks(session_list(rows, session_flags(saved), baseline_effects(root)))
        else:
            echo(f"none of {len(saved)} sessions matches {find!r}" if saved else f"no sessions yet in {root}")


@sessions.command(cls=CollectingCommand)
@click.argument("session")
@shared.json
@shared.root
def show(session: str, as_json: bool, root: Path) -> None:
    """Show one session: its levels, checks and events.

    SESSION is an id, the beginning or end of one, `last` for the last one that measured a level, or `last~1` for the
    complete one before it of the same endpoint and kind. Sessions of `ab`, `tune` and `probe` are never the last one,
    unless there are no others.
    """
    from swarmtui.experiments.baseline import use_baseline
    from swarmtui.model.session import Summary
    from swarmtui.report.session import session_blocks
    from swarmtui.sessions.documents import summary_json
    from swarmtui.sessions.store import ensure_summary, open_session

    (found,) = check_each(partial(open_session, root), session)
    summary = found if isinstance(found, Summary) else ensure_summary(found)
    if as_json:
        echo(summary_json(summary).decode())
        return
    compared: list[Block] = []
    if not isinstance(found, Summary):
        summary = use_baseline(found.directory.parent, found.directory, summary)
        compared = _baseline_blocks(found.directory, summary)
    print_blocks([*session_blocks(summary), *compared])


def _baseline_blocks(directory: Path, summary: Summary) -> list[Block]:
    """Say what changed since the baseline of a session, and the verdict; nothing if it has none that can be read."""
    from swarmtui.experiments.baseline import baseline_verdict
    from swarmtui.report.table import Sentence

    if not summary.levels:
        return []
    try:
        found = baseline_verdict(directory.parent, directory)
    except BadInput:
        return []
    return [Sentence(f"compared with {found.before}: {found.what}", "title"), Sentence(found.effect)]


@sessions.command("import", cls=CollectingCommand, short_help="Add sessions that others shared.")
@click.argument("file", nargs=-1, required=True, type=click.Path(dir_okay=False))
@shared.root
def import_files(file: tuple[str, ...], root: Path) -> None:
    """Add shared files (.swarm.json.gz) to the list, where they can be shown, compared and be a baseline.

    \b
    swarmtui sessions import box.swarm.json.gz
    """
    from swarmtui.sessions.shared_file import import_shared, read_shared

    check_each(read_shared, *map(Path, file))
    for path in file:
        echo(f"imported {import_shared(Path(path), root)}")


@sessions.command("save-to", cls=CollectingCommand, short_help="Move a running session to another directory.")
@click.argument("session")
@click.argument("directory", type=click.Path(file_okay=False))
def save_to(session: str, directory: str) -> None:
    """Move a running session to another directory; it is saved there from now on."""
    from swarmtui.client.session_client import move_session, running_sessions

    def find_running(beginning: str) -> str:
        found = [name for name in running_sessions() if name.startswith(beginning)]
        if len(found) == 1:
            return found[0]
        problem = f"matches several sessions: {', '.join(found)}" if found else "no such session is running"
        raise BadInput(problem, key=beginning)

    (found,) = check_each(find_running, session)
    echo(f"moved; from now on saved in {move_session(found, Path(directory).resolve())}")


@sessions.command(cls=CollectingCommand)
@click.argument("session", nargs=-1, required=True)
@shared.root
def rm(session: tuple[str, ...], root: Path) -> None:
    """Delete sessions permanently; a running session is refused."""
    from swarmtui.sessions.store import find_name, remove_session

    for name in check_each(partial(find_name, root), *session):
        echo(f"removed {remove_session(root, name)}")


@sessions.command("advice", cls=CollectingCommand, short_help="What to try next, with evidence.")
@click.argument("session", default="last")
@shared.json
@shared.root
def advice(session: str, as_json: bool, root: Path) -> None:
    """Suggest what to try next, with the evidence found in the session.

    --json has the session as `session` and what to try as `next`.
    """
    from swarmtui.experiments.baseline import use_baseline
    from swarmtui.report.answer import advice_blocks
    from swarmtui.sessions.index import live_row
    from swarmtui.sessions.store import read_session

    (summary,) = check_each(partial(read_session, root), session)
    summary = use_baseline(root, root / summary.session.id, summary)
    row = live_row(summary.session, None)
    named = {name: getattr(row, name) for name in ("id", "label", "endpoint", "kind", "model", "workload")}
    found = {"session": named, "next": summary.answer.next if summary.answer else ()}
    print_result(found, advice_blocks(summary), as_json=as_json)


@sessions.command("log", cls=CollectingCommand, short_help="The tuning log: changes, verdicts, kept or reverted.")
@click.argument("number", type=WholeNumber(), required=False)
@click.option("--kept", "mark", flag_value="kept", help="Mark change NUMBER as kept.")
@click.option("--reverted", "mark", flag_value="reverted", help="Mark change NUMBER as reverted.")
@click.option("--note", metavar="TEXT", help="Add a note to change NUMBER.")
@shared.json
@shared.root
@click.pass_context
def change_log(
    context: click.Context, number: int | None, mark: Any, note: str | None, as_json: bool, root: Path
) -> None:
    """Show the tuning log: each change, its effect, and whether it was kept."""
    from swarmtui.experiments.store import find_change, mark_change, read_log
    from swarmtui.report.tuning import log_blocks

    mistakes = mistakes_of(context)
    if number is not None:
        mistakes.catch(find_change, root, number)
    elif (mark or note is not None) and not any(error.key == "NUMBER" for error in mistakes.found):
        problem = "give the number of the change; it is in the first column of `swarmtui sessions log`"
        mistakes.found.append(BadInput(problem, key="sessions log"))
    mistakes.raise_all()
    if number is not None:
        mark_change(root, number, mark, note)
    changes = read_log(root)
    print_result(changes, log_blocks(changes), as_json=as_json)


@commands.command(cls=CollectingCommand)
@click.argument("session", nargs=-1)
@click.option("--baseline", metavar="SESSION|FILE", help="Session to compare the others with.  [default: the first]")
@shared.detect
@shared.json
@shared.root
@click.pass_context
def compare(
    context: click.Context, /, session: tuple[str, ...], baseline: str | None, detect: str, as_json: bool, root: Path
) -> None:
    """Compare sessions: what differs between them, their levels side by side, and one verdict per level.

    \b
    swarmtui compare
    swarmtui compare 20261115-014455-3f9a 8c12
    swarmtui compare box.swarm.json.gz last

    Without SESSION it is the last one; a single one is compared with its baseline, else with the one before it of the
    same model and workload, and a single shared file with the last one. SESSION is an id, the beginning or end of one,
    `last`, or `last~1`.

    With one session per side, the verdict is about these two sessions. It is based on their runs or, if
    there are earlier sessions of the same configuration, on the spread between those. With A1+A2+… B1+B2+…, at least
    four per side, sessions are compared instead of runs; `swarmtui ab` runs them interleaved. SESSION may also be a
    file that somebody shared (.swarm.json.gz), or a result file (.json) of vllm bench serve, GuideLLM or AIPerf.
    """
    from swarmtui.analysis.compare.differences import session_names
    from swarmtui.analysis.compare.sessions import compare as compare_sessions
    from swarmtui.analysis.compare.verdicts import DETECT
    from swarmtui.model.shared import SHARED_SUFFIX
    from swarmtui.report.comparison import closing_answers, comparison_blocks
    from swarmtui.report.text import fits_terminal
    from swarmtui.sessions.store import LAST, earlier_sessions, read_summary, with_session_beside

    mistakes = mistakes_of(context)
    detected = mistakes.catch(parse_share, detect) or DETECT
    session = session or (LAST,)
    names = (baseline, *session) if baseline and baseline not in session else session
    if len(names) < 2 and names[0].endswith(SHARED_SUFFIX):
        names = (*names, LAST)
    elif len(names) < 2:
        names, baseline = mistakes.catch(with_session_beside, root, names[0]) or (), None
    read = [mistakes.catch(read_summary, root, name) for name in names]
    mistakes.raise_all()
    summaries = [summary for summary in read if summary is not None]
    index = names.index(baseline) if baseline else 0
    found = compare_sessions(
        summaries, index, history=earlier_sessions(root, [summary.session for summary in summaries]), detect=detected
    )
    named = dict(zip(found.sessions, session_names(summaries), strict=True))
    blocks = comparison_blocks(found, named)
    if not as_json and not fits_terminal(blocks):
        blocks += closing_answers(found, named)
    print_result(found, blocks, as_json=as_json)


@commands.command(cls=CollectingCommand)
@click.argument("session", nargs=-1, required=True)
@click.option("--format", "form", metavar="|".join(FORMATS), help="[default: the suffix of the output file]")
@click.option("-o", "--output", type=OutputFile(), help="Output file; - is stdout.  [default: stdout]")
@click.option("--chart", metavar="NAME", help="A single chart as an image: throughput ttft contention pareto gpu …")
@shared.root
@click.pass_context
def export(
    context: click.Context,
    /,
    session: tuple[str, ...],
    form: str | None,
    output: str | None,
    chart: str | None,
    root: Path,
) -> None:
    """Export a session as a file, or several side by side (md, openmetrics, html, svg).

    \b
    swarmtui export last -o report.html
    swarmtui export last~1 last -o compared.md
    swarmtui export last --format openmetrics | curl --data-binary @- http://GATEWAY:9091/metrics/job/swarmtui
    """
    from swarmtui.report import check_export
    from swarmtui.report import export as render
    from swarmtui.sessions.store import open_session

    mistakes = mistakes_of(context)
    form = mistakes.catch(format_of, Path(output or "").suffix.removeprefix(".") if form is None else form) or ""
    if form:
        mistakes.catch(check_export, form, len(session), chart)
    found = [mistakes.catch(open_session, root, name) for name in session]
    mistakes.raise_all()
    if output is None and FORMATS[form].binary:
        if sys.stdout.isatty():
            raise BadInput("is binary and cannot be shown on a terminal; give a file with -o", key=f"--format {form}")
        output = "-"
    content = render([one for one in found if one is not None], form, chart)
    if output in (None, "-"):
        write_document(sys.stdout, content)
        return
    with writing(str(output)):
        Path(str(output)).write_bytes(content)
