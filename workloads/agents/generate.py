"""Generate the recorded sessions of the workload `agents`: `python workloads/agents/generate.py` writes the same again.

Nothing is copied from a recording. The distributions have the shape of public traces of coding agents, at about a tenth
of their length, so that the prompts fit into a context of 16,384 tokens:

    requests of a session    lognormal, median 8, from 4 to 16
    first prompt             lognormal, median 3,000 tokens
    new prompt tokens        lognormal, median 350, p90 2,000
    answer                   lognormal, median 120, p90 400, at most 800
    pause before a request   lognormal, median 6 s, p90 60 s
    sub-agents               in every fourth session: one to three at once, of two to five requests each
    compaction               a prompt above 14,000 tokens becomes its first 2,000 and 2,000 new ones
"""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from random import Random

from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession
from swarmtui.prompts.sampling import draw_normal, random_stream
from swarmtui.prompts.traces.weka import BLOCK_SIZE, weka_json

SESSIONS = 24
MOST_TOKENS = 14_000
# Of the standard normal distribution.
_P90 = 1.2816


class Agent:
    """The requests of one agent, one after another."""

    def __init__(self, rng: Random, ids: list[int], first_tokens: int) -> None:
        self._rng, self._ids = rng, ids
        self._tokens, self._blocks = first_tokens, list[int]()
        self.time = 0.0

    def request(self, subagents: tuple[SubAgent, ...] = (), waited: float = 0.0) -> TraceRequest:
        """`waited` is the time that the sub-agents took."""
        rng, first = self._rng, not self._blocks
        think = 0.0 if first else lognormal(rng, 6, 60) + waited
        if not first:
            self._tokens += int(lognormal(rng, 350, 2_000))
        if self._tokens > MOST_TOKENS:
            del self._blocks[2_000 // BLOCK_SIZE :]
            self._tokens = 4_000
        while (len(self._blocks) + 1) * BLOCK_SIZE <= self._tokens:
            self._ids[0] += 1
            self._blocks.append(self._ids[0])
        out = int(min(800, max(5, lognormal(rng, 120, 400))))
        self.time += think
        made = TraceRequest(
            input_tokens=self._tokens, output_tokens=out, at_s=round(self.time, 1), think_s=round(think, 1),
            took_s=round(1 + out / 50, 1), blocks=tuple(self._blocks), subagents=subagents,
        )  # fmt: skip
        self.time += made.took_s or 0.0
        self._tokens += out
        return made


def lognormal(rng: Random, median: float, p90: float) -> float:
    return median * exp(log(p90 / median) / _P90 * draw_normal(rng))


def session(number: int) -> TraceSession:
    rng, ids = random_stream("agents", number), [0]
    parent = Agent(rng, ids, int(min(8_000, lognormal(rng, 3_000, 5_000))))
    turns = int(min(16, max(4, lognormal(rng, 8, 14))))
    fan_out_at = turns // 2 if number % 4 == 3 else None
    requests = []
    for turn in range(turns):
        agents: list[SubAgent] = []
        waited = 0.0
        for _ in range(1 + int(rng.random() * 3) if turn == fan_out_at else 0):
            helper = Agent(rng, ids, int(lognormal(rng, 1_000, 2_000)))
            made = tuple(helper.request() for _ in range(2 + int(rng.random() * 4)))
            agents.append(SubAgent(at_s=round(parent.time, 1), requests=made))
            waited = max(waited, helper.time)
        requests.append(parent.request(tuple(agents), waited))
    return TraceSession(id=f"agent-{number:02}", requests=tuple(requests))


if __name__ == "__main__":
    for index in range(SESSIONS):
        (Path(__file__).parent / f"agent-{index:02}.json").write_bytes(weka_json(session(index)) + b"\n")
