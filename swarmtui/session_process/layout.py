"""How the levels of a plan are laid on: in which order, from which feed, and how long it will take."""

from __future__ import annotations

import time

from swarmtui.model import client_protocol as said
from swarmtui.model.level_key import Place
from swarmtui.model.plan import Mode, Plan
from swarmtui.model.workload import Graph
from swarmtui.prompts.arrivals import arrivals
from swarmtui.session_process.load_modes import Arriving, Asker, Beside, Feed, Fresh, Waiting
from swarmtui.session_process.stage import Stretch

Movement = said.SetConcurrency | said.Sweep | said.FindCliff


class Layout:
    """`load` is the plan's, until people take the wheel: what they steer is a closed loop."""

    def __init__(self, plan: Plan, asker: Asker) -> None:
        self._plan, self._asker = plan, asker
        self.load: Mode = plan.load

    @property
    def duration_s(self) -> float | None:
        """How long a run lasts, where that and nothing else ends it."""
        return self._plan.duration_s if self.load == "closed" else None

    def order(self, levels: tuple[int, ...], runs: int) -> list[tuple[Place, int]]:
        """Level by level; rotated, every run begins with another level, as the rows of a Latin square do."""
        places: list[Place] = [(c, None) for c in levels]
        if self.load == "open":
            places = [(c, rate) for c in levels for rate in self._plan.rates]
        if not self._plan.rotate:
            return [(place, run) for place in places for run in range(1, runs + 1)]
        turned = [places[run % len(places) :] + places[: run % len(places)] for run in range(runs)]
        return [(place, run) for run, row in enumerate(turned, 1) for place in row]

    def feed(self, place: Place, run: int) -> Feed:
        plan, graph = self._plan, self._asker.source.workload
        c, rate = place
        match self.load:
            case "open" if rate is not None:
                times = arrivals(rate, plan.arrival, plan.burst, plan.seed, run)
                of = None if plan.duration_s else plan.requests.at(c)
                return Arriving(self._asker, c, times, of, plan.duration_s)
            case "mixed":
                return Beside(self._asker, c, plan.loop)
            case "dag" if isinstance(graph, Graph):
                return Waiting(self._asker, c, graph)
            case "barrier" | "swarm":
                return Fresh(self._asker, c, c)
        return Fresh(self._asker, c, None if plan.duration_s else plan.requests.at(c))

    def alone(self, c: int, contents: list[int]) -> list[int]:
        """What of a batch is asked again, one by one: all, or a sample from which the rest is extrapolated."""
        plan = self._plan
        if c == 1 or self.load not in ("barrier", "swarm") or plan.serial == "none" or plan.serial_decode_tps:
            return []
        return contents if plan.serial == "measured" else contents[: plan.sample]

    def left_s(self, stretch: Stretch | None, movement: Movement, last_e2e_s: float | None) -> float | None:
        """Seconds to the end, taking the time of the last request for the time of each to come."""
        if stretch is None or stretch.phase == "warmup" or not isinstance(movement, said.Sweep):
            return None
        all_runs = self.order(movement.levels, movement.runs)
        here = ((stretch.c, stretch.rate), stretch.run)
        to_come = all_runs[all_runs.index(here) + 1 :] if here in all_runs else []
        if self.duration_s is not None:
            return max(0.0, (stretch.until or 0.0) - time.monotonic()) + self.duration_s * len(to_come)
        if last_e2e_s is None or self.load in ("open", "ramp") or stretch.feed.of is None:
            return None
        rounds = sum(self._rounds(c) for (c, _), _ in to_come)
        return last_e2e_s * (rounds + max(0, stretch.feed.of - stretch.done) / stretch.streams)

    def _rounds(self, c: int) -> float:
        """How many requests one stream makes after another in a run of this level."""
        if self.load == "closed":
            return self._plan.requests.at(c) / c
        return 1.0 + len(self.alone(c, [0] * c))
