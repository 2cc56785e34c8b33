"""From the words of a command line to an order: all that can be wrong with them is found here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swarmtui.cli.root import sessions_in


def make_order(endpoints: tuple[str, ...], given: dict[str, Any]) -> Any:
    """Everything that can be wrong with the words is found here, before anything is asked of the endpoint."""
    from swarmtui.model.endpoint import parse_address
    from swarmtui.model.order import SIMULATOR, Order

    endpoints = endpoints or (_only_endpoint(),)
    for endpoint in endpoints:
        if endpoint.startswith(SIMULATOR):
            from swarmtui.sim.presets import parse_spec

            parse_spec(endpoint.removeprefix(SIMULATOR))
        else:
            parse_address(endpoint)
    return Order(
        endpoints=endpoints,
        model=given["model"],
        workload=workload_path(given["workload"]),
        plan=_plan(given),
        session_root=str(sessions_in(given["session_dir"])),
        secrets=_secrets(given["api_key_env"], given["headers"]),
        ca_file=given["ca_file"],
        insecure=given["insecure"],
        keep_text=given["keep_text"],
        previews=not given["no_previews"],
        gpus=not given["no_gpu"],
        metrics_urls=given["metrics_urls"],
        gpu_metrics_urls=given["gpu_metrics_urls"],
        label=given["label"],
        note=given["note"],
        tags=_pairs(given["tags"], "--tag"),
        server_flags=given["server_flags"],
        previous=_previous(given["baseline"], given["session_dir"]),
        restart_s=_restart(given.get("on_restart", "wait")),
    )


def _restart(text: str) -> float:
    from swarmtui.model.order import RESTART_S
    from swarmtui.model.plan import parse_seconds

    known = {"wait": RESTART_S, "stop": 0.0}
    return known[text] if text in known else parse_seconds(text, "--on-restart")


def _previous(baseline: str | None, session_dir: str | None) -> str:
    """Its full name, found before anything is measured."""
    if baseline is None:
        return ""
    from swarmtui.sessions.store import load

    return load(sessions_in(session_dir), baseline).directory.name


def _only_endpoint() -> str:
    """The one server on this host; with none or several it is the person's to say which."""
    from swarmtui.conductor.catalogue import servers_here
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

    from swarmtui.model.load import planned
    from swarmtui.model.plan import Timeouts, parse_levels, parse_requests, parse_seconds
    from swarmtui.model.schema import BadInput
    from swarmtui.model.workload import size_of
    from swarmtui.prompts.library import find

    if given["requests"] and given["duration"]:
        raise BadInput("give one of --requests and --duration, not both", key="--duration")
    levels = parse_levels(given["levels"]) if given["levels"] is not None else None
    workload = find(given["workload"]).workload
    load = _load(given, workload)
    total = parse_seconds(given["timeout"], "--timeout")
    limits = Timeouts()
    prompt_tps, decode_tps = _serial_rates(given["serial_rates"])
    return planned(
        load,
        size=size_of(workload),
        mode="cliff" if given["find_cliff"] else None,
        levels=levels,
        runs=given["runs"],
        requests=parse_requests(given["requests"]) if given["requests"] else None,
        duration_s=parse_seconds(given["duration"], "--duration") if given["duration"] else None,
        warmup=_warmup(given["warmup"]),
        max_tokens=given["max_tokens"],
        temperature=given["temperature"],
        seed=given["seed"] if given["seed"] is not None else secrets.randbelow(1_000_000),
        workers=given["workers"],
        slo=_slo(given["slo"]),
        serial_prompt_tps=prompt_tps,
        serial_decode_tps=decode_tps,
        timeouts=Timeouts(
            connect=min(limits.connect, total),
            first_token=min(limits.first_token, total) if given["timeout"] == "600s" else total,
            idle=parse_seconds(given["idle_timeout"], "--idle-timeout"),
            total=total,
        ),
    )


def _load(given: dict[str, Any], workload: Any) -> Any:
    """A rate or a search on the command line stands for a load of its own; what does not go together is refused."""
    from swarmtui.model.load import Closed, Open, mode_of
    from swarmtui.model.schema import BadInput
    from swarmtui.model.workload import load_of

    load = load_of(workload)
    mode = mode_of(load)
    if given["find_cliff"] and (given["levels"] or given["rate"] or (given["runs"] or 1) > 1):
        raise BadInput("chooses its levels by itself; leave --levels, --runs and --rate out", key="--find-cliff")
    if given["rate"] is not None and given["levels"]:
        raise BadInput("an open loop has a rate and no levels; leave one of the two out", key="--rate")
    if (given["find_cliff"] or given["rate"] is not None) and mode in ("mixed", "dag"):
        raise BadInput(f"workload {workload.name} is {mode}, and can be asked in no other way", key="--workload")
    if given["levels"] and mode in ("dag", "ramp", "open"):
        raise BadInput(f"workload {workload.name} is {mode}, which has no levels to choose", key="--levels")
    if given["requests"] and mode not in ("closed", "open") and given["rate"] is None and not given["find_cliff"]:
        raise BadInput(f"workload {workload.name} is {mode}: the number of its requests is given", key="--requests")
    if given["duration"] and mode not in ("closed", "open") and given["rate"] is None and not given["find_cliff"]:
        raise BadInput(f"workload {workload.name} is {mode}: it ends by itself", key="--duration")
    if given["serial_rates"] and mode not in ("barrier", "swarm"):
        raise BadInput(f"workload {workload.name} is {mode}, and has no serial time", key="--serial-rates")
    if given["find_cliff"]:
        return Closed(levels=(1,))
    if given["rate"] is not None:
        return Open(rate=given["rate"], arrival=given["arrival"] or "poisson")
    if given["arrival"]:
        raise BadInput("is for open loops; give --rate with it", key="--arrival")
    return load


def _serial_rates(text: str | None) -> tuple[float | None, float | None]:
    import re

    from swarmtui.model.schema import BadInput

    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", text)
    if not match or not float(match.group(1)) or not float(match.group(2)):
        raise BadInput(f"{text!r} is not of the form 85.4,13.4", key="--serial-rates")
    return float(match.group(1)), float(match.group(2))


def _warmup(text: str | None) -> int | None:
    from swarmtui.model.schema import BadInput

    if text is None:
        return None
    if text == "none":
        return 0
    if not text.isdigit():
        raise BadInput(f"{text!r} is neither a number nor none", key="--warmup")
    return int(text)


def _slo(text: str) -> str:
    if text:
        from swarmtui.analysis.slo import parse_slo

        parse_slo(text)
    return text


def limits_of(expressions: tuple[str, ...]) -> Any:
    if not expressions:
        return ()
    from swarmtui.analysis.limits import parse_limit

    return [parse_limit(expression) for expression in expressions]


def workload_path(name: str) -> str:
    from swarmtui.prompts.check import problems
    from swarmtui.prompts.library import find

    source = find(name).source
    for problem in problems(source):
        raise problem
    return str(Path(source).resolve())


def _secrets(variable: str | None, headers: tuple[str, ...]) -> Any:
    import os
    import re

    from swarmtui.model.endpoint import Secrets
    from swarmtui.model.schema import BadInput

    key = None
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise BadInput("this variable is not set, or empty", key=f"--api-key-env {variable}")
    pairs = _pairs(headers, "--header")
    for name, value in pairs.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or re.search(r"[\r\n\0]", value):
            raise BadInput("not a header", key=f"--header {name}")
    if key is not None and re.search(r"[\r\n\0]", key):
        raise BadInput("the key holds a line break", key=f"--api-key-env {variable}")
    return Secrets(api_key=key, headers=pairs)


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    from swarmtui.model.schema import BadInput

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"expected K=V, got {name!r}", key=option)
        pairs[name.strip()] = value
    return pairs
