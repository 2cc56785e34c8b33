"""Set the power limit of the GPUs that serve an endpoint."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from math import ceil
from urllib.parse import urlsplit

from swarmtui.client.held_settings import HeldPower, HeldSettings
from swarmtui.model.base import BadInput
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.telemetry.gpu.power_limits import (
    PowerLimit,
    PowerProblem,
    check_permission,
    check_watts,
    read_power_limits,
    set_power_limit,
)

# Limits to try, as shares of the default, and what they are rounded to.
_SHARES, _STEP_W = (0.85, 0.75, 0.65, 0.55, 0.45), 5


class ServerPower:
    """The power limits of the GPUs of one server, which must be running.

    Each change is written to `held` first.
    """

    def __init__(self, url: str, chosen: Sequence[int], held: HeldSettings) -> None:
        self._held, self._limits = held, _serving(url, chosen, read_power_limits())

    def set(self, watts: float) -> None:
        for limit in self._limits:
            check_watts(limit, watts)
        for limit in self._limits:
            held = HeldPower(uuid=limit.uuid, index=limit.index, before_w=limit.watts, set_w=watts)
            self._held.add(held)
            set_power_limit(limit, watts)


def check_power(watts: Sequence[float], chosen: Sequence[int] = (), *, key: str = "knob.watts") -> None:
    """Refuse, before anything is started, limits that no GPU here takes or that this user must not set."""
    try:
        limits = _named(chosen, read_power_limits())
        for value in watts:
            problems = [problem for limit in limits if (problem := _range_problem(limit, value))]
            if len(problems) == len(limits):  # with several kinds of GPUs, another may be that of the server
                raise problems[0]
        for limit in limits:
            check_permission(limit)
    except PowerProblem as problem:
        advice = f"; run: {shlex.join(('sudo', '-E', *sys.orig_argv))}" if problem.code == "permission" else ""
        raise BadInput(f"{problem}{advice}", key=key) from None


def choose_watts() -> tuple[int, ...]:
    """Return limits below the default to try, the highest first, that all GPUs here take and this user may set."""
    try:
        limits = read_power_limits()
        for limit in limits:
            check_permission(limit)
    except PowerProblem as problem:
        raise BadInput(str(problem), key="--power") from None
    highest, lowest = min(limit.default_w for limit in limits), max(limit.min_w for limit in limits)
    found = dict.fromkeys(max(round(share * highest / _STEP_W) * _STEP_W, ceil(lowest)) for share in _SHARES)
    return tuple(watts for watts in found if watts < highest)


def _range_problem(limit: PowerLimit, watts: float) -> PowerProblem | None:
    try:
        check_watts(limit, watts)
    except PowerProblem as problem:
        return problem
    return None


def _named(chosen: Sequence[int], limits: Sequence[PowerLimit]) -> Sequence[PowerLimit]:
    known = {limit.index: limit for limit in limits}
    if missing := [index for index in chosen if index not in known]:
        raise PowerProblem("no_gpu", f"there is no GPU {missing[0]} whose power limit can be set")
    return [known[index] for index in chosen] if chosen else limits


def _serving(url: str, chosen: Sequence[int], limits: Sequence[PowerLimit]) -> Sequence[PowerLimit]:
    """Return the GPUs that are named, else those on which the server computes, else the only one."""
    if chosen:
        return _named(chosen, limits)
    from swarmtui.telemetry.discovery import listeners_at, with_gpus
    from swarmtui.telemetry.gpu.readers import read_gpus

    gpus, _ = read_gpus()
    root = f"http://127.0.0.1:{urlsplit(url).port}"
    listener = listeners_at([root]).get(root)
    server = DiscoveredServer(url=root, reachable=True, pid=listener.pid if listener else None)
    names = with_gpus([server], gpus)[0].gpus
    used = {gpu.part_of or gpu.uuid for gpu in gpus if gpu.uuid in names}
    found = [limit for limit in limits if limit.uuid in used] or limits
    if not used and len(limits) > 1:
        raise PowerProblem(
            "no_gpu", f"which of the {len(limits)} GPUs the server uses is not known; name them: gpus = [0]"
        )
    return found
