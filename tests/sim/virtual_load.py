"""Apply load to the engine in virtual time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec

from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.presets import Preset


class VirtualLoadResult(msgspec.Struct, frozen=True):
    jobs: list[Job]

    @property
    def wall_s(self) -> float:
        return max(last_token(job) for job in self.jobs)

    @property
    def output_tps(self) -> float:
        return sum(job.produced for job in self.jobs) / self.wall_s

    @property
    def ttft_s(self) -> float:
        return sum(first_token(job) - job.arrived for job in self.jobs) / len(self.jobs)


def first_token(job: Job) -> float:
    assert job.first_token is not None
    return job.first_token


def last_token(job: Job) -> float:
    assert job.last_token is not None
    return job.last_token


def decode_tps(job: Job) -> float:
    return (job.produced - 1) / (last_token(job) - first_token(job))


def closed_loop(preset: Preset, c: int, lengths: Sequence[int], *, prompt: int, seed: int = 0) -> VirtualLoadResult:
    """C agents, each of which sends its next request when the last one ends; with C tasks in all it is a barrier.

    The next request comes a millisecond after the end of the last, when the engine is already in its next step.
    """
    engine = BatchingEngine(preset, seed)
    jobs = [Job(number, prompt, length) for number, length in enumerate(lengths)]
    queue = iter(jobs)
    coming = deque((0.0, job) for job in islice(queue, c))
    while coming or engine.next_end() is not None:
        for step in engine.advance(coming[0][0] if coming else engine.next_end() or 0.0):
            ended = [job for job, _ in step.tokens if job.done]
            coming.extend((step.end + 0.001, job) for job in islice(queue, len(ended)))
        while coming and (engine.next_end() or math.inf) > coming[0][0]:
            at, job = coming.popleft()
            engine.submit(job, at)
    return VirtualLoadResult(jobs)
