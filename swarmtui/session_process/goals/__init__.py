"""Goals: what a running session works towards. `Stages` runs stages; the goal decides which one comes next."""

from __future__ import annotations

from swarmtui.model import client_protocol
from swarmtui.model.load import MAX_STREAMS
from swarmtui.session_process.goals import capacity, cliff, sweep
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.steering import Goal


async def pursue(goal: Goal, stages: Stages) -> bool:
    """Run stages until the goal is reached or a command ends it; return False if no request was answered."""
    match goal:
        case client_protocol.SetConcurrency(c):
            # Manual control: C streams stay busy until the user changes C or sets another goal.
            while await stages.run_continuous(min(MAX_STREAMS, max(1, c)), None):
                pass
        case client_protocol.Sweep(levels, runs):
            return await sweep.run(stages, levels, runs)
        case client_protocol.FindCliff(max_c):
            await cliff.search(stages, max_c)
        case client_protocol.FindCapacity():
            await capacity.search(stages, goal)
    return True
