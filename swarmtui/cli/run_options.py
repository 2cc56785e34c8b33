"""Turn the options of `run` and related commands into a run request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from swarmtui.cli.app import session_root
from swarmtui.cli.checked import CollectingCommand
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.text import echo

_ANY_ADDRESS = "http://127.0.0.1:1"


def build_run_request(
    endpoints: tuple[str, ...],
    options: dict[str, Any],
    mistakes: Mistakes | None = None,
    *,
    find_endpoint: Callable[[], str] | None = None,
    endpoint_option: str = "--endpoint",
) -> Any:
    """Check all options before any request to the endpoint; `mistakes` are those that were found before.

    `find_endpoint` returns the endpoint if none is given; by default the only one on this host. Mistakes of endpoints
    name `endpoint_option`.
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
    options_by_field = _OPTION_NAMES | {"endpoints": endpoint_option}
    errors = Mistakes()
    built = errors.catch(build_request, choices, known, session_root(options["session_dir"]))
    for error in errors.found:
        option = options_by_field.get(error.key, f"--{error.key.replace('_', '-')}")
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


class RunCommand(CollectingCommand):
    """A command with most options of `run`; --help shows them in groups."""

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


# Longer than the app waits: without an answer there is no run.
_DISCOVERY_S = 3.0

_OPTION_NAMES = {
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
