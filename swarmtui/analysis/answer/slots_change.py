"""What is known of a change between two numbers of slots, and their answers."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.model.answer import Answer
from swarmtui.numbers import rate
from swarmtui.text import count_noun


class SlotsChange(NamedTuple):
    """A server with `was`, then `now` slots in total, and the answers of both sessions.

    `agents` are the numbers of both. `setting` is the flag that gave it the slots before; empty if that is not known.
    """

    was: int
    now: int
    before: Answer
    after: Answer
    agents: tuple[int | None, int | None]
    setting: str = ""

    @property
    def fewer_are_worse(self) -> bool:
        """Whether fewer slots have fewer agents; without a number of them, less output."""
        was, now = self.agents
        if was is not None and now is not None:
            return now < was
        first, second = self.before.at_capacity, self.after.at_capacity
        if not first or not second or first.out_tps is None or second.out_tps is None:
            return False
        return second.out_tps < first.out_tps * (1.0 - hypot(first.half_width or 0.0, second.half_width or 0.0))

    @property
    def no_more_output(self) -> bool:
        """Whether more slots did not raise the tok/s in total, at the capacity or the best level."""
        first, second = self.before.at_capacity, self.after.at_capacity
        if self.now < self.was or not first or not second or not first.out_tps or second.out_tps is None:
            return False
        width = hypot(first.half_width or 0.0, second.half_width or 0.0)
        return second.out_tps / first.out_tps - 1.0 <= max(MIN_GAIN, width)

    @property
    def no_more_agents(self) -> bool:
        """Whether more slots have no more agents."""
        was, now = self.agents
        return self.now > self.was and was is not None and now is not None and now <= was

    @property
    def output(self) -> str:
        first, second = self.before.at_capacity, self.after.at_capacity
        assert first is not None and second is not None
        if first.c == second.c:
            return f"{rate(first.out_tps)} → {rate(second.out_tps)} tok/s"
        with_first = count_noun(first.c, "agent")
        return f"{rate(first.out_tps)} tok/s with {with_first}, {rate(second.out_tps)} with {second.c}"
