"""Find how many agents a server carries within an SLO: the next level of the search, and its answer.

The search doubles C until a level misses the SLO, bisects, and repeats the levels at the border until the bounds of
Clopper and Pearson decide them, or `MAX_REPEATS` are done. More agents do not keep an SLO better: neighbouring
levels are counted together where one contradicts that by chance, and for the bounds, which account for runs that
differ. With enough runs around the border, a curve through all of them says where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.cliff import middle_level
from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.levels.runs import in_flight_span
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.slo import Slo, SloTally, dispersion, is_kept, least_n
from swarmtui.model.findings import Capacity, KeptShare, KvCliff
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import count, fixed, short

# The fewest runs of a level at the border, and the most repetitions of all levels.
MIN_RUNS, MAX_REPEATS = 3, 12
# The search ends when the levels on both sides of the border are this close.
_PRECISION = 0.02
# Levels that are counted together, at most.
_NEIGHBOURS = 4
# Levels within this factor of the border are on the curve, if they have at least this many runs together.
_CURVE_RANGE, _CURVE_RUNS = 1.2, 5
# With a border by the curve, the next level is within this factor of it.
_BORDER_RANGE = 1.1
# If the border stays undecided, levels above it, this factor apart, are measured until one clearly misses the SLO.
_STEP_ABOVE = 1.25
# A run counts as this many independent requests at most, since its requests are alike.
RUN_SIZE = 80
# The prior of slope 0 weighs as much as this many requests.
_PRIOR_SIZE = 0.01
# The unit of the load: a relative difference of 10 %.
_LOAD_UNIT = 0.1
_FIT_STEPS = 60
# Prompts are evicted at a level if the hit rate is this much lower than at a level with fewer agents.
_HIT_DROP = 0.05


class AgentTally:
    """The facts about one level: how many requests met the SLO, and the mean context of an agent."""

    def __init__(self, c: int, slo: Slo, records: Iterable[Record] = (), runs: int = 0) -> None:
        self.c, self.runs = c, runs
        self.slo = SloTally(slo)
        self._context = self._seconds = 0.0
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        self.slo.add(record)
        span = in_flight_span(record)
        if record.ok and record.tokens_in is not None and record.tokens_out is not None and span is not None:
            seconds = (span[1] - span[0]) / 1e9
            self._context += seconds * (record.tokens_in + record.tokens_out)
            self._seconds += seconds

    def merge(self, other: AgentTally) -> None:
        self.runs += other.runs
        self.slo.merge(other.slo)
        self._context += other._context
        self._seconds += other._seconds

    @property
    def context_tokens(self) -> float | None:
        return ratio(self._context, self._seconds)


class LevelVerdict(NamedTuple):
    """Whether a level keeps the SLO by its shares, and whether the bounds show that it does or does not."""

    tally: AgentTally
    passes: bool
    kept: bool | None


class Judgement(NamedTuple):
    """The measured levels in order of C, and the border between them if a curve could be fitted."""

    levels: list[LevelVerdict]
    border: float | None = None


def judge(found: Mapping[int, AgentTally], prompt_tokens: float | None = None) -> Judgement:
    """Judge the measured levels; `prompt_tokens` is the mean length of the prompts of a trace."""
    tallies = [found[c] for c in sorted(found) if found[c].slo.n]
    if not tallies:
        return Judgement([])
    shares = [
        (condition.share, _falling_shares([tally.slo.runs(number) for tally in tallies]))
        for number, condition in enumerate(tallies[0].slo.slo.conditions)
    ]
    passes = [all(found[at] >= required for required, found in shares) for at in range(len(tallies))]
    near = _near_border(tallies, passes)
    border = _border_by_curve(near, prompt_tokens)
    if border is not None:
        # The curve says nothing about levels further away.
        below = max((tally.c for tally in tallies if tally.c < near[0].c), default=0)
        border = min(max(below, border), near[-1].c)
        passes = [tally.c <= border for tally in tallies]
    levels = [LevelVerdict(tally, passes[at], _decided(tallies, at)) for at, tally in enumerate(tallies)]
    return Judgement(levels, border)


def _near_border(tallies: Sequence[AgentTally], passes: Sequence[bool]) -> list[AgentTally]:
    """Return the levels around the border; none if there is no border."""
    if all(passes):
        return []
    low = max((tally.c for tally, kept in zip(tallies, passes, strict=True) if kept), default=0)
    high = tallies[passes.index(False)].c
    return [tally for tally in tallies if low / _CURVE_RANGE <= tally.c <= high * _CURVE_RANGE]


def _border_by_curve(near: Sequence[AgentTally], prompt_tokens: float | None) -> float | None:
    """Return the C up to which all conditions are kept by curves; None if there are too few runs or no fall."""
    if sum(tally.runs for tally in near) < _CURVE_RUNS:
        return None
    borders = []
    for number, condition in enumerate(near[0].slo.slo.conditions):
        runs = [
            RunShare(tally.c, good, n, prompts / n)
            for tally in near
            for (good, n), prompts in zip(tally.slo.runs(number), tally.slo.prompt_tokens, strict=True)
        ]
        borders.append(crossing(runs, condition.share, prompt_tokens))
    known = [border for border in borders if border is not None]
    return min(known) if len(known) == len(borders) else None


def _falling_shares(levels: Sequence[Sequence[tuple[int, int]]]) -> list[float]:
    """Return the share of good requests at each level by isotonic regression: it never rises from one to the next."""
    pools: list[tuple[int, int, int]] = []
    for runs in levels:
        pool = sum(good for good, _ in runs), sum(n for _, n in runs), 1
        while pools and pools[-1][0] * pool[1] < pool[0] * pools[-1][1]:
            before = pools.pop()
            pool = before[0] + pool[0], before[1] + pool[1], before[2] + pool[2]
        pools.append(pool)
    return [good / n for good, n, size in pools for _ in range(size)]


def _decided(tallies: Sequence[AgentTally], at: int) -> bool | None:
    """Return whether a level is shown to keep the SLO, with levels above it, or to miss it, with levels below it."""
    if any(_kept(tallies[at:end]) for end in range(at + 1, min(at + _NEIGHBOURS, len(tallies)) + 1)):
        return True
    missed = any(_kept(tallies[start : at + 1]) is False for start in range(at, max(at - _NEIGHBOURS, -1), -1))
    return False if missed else None


def _kept(tallies: Sequence[AgentTally]) -> bool | None:
    states = []
    for number, condition in enumerate(tallies[0].slo.slo.conditions):
        runs = [run for tally in tallies for run in tally.slo.runs(number)]
        n = sum(size for _, size in runs)
        if len(runs) < MIN_RUNS:
            # So few do not show how much runs differ.
            alike = max(1.0, n / len(runs) / RUN_SIZE)
        else:
            alike = dispersion(runs) * (t_quantile(0.95, len(runs) - 1) / NormalDist().inv_cdf(0.95)) ** 2
        states.append(is_kept(sum(good for good, _ in runs) / alike, n / alike, condition.share))
    return False if False in states else None if None in states else True


def repeat_requests(slo: Slo) -> int:
    """Return how many requests a repetition should have to decide a level: enough to allow for a miss."""
    return max(least_n(condition.share) * 3 // 2 for condition in slo.conditions)


def next_level(found: Mapping[int, AgentTally], highest: int, prompt_tokens: float | None = None) -> int | None:
    """Return the C to measure next, for the first time or again; None at the end of the search."""
    verdicts, border = judge(found, prompt_tokens)
    passed = [one for one in verdicts if one.passes]
    failed = [one for one in verdicts if not one.passes]
    low = passed[-1].tally.c if passed else 0
    if not failed:
        following = min(max(2 * low, 1), highest)
        if following > low:
            return following
    elif (middle := middle_level(low, high := failed[0].tally.c, _PRECISION)) is not None:
        if border is not None:
            low, high = max(low, int(border / _BORDER_RANGE)), min(high, int(border * _BORDER_RANGE) + 1)
        return middle_level(low, high, _PRECISION) or middle
    around = [*passed[-1:], *failed[:1]]
    open_levels = [one.tally for one in around if one.kept is not one.passes or one.tally.runs < MIN_RUNS]
    if open_levels and sum(one.tally.runs - 1 for one in verdicts) < MAX_REPEATS:
        return min(open_levels, key=lambda tally: tally.runs).c
    if failed and not any(one.kept is False for one in failed):
        # The interval needs an end: a level that clearly misses the SLO.
        above = min(max(failed[-1].tally.c + 1, round(_STEP_ABOVE * failed[-1].tally.c)), highest)
        return above if above > failed[-1].tally.c else None
    return None


def capacity(
    slo: Slo,
    found: Mapping[int, AgentTally],
    levels: Sequence[Level],
    servers: Sequence[DiscoveredServer] = (),
    *,
    context_tokens: float | None = None,
    prompt_tokens: float | None = None,
    gpus: int = 0,
    price_per_hour: float | None = None,
) -> Capacity:
    """Return the most agents that keep the SLO, with an interval, and what ends it; 0 `gpus` are not known."""
    verdicts = judge(found, prompt_tokens).levels
    failing = next((one.tally for one in verdicts if not one.passes), None)
    agents = max((one.tally.c for one in verdicts if one.passes), default=0)
    at = next((level for level in levels if level.c == agents), None)
    watts = at.energy.mean_w if at and at.energy else None
    answer = Capacity(
        slo=str(slo),
        agents=agents,
        low=max((one.tally.c for one in verdicts if one.kept and one.passes), default=0),
        high=min((one.tally.c - 1 for one in verdicts if one.kept is False and not one.passes), default=None),
        next_c=failing.c if failing else None,
        kv=_kv_cliff(levels, predict_kv_cliff(context_tokens, servers)),
        agents_per_gpu=ratio(agents, gpus),
        agents_per_kw=ratio(agents, watts / 1000.0 if watts else None),
        price_per_million=cost_per_million(at, price_per_hour),
    )
    return msgspec.structs.replace(answer, sentence=_sentence(answer, failing))


def cost_per_million(level: Level | None, price_per_hour: float | None) -> float | None:
    """Return the cost of a million output tokens at a level."""
    if level is None or price_per_hour is None or not level.headline_tps:
        return None
    return price_per_hour / 3600.0 / level.headline_tps * 1e6


class _HitRate(NamedTuple):
    """The share of prompt tokens that came from the prefix cache at a level, and the highest possible one if known."""

    c: int
    share: float
    most: float | None

    @property
    def relative(self) -> float:
        return self.share / (self.most or 1.0)


def _hit_rate(level: Level) -> _HitRate | None:
    if level.replay is not None:
        hit, most = level.replay.hit_rate, level.replay.max_hit_rate
        return _HitRate(level.c, hit, most) if hit is not None and most else None
    found = ratio(level.cached_tokens, level.tokens_in) if level.cached_tokens is not None else None
    return None if found is None else _HitRate(level.c, found, None)


def _kv_cliff(levels: Sequence[Level], predicted: KvCliff) -> KvCliff | None:
    """Find the lowest level at which the hit rate has fallen; how much is possible differs between sessions.

    It is compared with that of the level below, or with the best one if it fell little by little.
    """
    before: _HitRate | None = None
    best: _HitRate | None = None
    for level in sorted(levels, key=lambda level: level.c):
        found = _hit_rate(level)
        if found is None:
            continue
        for above in (before, best):
            if above is not None and found.relative <= above.relative - _HIT_DROP:
                return msgspec.structs.replace(
                    predicted, c_before=above.c, hit_before=above.share, max_hit_before=above.most,
                    c=found.c, hit_after=found.share, max_hit_after=found.most,
                )  # fmt: skip
        before = found
        best = max(best or found, found, key=lambda hit: hit.relative)
    if before is not None:
        predicted = msgspec.structs.replace(
            predicted, c_before=before.c, hit_before=before.share, max_hit_before=before.most
        )
    return predicted if predicted.pool_tokens else None


def predict_kv_cliff(context_tokens: float | None, servers: Sequence[DiscoveredServer]) -> KvCliff:
    sizes = [server.kv_tokens for server in servers]
    pool = sum(size or 0 for size in sizes) if sizes and all(sizes) else None
    return KvCliff(pool_tokens=pool, context_tokens=context_tokens, predicted=ratio(pool, context_tokens))


def _sentence(answer: Capacity, failing: AgentTally | None) -> str:
    """`this box carries 11 agents (10–12) at TTFT p95 ≤ 2 s; the 12th evicts: hit rate 0.94 → 0.71`"""
    if failing is None:
        most = f"at least {_agents(answer.agents)}" if answer.agents else "an unknown number of agents"
        return f"this box carries {most} at {answer.slo}; no level missed it"
    interval = f" ({answer.low} or more)" if answer.high is None else f" ({answer.low}–{answer.high})"
    carried = f"{_agents(answer.agents)}{interval}" if answer.agents else "no agent"
    return f"this box carries {carried} at {answer.slo}; {_reason(answer, failing)}"


def _reason(answer: Capacity, failing: AgentTally) -> str:
    kv = answer.kv
    if kv is not None and kv.c == failing.c and kv.hit_before is not None and kv.hit_after is not None:
        which = f"the {_ordinal(failing.c)} evicts" if failing.c == answer.agents + 1 else f"C={failing.c} evicts"
        return f"{which}: hit rate {' → '.join(_hit_texts(kv))}"
    worst = min(failing.slo.conditions(), key=_margin)
    if _margin(worst) >= 0.0:
        return f"the curve through the runs around C={failing.c} falls below the SLO there"
    return f"at C={failing.c}, {worst.good} of {failing.slo.n} requests met {worst.limit}"


def _margin(condition: KeptShare) -> float:
    return (condition.share or 0.0) - condition.required


def capacity_sentences(answer: Capacity) -> list[str]:
    """Return the answer, what was predicted for the KV cache, and the answer per GPU, per kW and in cost."""
    per = [
        f"{short(value)} agent{'' if value == 1 else 's'} per {unit}"
        for value, unit in ((answer.agents_per_gpu, "GPU"), (answer.agents_per_kw, "kW"))
        if value
    ]
    if answer.price_per_million is not None:
        per.append(f"{short(answer.price_per_million)} per million output tokens")
    return [answer.sentence, *([kv_sentence(answer.kv)] if answer.kv else []), *(["; ".join(per)] if per else [])]


def kv_sentence(kv: KvCliff) -> str:
    """`KV cache of 1,048,576 tokens / 95,000 per agent: 11 agents fit; hit rate 0.94 at C=11, 0.71 at C=12`"""
    text = prediction_sentence(kv) or "the size of the KV cache is not reported, so that no cliff was predicted"
    if kv.c is None or kv.hit_before is None or kv.hit_after is None:
        return f"{text}; {'hit rates are not known' if kv.hit_before is None else 'the hit rate did not fall'}"
    before, after = _hit_texts(kv)
    return f"{text}; hit rate {before} at C={kv.c_before}, {after} at C={kv.c}"


def _hit_texts(kv: KvCliff) -> tuple[str, str]:
    """Return both hit rates, with the highest possible ones unless these figures show the fall."""
    before, after = fixed(kv.hit_before or 0.0, 2), fixed(kv.hit_after or 0.0, 2)
    if float(after) < float(before) or kv.max_hit_before is None or kv.max_hit_after is None:
        return before, after
    return f"{before} of at most {fixed(kv.max_hit_before, 2)}", f"{after} of at most {fixed(kv.max_hit_after, 2)}"


def prediction_sentence(kv: KvCliff) -> str:
    """Return an empty text if nothing can be predicted."""
    if kv.predicted is None:
        return ""
    size, context = count(kv.pool_tokens), count(kv.context_tokens)
    return f"KV cache of {size} tokens / {context} per agent: {short(kv.predicted)} agents fit, by prediction"


def _agents(number: int) -> str:
    return f"{number} agent{'' if number == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


class RunShare(NamedTuple):
    """A run of C agents: its requests, how many of them were good, and the mean length of their prompts."""

    c: int
    good: int
    n: int
    prompt_tokens: float


def crossing(runs: Sequence[RunShare], required: float, prompt_tokens: float | None = None) -> float | None:
    """Return the C at which the mean share of good requests falls below `required`; None if it does not fall.

    `prompt_tokens` is the mean length of the prompts of a trace. By chance, some runs have longer prompts, which
    explains most of the difference between runs: contexts fill the KV cache. So a logistic curve over C times the
    prompt length is fitted; the share at a C is the mean over prompt lengths that vary like those of the runs, around
    the mean of the trace.
    """
    if all(run.good >= required * run.n for run in runs):
        return float("inf")
    middle = sum(run.c for run in runs) / len(runs)
    mean = sum(run.prompt_tokens for run in runs) / len(runs)
    lengths = [run.prompt_tokens / mean if prompt_tokens else 1.0 for run in runs]
    longer = mean / prompt_tokens if prompt_tokens else 1.0

    def load(c: float, length: float) -> float:
        return (c / middle * length - 1.0) / _LOAD_UNIT

    loads = [load(run.c, length * longer) for run, length in zip(runs, lengths, strict=True)]
    level, slope = _fit(loads, runs)
    if slope >= 0.0:
        return None
    low, high = 0.0, 2.0 * middle
    for _ in range(_FIT_STEPS):
        c = (low + high) / 2
        share = sum(_logistic(level + slope * load(c, length)) for length in lengths) / len(lengths)
        low, high = (c, high) if share >= required else (low, c)
    return low


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, value))))


def _fit(loads: Sequence[float], runs: Sequence[RunShare]) -> tuple[float, float]:
    """Fit the level and the slope of a logistic curve with Newton's method."""
    level = slope = 0.0
    sizes, shares = [min(run.n, RUN_SIZE) for run in runs], [run.good / run.n for run in runs]
    for _ in range(_FIT_STEPS):
        fitted = [_logistic(level + slope * load) for load in loads]
        weights = [size * max(1e-9, share * (1.0 - share)) for size, share in zip(sizes, fitted, strict=True)]
        errors = [size * (share - by_curve) for size, share, by_curve in zip(sizes, shares, fitted, strict=True)]
        a, b = sum(errors), sum(e * x for e, x in zip(errors, loads, strict=True)) - _PRIOR_SIZE * slope
        aa, ab = sum(weights), sum(w * x for w, x in zip(weights, loads, strict=True))
        bb = sum(w * x * x for w, x in zip(weights, loads, strict=True)) + _PRIOR_SIZE
        size = aa * bb - ab * ab
        steps = (bb * a - ab * b) / size, (aa * b - ab * a) / size
        longest = max(map(abs, steps))
        limit = min(1.0, 2.0 / longest) if longest else 1.0
        level, slope = level + limit * steps[0], slope + limit * steps[1]
        if longest < 1e-6:
            break
    return level, slope
