"""From the words of a command line to an order: all that can be wrong with them is found here."""

from __future__ import annotations

from typing import Any

import click

from swarmtui.cli.app import session_root


def make_order(endpoints: tuple[str, ...], given: dict[str, Any]) -> Any:
    """Build the request of a run from the values of its options; the first error names the option."""
    from swarmtui.client.request_builder import build_request
    from swarmtui.model.schema import BadInput

    built = build_request(_choices(endpoints, given))
    if isinstance(built, list):
        raise BadInput(built[0].message, key=_option_name(built[0].field))
    return built


def _choices(endpoints: tuple[str, ...], given: dict[str, Any]) -> Any:
    """Map options to the fields of the request builder, which have the same names except for these."""
    from swarmtui.client.request_builder import RunChoices

    same = {name: given[name] for name in RunChoices.__struct_fields__ if name in given}
    runs = given["runs"]
    return RunChoices(
        **same
        | {
            "endpoints": tuple(known_endpoints(endpoints or (_only_endpoint(),))),
            "session_root": str(session_root(given["session_dir"])),
            "mode": "cliff" if given["find_cliff"] else given.get("mode", "sweep"),
            "runs": None if runs is None else str(runs),
        }
    )


_OPTION_NAMES = {
    "endpoints": "--endpoint",
    "headers": "--header",
    "tags": "--tag",
    "metrics_urls": "--metrics-url",
    "gpu_metrics_urls": "--gpu-metrics-url",
    "mode": "--find-cliff",
}


def _option_name(field: str) -> str:
    return _OPTION_NAMES.get(field, f"--{field.replace('_', '-')}")


def known_endpoints(endpoints: tuple[str, ...]) -> list[Any]:
    """Each as it is called in config.toml, or as it was typed."""
    from swarmtui.client.config_file import read_config
    from swarmtui.model.config import find_endpoint
    from swarmtui.sessions.files import config_path

    configured = read_config().endpoints
    return [find_endpoint(endpoint, configured, str(config_path())) for endpoint in endpoints]


def _only_endpoint() -> str:
    """The one server on this host; with none or several it is the person's to say which."""
    from swarmtui.client.catalogue import discover_servers
    from swarmtui.model.schema import BadInput

    found = [server for server in discover_servers() if server.reachable and not server.problem]
    if len(found) == 1:
        click.echo(f"endpoint: {found[0].url} ({found[0].engine})", err=True)
        return found[0].url
    if found:
        named = ", ".join(f"{server.url} ({server.engine})" for server in found)
        raise BadInput(f"choose one of {named}", key="--endpoint")
    raise BadInput(
        "no server found on this host; for example --endpoint http://127.0.0.1:8000 or --endpoint sim:moe-tp1",
        key="--endpoint",
    )


def limits_of(expressions: tuple[str, ...]) -> Any:
    if not expressions:
        return ()
    from swarmtui.analysis.limits.fail_if import parse_fail_if

    return [parse_fail_if(expression) for expression in expressions]
