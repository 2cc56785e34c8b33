"""List what can be chosen before a run: servers on this host, simulator presets and workloads.

Imports are inside the functions, so that a screen can be shown before any of them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.base import BadInput, Stored, copy_fields
from swarmtui.model.config import EndpointConfig
from swarmtui.model.endpoint import SIMULATOR_PREFIX, Address, Endpoint, check_url, hide_urls, parse_address
from swarmtui.model.plan import Plan
from swarmtui.model.redaction import Secrets
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.workload import Workload, WorkloadDescription, iter_checks

if TYPE_CHECKING:
    from swarmtui.http_client import HttpClient
    from swarmtui.prompts.library import WorkloadFile


class SimulatorPreset(Stored, frozen=True, kw_only=True):
    name: str
    description: str
    model: str
    slots: int
    replicas: int


class WorkloadInfo(WorkloadDescription, frozen=True, kw_only=True):
    """A workload to choose: `plan` is its default plan, `own_load` whether the file defines the load.

    `check` lists the kinds of checks that answers must pass.
    """

    check: str
    plan: Plan
    own_load: bool
    reproduction: bool = False


def discover_servers(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
    """Search for servers on this host; they have `timeout_s` to answer."""
    from swarmtui.telemetry.discovery import discover

    return discover(timeout_s)


def listening_sockets() -> frozenset[str]:
    """Identify the sockets that listen on this host: they differ when a server was started, stopped or restarted."""
    from swarmtui.telemetry.discovery import listening_sockets

    return listening_sockets()


def inspect_server(endpoint: EndpointConfig, timeout_s: float = 2.0) -> DiscoveredServer:
    """Identify the server of an endpoint, without sending its key; `problem` says why there is none."""
    import os

    from swarmtui.client.config_file import check_ca_file
    from swarmtui.http_client import HttpClient
    from swarmtui.telemetry.fingerprint import fingerprint

    (url,), secrets = hide_urls((endpoint.url,), Secrets(headers=endpoint.headers))
    address = parse_address(url)
    if endpoint.ca_file is not None:
        try:
            check_ca_file(endpoint.ca_file)
        except BadInput as error:
            return DiscoveredServer(url=address.root, reachable=False, problem=str(error))
    secrets = msgspec.structs.replace(secrets, api_key=os.environ.get(endpoint.api_key_env or ""))
    with HttpClient((), secrets, ca_file=endpoint.ca_file, insecure=endpoint.insecure) as client:
        found = fingerprint(address.root, timeout_s=timeout_s, client=client)
        if found is not None:
            return found
        problem = _connection_problem(address, client, timeout_s)
    return DiscoveredServer(url=address.root, reachable=False, problem=problem)


def _connection_problem(address: Address, client: HttpClient, timeout_s: float) -> str:
    from swarmtui.http_client import RequestFailed, check_connection

    try:
        check_connection(address.root, timeout_s)
    except RequestFailed as error:
        match error.kind:
            case "unknown_host":
                return f"unknown host {address.host}"
            case "refused":
                return f"no server listens on port {address.port}"
            case "connect_timeout":
                return str(error)
        return f"cannot be reached: {error}"
    try:
        client.get(address.root, timeout_s)
    except RequestFailed as error:
        if error.kind == "tls":
            return str(error)
    return "the port is open, but no inference server answers"


def is_listening(url: str) -> bool:
    from swarmtui.http_client import RequestFailed, check_connection

    try:
        check_connection(url, 1.0)
    except RequestFailed:
        return False
    return True


def identify_server(endpoint: Endpoint, secrets: Secrets) -> DiscoveredServer | None:
    """Return the server with its flags, or None while it does not answer. The secrets are not sent, but redacted."""
    from swarmtui.http_client import HttpClient
    from swarmtui.telemetry.discovery import identify

    with HttpClient((), secrets, ca_file=endpoint.ca_file, insecure=endpoint.insecure) as client:
        found = identify(parse_address(endpoint.url).root, client=client)
    return found if found is not None and found.reachable else None


def count_gpus() -> int:
    from swarmtui.telemetry.gpu.readers import read_gpus

    return sum(not gpu.part_of for gpu in read_gpus()[0])


def simulator_presets() -> tuple[SimulatorPreset, ...]:
    from swarmtui.sim.presets import list_presets

    return tuple(copy_fields(SimulatorPreset, preset) for preset in list_presets())


@cache
def builtin_workloads() -> tuple[WorkloadInfo, ...]:
    from swarmtui.prompts.library import builtin_workloads

    return tuple(_describe(found) for found in builtin_workloads())


def find_workload(name_or_path: str) -> WorkloadInfo:
    """Describe a built-in workload or a workload file, after validating it."""
    known = next((info for info in builtin_workloads() if info.name == name_or_path), None)
    return known or _describe(load_workload(name_or_path))


def load_workload(name_or_path: str) -> WorkloadFile:
    """Read and validate a workload; a file is read again only after it has changed."""
    try:
        changed = Path(name_or_path).expanduser().stat().st_mtime_ns
    except OSError:
        changed = 0
    return _load_workload(name_or_path, changed)


@lru_cache(maxsize=4)
def _load_workload(name_or_path: str, changed: int) -> WorkloadFile:
    from swarmtui.prompts.library import find_workload
    from swarmtui.prompts.validate import validate_workload

    found = find_workload(name_or_path)
    for problem in validate_workload(found.source):
        raise problem
    return found


def _describe(found: WorkloadFile) -> WorkloadInfo:
    from swarmtui.client.choices import RunChoices
    from swarmtui.client.plan_builder import build_plan
    from swarmtui.prompts.validate import describe_workload

    workload = found.workload
    plan = build_plan(workload, RunChoices())
    return WorkloadInfo(
        **msgspec.structs.asdict(describe_workload(found)),
        check=_describe_checks(workload),
        plan=plan,
        own_load=workload.load is not None or plan.load.fixed,
        reproduction=found.reproduction,
    )


def _describe_checks(workload: Workload) -> str:
    checks = [check for _, check in iter_checks(workload)]
    kinds = (
        ("keywords", any(check.all or check.any for check in checks)),
        ("regular expressions", any(check.regex for check in checks)),
        ("compiles as Python", any(check.python for check in checks)),
        ("JSON schema", any(check.schema is not None for check in checks)),
    )
    return ", ".join(name for name, used in kinds if used)


def validate_endpoint(text: str) -> None:
    if text.startswith(SIMULATOR_PREFIX):
        from swarmtui.sim.presets import parse_spec

        parse_spec(text.removeprefix(SIMULATOR_PREFIX))
    elif text:
        check_url(text)
    else:
        raise BadInput("choose an endpoint: enter a URL, or select the simulator", key="endpoint")
