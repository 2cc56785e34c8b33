"""A model of an engine with continuous batching, in virtual time: without clock and I/O, and deterministic.

Each replica admits requests while running < slots. Each step decodes all running requests and uses the rest of the
token budget for prefill; it lasts t(b) + prefill tokens / P. The step that completes a prompt gives its first token.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from swarmtui.sim.presets import Preset, StepTime


def block_hashes(pieces: Sequence[str], size: int) -> tuple[int, ...]:
    """Return one hash for each full block, which covers all tokens before it: equal hashes mean equal prefixes."""
    hashes: list[int] = []
    chain = 0
    for start in range(0, len(pieces) - size + 1, size):
        chain = hash((chain, tuple(pieces[start : start + size])))
        hashes.append(chain)
    return tuple(hashes)


class PrefixCache:
    """Blocks by hash; the least recently used is evicted first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int]) -> int:
        """Return the number of cached blocks from the start."""
        known = 0
        for block in blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            known += 1
        return known

    def add(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)


CACHE_TOKENS = 1 << 20


class Job(msgspec.Struct, eq=False):
    """A request in the engine. Its times are None until they are reached."""

    number: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    replica: int = 0
    prefill_left: int = 0
    cached: int = 0
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
        self.kv_tokens_used = 0
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._preset = preset
        self._rng = rng
        self._free_at = 0.0
        self._t = [step_seconds(preset.step_ms)(b) for b in range(preset.slots + 1)]
        self._run_factor = 1.0
        self._drafted = preset.speculative.tokens
        self._cache = PrefixCache((preset.kv_tokens or CACHE_TOKENS) // preset.block_size)

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
        """End the current step, and return it with its tokens."""
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
            self.kv_tokens_used += count
            job.last_token = end
            ended = ended or job.produced >= job.output_tokens
            tokens.append((job, count))
        for job, chunk in step.prefilling:
            if job.gone:
                continue
            job.prefill_left -= chunk
            if job.prefill_left:
                continue
            self._cache.add(job.blocks)
            job.produced += 1
            self.kv_tokens_used += 1
            job.last_token = end
            if job.first_token is None:
                job.first_token = end
                step.firsts.append(job)
            ended = ended or job.done
            tokens.append((job, 1))
        if ended:
            for job in self.running:
                if job.done:
                    self.kv_tokens_used -= job.prompt_tokens + job.produced
            self.running = [job for job in self.running if not job.done]
        return step

    def remove(self, job: Job) -> None:
        """Remove a request whose client disconnected; its slot is free from the next step on."""
        job.gone = True
        if job in self.running:
            self.running.remove(job)
            self.kv_tokens_used -= job.prompt_tokens + job.produced
        elif job in self.waiting:
            self.waiting.remove(job)

    def _admit(self, now: float) -> None:
        room = self._preset.kv_tokens
        while self.waiting and len(self.running) < self._preset.slots:
            job = self.waiting[0]
            growth = (len(self.running) + 1) * (1 + self._drafted)
            if (
                room is not None
                and self.running
                and self.kv_tokens_used + job.prompt_tokens + job.produced + growth > room
            ):
                break
            self.waiting.popleft()
            self.running.append(job)
            self.kv_tokens_used += job.prompt_tokens + job.produced
            if self._preset.prefix_cache:
                self._match_prefix(job)
            if job.admitted is None:
                job.admitted = now

    def _match_prefix(self, job: Job) -> None:
        """Skip the prefill of cached blocks; at least one token is always computed."""
        size = self._preset.block_size
        known = min(self._cache.match(job.blocks) * size, (job.prompt_tokens - 1) // size * size)
        job.prefill_left -= known
        self.prefix_queries += job.prompt_tokens
        self.prefix_hits += known
        if job.admitted is None:
            job.cached = known

    def _preempt(self) -> None:
        """If the KV cache is full, put the latest request back at the head of the queue, to be recomputed."""
        room = self._preset.kv_tokens
        if room is None:
            return
        growth = 1 + self._drafted
        while len(self.running) > 1 and self.kv_tokens_used + len(self.running) * growth > room:
            job = self.running.pop()
            self.kv_tokens_used -= job.prompt_tokens + job.produced
            job.prefill_left = job.prompt_tokens + job.produced
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
