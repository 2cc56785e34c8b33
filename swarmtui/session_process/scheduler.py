"""Run a plan: warm-up and canaries, then what the goal decides, stage by stage."""

from __future__ import annotations

from typing import Literal

from swarmtui.model import client_protocol
from swarmtui.prompts.canaries import COUNT as CANARIES
from swarmtui.session_process.goals import pursue
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.steering import Goal
from swarmtui.session_process.task_sources import CanaryTasks, WarmupTasks
from swarmtui.session_process.workers import ActiveStage


class Scheduler(Stages):
    """Runs the stages of a session. It runs in the event loop of the session process and never blocks it."""

    def set_goal(self, goal: Goal) -> None:
        if not self.steering.set_goal(goal):
            return
        self.load.mode = self.load.mode.steered()
        match goal, self._stage:
            case client_protocol.SetConcurrency(c, cancel=True), ActiveStage() as stage:
                if c < stage.c and not stage.source.continues:
                    self._workers.start_stage(stage, c=max(1, c), cancel=True)

    async def run(self) -> Literal["done", "stopped", "unusable"]:
        if self.plan.load.warmup_requests and not await self._warm_up():
            return "stopped" if self.steering.state == "stop" else "unusable"
        if self.plan.load.canary_share:
            await self.run_stage(1, 0, "canary", CanaryTasks(self._factory, 1, CANARIES))
        while True:
            if self.steering.current_state() == "new_goal":
                self.steering.resume()
            if not await pursue(self.steering.goal, self):
                return "unusable"
            if self.steering.current_state() != "new_goal":
                break
        await self.levels_computed()
        manual = isinstance(self.steering.goal, client_protocol.SetConcurrency)
        return "stopped" if self.steering.state == "stop" and not manual else "done"

    async def _warm_up(self) -> bool:
        """Return whether at least one request succeeded, or a command ended it before."""
        count = self.plan.load.warmup_requests
        streams = min(count, max(self.plan.load.levels))
        stage = await self.run_stage(streams, 0, "warmup", WarmupTasks(self._factory, streams, count))
        state = self.steering.current_state()
        if state == "next":
            self.steering.resume()
        return state != "stop" and (state != "run" or stage.succeeded > 0)
