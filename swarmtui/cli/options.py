"""The group of all commands, and what they share. Imports are inside functions, so that --help is instant."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from swarmtui import __version__
from swarmtui.cli.app import open_app

# Where each command lives, and what it does in a line that fits; in the order in which one meets them.
_COMMANDS = {
    "demo": ("live", "the app on the embedded simulator: no GPU, no server"),
    "discover": ("catalogue", "servers of models found on this host"),
    "doctor": ("catalogue", "is this machine fit to measure?"),
    "run": ("run", "drive an endpoint level by level, without a screen"),
    "attach": ("live", "join a running session"),
    "replay": ("live", "watch a saved session again"),
    "sessions": ("sessions", "saved sessions: list, show, rm, advice, log"),
    "compare": ("sessions", "sessions side by side, with a verdict"),
    "export": ("sessions", "a session as md, csv, json, toml, html, png or svg"),
    "ab": ("experiments", "which of two servers or commands is faster?"),
    "tune": ("experiments", "a grid of server flags, cell by cell"),
    "probe": ("run", "one timed run, once or by the clock; a history"),
    "workloads": ("catalogue", "what agents ask: list, show, check"),
    "sim": ("catalogue", "the embedded simulator as a server"),
}


class Whole(click.IntRange):
    """What is wrong with it is said in words that people use."""

    name = "whole number"


class Number(click.FloatRange):
    name = "number"


class Commands(click.Group):
    """A module is imported when a command of it is called for: no picture waits for another's options."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Of a name that nobody knows all are imported: one of them may be meant."""
        wanted = [_COMMANDS[name]] if name in _COMMANDS else _COMMANDS.values()
        for module, _ in wanted:
            import_module(f"swarmtui.cli.{module}")
        return super().get_command(context, name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands (COMMAND --help says more)"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
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
    if context.invoked_subcommand in _WITH_DEFAULTS:
        context.default_map = {context.invoked_subcommand: defaults_of(context.invoked_subcommand)}
    if context.invoked_subcommand is None:
        open_app(session_dir, slow=slow)


# Of what excludes each other, what is said now counts, and not what config.toml says.
_WITH_DEFAULTS = ("run", "probe", "ab")
_EXCLUDING = (("requests", "duration"), ("levels", "rate", "find_cliff"))


def defaults_of(command: str) -> dict[str, Any]:
    """[defaults] of config.toml, as far as such a command has these options."""
    from swarmtui.sessions.paths import config_path

    if not config_path().exists():  # a run that has none need not wait for what reads it
        return {}
    from swarmtui.client.config_file import read_config

    said = read_config().defaults.options()
    return {name: value for name, value in said.items() if command == "run" or name not in ("runs", "levels")}


def without_contradiction(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    sources = {name: context.get_parameter_source(name) for group in _EXCLUDING for name in group}
    typed, kept = click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT_MAP
    gone = [
        name
        for group in _EXCLUDING
        if any(sources[other] is typed for other in group)
        for name in group
        if sources[name] is kept
    ]
    return given | dict.fromkeys(gone)


def session_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--session-dir", metavar="DIR", help="Where sessions are kept.")(command)


def slow_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--slow", is_flag=True, help="Two frames a second, for a thin line.")(command)


def as_text(value: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
