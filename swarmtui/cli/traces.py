"""The commands `traces show` and `traces record`."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CheckedGroup, CollectingCommand, check_each, mistakes_of
from swarmtui.cli.options import commands, print_result
from swarmtui.model.base import BadInput, writing
from swarmtui.text import count_noun, echo

_MAX_NAMED = 10
_NO_LOGS = (
    "give the file or directory of the logs as PATH, or use the agents that come with swarmtui: "
    "swarmtui run --workload agents"
)

if TYPE_CHECKING:
    from swarmtui.prompts.traces.agent_logs import CodingAgent


class _ShowByDefault(CheckedGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@commands.group(cls=_ShowByDefault, invoke_without_command=True)
@click.pass_context
def traces(context: click.Context) -> None:
    """Describe recorded agent sessions, or record them from the logs of your coding agent.

    `swarmtui traces TRACE...` means `traces show TRACE...`.
    """
    if context.invoked_subcommand is None:
        echo(context.get_help())


@traces.command(cls=CollectingCommand)
@click.argument("paths", nargs=-1, required=True, metavar="TRACE...")
@shared.json
def show(paths: tuple[str, ...], as_json: bool) -> None:
    """Describe traces: lengths, think times, sub-agents, prefix-cache hit rate.

    TRACE is a file, a directory, or a workload that replays a trace, such as agents. Formats: Weka .json,
    Mooncake, Bailian, agentperf and OpenTelemetry GenAI .jsonl, Azure and BurstGPT .csv.
    """
    from swarmtui.analysis.trace_stats import trace_stats
    from swarmtui.prompts.library import find_traces
    from swarmtui.prompts.traces.reader import read_sessions
    from swarmtui.report.lists import trace_blocks

    found = trace_stats(read_sessions(chain(*check_each(find_traces, *paths))))
    print_result(found, trace_blocks(found), as_json=as_json)


@traces.command(cls=CollectingCommand)
@click.option("--from", "agent", required=True, type=click.Choice(["claude-code", "codex"]), help="Whose logs to read.")
@click.option(
    "--output",
    default="traces",
    show_default=True,
    metavar="DIR",
    help="New directory for the traces, one per session.",
)
@click.argument("path", required=False)
@click.pass_context
def record(context: click.Context, agent: CodingAgent, output: str, path: str | None) -> None:
    """Make traces from the logs of a coding agent: lengths, times and sub-agents, but no text.

    PATH is a log file or directory; by default, the directory in which the agent keeps its logs.
    """
    from swarmtui.files import make_private_directory
    from swarmtui.prompts.traces.agent_logs import LOG_FOLDERS, record_sessions
    from swarmtui.prompts.traces.weka import read_weka, weka_json

    mistakes, directory = mistakes_of(context), Path(output).expanduser()
    if directory.exists():
        mistakes.found.append(BadInput(f"{output} already exists; choose a new directory", key="--output"))
    logs = Path(path or LOG_FOLDERS.get(agent, "")).expanduser()
    if not logs.exists():
        mistakes.found.append(BadInput(f"no logs of {agent or 'an agent'} here; {_NO_LOGS}", source=str(logs)))
    mistakes.raise_all()
    count, left_out = 0, list[str]()
    with writing(output):
        for session in record_sessions(agent, logs, left_out.append):
            make_private_directory(directory)
            file = directory / f"{session.id}.json"
            file.write_bytes(weka_json(session))
            try:
                list(read_weka(file))
            except BadInput as error:
                file.unlink()
                left_out.append(f"a session of {count_noun(len(session.requests), 'call')}: {error.problem}")
                continue
            count += 1
    for problem in left_out[:_MAX_NAMED]:
        echo(f"left out: {problem}", err=True)
    if len(left_out) > _MAX_NAMED:
        echo(f"left out: {len(left_out) - _MAX_NAMED:,} more", err=True)
    if not count:
        with suppress(OSError):
            directory.rmdir()  # else the same command would be refused
        raise BadInput(f"no session with calls of a model found; {_NO_LOGS}", source=str(logs))
    echo(f"{count_noun(count, 'session')} recorded: {directory}\nsee them: swarmtui traces show {directory}")
