"""The rows of the table that say what to change: all whose facts are known and whose condition holds, in order."""

from __future__ import annotations

from math import floor

from swarmtui.analysis.answer.facts import AnswerFacts
from swarmtui.analysis.answer.rows import AnswerRow, agents, empty_missed, errors_missed, flat_words, slots_taken, waits
from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.limits.slo import DEFAULT_SLO, parse_slo
from swarmtui.model.answer import SlotsForecast
from swarmtui.numbers import percent, rate, short, signed_percent
from swarmtui.text import count_noun

# A search that is this sure is not repeated with more requests.
_SURE = 0.98
# An interval of more than the first share of the agents can be narrowed down; with more than the second one, that comes
# before any change.
_WIDE, _UNSURE = 0.1, 0.5


def _more_slots_help(facts: AnswerFacts) -> bool:
    """Whether agents wait for a slot: where they are too slow while they write, more of them would be slower."""
    queues = facts.queue_evidence is not None and (facts.missed is None or waits(facts))
    return (slots_taken(facts) or queues) and not facts.preemptions


def _evidence_of_slots(facts: AnswerFacts) -> str:
    return facts.queue_evidence or f"C={facts.c}: more agents than slots ({facts.slots})"


def _agents_with_more_slots(facts: AnswerFacts) -> str:
    """Say a range: with a slot each, agents do not wait; how many more may wait depends on how answers overlap."""
    then = "" if facts.rate_limit is None else f", then {short(facts.rate_limit)} tok/s each is the limit"
    found = _forecast(facts)
    assert found is not None
    start = _start(facts, rate_said=True)
    return f"{start}: {forecast_agents(found)}{_price(facts)[0]}{then} (prediction)"


def _setting(facts: AnswerFacts) -> str:
    """`slots=4 on each of 2 replicas`"""
    return f"{facts.more_slots}{f' on each of {facts.replicas} replicas' if facts.replicas > 1 else ''}"


def _start(facts: AnswerFacts, *, rate_said: bool = False) -> str:
    """`slots=235 (as many as the KV cache holds)`: a number that is not twice that of today says where it is from."""
    why = (
        f"the most with {short(facts.rate_limit)} tok/s each" if facts.rate_limit is not None and not rate_said else ""
    )
    why = "as many as the KV cache holds" if facts.kv_limit else why
    return f"{_setting(facts)}{f' ({why})' if why else ''}"


def _forecast(facts: AnswerFacts) -> SlotsForecast | None:
    """Return what is predicted for more slots; agents only if the measurement is not in doubt."""
    if facts.more_slots is None or facts.more_at_once is None:
        return None
    least, most = facts.more_at_once, facts.more_agents if not facts.doubts else None
    known = most is not None and (facts.agents or 0) < least < most
    return SlotsForecast(
        setting=_setting(facts),
        slots=least,
        agents_low=least if known else None,
        agents_high=most,
        agents_shared=facts.shared_agents if most is None and not facts.doubts and _price(facts)[1] else None,
        each_tps=facts.full_stream,
        shared_tps=facts.shared_stream,
    )


def forecast_agents(found: SlotsForecast) -> str:
    """`6 to 10 agents`, or `up to 10 agents`"""
    low = "up to " if found.agents_low is None else f"{found.agents_low} to "
    return f"{low}{agents(found.agents_high or 0)}"


def writes_clause(each: float, now: float, half_width: float | None = None) -> str:
    """`, each writes about 110 tok/s instead of 215`: what more slots cost each agent."""
    return f", each writes about {short(each, 2)} tok/s instead of {rate(now, half_width)}"


def _price(facts: AnswerFacts) -> tuple[str, str]:
    """Say what more slots cost each agent, and the condition: they share the total, unless it is known to grow."""
    now, shared = facts.full_stream, facts.shared_stream
    if facts.full_tps is None or now is None or shared is None:
        return "", ""
    known = facts.flat is not None and not facts.doubts
    grown = facts.more_stream if not known and not facts.doubts else None
    price = writes_clause(shared if grown is None else grown, now, facts.full_half_width)
    return price, "" if known or grown is not None else "the total does not grow"


def _more_slots_text(facts: AnswerFacts) -> str:
    """Say how many agents there are if the total does not grow; else that nothing is known about them."""
    price, condition = _price(facts)
    memory = "memory allows it" if facts.kv_use is None and facts.kv_fits is None else ""
    if_ = " and ".join(filter(None, (condition, memory)))
    found = _forecast(facts)
    if found is not None and found.agents_shared is not None:
        return f"{_start(facts)}: up to {agents(found.agents_shared)}{price} (prediction, if {if_})"
    unknown = "; how many keep the SLO then is not known" if facts.agents is not None else ""
    return f"{_start(facts)}: more agents start at once{price}{f' if {if_}' if if_ else ''}{unknown}"


def _or_fewer(facts: AnswerFacts) -> str:
    return " or fewer streams" if (facts.highest_c or 0) > 1 else ""


def _queue_text(facts: AnswerFacts) -> str:
    start = f"beyond C={facts.slots} requests only queue"
    if facts.flat is not None:
        return f"{start}, and the server gives about {rate(facts.flat[3])} tok/s in total: send fewer at once"
    room = facts.kv_fits if facts.kv_use is None else None
    cache = "" if room is None or room > (facts.slots or 0) else f" and a KV cache for more than {agents(room)}"
    return f"{start}: send fewer at once, or give the server more slots{cache}"


def _used_up(facts: AnswerFacts) -> bool:
    """Whether agents are too slow, or would be with more slots, while the server gives no more in total."""
    if facts.missed is not None and not waits(facts):
        return not empty_missed(facts)
    if facts.slots_no_help:
        return True
    return _more_slots_help(facts) and facts.more_slots is None and facts.rate_limit is not None


def _used_up_text(facts: AnswerFacts) -> str:
    assert facts.flat is not None
    total = f"the server gives about {rate(facts.flat[3])} tok/s in total"
    then = ""
    if waits(facts) and facts.rate_limit is not None:
        then = f", and with more slots agents would get less than {short(facts.rate_limit)} each"
    elif facts.slots_no_help:
        then = ", so that more slots have no more agents"
    return f"a smaller model, or weights of fewer bits: {total}{then}"


def _preempted_text(facts: AnswerFacts) -> str:
    assert facts.preempted is not None
    c, number, kv_use = facts.preempted
    use = "" if kv_use is None else f", KV cache up to {percent(kv_use)} full"
    return f"C={c}: {count_noun(round(number), 'preemption')}{use}"


def _full_text(facts: AnswerFacts) -> str:
    assert facts.full_kv is not None
    c, use = facts.full_kv
    return f"C={c}: KV cache up to {percent(use)} full, no preemptions counted"


def _is_wide(facts: AnswerFacts, share: float) -> bool:
    """Whether a longer search would say more: the ends of the interval are further apart than this share of it.

    One that is disturbed would be as uncertain.
    """
    if not facts.searched or (facts.sure or 1.0) >= _SURE or facts.disturbed is not None:
        return False
    if not facts.agents:
        return facts.is_undecided
    if facts.c is None and facts.at_highest:
        return False  # more agents say more
    if facts.varies is not None and facts.low == facts.agents and facts.high is not None:
        return False  # the server itself varies from minute to minute
    return facts.high is None or facts.high - (facts.low or 0) > max(1, floor(share * facts.agents))


def _command(facts: AnswerFacts, what: str, more: str = "") -> str:
    return "" if facts.command_endpoint is None else f"swarmtui {what}{facts.command_endpoint}{more}"


def _higher_levels(facts: AnswerFacts) -> str:
    """A search for the cliff that found none would end at the same level again."""
    highest = facts.highest_c or 0
    how = f"--levels {2 * highest},{4 * highest}" if facts.searched_cliff else "--find-cliff"
    return _command(facts, f"run {how}")


def _more_agents(facts: AnswerFacts) -> str:
    most = f" --max-agents {4 * (facts.highest_c or 0)}" if facts.at_highest else ""
    return _command(facts, "capacity", most)


_WHY_EMPTY = "find out why answers are empty: the chat template, the stop words or the model may end them at once"

STEPS = (
    AnswerRow("next", "no_text", ("textless",), lambda f: True, lambda f: _WHY_EMPTY,
        evidence=lambda f: f"none of {count_noun(f.textless or 0, 'answer')} had text"),
    AnswerRow("next", "server_changed", ("server_changed",), lambda f: True,
        lambda f: "repeat the plan: the server came back with other flags", evidence=lambda f: f.server_changed or ""),
    AnswerRow("next", "failures", ("failing",), lambda f: f.slo is None and f.server_changed is None,
        lambda f: "find out why requests fail, in the log of the server",
        evidence=lambda f: "C={}: {} of {} requests failed ({})".format(*f.failing or ())),
    AnswerRow("next", "errors", ("c", "missed", "failed", "requests", "error"),
        lambda f: errors_missed(f) and f.server_changed is None,
        lambda f: "find out why requests fail, in the log of the server",
        evidence=lambda f: f"C={f.c}: {f.failed} of {f.requests} requests failed ({f.error})"),
    AnswerRow("next", "empty_answers", ("c", "missed", "empty", "requests"), empty_missed,
        lambda f: _WHY_EMPTY,
        evidence=lambda f: f"C={f.c}: {f.empty} of {count_noun(f.requests or 0, 'answer')} had no text"),
    AnswerRow("next", "quiet_host", ("host",), lambda f: True, lambda f: "measure again when the host is quiet",
        evidence=lambda f: f.host or ""),
    AnswerRow("next", "client_limit", ("client",), lambda f: True,
        lambda f: f"the client may be the bottleneck: use other cores{_or_fewer(f)} before changing flags",
        evidence=lambda f: f.client or ""),
    AnswerRow("next", "measure_again", ("disturbed",), lambda f: f.host is None and f.client is None,
        lambda f: "measure again", evidence=lambda f: f.disturbed or ""),
    AnswerRow("next", "one_agent_misses", ("agents", "slo", "one_tps"),
        lambda f: f.agents == 0 and f.lowest_c == 1 and f.disturbed is None and not f.is_undecided,
        lambda f: f"try a looser SLO, or a smaller model: one agent has {rate(f.one_tps)} tok/s"),
    AnswerRow("next", "unsure_search", ("agents", "sure"), lambda f: _is_wide(f, _UNSURE),
        lambda f: "a surer search first (some minutes), as the number is not sure",
        lambda f: _command(f, "capacity")),
    AnswerRow("next", "more_slots_agents", ("slots", "more_slots", "more_at_once", "more_agents"),
        lambda f: not f.doubts and _more_slots_help(f),
        _agents_with_more_slots, lambda f: f.more_slots or "", _evidence_of_slots, _forecast),
    AnswerRow("next", "more_slots_tps", ("slots", "more_slots", "more_tps"),
        lambda f: f.more_agents is None and (f.more_tps or 0.0) >= MIN_GAIN and not f.doubts and _more_slots_help(f),
        lambda f: f"{_start(f)}: about {percent(f.more_tps)} more tok/s in total{_price(f)[0]} (prediction), as a "
        "step serves more requests",
        lambda f: f.more_slots or "", _evidence_of_slots, _forecast),
    AnswerRow("next", "more_slots", ("slots", "more_slots"),
        lambda f: _more_slots_help(f)
        and (f.flat is None if f.doubts else f.more_agents is None and f.more_tps is None and not f.slots_no_help),
        _more_slots_text, lambda f: f.more_slots or "", _evidence_of_slots, _forecast),
    AnswerRow("next", "queue", ("slots",),
        lambda f: _more_slots_help(f)
        and (f.more_slots is None or (not f.doubts and f.more_tps is not None and f.more_tps < MIN_GAIN))
        and not (f.flat is not None and _used_up(f)),
        _queue_text, evidence=_evidence_of_slots),
    AnswerRow("next", "throughput", ("flat",), lambda f: not f.doubts and f.smaller_weights is None and _used_up(f),
        _used_up_text, evidence=flat_words),
    AnswerRow("next", "narrow_kv", ("narrow_kv", "narrow_kv_flag", "kv_size"), lambda f: not f.doubts,
        lambda f: f"{f.narrow_kv_flag}: {signed_percent(f.narrow_kv, 0)} agents before the KV cache is full, "
        "as a token takes less of it (prediction)", lambda f: f.narrow_kv_flag or "", lambda f: f.kv_size or ""),
    AnswerRow("next", "preemptions", ("preempted",), lambda f: True,
        lambda f: "the KV cache is too small for this many requests: use fewer slots, a shorter context or an "
        "fp8 KV cache, or give it more memory", evidence=_preempted_text),
    AnswerRow("next", "kv_cache", ("full_kv",), lambda f: f.preempted is None,
        lambda f: "the KV cache is full: more streams will queue, or cause preemptions", evidence=_full_text),
    # Only where something ends, with the SLO or with the throughput: elsewhere prompts are as long as they are meant.
    AnswerRow("next", "shorter_prompts", ("c", "binds", "because"), lambda f: f.binds == "prefill" and not f.doubts,
        lambda f: "shorter prompts, or more of them from the prefix cache", evidence=lambda f: f.because or ""),
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
    AnswerRow("next", "fewer_slots", ("enough_slots", "step_law"), lambda f: f.slo is None and not f.doubts,
        lambda f: f"{count_noun(f.enough_slots or 0, 'slot')} would give almost the same tok/s in total: "
        "more of them only make each agent slower",
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
        lambda f: f"more than {agents(f.highest_c or 0)}: tok/s still grew", _higher_levels),
    AnswerRow("next", "more_agents", ("highest_c", "agents"),
        lambda f: f.c is None and bool(f.agents) and (f.at_highest or not f.searched),
        lambda f: f"more than {agents(f.highest_c or 0)}: no level missed the SLO", _more_agents),
    AnswerRow("next", "longer_search", ("agents", "sure"), lambda f: _is_wide(f, _WIDE) and not _is_wide(f, _UNSURE),
        lambda f: "a surer search (99 %, some minutes) narrows the number down",
        lambda f: _command(f, "capacity")),
    AnswerRow("next", "search_capacity", ("highest_c",), lambda f: f.slo is None and f.levels > 1 and not f.grows,
        lambda f: f"how many agents have {parse_slo(DEFAULT_SLO).words()}",
        lambda f: _command(f, "capacity")),
)  # fmt: skip
