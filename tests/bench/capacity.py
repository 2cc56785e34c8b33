"""Search the capacity in simulations: does the interval contain the truth, and how long does it take?

python -m tests.bench.capacity shares [--quick] [--seeds N] [--truth C,C…]     servers whose share of good requests
    falls in steps: steep, gentle, flat, with and without visits that differ, and one with a dip; requests, and seconds
    if a request of the answer's level takes 3 s; --quick: searches that decide at 20 %, in a minute, also of servers
    with a queue, in which requests that follow each other are alike
python -m tests.bench.capacity scatter [--sure] [--seeds N] [--truth C,C…]    how often quick searches of one such
    server are said to differ, also if the server drifts by 5 % between them, and how often those of one that carries
    more; --sure: searches that decide at 1 %
python -m tests.bench.capacity varies [--seeds N]    quick searches of servers with a queue, whose speed varies from one
    visit to the next and from minute to minute: does the answer keep the SLO a minute later, and the first level above
    its range miss it?
python -m tests.bench.capacity pairs [--seeds N]    how often quick searches of one such server are said to differ, and
    of two, by the numbers of agents alone and with the levels that both visited
python -m tests.bench.capacity traces PRESET [--seeds 1-10 | --truth 10-16]     the simulator, in virtual time

In `traces`, C agents with contexts like those of coding agents take turns as in the load mode `sessions`: sessions
are played in order, which a seed decides, those of a run after those of the run before, and the next request of an
agent is due when its pause after the last answer is over, at most ten seconds. The truth is the highest C at which long
runs keep the SLO; the eviction cliff lies between the highest C with at most 5 points below the highest possible hit
rate, and the next.
"""

from __future__ import annotations

import argparse
import math
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import cycle, islice, pairwise
from random import Random
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.agents import capacity, predict_kv_cliff
from swarmtui.analysis.capacity.judged_levels import Visit, visit_kept
from swarmtui.analysis.capacity.slo_search import next_visit, search_state
from swarmtui.analysis.compare.agents import compare_agents
from swarmtui.analysis.compare.rooms import room_change
from swarmtui.analysis.limits.slo import Slo, SloTally, parse_slo
from swarmtui.client.plan_builder import QUICK_ALPHA, QUICK_BUDGET_S
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.findings import Capacity
from swarmtui.model.record import Record
from swarmtui.model.session import TraceFigures
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.prompts.traces.recordings import RecordedRequest, Recording, first_sessions, live_context
from swarmtui.session_process.goals.capacity import Budget, VisitTally
from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.presets import Preset, find_preset
from tests.analysis.level_builders import level

SLO = parse_slo("ttft_p95=2s,stream_p5=20")
CLAIMS = ("more agents", "fewer agents")
SHARES, QUICK_SHARES = parse_slo("ttft_p95=2s"), parse_slo("ttft_p90=2s")
ALPHA = 0.01
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


def search(preset: Preset, recordings: Sequence[Recording], seed: int) -> tuple[str, int, int]:
    """Return the answer in short, its C, and the number of runs."""
    visits: list[Visit] = []
    hits: dict[int, list[Run]] = {}
    while (following := next_visit(visits, SLO, 1024, ALPHA)) is not None:
        c = following.c
        number = 1 + sum(visit.c == c for visit in visits)
        ran = play(preset, recordings, c, max(REQUESTS * c, following.requests), seed, number)
        hits.setdefault(c, []).append(ran)
        visits.append(Visit(c, SLO, ran.records))
    levels = [
        level(c, replay=TraceFigures(jobs=0, failed=0, hit_rate=_mean([one.hit_rate for one in of]),
                                      max_hit_rate=_mean([one.max_hit_rate for one in of])))
        for c, of in hits.items()
    ]  # fmt: skip
    answer = capacity(SLO, visits, levels, alpha=ALPHA)
    kv = answer.kv
    cliff = f"evicts at {kv.c}: {kv.hit_before:.2f} → {kv.hit_after:.2f}" if kv and kv.c else "no eviction"
    return f"{answer.agents} ({answer.low}–{answer.high}), {cliff}, {len(hits)} levels", answer.agents, len(visits)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def long_run(preset: Preset, recordings: Sequence[Recording], c: int) -> tuple[bool, float]:
    """Print and return whether C agents keep the SLO in long runs, and how far below the possible the hit rate is."""
    runs = [play(preset, recordings, c, LONG_RUN * c, seed) for seed in LONG_RUN_SEEDS]
    shares = [one.share or 0.0 for one in SloTally(SLO, [r for run in runs for r in run.records]).conditions()]
    hit_rate, most = _mean([run.hit_rate for run in runs]), _mean([run.max_hit_rate for run in runs])
    text = ", ".join(f"{share:.3f}" for share in shares)
    print(f"  C={c:<3} shares {text}; hit rate {hit_rate:.2f}, possible {most:.2f}", flush=True)
    return all(share >= one.share for share, one in zip(shares, SLO.conditions, strict=True)), most - hit_rate


# The width over which the share falls, as a share of the answer: 95 % is passed by one unit of log odds in it.
SHAPES = {"steep": 0.02, "gentle": 0.12, "flat": 0.4, "flatter": 1.0}
REQUEST_S = 3.0
DIP = 4
# The correlation of requests that follow each other in a queue.
ALIKE = 0.8
NORMAL = NormalDist()
# How much a server differs from one search to the next (standard deviation of its log).
DRIFT = 0.05


class CountedVisit(Visit):
    """A visit of which only the number of requests is known."""

    def __init__(self, c: int, slo: SloTally) -> None:
        self.c, self.slo = c, slo


class Counted(SloTally):
    def __init__(self, good: int, n: int, slo: Slo) -> None:
        super().__init__(slo)
        self.add_counts(0, [(good, n)])


def search_shares(
    shape: str, truth: float, seed: int, differ: float, dip: int = 0, *, quick: bool = False, alike: float = 0.0
) -> tuple[Capacity, float]:
    """Return the answer, and the seconds; `differ` is how much the log odds of visits differ.

    `alike` is the correlation of requests that follow each other.
    """
    rng, visits, seconds = Random(seed), list[Visit](), 0.0
    slo, alpha = (QUICK_SHARES, QUICK_ALPHA) if quick else (SHARES, ALPHA)
    required = slo.conditions[0].share
    while (following := next_visit(visits, slo, 1024, alpha, quick=quick)) is not None:
        c = following.c
        odds = (
            math.log(required / (1 - required)) + (truth + 0.5 - c) / (truth * SHAPES[shape]) + rng.gauss(0.0, differ)
        )
        share = 0.5 if c == dip else 1.0 / (1.0 + math.exp(-max(-30.0, odds)))
        good = n = 0
        z = rng.gauss(0.0, 1.0)
        while n < following.requests:
            n, good = n + 1, good + (NORMAL.cdf(z) < share)
            z = alike * z + math.sqrt(1.0 - alike * alike) * rng.gauss(0.0, 1.0)
            if n >= 4 and n.bit_count() == 1 and visit_kept(Counted(good, n, slo), alpha) is False:
                break
            if quick and n >= 4 and visit_kept(Counted(good, n, slo), alpha):
                break
        # Half of the time does not depend on the load; beyond the answer requests queue. A cycle is pre-roll.
        request_s = REQUEST_S * (0.5 + 0.5 * min(1.0, c / truth)) * max(1.0, c / truth)
        seconds += request_s * (1 + n / c) + 1.0
        if quick and seconds > QUICK_BUDGET_S:
            break
        visits.append(CountedVisit(c, Counted(good, n, slo)))
    return capacity(slo, visits, [], alpha=alpha), seconds


def search_answer(shape: str, truth: float, seed: int, differ: float, *, quick: bool = True) -> Answer:
    """Return the answer of a search; a quick one ends with the visit that its time allows."""
    found, _ = search_shares(shape, truth, seed, differ, quick=quick)
    return _as_answer(found)


def print_scatter(seeds: int, truths: Sequence[int], *, quick: bool = True) -> None:
    """Count what is said about pairs of servers by a search of each, each with a drift of its own.

    Of two that are equal, nothing should be claimed; one that carries 1.5 or 1.25 times as many agents is to be found.
    """
    columns = "  ".join(f"{name:>12}" for name in ("equal", "+50 % found", "+25 % found"))
    print(f"{'':31}  without drift, then with it, in percent")
    print(f"shape    visits differ  truth    {columns}")
    for shape in SHAPES:
        for differ in (0.0, 0.4):
            for truth in truths:
                answers = partial(_answers, seeds, shape, truth, differ, quick)
                still = [answers(start) for start in (0, 10_000)]
                same = [answers(start, drift=DRIFT) for start in (30_000, 40_000)]
                cells = [_shares(still, same, CLAIMS)]
                for factor in (1.5, 1.25):
                    faster = [still[0], answers(20_000, factor)]
                    cells.append(_shares(faster, [same[0], answers(70_000, factor, drift=DRIFT)], CLAIMS[:1]))
                shown = "  ".join(f"{' '.join(f'{100 * share:3.0f}' for share in cell):>12}" for cell in cells)
                print(f"{shape:8} {differ:13} {truth:6}    {shown}", flush=True)


def _shares(
    still: Sequence[Sequence[Answer]], drifted: Sequence[Sequence[Answer]], words: Sequence[str]
) -> list[float]:
    """Return the share of comparisons that say one of the words, without drift and with it."""
    every = [[compare_agents(a, b) for a, b in zip(*sides, strict=True)] for sides in (still, drifted)]
    return [_mean([change is not None and change.word in words for change in found]) for found in every]


def _answers(
    seeds: int, shape: str, truth: int, differ: float, quick: bool, start: int, factor: float = 1.0, drift: float = 0.0
) -> list[Answer]:
    """Search servers that carry `factor` times the truth, and differ by a drift."""
    carried = {seed: factor * truth * math.exp(Random(seed).gauss(0.0, drift)) for seed in range(start, start + seeds)}
    return [search_answer(shape, number, seed, differ, quick=quick) for seed, number in carried.items()]


def print_shares(seeds: int, truths: Sequence[int], *, quick: bool = False) -> None:
    print(
        "shape    visits differ  alike  truth  covers  repeat  |error|  median width  dip named  visits  requests  "
        "seconds (most)"
    )
    queues = (0.0, ALIKE) if quick else (0.0,)
    rows = [
        (shape, differ, alike, truth, 0)
        for shape in SHAPES
        for differ in (0.0, 0.4)
        for alike in queues
        for truth in truths
    ]
    dips = [("steep", 0.0, 0.0, truth, DIP) for truth in truths if truth > 2 * DIP]
    for shape, differ, alike, truth, dip in [*rows, *dips]:
        found = [search_shares(shape, truth, seed, differ, dip, quick=quick, alike=alike) for seed in range(seeds)]
        answers, times = [answer for answer, _ in found], [seconds for _, seconds in found]
        covered = _mean([_covers(one, truth) for one in answers])
        repeated = _mean([_covers(one, other.agents) for one, other in pairwise(answers)])
        error = _mean([abs(one.agents - truth) for one in answers])
        width = sorted((one.high or math.inf) - one.low for one in answers)[seeds // 2]
        named = _mean([any(finding.code == "dip" for finding in one.findings) for one in answers])
        visits, requests = _mean([one.visits for one in answers]), _mean([one.requests for one in answers])
        print(
            f"{'dip' if dip else shape:8} {differ:13} {alike:6} {truth:6} {covered:7.0%} {repeated:7.0%} {error:8.1f} "
            f"{width:13.0f} {named:10.0%} {visits:7.0f} {requests:9.0f} {_mean(times):8.0f} ({max(times):.0f})",
            flush=True,
        )


class Queueing(NamedTuple):
    """A server with so many slots and requests per second, on which the first token of `truth` agents takes 2 s."""

    truth: int
    slots: int
    rate: float

    def first_tokens(self, c: int, speed: float, rng: Random) -> Iterator[float]:
        """Draw the times to the first token of requests that follow each other, and are alike."""
        waits = 2.0 * max(c - self.slots, 0.08 * self.slots) / (self.truth + 0.5 - self.slots)
        z = rng.gauss(0.0, 1.0)
        while True:
            yield waits / speed * math.exp(0.03 * z)
            z = 0.7 * z + math.sqrt(1.0 - 0.7 * 0.7) * rng.gauss(0.0, 1.0)

    def keeps(self, c: int, speed: float, rng: Random) -> bool:
        """Return whether a direct run keeps the SLO."""
        values = islice(self.first_tokens(c, speed, rng), DIRECT)
        return sum(value <= 2.0 for value in values) >= 0.9 * DIRECT

    def search(
        self, minute: float, differ: float, rng: Random, near: Sequence[int] = ()
    ) -> tuple[Capacity, list[Visit], float]:
        """Return the answer of the program's own quick search in virtual time, its visits, and its seconds.

        `near` are the levels at the border of the search that it is compared with.
        """
        now = [0.0]
        budget, visits = Budget(QUICK_BUDGET_S, lambda: now[0]), list[Visit]()
        choose = partial(next_visit, visits, VARIES, 1024, QUICK_ALPHA, quick=True, slots=self.slots, near=near)
        while (following := choose()) is not None:
            if not budget.allows(following):
                break
            c, started, speed = following.c, now[0], minute * math.exp(rng.gauss(0.0, differ))
            run = VisitTally(c, VARIES, QUICK_ALPHA)
            request_s = 1.0 / (self.rate * speed * min(1.0, max(c / self.slots, 0.3)))
            now[0] += 0.5 + c * request_s
            for first_s in islice(self.first_tokens(c, speed, rng), max(following.requests, c // 2)):
                now[0] += request_s
                run.add(_waited(first_s, c, speed * math.exp(rng.gauss(0.0, 0.02))))
                if run.missed or budget.ends(run):
                    break
            budget.add(run.visit, now[0] - started)
            visits.append(run.visit)
        return capacity(VARIES, visits, [], alpha=QUICK_ALPHA), visits, now[0]

    def is_right(self, differ: float, minutes: float, seed: int) -> bool:
        """Whether direct runs confirm a search that goes to the border of one of another server."""
        rng = Random(seed)
        other = self._replace(truth=max(self.slots + 1, round(self.truth * rng.uniform(0.6, 1.6))))
        first, *_ = other.search(1.0, differ, rng)
        near = [c for c in (first.agents, first.next_c) if c]
        answer, *_ = self.search(math.exp(rng.gauss(0.0, minutes)), differ, rng, near)
        later = math.exp(rng.gauss(0.0, minutes)) * math.exp(rng.gauss(0.0, differ))
        above = answer.high is None or not self.keeps(answer.high + 1, later, rng)
        return above and self.keeps(max(answer.agents, 1), later, rng)


def _waited(first_s: float, c: int, speed: float) -> Record:
    """Return a request after a wait, whose answer is as fast as the server."""
    first = round(1e9 * first_s)
    last = first + round(3e8 / speed)
    return Record(
        task=1, stage=1, c=c, run=1, t_sent_ns=0, t_first_ns=first, t_last_ns=last,
        t_done_ns=last, chunks=100, first_tokens=1, tokens_in=100, tokens_out=128, token_source="usage",
    )  # fmt: skip


VARIES = parse_slo("ttft_p90=2s,stream_p10=20")
QUEUEING = [Queueing(*of) for of in ((29, 4, 13), (18, 4, 8.5), (14, 2, 7), (20, 16, 8), (60, 16, 15), (8, 4, 4))]
DIRECT = 80


def print_varies(seeds: int) -> None:
    print("truth  slots  visits differ  minutes  kept  above missed  both  again  agents / truth  range  seconds")
    for server in QUEUEING:
        for differ, minutes in ((0.0, 0.0), (0.03, 0.0), (0.06, 0.05), (0.1, 0.05)):
            rng, kept, missed, share, width, times = Random(server.truth), [], [], [], [], []
            again = [server.is_right(differ, minutes, seed) for seed in range(seeds)]
            for _ in range(seeds):
                answer, _, seconds = server.search(math.exp(rng.gauss(0.0, minutes)), differ, rng)
                later = math.exp(rng.gauss(0.0, minutes)) * math.exp(rng.gauss(0.0, differ))
                kept.append(server.keeps(max(answer.agents, 1), later, rng))
                missed.append(answer.high is None or not server.keeps(answer.high + 1, later, rng))
                share.append(answer.agents / server.truth)
                width.append(((answer.high or math.inf) + 1) / max(answer.low, 1))
                times.append(seconds)
            both = _mean([a and b for a, b in zip(kept, missed, strict=True)])
            print(
                f"{server.truth:5} {server.slots:6} {differ:14} {minutes:8} {_mean(kept):5.0%} {_mean(missed):13.0%} "
                f"{both:5.0%} {_mean(again):6.0%} {_mean(share):15.2f} {sorted(width)[seeds // 2]:6.2f} "
                f"{_mean(times):8.0f}",
                flush=True,
            )


def print_pairs(seeds: int) -> None:
    """Print how often a change is claimed, with and without the levels that both searches share."""
    print("more agents  visits differ  minutes  levels  numbers alone  with levels  the wrong way")
    for factor in (1.0, 1.25, 1.5):
        for differ, minutes in ((0.03, 0.0), (0.06, 0.05), (0.1, 0.05), (0.1, 0.1)):
            found = [
                _pair(server, factor, differ, minutes, Random(977 * seed + server.truth))
                for server in QUEUEING
                for seed in range(seeds)
            ]
            alone, levels = (_mean([words[at] in ("more agents", "fewer agents") for words in found]) for at in (0, 1))
            wrong, shared = _mean([words[1] == "fewer agents" for words in found]), _mean([words[2] for words in found])
            print(
                f"{factor - 1:11.0%} {differ:14} {minutes:8} {shared:7.1f} {alone:14.0%} {levels:12.0%} "
                f"{wrong if factor > 1.0 else 0.0:14.0%}",
                flush=True,
            )


def _pair(server: Queueing, factor: float, differ: float, minutes: float, rng: Random) -> tuple[str, str, int]:
    """Return the verdicts on a server and one with `factor` as many agents, and the levels that their searches share.

    The first verdict is that of the numbers alone.
    """
    first, visits, _ = server.search(math.exp(rng.gauss(0.0, minutes)), differ, rng)
    other = server._replace(truth=round(server.truth * factor))
    near = [c for c in (first.agents, first.next_c) if c]
    then, again, _ = other.search(math.exp(rng.gauss(0.0, minutes)), differ, rng, near)
    rooms = room_change(*(search_state(of, None, QUICK_ALPHA) for of in (visits, again)))
    sides = [_as_answer(found) for found in (first, then)]
    alone, together = compare_agents(*sides), compare_agents(*sides, rooms=rooms)
    assert alone is not None and together is not None
    return alone.word, together.word, len(rooms.levels) if rooms is not None else 0


def _as_answer(found: Capacity) -> Answer:
    said = AnswerSentence(code="capacity", sentence="")
    return Answer(
        headline=said, limit=said, agents=found.agents, low=found.low, high=found.high, slo=found.slo,
        confidence=1.0 - found.alpha,
    )  # fmt: skip


def _covers(answer: Capacity, agents: int) -> bool:
    return answer.low <= agents <= (math.inf if answer.high is None else answer.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("shares", "scatter", "varies", "pairs", "traces"))
    parser.add_argument("preset", nargs="?", default="agents-small-kv")
    parser.add_argument("--seeds", default="", help="the number of searches, or the first and the last seed: 1-10")
    parser.add_argument("--truth", help="the answers, or the lowest and the highest C of long runs, such as 10-16")
    parser.add_argument("--quick", action="store_true", help="shares: searches that decide at 20 %%, in a minute")
    parser.add_argument("--sure", action="store_true", help="scatter: searches that decide at 1 %%")
    given = parser.parse_args()
    if given.what == "scatter":
        truths = [int(c) for c in (given.truth or "3,6,12,16,23,60").split(",")]
        print_scatter(int(given.seeds or 200), truths, quick=not given.sure)
        return
    if given.what == "varies":
        print_varies(int(given.seeds or 40))
        return
    if given.what == "pairs":
        print_pairs(int(given.seeds or 20))
        return
    if given.what == "shares":
        print_shares(
            int(given.seeds or 20), [int(c) for c in (given.truth or "3,16,23,60").split(",")], quick=given.quick
        )
        return
    recordings = [record_session(number) for number in range(SESSIONS)]
    context = live_context(recordings, max_gap_s=MAX_GAP_S, time_scale=1.0)
    assert context is not None
    preset = msgspec.structs.replace(find_preset(given.preset), block_size=BLOCK)
    kv = predict_kv_cliff(context, [DiscoveredServer(url="", kv_tokens=preset.kv_tokens)])
    print(f"{preset.name}: {preset.kv_tokens:,} tokens / {context:,.0f} per agent: {kv.predicted:.1f} agents predicted")
    first, last = map(int, (given.truth or given.seeds or "1-10").split("-"))
    if not given.truth:
        answers = []
        for seed in range(first, last + 1):
            text, agents, runs = search(preset, recordings, seed)
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
