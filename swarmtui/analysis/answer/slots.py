"""The facts about slots: whether more of them help, what they cost each agent, and how many are enough."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, hypot, inf
from statistics import fmean
from typing import NamedTuple

import msgspec

from swarmtui.analysis.answer.facts import KV_FULL, AnswerFacts
from swarmtui.analysis.capacity.agents import session_kv
from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.capacity.scaling import PLATEAU
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.slo import RATE, Slo
from swarmtui.engines.base import flag_number
from swarmtui.engines.registry import engine_named
from swarmtui.model.findings import Scaling, Slots
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import percent, short, signed_percent

# A prediction for more slots goes up to this multiple of those that were measured.
_MORE_SLOTS = 2
# Two levels tell how the throughput grows if the higher one has this many times the requests at once, and if the
# growth is known to this part of that of the requests.
_APART = 1.5
_KNOWN = 0.25


class _Growth(NamedTuple):
    """The tok/s of `few` and of `many` requests at once; how they grow is known within `width`."""

    few: int
    few_tps: float
    many: int
    many_tps: float
    width: float

    @property
    def is_flat(self) -> bool:
        """Whether the tok/s do not grow, or so little that twice the requests at once add next to nothing.

        The time of a step is a + c·b with b requests.
        """
        few_s, many_s = self.few / self.few_tps, self.many / self.many_tps
        twice_s = many_s + (many_s - few_s) / (self.many - self.few) * self.many
        return self.many_tps <= (1.0 + self.width) * self.few_tps or 2.0 * many_s <= (1.0 + MIN_GAIN) * twice_s


def add_slots(facts: AnswerFacts, summary: Summary, slo: Slo | None) -> AnswerFacts:
    """Add what the levels say about slots, the setting for more of them, and what is predicted for it."""
    if not facts.levels or facts.open_loop is not None:
        return facts
    scaling, kv = summary.scaling or Scaling(), session_kv(summary)
    growth = _growth(_rated(summary.levels), scaling.slots, facts.c)
    flat = growth if growth is not None and growth.is_flat else None
    facts = msgspec.structs.replace(
        facts,
        queue_evidence=_queue_evidence(summary.levels, scaling),
        kv_fits=floor(kv.predicted) if kv is not None and kv.predicted is not None else None,
        flat=flat[:4] if flat else None,
    )
    slots = scaling.reported_slots
    if slots is None:
        return facts
    facts = _add_enough(facts, summary, scaling)
    limit = slo.strictest(RATE) if slo is not None else None
    return _add_more(facts, summary, scaling, slots, limit, judged=slo is not None)


def _rated(levels: Sequence[Level]) -> list[Level]:
    return sorted((level for level in levels if level.has_complete_run and level.headline_tps), key=lambda x: x.c)


def _growth(levels: Sequence[Level], slots: Slots | None, c: int | None) -> _Growth | None:
    """Return how the throughput grows with the requests that the server runs at once; null if that is not known.

    With all slots it is the mean of all levels that take them below the level `c` at which something ends; without
    one, or without known slots, it is that of this level, or of the last one.
    """
    total = slots.total if slots is not None else None
    below = [level for level in levels if c is None or level.c <= c]
    full = [level for level in below if total is not None and level.c >= total and level.c != c] or below[-1:]
    if not full:
        return None
    many = full[0].c if total is None else min(full[0].c, total)
    first = next((level for level in reversed(below) if level.c * _APART <= many), None)
    if first is None:
        return None
    widths = [level.half_width for level in full if level.half_width is not None]
    width = hypot(first.half_width or 0.0, fmean(widths or [0.0]))
    many_tps = fmean(level.headline_tps or 0.0 for level in full)
    found = _Growth(first.c, first.headline_tps or inf, many, many_tps, width)
    return found if width <= _KNOWN * (many / first.c - 1.0) else None


def _queue_evidence(levels: Sequence[Level], scaling: Scaling) -> str | None:
    """Compare the highest level with a slot for every stream and the highest level overall, if that brings little."""
    slots = scaling.slots
    if slots is None:
        return None
    within = [level for level in levels if level.c <= slots.total and level.headline_tps]
    beyond = [level for level in levels if level.c > slots.total and level.headline_tps]
    if not within or not beyond:
        return None
    base, highest = within[-1], beyond[-1]
    gain = ratio(highest.headline_tps, base.headline_tps)
    if base.c < slots.total or gain is None or gain - 1.0 >= MIN_GAIN:
        return None
    slower = ratio(highest.ttft_s.mean, base.ttft_s.mean)
    ttft = f", first token ×{short(slower, 2)} (mean)" if slower else ""
    return f"C={highest.c} compared with C={base.c}: {signed_percent(gain - 1.0, 0)} output tok/s{ttft}; {slots}"


def _add_more(
    facts: AnswerFacts, summary: Summary, scaling: Scaling, slots: Slots, limit: float | None, *, judged: bool
) -> AnswerFacts:
    """Add the setting for more slots, and what each agent then gets.

    A step of more requests takes longer as the fitted step time says; by as much as there are more of them where the
    throughput does not grow. `limit` is the least tok/s of an agent, `judged`: there is an SLO.
    """
    taken = [level for level in _rated(summary.levels) if level.c >= slots.total]
    # The level whose figures the answer says, if that takes all slots.
    at = facts.agents if judged else facts.best_c
    full = next((level for level in taken if level.c == at), taken[0] if taken else None)
    stream = full.per_stream_tps.mean if full is not None else None
    a, c, per = scaling.step_a_s, scaling.step_c_s, slots.per_replica
    most = float(_MORE_SLOTS * per)
    if facts.kv_use:
        most = min(most, per * KV_FULL / facts.kv_use)
    elif facts.kv_fits is not None:
        most = min(most, facts.kv_fits / slots.replicas)
    by_kv = most < _MORE_SLOTS * per
    fastest = None
    if limit and facts.flat is not None and stream is not None:
        fastest = per * stream / limit
    elif limit and a is not None and c is not None and c > 0:
        fastest = (1.0 / limit - a) / c
    more = floor(min(most, fastest) if fastest is not None else most)
    facts = msgspec.structs.replace(
        facts,
        full_tps=full.headline_tps if full is not None else None,
        full_half_width=full.half_width if full is not None else None,
        full_stream=stream,
        rate_limit=limit if fastest is not None and fastest < most else None,
        kv_limit=by_kv and not (fastest is not None and fastest < most),
    )
    if more <= per:
        return facts
    facts = msgspec.structs.replace(
        facts,
        more_slots=_slots_setting(summary, per, more),
        more_at_once=more * slots.replicas,
        shared_stream=stream * per / more if stream is not None else None,
        shared_agents=_agents_with(facts, slots, more, longer=more / per),
    )
    if facts.flat is not None:
        longer = more / per
    elif a is not None and c is not None:
        longer = (a + c * more) / (a + c * per)
    else:
        return facts
    more_agents = _agents_with(facts, slots, more, longer)
    return msgspec.structs.replace(
        facts,
        more_agents=more_agents,
        slots_no_help=judged and bool(facts.agents) and facts.flat is not None and more_agents is None,
        more_tps=None if judged else more / per / longer - 1.0,
        more_stream=stream / longer if stream is not None else None,
    )


def _agents_with(facts: AnswerFacts, slots: Slots, more: int, longer: float) -> int | None:
    """Return how many agents keep the SLO with more slots per replica; null if there may be as many now.

    As many wait for each slot as now, over the factor by which a step takes `longer`.
    """
    if not facts.agents:
        return None
    beyond = max(0.0, facts.agents / slots.total - 1.0)
    found = floor(more * slots.replicas * min(1.0, facts.agents / slots.total) * (1.0 + beyond / longer))
    return found if found > max(facts.agents, facts.high or 0) else None


def _slots_setting(summary: Summary, per_replica: int, more: int) -> str | None:
    """`--parallel 8 --ctx-size 32768`: the flag for more slots, with the one that keeps the context of a request.

    The flag may count less than a replica, so that its own value grows by the same factor.
    """
    server = summary.servers[0] if summary.servers else None
    name = server.engine if server else next((one.engine for one in summary.session.endpoints), "")
    engine = engine_named(name)
    now = flag_number(server.flags if server else None, *(flag.lstrip("-") for flag in engine.slot_flags))
    setting = engine.slots_setting(round((now or per_replica) * more / per_replica))
    slots = round(server.slots * more / per_replica) if server and server.slots else None
    keeps = engine.context_flag(server, slots) if server and slots else ""
    return " ".join(filter(None, (setting, setting and keeps))) or None


def _add_enough(facts: AnswerFacts, summary: Summary, scaling: Scaling) -> AnswerFacts:
    """Find how many slots give almost the throughput of all of them, within the levels that were measured."""
    slots, a, c = scaling.reported_slots, scaling.step_a_s, scaling.step_c_s
    if slots is None or a is None or c is None or max(level.c for level in summary.levels) < slots.total:
        return facts
    per = slots.per_replica
    full = per / (a + c * per)
    enough = next((m for m in range(1, per) if m / (a + c * m) >= PLATEAU * full), per)
    if enough > 0.75 * per:
        return facts
    law = (
        f"a step takes {short(1e3 * a)} + {short(1e3 * c)}·b ms (fit within {percent(scaling.fit_error or 0.0)}): "
        f"{enough} of {per} slots give {percent(PLATEAU)} of the tok/s"
    )
    return msgspec.structs.replace(facts, enough_slots=enough * slots.replicas, step_law=law)
