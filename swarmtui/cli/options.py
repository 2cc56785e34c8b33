"""The command group, and options that commands share. Imports are inside functions to keep --help fast."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from swarmtui.cli.app import open_app, session_root
from swarmtui.cli.checked import CheckedGroup
from swarmtui.model.base import BadInput
from swarmtui.text import echo
from swarmtui.version import __version__

if TYPE_CHECKING:
    from swarmtui.report.table import Block

# Name: module and one-line help, in the order in which a new user needs them.
_COMMANDS = {
    "demo": ("live", "open the app on the embedded simulator; needs no GPU or server"),
    "discover": ("catalogue", "list inference servers found on this host"),
    "doctor": ("catalogue", "check whether this machine is ready to measure"),
    "quick": ("search", "how many agents, why no more, what to try next: in about a minute"),
    "limits": ("limits", "what the hardware allows for a model, without any load"),
    "run": ("run", "benchmark an endpoint without the app"),
    "capacity": ("search", "find how many agents a server carries within an SLO"),
    "attach": ("live", "open the app on a running session"),
    "replay": ("live", "replay a saved session in the app"),
    "sessions": ("sessions", "saved sessions: list, show, import, save-to, rm, advice, log"),
    "compare": ("sessions", "compare sessions, with a verdict"),
    "export": ("sessions", "export a session as a report, data or charts"),
    "share": ("share", "a card, a post and one file to send, without anything private"),
    "ab": ("experiments", "find out which of two servers is faster"),
    "tune": ("experiments", "measure a grid of server flags"),
    "probe": ("run", "one short timed run, once or at intervals, with a history"),
    "workloads": ("catalogue", "prompts to send: list, show, check"),
    "traces": ("traces", "recorded agent sessions: show, record"),
    "schema": ("catalogue", "JSON Schema of journals, sessions, shared files, workloads and config"),
    "sim": ("catalogue", "run the embedded simulator as a server"),
    "skill": ("catalogue", "how a coding agent uses swarmtui: a page to give to it"),
    "completion": ("catalogue", "completion of commands and options, for bash, zsh and fish"),
}


# A shell sets it to ask what completes a command line.
COMPLETE_VARIABLE = "_SWARMTUI_COMPLETE"

# Larger numbers are not exact in JSON, and cannot be sent to another process.
_MAX_INTEGER = 10**15 - 1


class WholeNumber(click.IntRange):
    """An integer in a range; error messages call it a whole number."""

    name = "whole number"

    def __init__(self, min: int | None = None, max: int | None = None) -> None:
        super().__init__(-_MAX_INTEGER if min is None else min, _MAX_INTEGER if max is None else max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if re.fullmatch(r"-?\d{16,}", str(value)):
            self.fail(f"{value} has too many digits.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        """Omit the limits of all whole numbers."""
        low = f"x>={self.min}" if self.min != -_MAX_INTEGER else ""
        high = f"x<={self.max}" if self.max != _MAX_INTEGER else ""
        return super()._describe_range() if low and high else low or high


class OutputFile(click.Path):
    """A file to write, whose directory exists: what is written after an hour of measuring would be lost otherwise."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        directory = Path(value).parent
        if not directory.is_dir():
            self.fail(f"there is no directory {directory}; create it first", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    name = "number"


class CommandGroup(CheckedGroup):
    """Import the module of a command only when that command is used, to keep start-up fast."""

    group_class = CheckedGroup

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _COMMANDS:
            import_module(f"swarmtui.cli.{_COMMANDS[name][0]}")
        return super().get_command(context, name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing their modules."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=line) for name, (_, line) in _COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands (details: swarmtui COMMAND --help)"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, message="swarmtui %(version)s")
@click.option("--slow", is_flag=True, help="Two frames per second, for slow connections.")
@click.option("--session-dir", metavar="DIR", help="Where the app keeps sessions; commands have this option, too.")
@click.pass_context
def commands(context: click.Context, slow: bool, session_dir: str | None) -> None:
    """Benchmark LLM endpoints under the load of an agent swarm, live. Without a command, open the app.

    \b
    Exit codes: 0 done; 1 a limit of --slo or --fail-if was missed; 2 wrong usage or a bad file;
    3 the endpoint could not be used; 4 stopped by the user or a signal (results are saved);
    70 an internal error of swarmtui.
    """
    if context.invoked_subcommand in _COMMANDS_WITH_DEFAULTS:
        context.default_map = {context.invoked_subcommand: config_defaults(context.invoked_subcommand)}
    if context.invoked_subcommand is None:
        open_app(session_dir, slow=slow)


_COMMANDS_WITH_DEFAULTS = ("run", "quick", "capacity", "probe", "ab")
_ONLY_FOR_RUN = ("runs", "levels", "canaries", "precision")
# Mutually exclusive: one on the command line overrides another from config.toml.
_EXCLUSIVE_OPTIONS = (
    ("requests", "duration", "precision"),
    ("rate", "canaries"),
    ("rate", "precision"),
    ("levels", "rate", "find_cliff"),
)


def config_defaults(command: str) -> dict[str, Any]:
    """The [defaults] of config.toml that apply to a command."""
    from swarmtui.files import config_path

    if not config_path().exists():  # avoids importing the reader
        return {}
    from swarmtui.client.config_file import read_config

    options = read_config().defaults.options()
    return {name: value for name, value in options.items() if command == "run" or name not in _ONLY_FOR_RUN}


def drop_overridden_defaults(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Reset options that come from config.toml where the command line has one that excludes them."""
    sources = {name: context.get_parameter_source(name) for group in _EXCLUSIVE_OPTIONS for name in group}
    typed, from_config = click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT_MAP
    dropped = [
        name
        for group in _EXCLUSIVE_OPTIONS
        if any(sources[other] is typed for other in group)
        for name in group
        if sources[name] is from_config
    ]
    return options | dict.fromkeys(dropped)


def complete(context: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the name of an API, a preset of the simulator or a workload; that may also be a file."""
    from swarmtui.model.endpoint import AUTO, PATHS
    from swarmtui.prompts.library import builtin_workloads
    from swarmtui.sim.presets import list_presets

    if param.name == "api":
        names = [*PATHS, AUTO]
    elif param.name == "preset":
        names = [preset.name for preset in list_presets()]
    else:
        names = [found.workload.name for found in builtin_workloads()]
    found = [CompletionItem(name) for name in names if name.startswith(typed)]
    return found or ([CompletionItem(typed, "file")] if param.name == "workload" else [])


_SESSION_DIR: dict[str, Any] = {
    "metavar": "DIR",
    "help": "Where sessions are saved.  [default: swarmtui/sessions in $XDG_DATA_HOME or ~/.local/share]",
}
session_dir = click.option("--session-dir", **_SESSION_DIR)
# The same, resolved; commands below `sessions` take its option if they have none.
root = click.option(
    "--session-dir", "root", callback=lambda context, param, value: session_root(value or context.obj), **_SESSION_DIR
)
slow = click.option("--slow", is_flag=True, help="Two frames per second, for slow connections.")
json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
events = click.option(
    "--events",
    type=click.Choice(["jsonl"]),
    help="Print one JSON object a line on stdout for each level, verdict and warning; the table goes to stderr. See "
    "`swarmtui schema events`.",
)
addresses = click.argument("addresses", metavar="[ENDPOINT]", nargs=-1)
endpoint = click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="URL|NAME|sim:PRESET",
    help="The same as ENDPOINT; repeat for replicas.  [default: the one server found on this host]",
)
model = click.option("--model", metavar="NAME", help="Model name.  [default: the first that the server lists]")
api = click.option(
    "--api",
    metavar="NAME",
    shell_complete=complete,
    help="chat, messages, responses, completions, ollama, or auto: the first of them that the server knows.  "
    "[default: by the URL's path, else chat]",
)
workload = click.option(
    "--workload",
    default="coding",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=complete,
    help="The prompts to send; see `swarmtui workloads`.",
)
gpu_metrics = click.option(
    "--gpu-metrics-url",
    "gpu_metrics_urls",
    multiple=True,
    metavar="URL",
    help="Metrics of GPUs on another host: DCGM exporter, or AMD device-metrics-exporter.",
)
model_path = click.option(
    "--model-path",
    metavar="PATH",
    help="Directory or file of the model, for what the hardware allows.  [default: found by the server's process]",
)
agent_header = click.option(
    "--agent-header",
    is_flag=False,
    flag_value="both",
    type=click.Choice(["billing", "date", "both"]),
    help="Put lines that change with every request in front of the system prompt, as some agents do.  [without a "
    "value: both]",
)
requests = click.option(
    "--requests",
    metavar="N|4C",
    help="Requests per run: a number or a multiple of C.  [default: that of the workload, else 2C, and 3C up to C=4 "
    "(not if all answers have the same length) and from C=16; at least 5]",
)
duration = click.option("--duration", metavar="TIME", help="Duration of a run (30s, 2m), instead of --requests.")
max_tokens = click.option("--max-tokens", type=WholeNumber(1), metavar="N", help="Output token limit of each request.")
api_key = click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the API key.")


ca_file = click.option(
    "--ca-file", type=click.Path(exists=True, dir_okay=False), help="CA certificates to trust instead of the system's."
)
insecure = click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
detect = click.option(
    "--detect",
    default="5%",
    show_default=True,
    metavar="SHARE",
    help="If a comparison is not sure yet, say how many runs would detect this difference.",
)


def parse_share(text: str) -> float:
    """Parse `3%` or `0.03`, the value of --detect."""

    number, percent, _ = text.strip().partition("%")
    try:
        share = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        share = 0.0
    if not 0.001 <= share <= 1.0:
        raise BadInput(f"{text!r} is not a share between 0.1% and 100%, such as 3%", key="--detect")
    return share


def to_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def print_blocks(blocks: Iterable[Block], *, err: bool = False) -> None:
    from swarmtui.report.text import paint

    echo(paint(blocks), nl=False, err=err)


def print_result(value: Any, blocks: Iterable[Block], *, as_json: bool, err: bool = False) -> None:
    """Print what a command found: for programs, or for people; `err`: on stderr, beside events."""
    if as_json:
        echo(to_json(value))
    else:
        print_blocks(blocks, err=err)
