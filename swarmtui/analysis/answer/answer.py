"""Answer three questions about a session: how many agents, why no more, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from math import inf
from typing import Literal

import msgspec

from swarmtui.analysis.answer.facts import KV_FULL, AnswerFacts, capacity_facts, find_facts
from swarmtui.analysis.answer.rows import agents
from swarmtui.analysis.answer.slots import add_slots
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.capacity.words import doubt_words, room_share, visit_counts
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.slo import Slo
from swarmtui.analysis.speed_of_light.limits import fp8_kv_gain, level_limit
from swarmtui.engines.registry import engine_named
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep
from swarmtui.model.findings import Capacity, SearchedLevel, SearchState
from swarmtui.model.session import Summary
from swarmtui.model.speed_of_light import SpeedOfLight
from swarmtui.model.telemetry import QualityLine, ServerState


def answer(summary: Summary, slo: Slo | None, slo_text: str, counters: Mapping[int, ServerState]) -> Answer:
    """Return the answer of a session whose other figures are known; `counters` are those of the servers by level."""
    facts = add_hardware(add_slots(find_facts(summary, slo, counters), summary, slo), summary)
    at = facts.agents if slo is not None else facts.best_c
    return Answer(
        headline=_headline(facts),
        agents=facts.agents,
        low=facts.low,
        high=facts.high,
        missed_c=facts.past_c if facts.agents is not None else None,
        slo=slo_text if facts.agents is not None else "",
        confidence=facts.sure if facts.agents is not None else None,
        best_c=facts.best_c,
        one_agent=_point(summary, 1, slo),
        at_capacity=_point(summary, at, slo),
        limit=_limit(facts, summary.search),
        border=_border(facts, summary.search),
        next=next_steps(facts),
        quality=_quality(summary.quality),
        doubts=", ".join(facts.doubts),
        disturbed=facts.disturbed or "",
    )


def capacity_headline(found: Capacity, slo: Slo) -> str:
    """Say the result of a search before the session has ended; its range depends on the quality, judged then."""
    facts = msgspec.structs.replace(capacity_facts(found, slo), sure=None)
    return _headline(facts if facts.c is None else msgspec.structs.replace(facts, low=None, high=None)).sentence


def _headline(facts: AnswerFacts) -> AnswerSentence:
    row = rows_said("headline", facts)[0]
    return AnswerSentence(code=row.code, sentence=row.text(facts))


# Limits that are what disturbed a measurement, or that say nothing.
_DISTURBANCES = ("client", "host", "not_known")


def _limit(facts: AnswerFacts, search: SearchState | None) -> AnswerSentence:
    """`at 20 agents the first token took 2.4 s (p90): all 16 slots are taken`

    If something made the server look slower, the limit is not known, only what is likely.
    """
    row = rows_said("limit", facts)[0]
    missed = rows_said("missed", facts)
    if not missed:
        return AnswerSentence(code=row.code, sentence=row.text(facts))
    if facts.disturbed is not None and facts.agents is not None and row.code != "errors":
        seen = f"at {agents(facts.c or 0)} {missed[0].text(facts)}"
        said = f"not known: {seen}" if row.code in _DISTURBANCES else f"likely: {seen}, and {row.text(facts)}"
        return AnswerSentence(code="not_known", sentence=said)
    level = search.level(facts.c) if search is not None else None
    within = facts.high is None or (facts.c or 0) <= facts.high
    # By how little a level close to the limit missed it is said of the range.
    undecided = level is None or (level.state != "missed" and (level.differs or not level.close))
    possible = facts.agents is not None and within and undecided
    doubt = doubt_words(level) or ("perhaps not in another run" if facts.varies else "not sure yet")
    at = f"at {agents(facts.c or 0)}{f' ({doubt})' if possible else ''}"
    return AnswerSentence(code=row.code, sentence=f"{at} {missed[0].text(facts)}: {row.text(facts)}")


def _border(facts: AnswerFacts, search: SearchState | None) -> str:
    """Say which levels the number rests on; empty where none is kept, or where they prove nothing.

    `18 kept (confirmed), 20 kept once, missed once (12 of 20, then 19 of 19 requests), 22 missed, 19 and 21 not tried`:
    the range ends below 22. `25 kept (confirmed), 28 and 30 kept with only 3–9 % to spare, 32 missed by 6 %, 40 missed;
    runs differ by up to 15 %: 26 to 36 may go either way`: the range allows for another minute.
    """
    if not facts.agents:
        return ""
    searched = search if search and search.goal == "capacity" else SearchState(goal="capacity")
    above = [level for level in searched.levels if facts.agents < level.c < (facts.gone_c or inf)]
    above = [level for level in above if level.state != "dip"]
    if facts.disturbed is not None:
        # What was missed proves nothing, and neither do the ends of the range.
        above = [level for level in above if searched.shown_state(level) == "likely kept"]
        if not above:
            return ""
    # One that is close to the limit, but above the range, is missed by what those below it tell.
    beyond = inf if facts.high is None else facts.high
    is_missed = [level.state == "missed" or (level.close and level.c > beyond) for level in above]
    above = above[: is_missed.index(True) + 1 if True in is_missed else len(above)]
    parts = [_kept_words(facts.agents, searched)]
    for verdict, alike in groupby(above, partial(_verdict_words, searched, facts)):
        same = [*alike]
        rooms = [abs(level.room or 0.0) for level in same]
        parts.append(f"{_listed(same)} {verdict.format(_share_range(min(rooms), max(rooms)))}")
    close = any(searched.shown_state(one) in ("likely kept", "likely missed") for one in above if one.c <= beyond)
    if not above and facts.c is not None and facts.disturbed is None:
        parts.append(f"{facts.c} missed")
    levels = [] if close else [facts.agents, *(level.c for level in above)]
    gaps = [_gap_words(low + 1, high - 1) for low, high in pairwise(levels) if low + 1 < high]
    verdicts = ", ".join([*parts, *([f"{' and '.join(gaps)} not tried"] if gaps else [])])
    either = ""
    if facts.high is not None and facts.high > facts.agents:
        either = f": {_gap_words((facts.low or facts.agents) + 1, facts.high)} may go either way"
    return "; ".join(filter(None, (verdicts, f"{facts.varies}{either}" if facts.varies else "")))


def _listed(levels: Sequence[SearchedLevel]) -> str:
    """`12`, `12 and 13`, or `12, 13 and 16`"""
    *others, last = (str(level.c) for level in levels)
    return " and ".join(filter(None, (", ".join(others), last)))


def _share_range(low: float, high: float) -> str:
    """`3–15 %`"""
    least, most = room_share(low), room_share(high)
    return most if least == most else f"{least.removesuffix(' %')}–{most}"


def _verdict_words(search: SearchState, facts: AnswerFacts, level: SearchedLevel) -> str:
    """Say what is known of a level above the answer; by which share it is close to a limit stands for {}."""
    beyond = facts.high is not None and level.c > facts.high
    if level.state == "missed" or (level.close and beyond):
        return "missed by {}" if level.close and level.room is not None and level.room < 0.0 else "missed"
    state = search.shown_state(level)
    if state == "likely kept" and level.room is not None:
        return "kept with only {} to spare"
    return "missed by {}" if state == "likely missed" else _past_words(level, facts.c)


def _past_words(level: SearchedLevel, first: int | None) -> str:
    """Say what is known of a level above the answer; `first` is the lowest that misses the SLO as measured."""
    doubt = doubt_words(level)
    if level.differs and doubt:
        return f"{doubt}{_visit_words(level)}"
    if not doubt:
        return level.state
    if not (level.close or level.differs) and (level.room or 0.0) >= 0.0 and level.c != first:
        return "had too few requests to tell"
    return f"missed ({doubt})" if level.c == first and not level.close else doubt


def _kept_words(c: int, search: SearchState) -> str:
    """Say that a level is kept, and how sure that is: seen once, or with visits that do not agree, it is not.

    With too few requests of its own, it is kept as one above it is.
    """
    level = search.level(c)
    if level is None:
        return f"{c} kept"
    above = next((one for one in search.levels if one.c > c and not one.cut and (one.room or 0.0) > 0.0), None)
    if level.cut and level.visits == 1 and above is not None:
        return f"{c} kept (few requests; {above.good} of {above.n} at {above.c})"
    if level.state == "unsure" and level.differs:
        return f"{c} {doubt_words(level)}{_visit_words(level)}"
    sure = "confirmed" if level.state == "kept" else "not sure yet"
    if level.visits - level.cut < 2:
        sure = "seen once only" if level.visits < 2 else "its last visit was cut short"
    return f"{c} kept ({sure})"


def _visit_words(level: SearchedLevel | None) -> str:
    """Return the requests of each visit that met the SLO: their sum would not show that the visits differ."""
    counts = visit_counts(level.by_visit) if level else ""
    return f" ({counts} requests)" if counts else ""


def _gap_words(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} {'and' if first + 1 == last else 'to'} {last}"


def next_steps(facts: AnswerFacts) -> tuple[NextStep, ...]:
    return tuple(
        NextStep(
            code=row.code,
            sentence=row.text(facts),
            command=row.command(facts),
            evidence=row.evidence(facts),
            forecast=row.forecast(facts),
        )
        for row in rows_said("next", facts)
    )


def _point(summary: Summary, c: int | None, slo: Slo | None) -> AnswerPoint | None:
    level = next((level for level in summary.levels if level.c == c and level.rate is None and level.ok), None)
    if level is None:
        return None
    slots = summary.scaling.reported_slots if summary.scaling else None
    point = AnswerPoint(
        c=level.c,
        at_once=slots.total if slots and slots.total < level.c else None,
        ttft_s=level.shown_ttft_s.median,
        ttft_p90_s=level.shown_ttft_s.p90,
        ttft_max_s=level.shown_ttft_s.max,
        e2e_s=level.e2e_s.median,
        tokens_in=ratio(level.tokens_in, level.ok),
        tokens_out=ratio(level.tokens_out, level.ok),
        per_stream_tps=level.per_stream_tps.mean,
        out_tps=level.headline_tps,
        half_width=level.half_width,
    )
    judged = next((one for one in summary.goodput if one.key == level.key), None)
    for kept, condition in zip(judged.conditions if judged else (), slo.conditions if slo else (), strict=False):
        if tuple(condition.limits) == ("ttft",) and kept.n:
            # The median is that of tables, of the requests in the window; one that contradicts the count is left out.
            contradicts = (
                point.ttft_s is not None and (point.ttft_s - condition.limits["ttft"]) * (2 * kept.good - kept.n) > 0
            )
            return msgspec.structs.replace(
                point,
                ttft_s=None if contradicts else point.ttft_s,
                ttft_p90_s=kept.value if condition.percentile == 90 else None,
                ttft_limit_s=condition.limits["ttft"],
                ttft_good=kept.good,
                ttft_n=kept.n,
            )
    return point


def _quality(lines: Sequence[QualityLine]) -> Literal["ok", "note", "doubtful"]:
    states = {line.state for line in lines}
    return "doubtful" if states & {"doubtful", "wrong"} else "note" if "note" in states else "ok"


# Weights of half the bits are worth a sentence from this gain on.
_MIN_GAIN = 0.1
_PLAIN = ("BF16", "F16", "bf16", "f16")


def add_hardware(facts: AnswerFacts, summary: Summary) -> AnswerFacts:
    """Add what binds the level that is asked about: the first that misses, else the best one."""
    found = summary.speed_of_light
    c = facts.best_c if facts.c is None else facts.c
    level = found.level(c) if found is not None else None
    if found is None or level is None:
        return facts
    known = level.binds != "not_known"
    return msgspec.structs.replace(
        facts,
        binds_c=c if known else None,
        binds=level.binds if known else None,
        because=level.because if known else None,
        smaller_weights=_smaller_weights(found, c or 1) if level.binds == "bandwidth" else None,
        eager=_eager(summary) if level.binds == "launch_overhead" else None,
        **_narrow_kv(facts, summary, found),
    )


def _smaller_weights(found: SpeedOfLight, c: int) -> float | None:
    """Predict the gain of tok/s from weights of half the bits; null if they are quantised already."""
    model, gpu, level = found.model, found.gpu, found.level(c)
    if model is None or gpu is None or found.fit is None or level is None or not level.fitted_tps:
        return None
    if model.quantisation not in _PLAIN:
        return None
    half = msgspec.structs.replace(found.serving, context=level.context, weight_factor=0.5)
    then = level_limit(model, gpu, half, c, found.fit).fitted_tps
    gain = then / level.fitted_tps - 1.0 if then else 0.0
    return gain if gain >= _MIN_GAIN else None


def _narrow_kv(facts: AnswerFacts, summary: Summary, found: SpeedOfLight) -> dict[str, object]:
    """Predict how many more contexts an 8-bit KV cache holds, if the cache is full."""
    full = facts.full_kv is not None or facts.preempted is not None or facts.hits is not None
    full = full or (facts.kv_use or 0.0) >= KV_FULL
    server = summary.servers[0] if summary.servers else None
    flag = engine_named(server.engine).narrow_kv if server else ""
    if not full or not flag or found.model is None or found.kv_tokens is None or not found.levels:
        return {}
    serving = msgspec.structs.replace(found.serving, context=found.levels[-1].context)
    gain = fp8_kv_gain(found.model, serving)
    if gain is None:
        return {}
    bits = found.model.kv_bits if serving.kv_bits is None else serving.kv_bits
    size = f"KV cache of {found.kv_tokens:,.0f} tokens with {bits:g} bits"
    return {"narrow_kv": gain - 1.0, "narrow_kv_flag": flag, "kv_size": size}


def _eager(summary: Summary) -> str | None:
    """Return the flag that keeps a server from using CUDA graphs, if it has it."""
    flags = (summary.servers[0].flags if summary.servers else None) or {}
    return next((f"--{name}" for name in ("enforce-eager", "disable-cuda-graph") if name in flags), None)
