"""A model of an engine with continuous batching, in virtual time: without clock and I/O, and deterministic.

Each replica admits requests while running < slots. Each step decodes all running requests and uses the rest of the
token budget for prefill; it lasts t(b) + prefill tokens / P. The step that completes a prompt gives its first token.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from swarmtui.sim.kv_pool import KvPool
from swarmtui.sim.presets import Preset, StepTime


class Job(msgspec.Struct, eq=False):
    """A request in the engine. Its times are None until they are reached.

    `held` is the number of blocks of its prompt that it shares with others through the KV cache.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    replica: int = 0
    prefill_left: int = 0
    cached: int = 0
    held: int = 0
    produced: int = 0
    preemptions: int = 0
    gone: bool = False
    arrived: float = 0.0
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def __post_init__(self) -> None:
        self.prefill_left = self.prompt_tokens

    @property
    def done(self) -> bool:
        return self.produced >= self.output_tokens

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.produced


class Step(msgspec.Struct, eq=False):
    """One step of one replica; `tokens`, `firsts` and `accepted` are set when it ends."""

    replica: int
    start: float
    end: float
    decoding: list[Job]
    prefilling: list[tuple[Job, int]]
    tokens: list[tuple[Job, int]] = []
    firsts: list[Job] = []
    drafts: int = 0
    accepted: int = 0

    @property
    def batch(self) -> int:
        return len(self.decoding) + len(self.prefilling)


def step_seconds(step: StepTime) -> Callable[[int], float]:
    """Return t(b), in seconds."""
    if not step.at:
        a, c = step.a / 1e3, step.c / 1e3
        return lambda b: a + c * b
    points = sorted((int(b), ms / 1e3) for b, ms in step.at.items())
    if len(points) == 1:
        constant = points[0][1]
        return lambda b: constant

    def between(b: int) -> float:
        right = next((i for i, (x, _) in enumerate(points) if x >= b and i > 0), len(points) - 1)
        (x0, y0), (x1, y1) = points[right - 1], points[right]
        return max(y0 + (y1 - y0) * (b - x0) / (x1 - x0), 1e-6)

    return between


class EngineReplica:
    """One engine: its queue, its slots, and its current step."""

    def __init__(self, number: int, preset: Preset, rng: random.Random) -> None:
        self.number = number
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.step: Step | None = None
        # Requests that the current step left in the queue; those that arrived since may be part of the next one.
        self.left_waiting = 0
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._preset = preset
        self._rng = rng
        self._free_at = 0.0
        self._t = [step_seconds(preset.step_ms)(b) for b in range(preset.slots + 1)]
        self._run_factor = 1.0
        self._drafted = preset.speculative.tokens
        self._pool = KvPool(preset.kv_tokens, preset.block_size)
        self._refused: tuple[Job, int] | None = None

    @property
    def kv_tokens_used(self) -> int:
        return self._pool.used_tokens

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def begin(self, others_work: bool) -> None:
        """Start the next step, at the end of the last one or at the first arrival at an idle replica."""
        start = self._free_at if self.running else max(self._free_at, self.waiting[0].arrived)
        if not self.running:
            self._run_factor = self._noise_factor(self._preset.noise.run_cv)
        self._admit(start)
        self._preempt()
        self.left_waiting = len(self.waiting)
        decoding = [job for job in self.running if not job.prefill_left]
        left = self._preset.budget - len(decoding) * (1 + self._drafted)
        prefilling: list[tuple[Job, int]] = []
        if len(decoding) < len(self.running):
            for job in self.running:
                if job.prefill_left and left > 0:
                    chunk = min(job.prefill_left, left)
                    left -= chunk
                    prefilling.append((job, chunk))
        step = Step(self.number, start, start, decoding, prefilling)
        seconds = self._t[step.batch] + sum(chunk for _, chunk in prefilling) / self._preset.prefill_tps
        factor = self._run_factor * self._noise_factor(self._preset.noise.step_cv)
        if self.waiting:
            factor *= self._preset.waiting_factor
        if others_work:
            factor *= self._preset.together_factor
        step.end = start + seconds * factor
        self.step = step

    def finish(self) -> Step:
        step = self.step
        assert step is not None
        self.step = None
        self._free_at = end = step.end
        tokens = step.tokens
        ended = False
        for job in step.decoding:
            if job.gone:
                continue
            count = 1 if not self._drafted else self._accept(step, job)
            job.produced += count
            job.last_token = end
            ended = ended or job.produced >= job.output_tokens
            tokens.append((job, count))
        for job, chunk in step.prefilling:
            if job.gone:
                continue
            job.prefill_left -= chunk
            if job.prefill_left:
                continue
            self._pool.share(job.blocks[job.held :])
            job.held = len(job.blocks)
            job.produced += 1
            job.last_token = end
            if job.first_token is None:
                job.first_token = end
                step.firsts.append(job)
            ended = ended or job.done
            tokens.append((job, 1))
        self._pool.grow(sum(count for _, count in tokens))
        if ended:
            for job in self.running:
                if job.done:
                    self._release(job)
            self.running = [job for job in self.running if not job.done]
        return step

    def remove(self, job: Job) -> None:
        """Remove a request whose client disconnected; its slot is free from the next step on."""
        job.gone = True
        if job in self.running:
            self.running.remove(job)
            self._release(job)
        elif job in self.waiting:
            self.waiting.remove(job)

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self._preset.slots:
            job = self.waiting[0]
            if self.running and not self._fits(job):
                break
            self.waiting.popleft()
            self.running.append(job)
            size = self._preset.block_size
            # At least one token of a prompt is always computed.
            known = job.blocks[: (job.prompt_tokens - 1) // size]
            job.held = self._pool.acquire(job.tokens, known)
            if self._preset.prefix_cache:
                job.prefill_left -= job.held * size
                self.prefix_queries += job.prompt_tokens
                self.prefix_hits += job.held * size
                if job.admitted is None:
                    job.cached = job.held * size
            if job.admitted is None:
                job.admitted = now

    def _fits(self, job: Job) -> bool:
        """Return whether the KV cache has room. A refusal holds until blocks change, as requests only grow."""
        refusal = job, self._pool.changes
        if refusal == self._refused:
            return False
        growth = (len(self.running) + 1) * (1 + self._drafted)
        fits = self._pool.fits(job.tokens + growth, job.blocks)
        self._refused = None if fits else refusal
        return fits

    def _release(self, job: Job) -> None:
        self._pool.release(job.tokens, job.blocks[: job.held])
        job.held = 0

    def _preempt(self) -> None:
        """Put the latest request back at the head of the queue if the KV cache is full; it will be recomputed."""
        while len(self.running) > 1 and not self._pool.fits(len(self.running) * (1 + self._drafted)):
            job = self.running.pop()
            self._release(job)
            job.prefill_left = job.tokens
            job.preemptions += 1
            self.preemptions += 1
            self.waiting.appendleft(job)

    def _accept(self, step: Step, job: Job) -> int:
        accepted = 0
        while accepted < self._drafted and self._rng.random() < self._preset.speculative.acceptance:
            accepted += 1
        accepted = min(accepted, job.output_tokens - job.produced - 1)
        step.drafts += 1
        step.accepted += accepted
        return 1 + accepted

    def _noise_factor(self, cv: float) -> float:
        if not cv:
            return 1.0
        sigma = math.sqrt(math.log1p(cv * cv))
        return self._rng.lognormvariate(-sigma * sigma / 2, sigma)


class BatchingEngine:
    """All replicas behind one address; requests go to the one with the fewest requests."""

    def __init__(self, preset: Preset, seed: int = 0) -> None:
        rng = random.Random(seed)
        self.replicas = tuple(
            EngineReplica(number, preset, random.Random(rng.random())) for number in range(preset.replicas)
        )

    def submit(self, job: Job, at: float) -> None:
        """Add a request that arrives at `at`; the caller has advanced to `at`, so that no step starts late."""
        replica = min(self.replicas, key=lambda r: r.load)
        job.arrived = at
        job.replica = replica.number
        replica.waiting.append(job)

    def cancel(self, job: Job) -> None:
        self.replicas[job.replica].remove(job)

    def next_end(self) -> float | None:
        """Return when the next step ends; None if all replicas are idle."""
        self._begin()
        return min((r.step.end for r in self.replicas if r.step), default=None)

    def advance(self, to: float) -> Iterator[Step]:
        """Yield all steps that end by then, in order of their ends."""
        while True:
            self._begin()
            replica = min((r for r in self.replicas if r.step), key=_end, default=None)
            if replica is None or _end(replica) > to:
                return
            yield replica.finish()

    def _begin(self) -> None:
        for replica in self.replicas:
            if replica.step is None and replica.load:
                replica.begin(any(other.load for other in self.replicas if other is not replica))


def _end(replica: EngineReplica) -> float:
    assert replica.step is not None
    return replica.step.end
