"""Turn the options of `run` and related commands into a run request."""

from __future__ import annotations

from typing import Any

from swarmtui.cli.app import session_root
from swarmtui.text import echo


def build_run_request(endpoints: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Check all options before any request to the endpoint; the first error names its option."""
    from swarmtui.client.choices import RunChoices
    from swarmtui.client.request_builder import build_request
    from swarmtui.model.base import BadInput

    given = {name: options[name] for name in RunChoices.__struct_fields__ if options.get(name) is not None}
    given |= {"runs": str(given["runs"])} if "runs" in given else {}
    given |= {"plan": "cliff"} if options["find_cliff"] else {}
    choices = RunChoices(**given | {"endpoints": endpoints or (_only_endpoint(),)})
    built = build_request(choices, find_endpoints(choices.endpoints), session_root(options["session_dir"]))
    if isinstance(built, list):
        field = built[0].field
        raise BadInput(built[0].message, key=_OPTION_NAMES.get(field, f"--{field.replace('_', '-')}"))
    return built


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


def find_endpoints(endpoints: tuple[str, ...]) -> list[Any]:
    """Look up names of config.toml; anything else is an address or a simulator preset."""
    from swarmtui.client.config_file import find_endpoint, read_config
    from swarmtui.sessions.files import config_path

    configured = read_config().endpoints
    return [find_endpoint(endpoint, configured, str(config_path())) for endpoint in endpoints]


def _only_endpoint() -> str:
    """Return the only server on this host that is not another user's; with none or several the user must choose."""
    from swarmtui.client.catalogue import discover_servers
    from swarmtui.model.base import BadInput

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
    raise BadInput(
        "no server found on this host; for example --endpoint http://127.0.0.1:8000 or --endpoint sim:moe-tp1",
        key="--endpoint",
    )


def parse_limits(expressions: tuple[str, ...]) -> Any:
    if not expressions:
        return ()
    from swarmtui.analysis.limits.fail_if import parse_fail_if

    return [parse_fail_if(expression) for expression in expressions]
