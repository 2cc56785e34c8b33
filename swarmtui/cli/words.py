"""From the words of a command line to an order: all that can be wrong with them is found here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swarmtui.cli.app import sessions_in


def make_order(endpoints: tuple[str, ...], given: dict[str, Any]) -> Any:
    """Everything that can be wrong with the words is found here, before anything is asked of the endpoint."""
    from swarmtui.client.config_file import check_ca_file, read_secrets
    from swarmtui.model.config import together
    from swarmtui.model.endpoint import parse_address
    from swarmtui.model.run_request import SIMULATOR, Order, restart_of

    asked = known_endpoints(endpoints or (_only_endpoint(),))
    endpoints, known = tuple(one.url for one in asked), together(asked)
    ca_file = given["ca_file"] or known.ca_file
    if ca_file is not None:
        check_ca_file(ca_file, "--ca-file" if given["ca_file"] else "ca_file")
    for endpoint in endpoints:
        if endpoint.startswith(SIMULATOR):
            from swarmtui.sim.presets import parse_spec

            parse_spec(endpoint.removeprefix(SIMULATOR))
        else:
            parse_address(endpoint)
    return Order(
        endpoints=endpoints,
        model=given["model"] or known.model,
        workload=workload_path(given["workload"]),
        plan=_plan(given),
        session_root=str(sessions_in(given["session_dir"])),
        secrets=read_secrets(
            given["api_key_env"] or known.api_key_env,
            known.headers | _pairs(given["headers"], "--header"),
            "--api-key-env" if given["api_key_env"] else "api_key_env",
        ),
        ca_file=ca_file,
        insecure=given["insecure"] or known.insecure,
        keep_text=given["keep_text"],
        previews=not given["no_previews"],
        gpus=not given["no_gpu"],
        metrics_urls=_addresses(given["metrics_urls"], "--metrics-url") or known.metrics_urls,
        gpu_metrics_urls=_addresses(given["gpu_metrics_urls"], "--gpu-metrics-url") or known.gpu_metrics_urls,
        label=given["label"],
        note=given["note"],
        tags=_pairs(given["tags"], "--tag"),
        server_flags=given["server_flags"] or known.server_flags,
        previous=_previous(given["baseline"], given["session_dir"]),
        restart_s=restart_of(given.get("on_restart", "wait"), "--on-restart"),
    )


def known_endpoints(endpoints: tuple[str, ...]) -> list[Any]:
    """Each as it is called in config.toml, or as it was typed."""
    from swarmtui.client.config_file import read_config
    from swarmtui.model.config import named
    from swarmtui.sessions.paths import config_path

    configured = read_config().endpoints
    return [named(endpoint, configured, str(config_path())) for endpoint in endpoints]


def _addresses(urls: tuple[str, ...], option: str) -> tuple[str, ...]:
    from swarmtui.model.endpoint import parse_address
    from swarmtui.model.schema import BadInput

    for url in urls:
        if "://" not in url:
            raise BadInput(f"{url!r} is not of the form http://HOST:PORT/metrics", key=option)
        parse_address(url)
    return urls


def _previous(baseline: str | None, session_dir: str | None) -> str:
    """Its full name, found before anything is measured."""
    if baseline is None:
        return ""
    from swarmtui.sessions.store import load

    return load(sessions_in(session_dir), baseline).directory.name


def _only_endpoint() -> str:
    """The one server on this host; with none or several it is the person's to say which."""
    from swarmtui.client.catalogue import servers_here
    from swarmtui.model.schema import BadInput

    found = [server for server in servers_here() if server.reachable and not server.problem]
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


def _plan(given: dict[str, Any]) -> Any:
    """The workload's own load, with what was said on the command line before it."""
    import secrets

    from swarmtui.analysis.limits.slo import checked_slo
    from swarmtui.model.plan import timeouts_of
    from swarmtui.model.plan_options import Asked, plan_for
    from swarmtui.model.schema import BadInput
    from swarmtui.prompts.library import find

    said = ("levels", "runs", "requests", "duration", "warmup", "rate", "arrival", "burst", "serial_rates")
    try:
        return plan_for(
            find(given["workload"]).workload,
            Asked(mode="cliff" if given["find_cliff"] else "sweep", **{name: given[name] for name in said}),
            max_tokens=given["max_tokens"],
            temperature=given["temperature"],
            seed=given["seed"] if given["seed"] is not None else secrets.randbelow(1_000_000),
            workers=given["workers"],
            slo=checked_slo(given["slo"]),
            timeouts=timeouts_of(given["timeout"], given["idle_timeout"], "--"),
        )
    except BadInput as problem:
        if problem.key in (*said, "find_cliff", "workload"):
            raise BadInput(problem.problem, key=f"--{problem.key.replace('_', '-')}") from None
        raise


def limits_of(expressions: tuple[str, ...]) -> Any:
    if not expressions:
        return ()
    from swarmtui.analysis.limits.fail_if import parse_limit

    return [parse_limit(expression) for expression in expressions]


def workload_path(name: str) -> str:
    from swarmtui.prompts.library import find
    from swarmtui.prompts.validate import problems

    source = find(name).source
    for problem in problems(source):
        raise problem
    return str(Path(source).resolve())


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    from swarmtui.model.schema import BadInput

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"expected K=V, got {name!r}", key=option)
        pairs[name.strip()] = value
    return pairs
