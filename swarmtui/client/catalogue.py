"""What can be chosen before a run: endpoints on this host, the simulator's presets, workloads. Faces ask here.

Everything is imported when it is asked for, so that a screen can be shown before any of it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from swarmtui.model.endpoint import Address, parse_address
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import SIMULATOR
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.workload import Workload

if TYPE_CHECKING:
    from swarmtui.prompts.library import WorkloadFile


class SimulatorPreset(Stored, frozen=True, kw_only=True):
    """A preset of the embedded simulator."""

    name: str
    description: str
    model: str
    seats: int
    replicas: int


class WorkloadInfo(Stored, frozen=True, kw_only=True):
    """A workload, in words and as it is; `plan` is how it wants to be asked, `own_load` whether it says so itself."""

    name: str
    description: str
    kind: str
    prompts: int | None
    types: tuple[str, ...]
    input: str
    output: str
    cache: str
    check: str
    sample: str
    path: str
    workload: Workload
    plan: Plan
    own_load: bool


def discover_servers(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
    """Blocks for that long at most."""
    from swarmtui.telemetry.discovery import discover

    return discover(timeout_s)


def inspect_server(url: str, timeout_s: float = 2.0) -> DiscoveredServer:
    """One address that somebody typed; what is wrong with it is said in `problem`."""
    from swarmtui.telemetry.fingerprint import fingerprint

    address = parse_address(url)
    found = fingerprint(address.root, timeout_s=timeout_s)
    return found or DiscoveredServer(url=address.root, reachable=False, problem=_why_not(address, timeout_s))


def _why_not(address: Address, timeout_s: float) -> str:
    """Why no server of models answers at an address, as far as its socket tells."""
    import socket

    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s):
            return "somebody listens there, but it does not answer as a server of models"
    except socket.gaierror:
        return f"no host is called {address.host}"
    except ConnectionRefusedError:
        return f"nobody listens on port {address.port}"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return f"cannot be reached: {error.strerror or error}"


def is_listening(url: str, timeout_s: float = 1.0) -> bool:
    """Whether anybody listens at this address."""
    import socket

    address = parse_address(url)
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s):
            return True
    except OSError:
        return False


def identify(url: str) -> DiscoveredServer | None:
    """What serves there now, with the flags it was started with; None while it does not answer as a server."""
    from swarmtui.telemetry.discovery import identify as look

    found = look(parse_address(url).root)
    return found if found is not None and found.reachable else None


def simulator_presets() -> tuple[SimulatorPreset, ...]:
    from swarmtui.sim.presets import list_presets

    return tuple(
        SimulatorPreset(name=p.name, description=p.description, model=p.model, seats=p.slots, replicas=p.replicas)
        for p in list_presets()
    )


@cache
def shipped_workloads() -> tuple[WorkloadInfo, ...]:
    """Those that are shipped."""
    from swarmtui.prompts.library import shipped_workloads

    return tuple(_describe(found) for found in shipped_workloads())


def find_workload(name_or_path: str) -> WorkloadInfo:
    """Describe a shipped workload or a workload file, after validating it."""
    known = next((info for info in shipped_workloads() if info.name == name_or_path), None)
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
    from swarmtui.model.plan_options import PlanOptions, build_plan
    from swarmtui.prompts.validate import describe_workload

    one, asked = describe_workload(found), found.workload
    return WorkloadInfo(
        name=one.name,
        description=one.description,
        kind=one.kind,
        prompts=one.prompts,
        types=tuple(one.types),
        input=one.input,
        output=one.output,
        cache=one.cache,
        check=_checks(asked),
        sample=one.sample,
        path=str(Path(found.source).resolve()),
        workload=asked,
        plan=build_plan(asked, PlanOptions()),
        own_load=asked.load is not None or one.kind in ("mixed", "dag"),
    )


def _checks(asked: Workload) -> str:
    """What answers are held against, each way once."""
    from swarmtui.model.workload import iter_checks

    checks = [check for _, check in iter_checks(asked)]
    ways = (
        ("keywords", any(check.all or check.any for check in checks)),
        ("regular expressions", any(check.regex for check in checks)),
        ("compiles as Python", any(check.python for check in checks)),
        ("JSON of a shape", any(check.schema is not None for check in checks)),
    )
    return ", ".join(name for name, used in ways if used)


def check_endpoint(text: str) -> None:
    """Raises BadInput for what can be no endpoint."""
    if text.startswith(SIMULATOR):
        from swarmtui.sim.presets import parse_spec

        parse_spec(text.removeprefix(SIMULATOR))
    elif text:
        parse_address(text)
    else:
        raise BadInput("no endpoint is chosen: type a URL, or take the simulator", key="endpoint")
