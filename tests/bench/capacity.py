"""Search the capacity of the simulator in virtual time, and compare the answers with long runs.

python -m tests.bench.capacity PRESET [--seeds 1-10 | --truth 10-16]

C agents with contexts like those of coding agents take turns as in the load mode `sessions`: sessions are played in
order, which a seed decides, those of a run after those of the run before, and the next request of an agent is due when
its pause after the last answer is over, at most ten seconds. The truth is the highest C at which long runs keep the
SLO; the eviction cliff lies between the highest C with at most 5 points below the highest possible hit
rate, and the next.
"""

from __future__ import annotations

import argparse
import math
from array import array
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.agents import AgentTally, capacity, next_level, predict_kv_cliff, repeat_requests
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model.record import Record
from swarmtui.model.session import TraceFigures
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.prompts.traces.recordings import RecordedRequest, Recording, first_sessions, trace_means
from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.presets import Preset, find_preset
from tests.analysis.level_builders import level

SLO = parse_slo("ttft_p95=2s,stream_p5=20")
BLOCK = 256
MAX_GAP_S = 10.0
SESSIONS = 200
# Requests of each agent: in a run, about two sessions as in the load mode, and in a long run.
REQUESTS = 48
LONG_RUN = 200
# Long runs are repeated with other orders of the sessions.
LONG_RUN_SEEDS = range(101, 109)


def lognormal(rng: Random, middle: float, p90: float) -> float:
    return middle * math.exp(rng.gauss(0.0, 1.0) * math.log(p90 / middle) / 1.2816)


def record_session(number: int) -> Recording:
    """Draw a session: prompts grow from about 30,000 tokens, and are compacted above 200,000."""
    rng = Random(number)
    requests: list[RecordedRequest] = []
    tokens, blocks, used = int(lognormal(rng, 30_000, 60_000)), 0, 0
    for turn in range(min(60, max(8, int(lognormal(rng, 24, 45))))):
        if turn:
            tokens += int(lognormal(rng, 1_000, 7_000))
        if tokens > 200_000:
            tokens, blocks = 40_000, 20_000 // BLOCK
        keep, blocks = blocks, tokens // BLOCK
        new = array("q", range(used, used + blocks - keep))
        used += len(new)
        out = int(min(2_000, max(20, lognormal(rng, 240, 800))))
        gap_s = lognormal(rng, 6, 60) if turn else 0.0
        requests.append(RecordedRequest(turn, 0, tokens, out, keep, new, (turn - 1,) if turn else (), gap_s))
        tokens += out
    return Recording(str(number), BLOCK, False, tuple(requests), tuple(range(len(requests))))


class Run(NamedTuple):
    records: list[Record]
    hit_rate: float
    max_hit_rate: float


class Agent:
    """Plays sessions one after another in one slot, the first from a place of its own."""

    def __init__(self, first: Recording, share: float, recordings: Iterator[Recording], rng: Random) -> None:
        self._recordings, self._rng = recordings, rng
        self._start(first, share)
        self.answered = False

    def _start(self, recording: Recording, share: float) -> None:
        self._recording = recording
        self._key = self._rng.random()
        self._position = int(share * len(self._recording.requests))
        self._blocks: list[int] = []
        for before in self._recording.requests[: self._position]:
            self._blocks[before.keep :] = before.new
        self._sent = 0

    def next_job(self, number: int) -> tuple[Job, int]:
        """Return the next request, and how many of its tokens were sent before in this session."""
        request = self._recording.requests[self._position]
        kept = min(request.keep, self._sent)
        self._blocks[request.keep :] = request.new
        self._sent = len(self._blocks)
        hashes = tuple(hash((self._key, index, block)) for index, block in enumerate(self._blocks))
        return Job(number, request.input_tokens, request.output_tokens, hashes), kept * BLOCK

    def finish(self) -> float:
        """Return the pause before the next request."""
        self.answered = True
        self._position += 1
        if self._position == len(self._recording.requests):
            self._start(next(self._recordings), 0.0)
            return 0.01
        return min(self._recording.requests[self._position].gap_s, MAX_GAP_S)


def play(preset: Preset, recordings: Sequence[Recording], c: int, requests: int, seed: int, run: int = 1) -> Run:
    """Run C agents until so many requests have ended after the first answer of each of them."""
    rng = Random(seed)
    engine = BatchingEngine(preset, seed)
    order = rng.sample(recordings, len(recordings))
    following = islice(cycle(order), (run - 1) * 2 * c % len(order), None)
    first = list(islice(following, c))
    sessions = first_sessions([len(recording.requests) for recording in first])
    agents = [Agent(first[session], slot / c, following, rng) for slot, session in enumerate(sessions)]
    due = [(slot * min(2.0, MAX_GAP_S / c), slot) for slot in range(c)]
    running: dict[int, tuple[int, bool, int]] = {}
    records: list[Record] = []
    number = sent = reusable = hits = 0
    while len(records) < requests:
        end = engine.next_end()
        if due and (end is None or due[0][0] <= end):
            at, slot = heappop(due)
            list(engine.advance(at))
            job, known = agents[slot].next_job(number)
            running[number] = slot, all(agent.answered for agent in agents), known
            engine.submit(job, at)
            number += 1
            continue
        assert end is not None
        for step in engine.advance(end):
            for job in [job for job, _ in step.tokens if job.done]:
                slot, measured, known = running.pop(job.number)
                heappush(due, (step.end + agents[slot].finish(), slot))
                if measured:
                    records.append(_record(job, c, run))
                    sent, reusable, hits = sent + job.prompt_tokens, reusable + known, hits + job.cached
    return Run(records, hits / sent, reusable / sent)


def _record(job: Job, c: int, run: int) -> Record:
    assert job.first_token is not None and job.last_token is not None
    first, last = round(1e9 * job.first_token), round(1e9 * job.last_token)
    return Record(
        task=job.number, stage=1, c=c, run=run, t_sent_ns=round(1e9 * job.arrived), t_first_ns=first, t_last_ns=last,
        t_done_ns=last, chunks=job.produced, first_tokens=1, tokens_in=job.prompt_tokens, tokens_out=job.produced,
        cached_tokens=job.cached, token_source="usage",
    )  # fmt: skip


def search(
    preset: Preset, recordings: Sequence[Recording], seed: int, prompt_tokens: float | None
) -> tuple[str, int, int]:
    """Return the answer in short, its C, and the number of runs."""
    found: dict[int, AgentTally] = {}
    hits: dict[int, list[Run]] = {}
    runs = 0
    while (c := next_level(found, 1024, prompt_tokens)) is not None:
        tally = found.setdefault(c, AgentTally(c, SLO))
        requests = max(REQUESTS * c, repeat_requests(SLO) if tally.runs else 0)
        ran = play(preset, recordings, c, requests, seed, tally.runs + 1)
        hits.setdefault(c, []).append(ran)
        tally.merge(AgentTally(c, SLO, ran.records, runs=1))
        runs += 1
    levels = [
        level(c, replay=TraceFigures(jobs=0, failed=0, hit_rate=_mean([one.hit_rate for one in of]),
                                      max_hit_rate=_mean([one.max_hit_rate for one in of])))
        for c, of in hits.items()
    ]  # fmt: skip
    answer = capacity(SLO, found, levels, prompt_tokens=prompt_tokens)
    kv = answer.kv
    cliff = f"evicts at {kv.c}: {kv.hit_before:.2f} → {kv.hit_after:.2f}" if kv and kv.c else "no eviction"
    return f"{answer.agents} ({answer.low}–{answer.high}), {cliff}, {len(found)} levels", answer.agents, runs


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def long_run(preset: Preset, recordings: Sequence[Recording], c: int) -> tuple[bool, float]:
    """Print and return whether C agents keep the SLO in long runs, and how far below the possible the hit rate is."""
    runs = [play(preset, recordings, c, LONG_RUN * c, seed) for seed in LONG_RUN_SEEDS]
    shares = [one.share or 0.0 for one in AgentTally(c, SLO, [r for run in runs for r in run.records]).slo.conditions()]
    hit_rate, most = _mean([run.hit_rate for run in runs]), _mean([run.max_hit_rate for run in runs])
    text = ", ".join(f"{share:.3f}" for share in shares)
    print(f"  C={c:<3} shares {text}; hit rate {hit_rate:.2f}, possible {most:.2f}", flush=True)
    return all(share >= one.share for share, one in zip(shares, SLO.conditions, strict=True)), most - hit_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--seeds", default="1-10", help="the first and the last seed of searches")
    parser.add_argument("--truth", help="the lowest and the highest C of long runs, such as 10-16")
    given = parser.parse_args()
    recordings = [record_session(number) for number in range(SESSIONS)]
    context, prompt = trace_means(recordings, max_gap_s=MAX_GAP_S, time_scale=1.0)
    assert context is not None
    preset = msgspec.structs.replace(find_preset(given.preset), block_size=BLOCK)
    kv = predict_kv_cliff(context, [DiscoveredServer(url="", kv_tokens=preset.kv_tokens)])
    print(f"{preset.name}: {preset.kv_tokens:,} tokens / {context:,.0f} per agent: {kv.predicted:.1f} agents predicted")
    first, last = map(int, given.truth.split("-") if given.truth else given.seeds.split("-"))
    if not given.truth:
        answers = []
        for seed in range(first, last + 1):
            text, agents, runs = search(preset, recordings, seed, prompt)
            answers.append(agents)
            print(f"  seed {seed}: {text}, {runs} runs", flush=True)
        print(f"{preset.name}: {answers}")
        return
    found = {c: long_run(preset, recordings, c) for c in range(first, last + 1)}
    kept = max((c for c, (good, _) in found.items() if good), default=0)
    unevicted = max((c for c, (_, lost) in found.items() if lost < 0.05), default=0)
    error = kv.predicted / (unevicted + 0.5) - 1.0 if kv.predicted else 0.0
    print(f"{preset.name}: keeps the SLO up to {kept}; evicts above {unevicted}: prediction {100 * error:+.0f} %")


if __name__ == "__main__":
    main()
