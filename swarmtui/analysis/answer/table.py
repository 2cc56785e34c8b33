"""Every sentence of an answer: its code, the facts that it needs, and when it is said.

A row is said if none of its facts is null and its condition holds: the first one of the headlines, of the conditions
that were missed and of the limits, and all of the next steps, which are in `steps`. What a power limit costs and saves
is said of a tune.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.analysis.answer.deciding import DECIDING
from swarmtui.analysis.answer.facts import KV_FULL, AnswerFacts
from swarmtui.analysis.answer.rows import (
    AnswerRow,
    Question,
    agents,
    empty_missed,
    errors_missed,
    flat_words,
    slots_taken,
    waits,
)
from swarmtui.analysis.answer.steps import STEPS
from swarmtui.analysis.answer.tried import TRIED
from swarmtui.analysis.capacity.cliff import QUEUED
from swarmtui.analysis.capacity.words import agents_clause, range_clause
from swarmtui.analysis.compare.power import MAX_COST, MIN_PASSES, PowerEffect
from swarmtui.analysis.compare.verdicts import Interval
from swarmtui.analysis.limits.slo import JOB, RATE, time_text
from swarmtui.numbers import fixed, percent, rate, seconds, short, short_percent, signed_percent
from swarmtui.text import count_noun

_FIGURES = {
    "ttft": "the first token took",
    "ttfo": "the first text took",
    "tpot": "a token took",
    "e2e": "an answer took",
    "stall": "a pause took",
    JOB: "a job took",
}
# A request has one of each.
_COUNTED = {"ttft": "first tokens", "ttfo": "first texts", "e2e": "answers"}


# how many agents


def _sure(facts: AnswerFacts) -> str:
    """Say how sure it is; a doubtful measurement is not, whatever its statistics say, nor a number without any end."""
    open_ended = not facts.low and facts.high is None
    return "" if facts.sure is None or facts.doubts or open_ended else f" ({short_percent(facts.sure)} sure)"


def _capacity(facts: AnswerFacts) -> str:
    return f"{agents_clause(facts.agents or 0, facts.low, facts.high)} with {facts.slo}{_sure(facts)}"


def _capacity_or_more(facts: AnswerFacts) -> str:
    """Say what is kept for sure; what disturbed the measurement is said once, beside it."""
    number = facts.agents or 0
    return f"{agents(number)}{range_clause(number, facts.low, None)} with {facts.slo}"


def _open_capacity(facts: AnswerFacts) -> str:
    number = facts.agents or 0
    only = facts.low == number
    said = f"at least {agents(number)}" if only else f"{agents(number)}{range_clause(number, facts.low, None)}"
    ended = "" if facts.gone_c is not None else "; no level missed it"
    return f"{said} with {facts.slo}{_sure(facts)}{ended}"


def _best_rate(facts: AnswerFacts) -> str:
    return rate(facts.best_tps, facts.best_half_width)


_HEADLINES = (
    AnswerRow("headline", "nothing_measured", (), lambda f: not f.levels, lambda f: "nothing was measured"),
    AnswerRow("headline", "open_loop", ("open_loop",), lambda f: True, lambda f: f.open_loop or ""),
    AnswerRow("headline", "no_text", ("slo", "textless"), lambda f: True,
        lambda f: f"how many agents have {f.slo} is not known: no answer had text"),
    AnswerRow("headline", "agents_not_known", ("agents", "slo"),
        lambda f: f.is_undecided or (f.agents == 0 and f.high != 0 and f.disturbed is not None),
        lambda f: f"how many agents have {f.slo} is not known{': no level is decided' if f.is_undecided else ''}"),
    AnswerRow("headline", "capacity_or_more", ("agents", "slo", "c", "disturbed"), lambda f: f.high is None,
        _capacity_or_more),
    AnswerRow("headline", "no_agent", ("agents", "slo"), lambda f: f.agents == 0 and f.lowest_c == 1,
        lambda f: f"not even one agent with {f.slo}{_sure(f)}"),
    AnswerRow("headline", "fewer_agents", ("agents", "slo", "lowest_c"), lambda f: f.agents == 0,
        lambda f: f"fewer than {agents(f.lowest_c or 0)}, the fewest that were tried, with {f.slo}{_sure(f)}"),
    AnswerRow("headline", "capacity", ("agents", "slo", "c"), lambda f: True, _capacity),
    AnswerRow("headline", "capacity_at_least", ("agents", "slo"), lambda f: f.c is None, _open_capacity),
    AnswerRow("headline", "single_level", ("best_c", "best_tps"), lambda f: f.levels == 1,
        lambda f: f"{_best_rate(f)} tok/s with {agents(f.best_c or 0)}, the only level"),
    AnswerRow("headline", "still_growing", ("best_c", "best_tps", "grows"), lambda f: bool(f.grows) and not f.failing,
        lambda f: f"{agents(f.best_c or 0)} or more: {_best_rate(f)} tok/s in total, and it still grew"),
    AnswerRow("headline", "best_level", ("best_c", "best_tps"), lambda f: True,
        lambda f: f"best with {agents(f.best_c or 0)}: {_best_rate(f)} tok/s in total"),
    AnswerRow("headline", "no_throughput", (), lambda f: True, lambda f: "no level has a throughput"),
)  # fmt: skip

# why no more: what was missed


def _missed_value(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    value = _apart(missed.value or 0.0, missed.limit, seconds, time_text)
    return f"{_FIGURES[missed.figure]} {value} (p{missed.percentile})"


def _apart(
    value: float, limit: float, text: Callable[[float, int], str], limit_text: Callable[[float], str], digits: int = 2
) -> str:
    """Format a value; one that would be shown as the limit is said to be just above or below it."""
    if text(value, digits) != text(limit, digits):
        return text(value, digits)
    return f"just {'above' if value > limit else 'below'} {limit_text(limit)}" if value != limit else limit_text(limit)


def _missed_count(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    some = f"{missed.n - missed.good} of {missed.n}"
    if missed.figure == RATE:
        return f"{some} answers came at less than {short(missed.limit)} tok/s"
    limit = f"more than {time_text(missed.limit)}"
    if missed.figure in _COUNTED:
        return f"{some} {_COUNTED[missed.figure]} took {limit}"
    return f"{_FIGURES[missed.figure]} {limit} in {some} {missed.counted}"


def _missed_joint(facts: AnswerFacts) -> str:
    missed = facts.missed
    assert missed is not None
    return f"{missed.good} of {missed.n} {missed.counted} met {missed.text}"


def _cliff(facts: AnswerFacts) -> str:
    wait = "" if facts.wait is None else f", and the first token takes {short(facts.wait, 2)} times as long"
    return f"output changes by {signed_percent(facts.gain, 0)}{wait}"


_MISSED = (
    AnswerRow("missed", "missed_errors", ("c", "missed", "failed", "requests", "error"), errors_missed,
        lambda f: f"{f.failed} of {f.requests} requests failed ({f.error})"),
    AnswerRow("missed", "missed_empty", ("c", "missed", "empty", "requests"), empty_missed,
        lambda f: f"{f.empty} of {count_noun(f.requests or 0, 'answer')} had no text"),
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


def _failures(facts: AnswerFacts) -> str:
    assert facts.failing is not None
    c, failed, requests, error = facts.failing
    return f"with {agents(c)} {failed} of {count_noun(requests, 'request')} failed ({error})"


def _slots_text(facts: AnswerFacts) -> str:
    seen = ", as seen from the client," if facts.inferred else ""
    assert facts.slots is not None
    slots = {1: "the only slot", 2: "both slots"}.get(facts.slots, f"all {facts.slots} slots")
    taken = f"{slots}{seen} {'is' if facts.slots == 1 else 'are'} taken"
    if facts.flat is not None:
        return f"{taken}, and the output hardly grows with more at once ({flat_words(facts)})"
    if facts.kv_use is not None:
        return taken + (f"; the KV cache has room ({percent(facts.kv_use)} used)" if facts.kv_use < KV_FULL else "")
    # The number of contexts is not said: an agent that waits for a slot has none.
    return f"{taken}; the KV cache has room" if facts.kv_fits is not None and facts.kv_fits >= facts.slots else taken


def _beyond_slots(facts: AnswerFacts) -> str:
    """Say what needs no counters of the server: it has fewer slots than there are agents."""
    seen = ", as seen from the client" if facts.inferred else ""
    return f"requests wait for a slot beyond {agents(facts.slots or 0)}{seen}"


def _flat_text(facts: AnswerFacts) -> str:
    return f"agents share an output that hardly grows any more ({flat_words(facts)})"


def _mostly_prefill(facts: AnswerFacts) -> bool:
    return waits(facts) and (facts.prefill_s or 0.0) > 0.5 * (facts.ttft_s or 0.0)


def _takes_long(facts: AnswerFacts) -> bool:
    return facts.missed is not None and facts.missed.figure in (JOB, "e2e")


def _explained_by_host(facts: AnswerFacts) -> bool:
    """Whether client and server would have kept the limit without the time in which they waited for a CPU."""
    excess = facts.missed.excess if facts.missed else None
    return excess is not None and excess <= (facts.host_share or 0.0)


def _hardware(binds: str, code: str, words: str, *, of_waits: bool | None = None) -> AnswerRow:
    """Return the row for what binds a level; `of_waits`: it explains only times that a queue makes longer, or none."""

    def holds(facts: AnswerFacts) -> bool:
        return facts.binds == binds and (of_waits is None or facts.missed is None or waits(facts) == of_waits)

    def text(facts: AnswerFacts) -> str:
        at = "" if facts.c is not None else f" with {agents(facts.binds_c or 0)}"
        return f"{words}{at}: {facts.because}"

    return AnswerRow("limit", code, ("binds", "because", "binds_c"), holds, text)


_HARDWARE = (
    _hardware("prefill", "prefill_share", "reading prompts takes most of the time"),
    _hardware("client", "gateway", "the time is spent between client and server", of_waits=True),
    _hardware("power", "power", "the GPUs lower their clocks", of_waits=False),
    _hardware("server_cpu", "server_cpu", "the GPUs wait for what the server does on the CPU", of_waits=False),
    _hardware("launch_overhead", "launch_overhead", "most of a step is neither reading nor computing", of_waits=False),
    _hardware("compute", "compute", "the GPUs compute all the time", of_waits=False),
    _hardware("bandwidth", "bandwidth", "reading memory limits it", of_waits=False),
)

_LIMITS = (
    AnswerRow("limit", "failures", ("failing",), lambda f: f.slo is None and f.server_changed is None, _failures),
    AnswerRow("limit", "no_text", ("textless",), lambda f: True,
        lambda f: f"the model ended all {count_noun(f.textless or 0, 'answer')} at once, without text"),
    AnswerRow("limit", "server_gone", ("gone_c", "agents"), lambda f: f.c is None,
        lambda f: f"not known: the server went away or restarted with {agents(f.gone_c or 0)}"),
    AnswerRow("limit", "server_changed", ("server_changed",), lambda f: f.c is None,
        lambda f: "not known: the server came back with other flags, which ended the run"),
    AnswerRow("limit", "not_reached", ("highest_c",),
        lambda f: f.c is None and bool(f.agents if f.slo is not None else f.grows),
        lambda f: f"not reached: no level had more than {agents(f.highest_c or 0)}"),
    AnswerRow("limit", "errors", ("c", "missed", "failed", "requests", "error"), errors_missed,
        lambda f: "the log of the server may say why"),
    AnswerRow("limit", "empty_answers", ("c", "missed", "empty"), empty_missed,
        lambda f: "the model ended them at once, so that this number says little about the server"),
    AnswerRow("limit", "evictions", ("c", "hits"), lambda f: True,
        lambda f: f"prompts are evicted from the KV cache, hit rate {' → '.join(f.hits or ())}"),
    AnswerRow("limit", "preemptions", ("c", "preemptions"), lambda f: bool(f.preemptions),
        lambda f: f"the KV cache is too small, {count_noun(round(f.preemptions or 0), 'preemption')}"),
    AnswerRow("limit", "slots", ("c", "slots"), slots_taken, _slots_text),
    AnswerRow("limit", "kv_cache", ("c", "kv_use"), lambda f: (f.kv_use or 0.0) >= KV_FULL,
        lambda f: f"the KV cache is {percent(f.kv_use)} full"),
    AnswerRow("limit", "queue", ("c", "queued"), lambda f: waits(f) and (f.queued or 0.0) > QUEUED,
        lambda f: f"the queue of the server has {short(f.queued, 2)} waiting requests on average"),
    AnswerRow("limit", "prefill", ("c", "ttft_s", "prefill_s"), _mostly_prefill,
        lambda f: f"on average {seconds(f.prefill_s, 2)} of {seconds(f.ttft_s, 2)} go into reading the prompt"),
    AnswerRow("limit", "share_of_time", ("c", "longest_part"), _takes_long,
        lambda f: "{} takes {} of the time of a {}".format(*f.longest_part or ())),
    AnswerRow("limit", "client", ("c", "client"), lambda f: True, lambda f: f"the client may be too slow ({f.client})"),
    AnswerRow("limit", "host", ("c", "host", "missed", "host_share"), _explained_by_host,
        lambda f: f.host or ""),
    *_HARDWARE,
    AnswerRow("limit", "throughput", ("c", "flat", "missed"), lambda f: not waits(f), _flat_text),
    AnswerRow("limit", "more_than_slots", ("slots", "queue_evidence"), lambda f: f.slo is None, _beyond_slots),
    AnswerRow("limit", "not_known", (), lambda f: True, lambda f: "what limits it is not known"),
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

TABLE: tuple[AnswerRow, ...] = (*_HEADLINES, *_MISSED, *_LIMITS, *STEPS, *TRIED, *DECIDING, *_POWER)


def rows_said(question: Question, facts: AnswerFacts) -> Sequence[AnswerRow]:
    """Return the rows of a question whose facts are known and whose condition holds, in order."""
    return [row for row in TABLE if row.question == question and row.is_said(facts)]
