"""The facts that an answer is made of: each is null where nothing was measured, so that no sentence is said without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from swarmtui.analysis.answer.commands import same_target
from swarmtui.analysis.answer.slots_change import SlotsChange
from swarmtui.analysis.capacity.agents import hit_texts, session_kv
from swarmtui.analysis.capacity.scaling import best_level, headline_level, open_loop_sentence
from swarmtui.analysis.compare.change import LeftOutFlag, ServerChange
from swarmtui.analysis.compare.differences import known_flags
from swarmtui.analysis.compare.power import PowerEffect
from swarmtui.analysis.levels.flags import level_without_server
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.shares import GOODPUT_ALPHA
from swarmtui.analysis.limits.slo import RATE, Slo
from swarmtui.analysis.quality.doubts import doubt_text, find_disturbances, find_doubts, has_known_share, name_doubts
from swarmtui.engines.registry import tensor_parallel_size
from swarmtui.model.answer import SlotsForecast
from swarmtui.model.base import Stored
from swarmtui.model.findings import Capacity, Goodput, KeptShare, KvCliff, Scaling
from swarmtui.model.plan import is_open_loop
from swarmtui.model.record import Waterfall
from swarmtui.model.session import Level, Spread, Summary
from swarmtui.model.telemetry import QualityLine, ServerState
from swarmtui.numbers import percent, short
from swarmtui.text import name_errors

# The KV cache is full from this share on.
KV_FULL = 0.95
POWER_CAPPED = 0.5  # of the time; less costs too little to be named
LOW_ACCEPTANCE = 0.5
# Lines of measurement quality that say that the client, or its host, was too slow.
_CLIENT = ("client_cpu", "client_lag", "turnaround")
_HOST = ("host_pressure", "host_steal")
# If a larger share of requests failed, the throughput says little about the server.
_FEW_FAIL = 0.05
# The parts of the time of a job, in words.
_PARTS = {
    "queue": "waiting in the queue of the server", "prefill": "reading prompts",
    "recomputed": "reading prompts again that were evicted", "first token": "waiting for the first token",
    "decode": "writing", "tools": "waiting for tools", "client": "what is outside of the server",
}  # fmt: skip


# The figures of a level that its tables show.
_SPREADS: dict[str, Callable[[Level], Spread]] = {
    "ttft": lambda level: level.shown_ttft_s,
    "e2e": lambda level: level.e2e_s,
}


class Missed(Stored, frozen=True, kw_only=True):
    """The condition of an SLO that the first missed level is furthest from; `figure` is empty for several together.

    `value` is its percentile at that level, null with too few requests for one; `median` is that of the counted ones.
    """

    text: str
    required: float
    good: int
    n: int
    figure: str = ""
    limit: float = 0.0
    percentile: int | None = None
    value: float | None = None
    median: float | None = None
    counted: str = "requests"

    @property
    def excess(self) -> float | None:
        """By how much the limit was missed, as a share of it; null without a figure."""
        if self.figure == RATE:
            return self.limit / self.median - 1.0 if self.median else None
        value = self.median if self.value is None else self.value
        return value / self.limit - 1.0 if value is not None and self.limit else None

    @property
    def together(self) -> bool:
        """The level keeps it by itself: it was counted with the levels beside it."""
        return self.good >= self.required * self.n


class AnswerFacts(Stored, frozen=True, kw_only=True):
    """The facts of a session. `c` is the level at which something ends: the first missed one, or the cliff.

    What was missed there by little may be kept in another minute: `past_c` is the first level of which that is not so.

    `c_before` is the highest level before a cliff, `gain` and `wait` are what `c` adds to it. The range `low` to `high`
    of `agents` is sure by `sure` at each end, unless there are `doubts` about the measurement. `disturbed` is what made
    the server look slower: then missed levels prove nothing, unless by far; without one of these, `high` is null.
    `varies` says why the range is wider than the verdicts of its levels. `one_tps` is what one agent has alone
    while it writes.
    `grows`: tok/s still grew at the highest level.
    `at_highest`: a search was not allowed to try more than its highest level.
    `textless` is the number of answers if none of them had text.
    `server_changed` says how a restart during the session changed the flags, which ended it.
    `failing` is the level at which most requests failed, with their number, all, and what failed; null if few did.
    `gone_c` is the lowest level that ended as the server went away or restarted: its failures say nothing about agents.
    `running`, `queued`, `kv_use` and `preemptions` are those of the server at `c`; `kv_fits` is how many contexts of
    agents the KV cache holds. `more_slots` is the setting for more slots, which is `more_at_once`; `more_agents` (at
    most), `more_tps` and `more_stream`, the tok/s of each agent, are predicted for them, and `rate_limit`, in tok/s,
    ends that, or the KV cache (`kv_limit`). `shared_stream` is what each agent gets with them if the total stays
    `full_tps`, and `shared_agents` how many there are then; `full_tps` is that of the capacity or the best level if it
    takes all slots, else of the first that does, as is `full_stream`. `flat` are two numbers of requests at once, each
    with its tok/s in total, between which that hardly grows: the second one is all slots, or the last level.
    `slots_no_help`: for that reason more slots are predicted to have no more agents than the range has.
    `binds` is what limits the level `binds_c` (`c`, else the best one) by the hardware, and `because` has the numbers.
    `smaller_weights` and `narrow_kv` are gains that are predicted for weights of half the bits (tok/s) and an 8-bit KV
    cache (contexts that fit); `eager` is a flag that keeps the server from using CUDA graphs.
    `power_effect` is what the best power limit of a tune does, or the lowest one if none is worth it. `change`
    is that since another session, `left_out` a flag advised there, `slots_change` contradicts what was `tried`.
    """

    levels: int = 0
    lowest_c: int | None = None
    highest_c: int | None = None
    open_loop: str | None = None
    slo: str | None = None
    searched: bool = False
    searched_cliff: bool = False
    at_highest: bool = False
    agents: int | None = None
    low: int | None = None
    high: int | None = None
    sure: float | None = None
    varies: str | None = None
    doubts: tuple[str, ...] = ()
    disturbed: str | None = None
    one_tps: float | None = None
    best_c: int | None = None
    best_tps: float | None = None
    best_half_width: float | None = None
    grows: bool | None = None
    c: int | None = None
    past_c: int | None = None
    missed: Missed | None = None
    c_before: int | None = None
    gain: float | None = None
    wait: float | None = None
    slots: int | None = None
    replicas: int = 1
    inferred: bool = False
    running: float | None = None
    queued: float | None = None
    kv_use: float | None = None
    kv_fits: int | None = None
    preemptions: float | None = None
    hits: tuple[str, str] | None = None
    failed: int | None = None
    empty: int | None = None
    requests: int | None = None
    error: str | None = None
    failing: tuple[int, int, int, str] | None = None
    gone_c: int | None = None
    textless: int | None = None
    ttft_s: float | None = None
    prefill_s: float | None = None
    longest_part: tuple[str, str, str] | None = None
    client: str | None = None
    server_changed: str | None = None
    host: str | None = None
    host_share: float | None = None
    cached: str | None = None
    more_slots: str | None = None
    more_at_once: int | None = None
    more_agents: int | None = None
    more_tps: float | None = None
    more_stream: float | None = None
    slots_no_help: bool = False
    shared_stream: float | None = None
    shared_agents: int | None = None
    full_tps: float | None = None
    full_half_width: float | None = None
    full_stream: float | None = None
    flat: tuple[int, float, int, float] | None = None
    rate_limit: float | None = None
    kv_limit: bool = False
    enough_slots: int | None = None
    step_law: str | None = None
    queue_evidence: str | None = None
    full_kv: tuple[int, float] | None = None
    preempted: tuple[int, float, float | None] | None = None
    power: str | None = None
    drafts: tuple[str, str] | None = None
    heads: tuple[int, int] | None = None
    binds_c: int | None = None
    binds: str | None = None
    because: str | None = None
    smaller_weights: float | None = None
    narrow_kv: float | None = None
    narrow_kv_flag: str | None = None
    kv_size: str | None = None
    eager: str | None = None
    power_effect: PowerEffect | None = None
    change: ServerChange | None = None
    slots_change: SlotsChange | None = None
    tried: SlotsForecast | None = None
    left_out: LeftOutFlag | None = None
    command_endpoint: str | None = ""

    @property
    def is_undecided(self) -> bool:
        """Whether no level is shown to keep the SLO, none to miss it, and not even the lowest one kept it so far."""
        return self.agents == self.low == 0 and self.high is None


def find_facts(summary: Summary, slo: Slo | None, counters: Mapping[int, ServerState]) -> AnswerFacts:
    """Collect the facts of a session; `counters` are those of its servers by level."""
    levels, scaling, quality = summary.levels, summary.scaling or Scaling(), summary.quality
    measured = sorted((level for level in levels if level.ok or level.errors), key=lambda level: level.offered_load)
    facts = AnswerFacts(
        levels=len(measured),
        doubts=find_doubts(quality),
        disturbed=name_doubts(find_disturbances(quality)) or None,
        one_tps=next((level.per_stream_tps.mean for level in measured if level.key == (1, None)), None),
        client="; ".join(f"{line.name} {line.value}" for line in _lines(quality, _CLIENT)) or None,
        host="; ".join(f"{doubt_text(line)}: {line.value}" for line in _lines(quality, _HOST)) or None,
        server_changed=next((event.detail for event in summary.events if event.name == "server_changed"), None),
        cached=next((one.value for one in quality if one.code == "cold_cache" and one.state != "ok"), None),
        power=_power(levels),
        drafts=_drafts(counters),
        heads=_heads(summary),
        command_endpoint=same_target(summary),
        full_kv=_full_kv(counters),
        preempted=_preempted(counters),
    )
    if not measured:
        return facts
    if is_open_loop(measured):
        return msgspec.structs.replace(facts, open_loop=open_loop_sentence(measured))
    slots = scaling.slots
    facts = msgspec.structs.replace(
        facts,
        lowest_c=measured[0].c,
        highest_c=measured[-1].c,
        searched_cliff=summary.session.plan.goal == "cliff",
        at_highest=summary.capacity is not None and measured[-1].c >= summary.session.plan.max_c,
        slots=slots.total if slots else None,
        replicas=slots.replicas if slots else 1,
        inferred=bool(slots and slots.inferred),
        failing=_failing(measured),
        textless=_textless(measured),
        gone_c=level_without_server(measured),
        **_best(levels, scaling),
    )
    if slo is not None:
        facts = _add_range(facts, summary, slo)
    elif (cliff := scaling.cliff) is not None:
        facts = msgspec.structs.replace(
            facts, c=cliff.c, c_before=cliff.c_before, gain=cliff.gain, wait=cliff.ttft_factor
        )
    at = next((level for level in levels if level.c == facts.c), None)
    return facts if at is None else _add_limit(facts, at, counters.get(at.c), session_kv(summary))


def _failing(levels: Sequence[Level]) -> tuple[int, int, int, str] | None:
    """Return the level with the largest share of failed requests, with their number and the kinds of errors."""
    worst = max(levels, key=lambda level: level.errors / max(1, level.attempts))
    if worst.errors <= _FEW_FAIL * worst.attempts:
        return None
    return worst.c, worst.errors, worst.attempts, name_errors(worst.error_counts) or "unknown"


def _textless(levels: Sequence[Level]) -> int | None:
    """Return the number of answers if each of them ended without text."""
    answers = sum(level.ok for level in levels)
    empty = answers == sum(level.degenerate for level in levels) and not any(level.ttft_s.n for level in levels)
    return answers if answers and empty else None


def _best(levels: Sequence[Level], scaling: Scaling) -> dict[str, object]:
    best = best_level(levels, scaling.reported_slots) or headline_level(levels, scaling.reported_slots)
    if best is None:
        return {}
    return {
        "best_c": best.c, "best_tps": best.headline_tps, "best_half_width": best.half_width,
        "grows": scaling.cliff is None and best.c == max(level.c for level in levels) and len(levels) > 1,
    }  # fmt: skip


# how many agents


def capacity_facts(found: Capacity, slo: Slo) -> AnswerFacts:
    """Return the facts of a search alone."""
    return AnswerFacts(
        levels=found.visits, lowest_c=1, slo=slo.words(), searched=True,
        agents=found.agents, low=found.low, high=found.high, sure=1.0 - found.alpha, c=found.next_c,
        varies=next((finding.text for finding in found.findings if finding.code == "runs_vary"), None),
    )  # fmt: skip


def _add_range(facts: AnswerFacts, summary: Summary, slo: Slo) -> AnswerFacts:
    by_levels = _range_by_levels(summary.goodput, slo)
    found = capacity_facts(summary.capacity, slo) if summary.capacity is not None else by_levels
    if found.c is None and by_levels.c is not None and by_levels.c > (found.agents or 0):
        # The search ended before, and the user has set a level that misses it.
        high = by_levels.high if by_levels.high is not None and by_levels.high >= (found.agents or 0) else None
        found = msgspec.structs.replace(found, c=by_levels.c, high=high)
    if facts.gone_c is not None and found.c is not None and found.c >= facts.gone_c:
        found = msgspec.structs.replace(found, c=None, high=None)
    high = found.high
    if facts.disturbed is not None:
        far = summary.capacity.far_c if summary.capacity and has_known_share(summary.quality) else None
        high = None if far is None or high is None else max(high, far - 1)
    agents, low = found.agents, found.low
    if high is None and (proven := _proven(found, summary, disturbed=facts.disturbed is not None)):
        agents = low = proven
    searched = summary.search.levels if summary.search and summary.search.goal == "capacity" else ()
    sure = {level.c for level in searched if level.state == "missed"}
    past = [one.c for one in summary.goodput if one.c > (agents or 0) and (one.c in sure or one.c > (high or one.c))]
    missed = next((level for level in summary.goodput if level.c == found.c), None)
    return msgspec.structs.replace(
        facts,
        slo=found.slo, searched=found.searched, agents=agents, low=low, sure=found.sure, high=high, varies=found.varies,
        c=found.c, past_c=found.c if high is None else min(past, default=found.c),
        missed=_missed(missed, slo, summary.levels) if missed else None,
    )  # fmt: skip


def _proven(found: AnswerFacts, summary: Summary, *, disturbed: bool) -> int:
    """Return the highest level that is shown to be kept: the number of a range without an end; 0 if none is.

    A level that was kept although something slowed the server down is kept in any other minute, too.
    """
    search, most = summary.search, (found.agents if disturbed else found.low) or 0
    if search is None or search.goal != "capacity":
        return found.low or 0
    return max((level.c for level in search.levels if level.state == "kept" and level.c <= most), default=0)


def _range_by_levels(goodput: Sequence[Goodput], slo: Slo) -> AnswerFacts:
    """Return the range by the levels of a sweep: the highest one before the first that misses the SLO as measured."""
    ordered = sorted((level for level in goodput if level.n), key=lambda level: level.c)
    failing = next((level for level in ordered if not all(_passes(one) for one in level.conditions)), None)
    passing = [level for level in ordered if failing is None or level.c < failing.c]
    return AnswerFacts(
        slo=slo.words(),
        agents=max((level.c for level in passing), default=0) if ordered else None,
        low=max((level.c for level in passing if level.kept), default=0) if ordered else None,
        high=min((level.c - 1 for level in ordered if level.kept is False), default=None),
        sure=1.0 - GOODPUT_ALPHA,
        c=failing.c if failing else None,
    )


def _passes(condition: KeptShare) -> bool:
    return condition.share is not None and condition.share >= condition.required


def _missed(found: Goodput, slo: Slo, levels: Sequence[Level]) -> Missed | None:
    pairs = [pair for pair in zip(found.conditions, slo.conditions, strict=False) if pair[0].n]
    if not pairs:
        return None
    worst, condition = min(pairs, key=lambda pair: (pair[0].share or 0.0) - pair[0].required)
    missed = Missed(text=worst.limit, required=worst.required, good=worst.good, n=worst.n, counted=worst.counted)
    if len(condition.limits) > 1:
        return missed
    ((figure, limit),) = condition.limits.items()
    value = worst.value
    level = next((one for one in levels if one.key == found.key), None)
    if level is not None and figure in _SPREADS:
        # What tables show of the level.
        spread = _SPREADS[figure](level)
        own = {50: spread.p50, 90: spread.p90, 95: spread.p95, 99: spread.p99}
        value = own.get(condition.percentile or 0) or value
    # Between two requests, a percentile may be within a limit that too few of them met.
    value = None if value is not None and value <= limit else value
    return msgspec.structs.replace(
        missed, figure=figure, limit=limit, percentile=condition.percentile, value=value, median=worst.median
    )


# why no more


def _add_limit(facts: AnswerFacts, level: Level, seen: ServerState | None, kv: KvCliff | None) -> AnswerFacts:
    split = level.ttft_split if level.ttft_split and not level.ttft_split.estimated else None
    waits = (level.host.waited, level.host.steal) if level.host else ()
    evicts = kv is not None and kv.c == level.c and kv.hit_before is not None and kv.hit_after is not None
    return msgspec.structs.replace(
        facts,
        running=seen.running if seen else None,
        queued=level.queued,
        kv_use=seen.kv_use if seen else None,
        preemptions=seen.preemptions if seen else None,
        hits=hit_texts(kv) if kv and evicts else None,
        failed=level.errors,
        empty=level.empty,
        requests=level.attempts,
        error=name_errors(level.error_counts) or None,
        ttft_s=split.ttft_s if split else None,
        prefill_s=split.prefill_s if split else None,
        longest_part=_longest_part(level.waterfall),
        host_share=max((share for share in waits if share is not None), default=None),
    )


def _longest_part(found: Waterfall | None) -> tuple[str, str, str] | None:
    """Return the part that takes more than half of the time of a request or job, and which share of it."""
    name, value = max(found.known_parts, key=lambda part: part[1], default=("", 0.0)) if found else ("", 0.0)
    if found is None or value <= 0.5 * found.total_s:
        return None
    return _PARTS[name], percent(value / found.total_s), found.per


def _lines(quality: Sequence[QualityLine], codes: Sequence[str]) -> list[QualityLine]:
    return [line for line in quality if line.code in codes and line.state not in ("ok", "note")]


# what to change


def _full_kv(counters: Mapping[int, ServerState]) -> tuple[int, float] | None:
    full = ((c, seen.kv_use) for c, seen in sorted(counters.items()) if seen.kv_use is not None)
    return next(((c, use) for c, use in full if use >= KV_FULL), None)


def _preempted(counters: Mapping[int, ServerState]) -> tuple[int, float, float | None] | None:
    return next(((c, seen.preemptions, seen.kv_use) for c, seen in sorted(counters.items()) if seen.preemptions), None)


def _power(levels: Sequence[Level]) -> str | None:
    capped = [
        (level.energy.throttled or 0.0, level.c, level.energy.mean_w)
        for level in levels
        if level.energy and "power cap" in level.energy.throttle and (level.energy.throttled or 0.0) > POWER_CAPPED
    ]
    if not capped:
        return None
    throttled, c, mean_w = max(capped, key=lambda one: one[0])
    watts = "" if mean_w is None else f", {mean_w:.0f} W"
    return f"C={c}: clocks lowered {percent(throttled)} of the time{watts}"


def _drafts(counters: Mapping[int, ServerState]) -> tuple[str, str] | None:
    low = []
    for c, seen in sorted(counters.items()):
        accepted = ratio(seen.accepted_tokens, seen.draft_tokens)
        if accepted is not None and accepted < LOW_ACCEPTANCE:
            each = ratio(seen.draft_tokens, seen.drafts)
            of = f" of {short(each, 2)} drafted per step" if each else ""
            low.append((str(c), f"C={c}: {percent(accepted)} accepted{of}"))
    return (",".join(c for c, _ in low), "; ".join(text for _, text in low)) if low else None


def _heads(summary: Summary) -> tuple[int, int] | None:
    """Return the tensor-parallel size and the heads, which the user gives with --tag heads=40, if it divides badly."""
    size, facts = tensor_parallel_size(known_flags(summary) or {}), summary.session.model_facts
    return (size, facts.heads) if facts and facts.heads and size and facts.heads % size else None
