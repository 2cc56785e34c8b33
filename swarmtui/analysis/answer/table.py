"""Every sentence of an answer: its code, the facts that it needs, and when it is said.

A row is said if none of its facts is null and its condition holds. Of the headlines, the conditions that were missed
and the limits, the first one is said; of the next steps, all. What a power limit costs and saves is said of a tune.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Literal, NamedTuple

from swarmtui.analysis.answer.facts import KV_FULL, AnswerFacts
from swarmtui.analysis.capacity.cliff import MIN_GAIN, QUEUED
from swarmtui.analysis.capacity.words import range_clause
from swarmtui.analysis.compare.power import MAX_COST, MIN_PASSES, PowerEffect
from swarmtui.analysis.compare.verdicts import Interval
from swarmtui.analysis.limits.slo import DEFAULT_SLO, JOB, RATE, WAITS, parse_slo, time_text
from swarmtui.numbers import fixed, percent, rate, seconds, short, short_percent, signed_percent, significant
from swarmtui.text import count_noun

Question = Literal["headline", "missed", "limit", "next", "power"]

# A server with a slot free for a tenth of the time may still be full on average.
_TAKEN = 0.9
# A search that is this sure is not repeated with more requests.
_SURE = 0.98
# An interval of more than the first share of the agents can be narrowed down; with more than the second one, that comes
# before any change.
_WIDE, _UNSURE = 0.1, 0.5
_FIGURES = {
    "ttft": "the first token took",
    "ttfo": "the first text took",
    "tpot": "a token took",
    "e2e": "an answer took",
    "stall": "a pause took",
    JOB: "a job took",
}


class AnswerRow(NamedTuple):
    question: Question
    code: str
    needs: tuple[str, ...]
    holds: Callable[[AnswerFacts], bool]
    text: Callable[[AnswerFacts], str]
    command: Callable[[AnswerFacts], str] = lambda facts: ""
    evidence: Callable[[AnswerFacts], str] = lambda facts: ""

    def is_said(self, facts: AnswerFacts) -> bool:
        return all(getattr(facts, name) is not None for name in self.needs) and self.holds(facts)


def agents(number: int) -> str:
    return count_noun(number, "agent", "agents")


# how many agents


def _sure(facts: AnswerFacts) -> str:
    """Say how sure it is; a doubtful measurement is not, whatever its statistics say."""
    return "" if facts.sure is None or facts.doubts else f" ({short_percent(facts.sure)} sure)"


def _capacity(facts: AnswerFacts) -> str:
    number = facts.agents or 0
    return f"{agents(number)}{range_clause(number, facts.low, facts.high)} with {facts.slo}{_sure(facts)}"


def _disturbed(facts: AnswerFacts) -> str:
    return f"{facts.disturbed}, so missed levels prove nothing"


def _capacity_or_more(facts: AnswerFacts) -> str:
    number, why = facts.agents or 0, _disturbed(facts)
    surely = facts.low or number
    said = f"or more ({why})" if surely == number else f"({surely} or more: {why})"
    return f"{agents(number)} {said} with {facts.slo}"


def _open_capacity(facts: AnswerFacts) -> str:
    number, low = facts.agents or 0, facts.low if facts.disturbed is None else facts.low or facts.agents
    said = f"at least {agents(number)}" if low == number else f"{agents(number)}{range_clause(number, low, None)}"
    return f"{said} with {facts.slo}{_sure(facts)}; no level missed it"


def _best_rate(facts: AnswerFacts) -> str:
    return rate(facts.best_tps, facts.best_half_width)


_HEADLINES = (
    AnswerRow("headline", "nothing_measured", (), lambda f: not f.levels, lambda f: "nothing was measured"),
    AnswerRow("headline", "open_loop", ("open_loop",), lambda f: True, lambda f: f.open_loop or ""),
    AnswerRow("headline", "agents_not_known", ("agents", "slo", "disturbed"), lambda f: f.agents == 0,
        lambda f: f"how many agents is not known ({_disturbed(f)}) with {f.slo}"),
    AnswerRow("headline", "capacity_or_more", ("agents", "slo", "c", "disturbed"), lambda f: True,
        _capacity_or_more),
    AnswerRow("headline", "no_agent", ("agents", "slo"), lambda f: f.agents == 0 and f.lowest_c == 1,
        lambda f: f"not even one agent with {f.slo}{_sure(f)}"),
    AnswerRow("headline", "fewer_agents", ("agents", "slo", "lowest_c"), lambda f: f.agents == 0,
        lambda f: f"fewer than {agents(f.lowest_c or 0)}, the fewest that were tried, with {f.slo}{_sure(f)}"),
    AnswerRow("headline", "capacity", ("agents", "slo", "c"), lambda f: True, _capacity),
    AnswerRow("headline", "capacity_at_least", ("agents", "slo"), lambda f: f.c is None, _open_capacity),
    AnswerRow("headline", "single_level", ("best_c", "best_tps"), lambda f: f.levels == 1,
        lambda f: f"{_best_rate(f)} tok/s with {agents(f.best_c or 0)}, the only level"),
    AnswerRow("headline", "still_growing", ("best_c", "best_tps", "grows"), lambda f: bool(f.grows),
        lambda f: f"{agents(f.best_c or 0)} or more: {_best_rate(f)} tok/s in total, and it still grew"),
    AnswerRow("headline", "best_level", ("best_c", "best_tps"), lambda f: True,
        lambda f: f"best with {agents(f.best_c or 0)}: {_best_rate(f)} tok/s in total"),
    AnswerRow("headline", "no_throughput", (), lambda f: True, lambda f: "no level has a throughput"),
)  # fmt: skip

# why no more: what was missed


def _errors_missed(facts: AnswerFacts) -> bool:
    missed = facts.missed
    return missed is not None and bool(facts.failed) and 2 * (facts.failed or 0) >= missed.n - missed.good > 0


def _missed_value(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    return f"{_FIGURES[missed.figure]} {_apart(missed.value, missed.limit, seconds)} (p{missed.percentile})"


def _apart(value: float | None, limit: float, text: Callable[[float | None, int], str], digits: int = 2) -> str:
    """Format with as many digits as show on which side of the limit it is."""
    texts = ((text(value, n), text(limit, n)) for n in range(digits, 6))
    return next((said for said, of_limit in texts if said != of_limit), text(value, digits))


def _missed_count(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    some = f"{missed.n - missed.good} of {missed.n}"
    if missed.figure == RATE:
        median = "" if missed.median is None else f", median {_apart(missed.median, missed.limit, significant, 3)}"
        return f"{some} answers came at less than {short(missed.limit)} tok/s{median}"
    median = "" if missed.median is None else f", median {_apart(missed.median, missed.limit, seconds, 3)}"
    return f"{_FIGURES[missed.figure]} more than {time_text(missed.limit)} in {some} {missed.counted}{median}"


def _missed_joint(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    return f"{missed.good} of {missed.n} {missed.counted} met {missed.text}"


def _cliff(facts: AnswerFacts) -> str:
    wait = "" if facts.wait is None else f", and the first token takes {short(facts.wait, 2)} times as long"
    return f"output changes by {signed_percent(facts.gain, 0)}{wait}"


_MISSED = (
    AnswerRow("missed", "missed_errors", ("c", "missed", "failed", "requests", "error"), _errors_missed,
        lambda f: f"{f.failed} of {f.requests} requests failed ({f.error})"),
    AnswerRow("missed", "missed_together", ("c", "missed"), lambda f: f.missed is not None and f.missed.together,
        lambda f: "and the levels beside it, counted together, too few requests kept it"),
    AnswerRow("missed", "missed_value", ("c", "missed"),
        lambda f: f.missed is not None and f.missed.value is not None and f.missed.figure in _FIGURES, _missed_value),
    AnswerRow("missed", "missed_count", ("c", "missed"), lambda f: f.missed is not None and bool(f.missed.figure),
        _missed_count),
    AnswerRow("missed", "missed_joint", ("c", "missed"), lambda f: True, _missed_joint),
    AnswerRow("missed", "cliff", ("c", "gain"), lambda f: True, _cliff),
)  # fmt: skip

# why no more: the resource


def _waits(facts: AnswerFacts) -> bool:
    """Whether what ended was a wait: the cliff, or a condition on a time that a queue makes longer."""
    if facts.missed is None:
        return facts.gain is not None
    return not facts.missed.figure or facts.missed.figure in WAITS


def _slots_taken(facts: AnswerFacts) -> bool:
    if facts.slots is None or facts.c is None or not _waits(facts) or facts.c <= facts.slots:
        return False
    if facts.gain is not None and facts.gain >= MIN_GAIN and (facts.c_before or 0) >= facts.slots:
        return False  # more than the slots bring more output
    idle = facts.running is not None and facts.running < _TAKEN * facts.slots
    return not idle and (facts.queued is None or facts.queued > QUEUED)


def _slots_text(facts: AnswerFacts) -> str:
    seen = ", as seen from the client," if facts.inferred else ""
    slots = {1: "the only slot", 2: "both slots"}.get(facts.slots or 0, f"all {facts.slots} slots")
    taken = f"{slots}{seen} {'is' if facts.slots == 1 else 'are'} taken"
    has_room = facts.kv_use is not None and facts.kv_use < KV_FULL
    return taken + (f"; the KV cache has room ({percent(facts.kv_use)} used)" if has_room else "")


def _mostly_prefill(facts: AnswerFacts) -> bool:
    return _waits(facts) and (facts.prefill_s or 0.0) > 0.5 * (facts.ttft_s or 0.0)


def _takes_long(facts: AnswerFacts) -> bool:
    return facts.missed is not None and facts.missed.figure in (JOB, "e2e")


def _explained_by_host(facts: AnswerFacts) -> bool:
    """Whether client and server would have kept the limit without the time in which they waited for a CPU."""
    excess = facts.missed.excess if facts.missed else None
    return excess is not None and excess <= (facts.host_share or 0.0)


def _hardware(binds: str, code: str, words: str, *, waits: bool | None = None) -> AnswerRow:
    """Return the row for what binds a level; `waits`: it explains only times that a queue makes longer, or no such."""

    def holds(facts: AnswerFacts) -> bool:
        return facts.binds == binds and (waits is None or facts.missed is None or _waits(facts) == waits)

    def text(facts: AnswerFacts) -> str:
        at = "" if facts.c is not None else f" with {agents(facts.binds_c or 0)}"
        return f"{words}{at}: {facts.because}"

    return AnswerRow("limit", code, ("binds", "because", "binds_c"), holds, text)


_HARDWARE = (
    _hardware("prefill", "prefill_share", "reading prompts takes most of the time"),
    _hardware("client", "gateway", "the time is spent between client and server", waits=True),
    _hardware("power", "power", "the GPUs lower their clocks", waits=False),
    _hardware("server_cpu", "server_cpu", "the GPUs wait for what the server does on the CPU", waits=False),
    _hardware("launch_overhead", "launch_overhead", "most of a step is neither reading nor computing", waits=False),
    _hardware("compute", "compute", "the GPUs compute all the time", waits=False),
    _hardware("bandwidth", "bandwidth", "reading memory limits it", waits=False),
)

_LIMITS = (
    AnswerRow("limit", "not_reached", ("highest_c",),
        lambda f: f.c is None and bool(f.agents if f.slo is not None else f.grows),
        lambda f: f"not reached: no level had more than {agents(f.highest_c or 0)}"),
    AnswerRow("limit", "errors", ("c", "missed", "failed", "requests", "error"), _errors_missed,
        lambda f: "the log of the server may say why"),
    AnswerRow("limit", "evictions", ("c", "hits"), lambda f: True,
        lambda f: f"prompts are evicted from the KV cache, hit rate {' → '.join(f.hits or ())}"),
    AnswerRow("limit", "preemptions", ("c", "preemptions"), lambda f: bool(f.preemptions),
        lambda f: f"the KV cache is too small, {count_noun(round(f.preemptions or 0), 'preemption', 'preemptions')}"),
    AnswerRow("limit", "slots", ("c", "slots"), _slots_taken, _slots_text),
    AnswerRow("limit", "kv_cache", ("c", "kv_use"), lambda f: (f.kv_use or 0.0) >= KV_FULL,
        lambda f: f"the KV cache is {percent(f.kv_use)} full"),
    AnswerRow("limit", "queue", ("c", "queued"), lambda f: _waits(f) and (f.queued or 0.0) > QUEUED,
        lambda f: f"the queue of the server has {short(f.queued, 2)} waiting requests on average"),
    AnswerRow("limit", "prefill", ("c", "ttft_s", "prefill_s"), _mostly_prefill,
        lambda f: f"on average {seconds(f.prefill_s, 2)} of {seconds(f.ttft_s, 2)} go into reading the prompt"),
    AnswerRow("limit", "share_of_time", ("c", "longest_part"), _takes_long,
        lambda f: "{} takes {} of the time of a {}".format(*f.longest_part or ())),
    AnswerRow("limit", "client", ("c", "client"), lambda f: True, lambda f: f"the client may be too slow ({f.client})"),
    AnswerRow("limit", "host", ("c", "host", "missed", "host_share"), _explained_by_host,
        lambda f: f"the host was busy ({f.host})"),
    *_HARDWARE,
    AnswerRow("limit", "not_known", (), lambda f: True, lambda f: "what limits it is not known"),
)  # fmt: skip

# what to change


def _more_slots_help(facts: AnswerFacts) -> bool:
    return (_slots_taken(facts) or facts.queue_evidence is not None) and not facts.preemptions


def _evidence_of_slots(facts: AnswerFacts) -> str:
    return facts.queue_evidence or f"C={facts.c}: more agents than slots ({facts.slots})"


def _agents_with_more_slots(facts: AnswerFacts) -> str:
    """Say a range: with a slot each, agents do not wait; how many more may wait depends on how answers overlap."""
    then = "" if facts.rate_limit is None else f"; then {short(facts.rate_limit)} tok/s each is the limit"
    least, most = facts.more_at_once or 0, facts.more_agents or 0
    low = "up to " if least <= (facts.agents or 0) or least >= most else f"{least} to "
    return f"{facts.more_slots}: {low}{agents(most)}, as fewer requests wait for a slot{then} (prediction)"


def _preempted_text(facts: AnswerFacts) -> str:
    assert facts.preempted is not None
    c, number, kv_use = facts.preempted
    use = "" if kv_use is None else f", KV cache up to {percent(kv_use)} full"
    return f"C={c}: {count_noun(round(number), 'preemption', 'preemptions')}{use}"


def _full_text(facts: AnswerFacts) -> str:
    assert facts.full_kv is not None
    c, use = facts.full_kv
    return f"C={c}: KV cache up to {percent(use)} full, no preemptions counted"


def _is_wide(facts: AnswerFacts, share: float) -> bool:
    """Whether a longer search would say more: the ends of the interval are further apart than this share of it.

    One that is disturbed would be as uncertain.
    """
    if not facts.searched or (facts.sure or 1.0) >= _SURE or not facts.agents or facts.disturbed is not None:
        return False
    return facts.high is None or facts.high - (facts.low or 0) > max(1, floor(share * facts.agents))


_STEPS = (
    AnswerRow("next", "errors", ("c", "missed", "failed", "requests", "error"), _errors_missed,
        lambda f: "find out why requests fail, in the log of the server",
        evidence=lambda f: f"C={f.c}: {f.failed} of {f.requests} requests failed ({f.error})"),
    AnswerRow("next", "quiet_host", ("host",), lambda f: True, lambda f: "measure again when the host is quiet",
        evidence=lambda f: f.host or ""),
    AnswerRow("next", "client_limit", ("client",), lambda f: True,
        lambda f: "the client may be the bottleneck: use other cores or fewer streams before changing flags",
        evidence=lambda f: f.client or ""),
    AnswerRow("next", "measure_again", ("disturbed",), lambda f: f.host is None and f.client is None,
        lambda f: f"measure again, as {f.disturbed}"),
    AnswerRow("next", "one_agent_misses", ("agents", "slo", "one_tps"),
        lambda f: f.agents == 0 and f.lowest_c == 1 and f.disturbed is None,
        lambda f: f"try a looser SLO, or a smaller model: one agent has {rate(f.one_tps)} tok/s (median)"),
    AnswerRow("next", "unsure_search", ("agents", "sure"), lambda f: _is_wide(f, _UNSURE),
        lambda f: "a longer search first, as the number is not sure",
        lambda f: f"swarmtui capacity{f.command_endpoint}"),
    AnswerRow("next", "more_slots_agents", ("slots", "more_slots", "more_at_once", "more_agents"),
        lambda f: not f.doubts and _more_slots_help(f),
        _agents_with_more_slots, lambda f: f.more_slots or "", _evidence_of_slots),
    AnswerRow("next", "more_slots_tps", ("slots", "more_slots", "more_tps"),
        lambda f: f.more_agents is None and (f.more_tps or 0.0) >= MIN_GAIN and not f.doubts and _more_slots_help(f),
        lambda f: f"{f.more_slots}: about {percent(f.more_tps)} more tok/s in total, as a step serves more requests "
        "(prediction)",
        lambda f: f.more_slots or "", _evidence_of_slots),
    AnswerRow("next", "more_slots", ("slots", "more_slots"),
        lambda f: _more_slots_help(f) and (bool(f.doubts) or (f.more_agents is None and f.more_tps is None)),
        lambda f: f"{f.more_slots}: more requests run at once, if memory allows it",
        lambda f: f.more_slots or "", _evidence_of_slots),
    AnswerRow("next", "queue", ("slots",),
        lambda f: _more_slots_help(f)
        and (f.more_slots is None or (not f.doubts and (f.more_tps or MIN_GAIN) < MIN_GAIN)),
        lambda f: f"beyond C={f.slots} requests only queue: send fewer at once, or give the server more slots",
        evidence=_evidence_of_slots),
    AnswerRow("next", "narrow_kv", ("narrow_kv", "narrow_kv_flag", "kv_size"), lambda f: not f.doubts,
        lambda f: f"{f.narrow_kv_flag}: {signed_percent(f.narrow_kv, 0)} agents before the KV cache is full, "
        "as a token takes less of it (prediction)", lambda f: f.narrow_kv_flag or "", lambda f: f.kv_size or ""),
    AnswerRow("next", "preemptions", ("preempted",), lambda f: True,
        lambda f: "the KV cache is too small for this many requests: use fewer slots, a shorter context or an "
        "fp8 KV cache, or give it more memory", evidence=_preempted_text),
    AnswerRow("next", "kv_cache", ("full_kv",), lambda f: f.preempted is None,
        lambda f: "the KV cache is full: more streams will queue, or cause preemptions", evidence=_full_text),
    AnswerRow("next", "prefix_cache", ("cached",), lambda f: True,
        lambda f: "prefix cache hits bring the first token sooner: use another --seed, or disable the cache for the "
        "measurement",
        evidence=lambda f: f.cached or ""),
    AnswerRow("next", "power_limit", ("power",), lambda f: True,
        lambda f: "the GPUs run at their power limit: raising it gives more tok/s, lowering it may improve tokens/J",
        evidence=lambda f: f.power or ""),
    AnswerRow("next", "speculative_decoding", ("drafts",), lambda f: True,
        lambda f: f"few draft tokens are accepted at C={(f.drafts or ('',))[0]}: draft fewer, or none",
        evidence=lambda f: (f.drafts or ("", ""))[1]),
    AnswerRow("next", "fewer_slots", ("enough_slots", "step_law"), lambda f: not f.doubts,
        lambda f: f"slots beyond {f.enough_slots} add almost no throughput: they only make streams slower",
        evidence=lambda f: f.step_law or ""),
    AnswerRow("next", "cuda_graphs", ("eager", "because"), lambda f: True,
        lambda f: f"without {f.eager}: CUDA graphs launch a step at once", evidence=lambda f: f.because or ""),
    AnswerRow("next", "smaller_weights", ("smaller_weights", "because"), lambda f: not f.doubts,
        lambda f: f"weights of 8 bits: about {percent(f.smaller_weights)} more tok/s with {agents(f.binds_c or 0)}, "
        "as a step reads less memory (prediction)", evidence=lambda f: f.because or ""),
    AnswerRow("next", "tensor_parallel", ("heads",), lambda f: True,
        lambda f: "TP={} does not divide {} heads: the server rejects it, or leaves GPUs idle".format(*f.heads or ()),
        evidence=lambda f: "--tensor-parallel-size {}, tag heads={}".format(*f.heads or ())),
    AnswerRow("next", "higher_levels", ("highest_c",), lambda f: f.slo is None and bool(f.grows),
        lambda f: f"more than {agents(f.highest_c or 0)}: tok/s still grew",
        lambda f: f"swarmtui run --find-cliff{f.command_endpoint}"),
    AnswerRow("next", "more_agents", ("highest_c", "agents"),
        lambda f: f.c is None and bool(f.agents) and not f.searched,
        lambda f: f"more than {agents(f.highest_c or 0)}: no level missed the SLO",
        lambda f: f"swarmtui capacity{f.command_endpoint}"),
    AnswerRow("next", "longer_search", ("agents", "sure"), lambda f: _is_wide(f, _WIDE) and not _is_wide(f, _UNSURE),
        lambda f: "a longer search narrows the number down (99 % sure)",
        lambda f: f"swarmtui capacity{f.command_endpoint}"),
    AnswerRow("next", "search_capacity", ("highest_c",), lambda f: f.slo is None and f.levels > 1 and not f.grows,
        lambda f: f"how many agents have {parse_slo(DEFAULT_SLO).words()}",
        lambda f: f"swarmtui capacity{f.command_endpoint}"),
)  # fmt: skip

# what a power limit costs and saves


def _effect(facts: AnswerFacts) -> PowerEffect:
    assert facts.power_effect is not None
    return facts.power_effect


def _range(interval: Interval | None, sign: int) -> str:
    """`(0.4 to 1.6 %)`: the ends of an interval; with a negative sign, of what is lost or saved."""
    assert interval is not None
    low, high = sorted((sign * interval.low, sign * interval.high))
    return f"({fixed(100 * low, 1)} to {fixed(100 * high, 1)} %)".replace("-", "−")


def _saves(facts: AnswerFacts) -> str:
    effect = _effect(facts)
    return f"saves {percent(-effect.energy)} of the energy per token {_range(effect.energy_range, -1)}"


def _is_free(facts: AnswerFacts) -> bool:
    tps = _effect(facts).tps_range
    return _effect(facts).is_worth_it and tps is not None and tps.low <= 0 <= tps.high


_POWER = (
    AnswerRow("power", "power_passes", ("power_effect",), lambda f: _effect(f).tps_range is None,
        lambda f: f"{_effect(f).watts:g} W changes tok/s by {signed_percent(_effect(f).tps)} and J/token by "
        f"{signed_percent(_effect(f).energy)} so far, compared with {_effect(f).base_w:g} W; how sure that is needs "
        f"{MIN_PASSES} passes"),
    AnswerRow("power", "power_free", ("power_effect",), _is_free,
        lambda f: f"{_effect(f).watts:g} W {_saves(f)}, compared with {_effect(f).base_w:g} W; no change of tok/s is "
        f"seen {_range(_effect(f).tps_range, 1)}"),
    AnswerRow("power", "power_saves", ("power_effect",), lambda f: _effect(f).is_worth_it,
        lambda f: f"{_effect(f).watts:g} W costs {short_percent(-_effect(f).tps, 2)} of tok/s "
        f"{_range(_effect(f).tps_range, -1)} and {_saves(f)}, compared with {_effect(f).base_w:g} W"),
    AnswerRow("power", "power_not_worth", ("power_effect",), lambda f: True,
        lambda f: f"no lower limit surely saves energy at a cost of at most {percent(MAX_COST)} of tok/s; "
        f"{_effect(f).watts:g} W, the lowest, changes tok/s by {signed_percent(_effect(f).tps)} "
        f"{_range(_effect(f).tps_range, 1)} and J/token by {signed_percent(_effect(f).energy)} "
        f"{_range(_effect(f).energy_range, 1)}"),
)  # fmt: skip

TABLE: tuple[AnswerRow, ...] = (*_HEADLINES, *_MISSED, *_LIMITS, *_STEPS, *_POWER)


def rows_said(question: Question, facts: AnswerFacts) -> Sequence[AnswerRow]:
    """Return the rows of a question whose facts are known and whose condition holds, in order."""
    return [row for row in TABLE if row.question == question and row.is_said(facts)]
