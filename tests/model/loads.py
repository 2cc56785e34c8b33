"""One load of each mode."""

from __future__ import annotations

from swarmtui.model.load import Barrier, Closed, Dag, Load, Mixed, Open, Ramp, Sessions, Swarm

LOADS: tuple[Load, ...] = (
    Closed(), Barrier(runs=2), Swarm(agents=5), Open(rate=2.0), Ramp(to=4), Mixed(), Dag(size=3), Sessions(),
)  # fmt: skip
