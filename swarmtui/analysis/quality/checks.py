"""Fit to publish: every line with its value and its limit. What nobody measured is unknown, and never passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from swarmtui.analysis.compare.verdicts import coefficient_of_variation
from swarmtui.analysis.levels.stats import median
from swarmtui.analysis.quality.observed import Observed
from swarmtui.model.findings import Check
from swarmtui.model.session import Level, Session
from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.numbers import signed_percent
from swarmtui.text import count_noun

REQUESTS_PER_STREAM = 4
RUNS = 4
SPREAD = 0.03
OFF_NOMINAL = 0.05
CLOCKS = 0.05
LAG = 0.10
CPU = 0.70
ENGINE = 0.03
COUNTED = ("usage_chunks", "usage", "engine", "tokenize")

State = Literal["ok", "not ok", "unknown"]

# Lines of the trust panel that answer a check.
_TOLD_BY = {
    "cache": ("cold cache",),
    "clocks": ("throttling",),
    "client": ("client lag", "client CPU"),
    "alone": ("others on the server",),
    "preemptions": ("preemptions",),
    "engine agrees": ("decode rate",),
}


def checks(
    session: Session,
    levels: Sequence[Level],
    observed: Observed,
    *,
    warmup_requests: int,
    damaged_lines: int = 0,
    trust: Sequence[QualityLine] = (),
    servers: Sequence[DiscoveredServer] = (),
) -> tuple[Check, ...]:
    """In the order in which they are to be read. What was judged while it ran (`trust`) fills in what is unknown."""
    flags_known = bool(servers) and all(server.flags is not None for server in servers)
    made = (
        _warmup(warmup_requests),
        _cache(session, levels, observed),
        _errors(levels),
        _caps(levels),
        _tokens(levels),
        _enough(levels),
        _spread(levels),
        _achieved(levels),
        _flags(session, flags_known),
        _clocks(observed),
        _client(levels, observed),
        _alone(observed),
        _preemptions(observed),
        _engine(observed),
        _derived(damaged_lines),
    )
    lines = {line.name: line for line in trust}
    return tuple(_told(check, lines) for check in made)


def _told(check: Check, lines: Mapping[str, QualityLine]) -> Check:
    found = [lines[name] for name in _TOLD_BY.get(check.name, ()) if name in lines]
    if check.state != "unknown" or not found or len(found) < len(_TOLD_BY[check.name]):
        return check
    if any(line.value == "not known" for line in found):
        return check
    return msgspec.structs.replace(
        check,
        state="ok" if all(line.state == "ok" for line in found) else "not ok",
        value="; ".join(line.value for line in found),
        sentence="; ".join(line.sentence for line in found),
    )


def checks_sentence(found: Sequence[Check]) -> str:
    """`fit to publish`, or what stands in the way."""
    wrong = [check.name for check in found if check.state == "not ok"]
    unknown = [check.name for check in found if check.state == "unknown"]
    if not wrong and not unknown:
        return f"fit to publish: all {len(found)} checks hold"
    parts = [f"not met: {', '.join(wrong)}"] if wrong else []
    parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
    return f"not fit to publish: {'; '.join(parts)}"


def _check(name: str, ok: bool | None, value: str, limit: str, sentence: str) -> Check:
    state: State = "unknown" if ok is None else "ok" if ok else "not ok"
    return Check(name=name, state=state, value=value, limit=limit, sentence=sentence)


def _warmup(requests: int) -> Check:
    said = "warm-up was done and discarded" if requests else "the first answers may have paid for warming up"
    return _check("warm-up", requests > 0, count_noun(requests, "request", "requests"), "at least 1, discarded", said)


def _cache(session: Session, levels: Sequence[Level], observed: Observed) -> Check:
    if session.workload_spec.get("cache") == "warm":
        return _check(
            "cache", True, "declared warm", "cold, or declared warm", "the workload says that it uses the cache"
        )
    counts = [level.cached_tokens for level in levels]
    known = [count for count in counts if count is not None]
    cached: float | None = sum(known) if known and len(known) == len(counts) else observed.cache_hits
    if cached is None:
        said = "the server does not tell how many prompt tokens came from its cache"
        return _check("cache", None, "not told", "0 cached tokens", said)
    total = sum(level.tokens_in or 0 for level in levels)
    share = f" of {total}" if total else ""
    said = (
        "no prompt was in the prefix cache" if not cached else "prompts were in the prefix cache: prefill was cheaper"
    )
    return _check("cache", not cached, f"{cached:g}{share} tokens", "0 cached tokens", said)


def _errors(levels: Sequence[Level]) -> Check:
    failed, n = sum(level.errors for level in levels), sum(level.n for level in levels)
    said = "no request failed" if not failed else "requests failed; they are in no latency figure"
    return _check(
        "errors", None if not n else not failed, f"{failed} of {n}", "0", said if n else "nothing was measured"
    )


def _caps(levels: Sequence[Level]) -> Check:
    """Raw and clean figures are always shown side by side, so that a cap hit is no bar."""
    hits, ok = sum(level.cap_hits for level in levels), sum(level.ok for level in levels)
    said = "no answer was cut" if not hits else "answers were cut at the token limit; raw and clean figures are shown"
    return _check("cap hits", None if not ok else True, f"{hits} of {ok}", "0, or raw and clean shown", said)


def _tokens(levels: Sequence[Level]) -> Check:
    sources = sorted({level.token_source or "not known" for level in levels})
    said = "the server counted the tokens" if sources else "nothing was measured"
    bad = [source for source in sources if source not in COUNTED]
    if bad:
        said = f"tokens by {', '.join(bad)} are an estimate"
    return _check("token source", None if not sources else not bad, ", ".join(sources), "usage or engine", said)


def _enough(levels: Sequence[Level]) -> Check:
    limit = f"n ≥ {REQUESTS_PER_STREAM}C a run, ≥ {RUNS} runs"
    if not levels:
        return _check("samples", None, "none", limit, "nothing was measured")
    runs = min(level.runs for level in levels)
    shares = [run.ok / _streams(level) for level in levels for run in level.by_run]
    least = min(shares, default=0.0)
    ok = runs >= RUNS and least >= REQUESTS_PER_STREAM
    said = "enough requests and runs" if ok else "too few to know the spread from one run to the next"
    return _check("samples", ok, f"{least:.3g}C a run, {runs} run{'s' if runs != 1 else ''}", limit, said)


def _streams(level: Level) -> float:
    """In an open loop, as many as were in flight."""
    return level.c if level.rate is None else max(1.0, level.c_achieved or 1.0)


def _spread(levels: Sequence[Level]) -> Check:
    limit = f"CV ≤ {_percent(SPREAD)}"
    rows = [(level.name, coefficient_of_variation(level.headline_by_run)) for level in levels]
    known = [(spread, name) for name, spread in rows if spread is not None]
    if not known or len(known) < len(rows):
        missing = ", ".join(name for name, spread in rows if spread is None)
        return _check("spread", None, "one run", limit, f"one run has no spread ({missing})" if missing else "no runs")
    worst, at = max(known)
    said = "runs agree" if worst <= SPREAD else f"runs of {at} differ more than that"
    return _check("spread", worst <= SPREAD, f"{_percent(worst)} at {at}", limit, said)


def _achieved(levels: Sequence[Level]) -> Check:
    limit = f"within {_percent(OFF_NOMINAL)}"
    if levels and all(level.load not in ("closed", "ramp") for level in levels):
        return _check("achieved C", True, f"{levels[0].load} load", limit, "this load is not meant to hold C")
    off = [(abs(level.c_achieved / level.c - 1.0), level) for level in levels if level.c_achieved is not None]
    if not off or len(off) < len(levels):
        return _check("achieved C", None, "not measured", limit, "not every level has a time in flight")
    worst, level = max(off, key=lambda pair: pair[0])
    said = "the load was as meant"
    if worst > OFF_NOMINAL:
        said = "the streams were not all busy: ramp or drain weigh in, less so with --requests 10C"
    return _check("achieved C", worst <= OFF_NOMINAL, f"{level.c_achieved:.3g} at C={level.c}", limit, said)


def _flags(session: Session, found: bool) -> Check:
    known = bool(session.server_flags.strip()) or session.simulated or found
    said = "one workload, and how the server was started is known"
    if not known:
        said = "nobody can repeat it without the server's flags; give them with --server-flags"
    value = f"{session.workload} {session.workload_digest[:12]}, flags {'known' if known else 'not known'}"
    return _check("workload and flags", known, value, "same workload, flags known", said)


def _clocks(observed: Observed) -> Check:
    limit = f"no throttling, clocks within {_percent(CLOCKS)}"
    if observed.throttle is None and observed.clock_spread is None:
        return _check("clocks", None, "not measured", limit, "no GPU telemetry")
    value = ", ".join(observed.throttle or ()) or ("none" if observed.throttle is not None else "not told")
    spread = observed.clock_spread
    if spread is not None:
        value += f"; clocks {_percent(spread)}"
    ok = not observed.throttle and (spread is None or spread <= CLOCKS)
    both = observed.throttle is not None and spread is not None
    said = "the GPU held its clocks" if ok else "the GPU was slowed down while it was measured"
    return _check(
        "clocks", ok if both or not ok else None, value, limit, said if both or not ok else "only a part is known"
    )


def _client(levels: Sequence[Level], observed: Observed) -> Check:
    limit = f"lag p99 < {_percent(LAG)} of tpot, CPU < {_percent(CPU)}"
    tpot = median(level.tpot_s.p50 or level.tpot_s.mean or 0.0 for level in levels if level.tpot_s.mean)
    lag, cpu = observed.lag_p99_s, observed.cpu
    if lag is None or cpu is None or not tpot:
        return _check("client", None, "not measured", limit, "the client's own lag and CPU were not kept")
    ok = lag < LAG * tpot and cpu < CPU
    said = "the client had time to spare" if ok else "the client itself was too busy to be believed"
    return _check("client", ok, f"lag p99 {1e3 * lag:.3g} ms, CPU {_percent(cpu)}", limit, said)


def _alone(observed: Observed) -> Check:
    limit = "idle before, nobody else"
    if observed.idle_before is None or observed.others is None:
        part = "" if observed.idle_before is None else f"idle before: {'yes' if observed.idle_before else 'no'}"
        ok = False if observed.idle_before is False or observed.others else None
        return _check("alone", ok, part or "not measured", limit, "the server does not tell who else asked")
    ok = observed.idle_before and not observed.others
    value = f"{'idle' if observed.idle_before else 'busy'} before, {observed.others:g} requests of others"
    return _check("alone", ok, value, limit, "nobody else was served" if ok else "others were served at the same time")


def _preemptions(observed: Observed) -> Check:
    count = observed.preemptions
    if count is None:
        return _check("preemptions", None, "not measured", "0", "the server does not tell")
    said = "no request was put back" if not count else "the KV cache was too small: requests were put back and redone"
    return _check("preemptions", not count, f"{count:g}", "0", said)


def _engine(observed: Observed) -> Check:
    limit = f"within {_percent(ENGINE)}"
    if observed.engine_ratio is None:
        return _check("engine agrees", None, "not measured", limit, "the engine does not tell its own decode rate")
    off = observed.engine_ratio - 1.0
    ok = abs(off) <= ENGINE
    said = "client and engine saw the same decode rate" if ok else "client and engine disagree about the decode rate"
    return _check("engine agrees", ok, signed_percent(off, 2), limit, said)


def _derived(damaged: int) -> Check:
    said = "every number is derived from the journal"
    if damaged:
        said = "lines of the journal could not be read, so requests may be missing"
    return _check("journal", not damaged, f"{damaged} damaged lines", "0", said)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
