"""Turn the options of `run` and related commands into a run request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from swarmtui.cli.app import session_root
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.parsing import suggest
from swarmtui.processes.exits import redact_given
from swarmtui.text import echo

_MISTAKES = "swarmtui.mistakes"
_ANY_ADDRESS = "http://127.0.0.1:1"


def build_run_request(
    endpoints: tuple[str, ...],
    options: dict[str, Any],
    mistakes: Mistakes | None = None,
    *,
    find_endpoint: Callable[[], str] | None = None,
) -> Any:
    """Check all options before any request to the endpoint; `mistakes` are those that were found before.

    `find_endpoint` returns the endpoint if none is given; by default the only one on this host.
    """
    from swarmtui.client.choices import RunChoices
    from swarmtui.client.config_file import find_endpoints
    from swarmtui.client.request_builder import build_request
    from swarmtui.model.config import EndpointConfig, as_option

    mistakes = mistakes or Mistakes()
    found = ((name, options.get(name)) for name in RunChoices.__struct_fields__)
    given = {name: as_option(name, value) for name, value in found if value is not None}
    given |= {"plan": "cliff"} if options["find_cliff"] else {}
    # An unknown option may have taken the ENDPOINT for its value: then none is searched for.
    searched = endpoints or not any(error.unknown for error in mistakes.found)
    find = find_endpoint or only_endpoint
    named = mistakes.catch(lambda: find_endpoints(endpoints or (find(),))) if searched else None
    # The others are checked with any address if this one is wrong.
    known = named or [EndpointConfig(url=_ANY_ADDRESS)]
    choices = RunChoices(**given | {"endpoints": tuple(one.url for one in known)})
    errors = Mistakes()
    built = errors.catch(build_request, choices, known, session_root(options["session_dir"]))
    for error in errors.found:
        option = _OPTION_NAMES.get(error.key, f"--{error.key.replace('_', '-')}")
        mistakes.found.append(BadInput(error.problem, key=option))
    mistakes.raise_all()
    return built


def chosen_endpoints(context: click.Context) -> tuple[str, ...]:
    """Return those of --endpoint and of ENDPOINT, which replaces the one of config.toml."""
    given: tuple[str, ...] = context.params["addresses"] or ()
    configured = context.get_parameter_source("endpoints") is click.core.ParameterSource.DEFAULT_MAP
    return given if given and configured else (*(context.params["endpoints"] or ()), *given)


_OUTPUT = "Output"
# The options of commands by what they are about, as --help shows them; any other is output.
OPTION_GROUPS = {
    "Load": (
        "workload", "levels", "level", "find_cliff", "slo", "budget", "max_c", "rate", "arrival", "burst", "requests",
        "duration", "precision", "runs", "max_tokens", "temperature", "seed", "canaries", "agent_header",
        "serial_rates", "max_gap", "time_scale", "too_long", "rules",
    ),
    "Endpoint": (
        "a", "b", "aa", "url", "pass_env", "ready_within", "endpoints", "model", "api", "api_key_env", "headers",
        "ca_file", "insecure", "timeout", "idle_timeout", "on_restart",
    ),
    "Measuring": (
        "figure", "max_runs", "every", "warmup", "complete", "baseline", "detect", "fail_if", "fail_unsure",
        "price_per_hour", "metrics_urls", "gpu_metrics_urls", "no_gpu", "model_path",
    ),
    _OUTPUT: (
        "as_json", "events", "quiet", "session_dir", "metrics_port", "label", "note", "tags", "server_flags",
        "keep_text", "no_previews",
    ),
    "Hosts": ("hosts",),
}  # fmt: skip


class CheckedCommand(click.Command):
    """Shows its options in groups.

    It leaves out options that are not known or whose values are wrong, which its function finds in
    `mistakes_of(context)` and must raise.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            str(param.name): param.get_help_record(ctx)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
        }
        grouped = {name for names in OPTION_GROUPS.values() for name in names}
        others = [name for name in records if name not in grouped]
        for title, names in OPTION_GROUPS.items():
            listed = (*names, *others) if title == _OUTPUT else names
            shown = [record for name in listed if (record := records.get(name)) is not None]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = list(args)
        ctx.meta[_MISTAKES] = found = self._take_out_unusable(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except click.BadParameter:
            options, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.params.clear()
        for param in self.get_params(ctx):
            try:
                param.handle_parse_result(ctx, options, [])
            except click.BadParameter as error:
                found.append(BadInput(error.message.rstrip(".") or "is missing", key=param.opts[0]))
                ctx.params[str(param.name)] = param.get_default(ctx)
        # Click has a value of its own for an option without a default.
        unset = click.Option(["--unset"]).default
        ctx.params |= {name: None for name, value in ctx.params.items() if value is unset}
        return []

    def _take_out_unusable(self, ctx: click.Context, args: list[str]) -> list[BadInput]:
        """Remove options that are not known, that lack a value or that have one although they take none."""
        found: list[BadInput] = []
        known = [name.lstrip("-") for param in self.get_params(ctx) for name in param.opts]
        while True:
            try:
                self.make_parser(ctx).parse_args(list(args))
            except click.NoSuchOption as error:
                name = error.option_name
                place = next(at for at, word in enumerate(args) if _is_option(word, name))
                hint = suggest(name.lstrip("-"), known, "; ") or f"; see {ctx.command_path} --help"
                found.append(BadInput(f"no such option{hint}", key=redact_given(name), unknown=True))
                # What follows it is its value, unless it looks like an option.
                valued = "=" not in args[place] and args[place + 1 : place + 2] and args[place + 1][:1] != "-"
                del args[place : place + (2 if valued else 1)]
            except click.BadOptionUsage as error:
                name = error.option_name
                given = next((at for at, word in enumerate(args) if word.startswith(f"{name}=")), None)
                found.append(BadInput("needs a value" if given is None else "takes no value", key=name))
                del args[-1 if given is None else given]
            else:
                return found


def _is_option(word: str, name: str) -> bool:
    """Tell whether a word of the command line is this option: `--name`, `--name=VALUE`, or `-n` among others."""
    return word.partition("=")[0] == name or (word[:2] != "--" and word[:1] == "-" and name[1:] in word)


def mistakes_of(context: click.Context) -> Mistakes:
    """Return what a `CheckedCommand` found."""
    return Mistakes(context.meta.get(_MISTAKES, ()))


# Longer than the app waits: without an answer there is no run.
_DISCOVERY_S = 3.0

_OPTION_NAMES = {
    "endpoints": "--endpoint",
    "headers": "--header",
    "tags": "--tag",
    "metrics_urls": "--metrics-url",
    "gpu_metrics_urls": "--gpu-metrics-url",
    "plan": "--find-cliff",
}


class NoServerFound(BadInput):
    """No inference server runs on this host, or none can be used."""


def only_endpoint() -> str:
    """Return the only server on this host that is not another user's; with none or several the user must choose."""
    from swarmtui.client.catalogue import discover_servers

    usable = [server for server in discover_servers(_DISCOVERY_S) if server.reachable and not server.problem]
    found = [server for server in usable if not server.user]
    if len(found) == 1:
        echo(f"endpoint: {found[0].url} ({found[0].engine})", err=True)
        return found[0].url
    if found:
        named = ", ".join(f"{server.url} ({server.engine})" for server in found)
        raise BadInput(f"choose one of {named}", key="--endpoint")
    if usable:
        named = ", ".join(f"{server.url} ({server.user})" for server in usable)
        raise BadInput(f"name it to send load to a server of another user: {named}", key="--endpoint")
    raise NoServerFound(
        "no server found on this host; for example --endpoint http://127.0.0.1:8000 or --endpoint sim:moe-tp1",
        key="--endpoint",
    )
