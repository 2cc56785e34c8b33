"""What can be chosen before a run: endpoints on this host, the simulator's presets, workloads. Faces ask here.

Everything is imported when it is asked for, so that a screen can be shown before any of it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from swarmtui.model.endpoint import parse_address
from swarmtui.model.order import SIMULATOR
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.telemetry import Discovered


class Machine(Stored, frozen=True, kw_only=True):
    """A preset of the embedded simulator."""

    name: str
    description: str
    model: str
    seats: int
    replicas: int


class Task(Stored, frozen=True, kw_only=True):
    """A shipped workload, in words."""

    name: str
    description: str
    kind: str
    prompts: int | None
    input: str
    output: str
    cache: str
    sample: str


def servers_here(timeout_s: float = 1.0) -> tuple[Discovered, ...]:
    """Blocks for that long at most."""
    from swarmtui.telemetry.discovery import discover

    return discover(timeout_s)


def look_at(url: str, timeout_s: float = 2.0) -> Discovered:
    """One address that somebody typed; what is wrong with it is said in `problem`."""
    from swarmtui.telemetry.fingerprint import fingerprint

    root = parse_address(url).root
    found = fingerprint(root, timeout_s=timeout_s)
    return found or Discovered(url=root, reachable=False, problem="no server of models answers there")


def machines() -> tuple[Machine, ...]:
    from swarmtui.sim.presets import list_presets

    return tuple(
        Machine(name=p.name, description=p.description, model=p.model, seats=p.seats, replicas=p.replicas)
        for p in list_presets()
    )


@cache
def tasks() -> tuple[Task, ...]:
    from swarmtui.prompts.check import describe
    from swarmtui.prompts.library import shipped

    described = [describe(found) for found in shipped()]
    return tuple(
        Task(
            name=one.name,
            description=one.description,
            kind=one.kind,
            prompts=one.prompts,
            input=one.input,
            output=one.output,
            cache=one.cache,
            sample=one.sample,
        )
        for one in described
    )


def check_endpoint(text: str) -> None:
    """Raises BadInput for what can be no endpoint."""
    if text.startswith(SIMULATOR):
        from swarmtui.sim.presets import parse_spec

        parse_spec(text.removeprefix(SIMULATOR))
    elif text:
        parse_address(text)
    else:
        raise BadInput("no endpoint is chosen: type a URL, or take the simulator", key="endpoint")


def workload_path(name: str) -> str:
    """The file of a workload, after everything in it was found to be good."""
    from swarmtui.prompts.check import problems
    from swarmtui.prompts.library import find

    source = find(name).source
    for problem in problems(source):
        raise problem
    return str(Path(source).resolve())
