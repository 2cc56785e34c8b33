"""Track what the user wants from a run: the plan's own goal, until a client sends another one."""

from __future__ import annotations

import asyncio
from typing import Literal

from swarmtui.model import client_protocol
from swarmtui.model.plan import Plan
from swarmtui.model.plan_options import FIXED_MODES

Goal = client_protocol.SetConcurrency | client_protocol.Sweep | client_protocol.FindCliff | client_protocol.FindCapacity

# run: continue; next: end this run; new_goal: end it, run the new goal; pause: send nothing; stop: end the session.
SteeringState = Literal["run", "next", "new_goal", "pause", "stop"]


class Steering:
    """The user's current request: `state` decides what happens to the running stage, `goal` what the scheduler runs.

    `grace_s` is how long a stop waits for requests in flight; `stop_now` is set by a second stop, or one without grace.
    """

    def __init__(self, plan: Plan) -> None:
        self.state: SteeringState = "run"
        self.goal: Goal = client_protocol.Sweep(plan.levels, plan.runs)
        if plan.mode == "cliff":
            self.goal = client_protocol.FindCliff(plan.max_c)
        elif plan.mode == "capacity":
            self.goal = client_protocol.FindCapacity(plan.slo, plan.max_c)
        elif plan.mode == "manual":
            self.goal = client_protocol.SetConcurrency(plan.levels[0])
        self.grace_s = 0.0
        self.stop_now = asyncio.Event()
        # The tasks of these workloads depend on each other and cannot run as a closed loop.
        self._fixed = plan.load in FIXED_MODES

    def handle_command(self, command: client_protocol.ClientCommand) -> bool:
        """Apply a command; return whether it changed anything."""
        match command:
            case client_protocol.Stop(grace_s):
                stopping = self.state == "stop"
                if stopping or not grace_s:
                    self.stop_now.set()
                self.grace_s = min(grace_s, self.grace_s) if stopping else grace_s
                self.state = "stop"
            case _ if self.state == "stop":
                return False
            case (
                client_protocol.SetConcurrency()
                | client_protocol.Sweep()
                | client_protocol.FindCliff()
                | client_protocol.FindCapacity()
            ):
                if self._fixed:
                    return False
                self.goal, self.state = command, "new_goal"
            case client_protocol.NextLevel():
                self.state = "next"
            case client_protocol.Pause() if self.state == "run":
                self.state = "pause"
            case client_protocol.Resume() if self.state == "pause":
                self.state = "run"
            case _:
                return False
        return True

    def current_state(self) -> SteeringState:
        """Return the state. It may change during an await, but a type checker would assume that `state` has not."""
        return self.state

    def resume(self) -> None:
        self.state = "run"
