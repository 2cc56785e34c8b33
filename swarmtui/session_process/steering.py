"""What people want of a run: the movement that its plan began with, until they take the wheel."""

from __future__ import annotations

import asyncio
from typing import Literal

from swarmtui.model import client_protocol as said
from swarmtui.model.plan import Plan
from swarmtui.model.plan_options import IN_ONE_WAY
from swarmtui.session_process.layout import Movement

# go on; end this run; do something else; hold; end all.
Turn = Literal["go", "next", "turn", "pause", "stop"]


class Wheel:
    """`turn` is what becomes of the present stretch, `movement` what is carried out.

    `grace_s` is how long a stop waits; `hurry` is set when it was asked for again, or without any grace.
    """

    def __init__(self, plan: Plan) -> None:
        self.turn: Turn = "go"
        self.movement: Movement = said.Sweep(plan.levels, plan.runs)
        if plan.mode != "sweep":
            self.movement = said.FindCliff() if plan.mode == "cliff" else said.SetConcurrency(plan.levels[0])
        self.grace_s = 0.0
        self.hurry = asyncio.Event()
        # The tasks of some workloads belong together, and can be asked in one way alone.
        self._fixed = plan.load in IN_ONE_WAY

    def obey(self, command: said.Command) -> bool:
        """Whether that was a command of this moment."""
        match command:
            case said.Stop(grace_s):
                # Asked again, there is no more waiting.
                if self.turn == "stop" or not grace_s:
                    self.hurry.set()
                self.grace_s = min(grace_s, self.grace_s) if self.turn == "stop" else grace_s
                self.turn = "stop"
            case said.SetConcurrency() | said.Sweep() | said.FindCliff() if self.turn != "stop" and not self._fixed:
                self.movement, self.turn = command, "turn"
            case said.NextLevel() if self.turn != "stop":
                self.turn = "next"
            case said.Pause() if self.turn == "go":
                self.turn = "pause"
            case said.Resume() if self.turn == "pause":
                self.turn = "go"
            case _:
                return False
        return True

    def asked(self) -> Turn:
        """Commands come in while one waits: what was true before an await need not be true behind it."""
        return self.turn

    def go_on(self) -> None:
        self.turn = "go"
