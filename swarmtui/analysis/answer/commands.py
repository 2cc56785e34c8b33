"""Make the commands that measure the server of a session again."""

from __future__ import annotations

import shlex

from swarmtui.analysis.compare.verdicts import MIN_RUNS
from swarmtui.analysis.limits.slo import DEFAULT_SLO
from swarmtui.engines.simulator import simulator_address
from swarmtui.model.plan import DEFAULT_WORKLOAD, is_open_loop
from swarmtui.model.session import Summary


def same_target(summary: Summary) -> str | None:
    """Return the options with which a command asks the same server the same; None if its address is not known.

    Without an address, a command would ask whatever server is on this host.
    """
    session = summary.session
    first = session.endpoints[0] if session.endpoints else None
    address = first.url if first else None
    if first is not None and first.embedded:
        # It has another address each time.
        address = simulator_address(summary.servers[0].flags if summary.servers else None)
    if not address:
        return None
    options = {
        "--workload": session.workload_file or (session.workload if session.workload != DEFAULT_WORKLOAD else None),
        "--slo": session.plan.slo if session.plan.slo != DEFAULT_SLO else None,
    }
    given = "".join(f" {name} {shlex.quote(value)}" for name, value in options.items() if value)
    return f" {shlex.quote(address)}{given}"


def command_again(summary: Summary, *, longer: bool = False) -> str:
    """Return the command that measures the same server again, often enough for a verdict; empty for another tool's.

    A quick search is repeated as it is, unless a `longer` one is asked for.
    """
    plan, target = summary.session.plan, same_target(summary)
    if target is None:
        return ""
    cap = f" --max-tokens {plan.max_tokens}" if plan.max_tokens is not None else ""
    if plan.goal in ("capacity", "cliff"):
        command = (
            "run --find-cliff" if plan.goal == "cliff" else "quick" if plan.is_quick and not longer else "capacity"
        )
        return f"swarmtui {command}{target}{cap}"
    option = "--rate" if is_open_loop(summary.levels) else "--levels"
    loads = ",".join(f"{level.offered_load:g}" for level in summary.levels)
    return f"swarmtui run --runs {MIN_RUNS} {option} {loads}{target}{cap}"
