"""Judge the measurement quality: one rule and one limit for each fact, one line with a stable code for each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from swarmtui.analysis.limits.slo import RATE, SLO_FIGURES, WAITS, Slo
from swarmtui.analysis.machine.energy import THROTTLE_REASONS
from swarmtui.analysis.quality import quality_limits as limits
from swarmtui.analysis.quality.host import HOST_LIMIT, grade_host, grade_steal
from swarmtui.analysis.quality.quality_limits import STATES, Enough, Grade, Limit, QualityState
from swarmtui.model.load import traits
from swarmtui.model.telemetry import QualityFacts, QualityLine
from swarmtui.numbers import short, short_percent, signed_percent
from swarmtui.text import count_noun

TOKEN_SOURCES = ("usage_chunks", "usage", "engine")

# At its power limit a GPU is as fast as this machine allows; every other reason can differ from day to day.
_CHANGING_REASONS = THROTTLE_REASONS - {"power cap"}

# The figures that a fact can touch: those of an SLO, and the tok/s in total.
OUTPUT = "output"
FIGURES = (*SLO_FIGURES, OUTPUT)
# What is counted in tokens.
_COUNTED = (RATE, "tpot", OUTPUT)
# What a sweep says about each level.
_SWEEP = (OUTPUT, "ttft", RATE)


class Asked(NamedTuple):
    """The figures that an answer is made of; `agents`: it is a number of agents, found by a search."""

    figures: frozenset[str]
    agents: bool = False


EVERYTHING = Asked(frozenset(FIGURES))


def asked_figures(slo: Slo | None, *, searched: bool) -> Asked:
    """Return what an answer is made of: after a search, what the SLO measures; else also what tables say of levels."""
    if slo is not None and searched:
        return Asked(slo.figures, agents=True)
    return Asked((slo.figures if slo is not None else frozenset()) | frozenset(_SWEEP))


class Rule(NamedTuple):
    """The rule for one fact. `unknown` explains why it can be missing; without it, a missing fact is not listed.

    `external`: the fact comes from the server or the machine, which may not report it. `touches` are the figures that
    it makes inexact. `enough` is what a doubt needs behind it while the session runs, `doubt` why it makes a result
    uncertain. `slows`: it can only make a server look slower than it is. A client that is slow to send holds C a little
    lower, too; from a twentieth on, `in_flight` says so, which does not.
    """

    code: str
    name: str
    limit: str
    unknown: str
    grade: Callable[[QualityFacts], Grade | None]
    external: bool = False
    touches: tuple[str, ...] = FIGURES
    enough: Enough = Enough()
    doubt: str = ""
    slows: bool = False


def judge(facts: QualityFacts, asked: Asked = EVERYTHING, so_far: Enough | None = None) -> tuple[QualityLine, ...]:
    """Return one line for each fact that is known; one that touches nothing of what is asked is never a doubt.

    `so_far` is what a running session has measured; too little of it makes a doubt a remark. In the first seconds a
    line is early whatever its value is, as that of a share changes with each of them.
    """
    lines = []
    untouched = "the number of agents is not touched" if asked.agents else "tok/s and first tokens are not touched"
    for rule in RULES:
        grade = rule.grade(facts)
        if grade is not None:
            early = so_far is not None and so_far.seconds < rule.enough.seconds
            if grade.state == "doubtful" and so_far is not None and not rule.enough.reached(so_far):
                grade, early = grade.as_remark("too early to tell"), True
            inexact = rule.touches if grade.state == "doubtful" else ()
            if grade.state != "ok" and asked.figures.isdisjoint(rule.touches):
                grade = grade.as_remark(untouched)
            line = QualityLine(
                code=rule.code, name=rule.name, state=grade.state, value=grade.value, sentence=grade.sentence,
                inexact=inexact, programs=grade.programs, early=early,
            )  # fmt: skip
            lines.append(line)
    return tuple(lines)


def _server_restart(facts: QualityFacts) -> Grade | None:
    bad_sentence = "the server restarted during the session: its counters, and perhaps its flags, changed"
    return Grade("doubtful", "restarted", "", bad_sentence) if facts.restarted else None


def _server_stall(facts: QualityFacts) -> Grade | None:
    if not facts.frozen and not facts.all_waiting:
        return None
    times = (("frozen", facts.frozen), ("all waiting", facts.all_waiting))
    parts = [f"{name} {count_noun(count, 'time')}" for name, count in times if count]
    parts += [f"the longest {short(facts.silence_s)} s"] if facts.silence_s else []
    bad_sentence = "no stream received anything for that time: the server or the network froze"
    if not facts.frozen:
        bad_sentence = "all requests waited for their first token for longer than reading their prompts takes"
    return Grade("doubtful", ", ".join(parts), "", bad_sentence)


def _several_servers(facts: QualityFacts) -> Grade | None:
    sentence = "the metrics come from different servers in turn, behind a load balancer: their counters are not used"
    return Grade("note", "behind a load balancer", "", sentence) if facts.several_servers else None


def _connections(facts: QualityFacts) -> Grade | None:
    sentence = "the server closes connections after each response although it promises to keep them: none is reused"
    return Grade("note", "closed by the server", "", sentence) if facts.closed_connections else None


def _client_lag(facts: QualityFacts) -> Grade | None:
    if facts.lag_p99_s is None or not facts.tpot_s:
        return None
    share, value = facts.lag_p99_s / facts.tpot_s, f"p99 {short(1e3 * facts.lag_p99_s)} ms"
    if facts.kernel_stamps:
        sentence = "arrival times come from the kernel, however late the client reads"
        return Grade("ok", f"{value}, kernel stamps", sentence, "")
    value = f"{value}, {short_percent(share, 2)} of the time per token"
    bad_sentence = "the client reads late; run it on a quieter machine, or with fewer streams"
    return Grade(limits.CLIENT_LAG.grade(share), value, "the client keeps up with the tokens", bad_sentence)


def _held_c(facts: QualityFacts) -> Grade | None:
    if facts.load is not None and not traits(facts.load).holds_c:
        return Grade("ok", f"{facts.load} load", "this load does not hold a constant C", "")
    if facts.c_held is None or not facts.c:
        return None
    return Grade(
        limits.IN_FLIGHT.grade(1.0 - facts.c_held / facts.c),
        f"{short(facts.c_held)} of {facts.c}",
        "the planned number of streams was active",
        "not all streams were active while requests were left: requests failed, or the client was slow",
    )


def _other_clients(facts: QualityFacts) -> Grade | None:
    states: list[QualityState] = []
    parts: list[str] = []
    if facts.other_clients is not None and facts.in_flight is not None:
        share = facts.other_clients / max(1.0, facts.in_flight)
        states.append("ok" if facts.other_clients < 1.0 else limits.OTHER_CLIENTS.grade(share))
        parts.append(f"{facts.other_clients:g} in flight besides our {facts.in_flight:g}")
    if facts.other_requests is not None:
        states.append(limits.OTHER_REQUESTS.grade(facts.other_requests / max(1, facts.own_requests or 0)))
        parts.append(f"{facts.other_requests:g} finished besides ours")
    if (
        not facts.miscounted
        and facts.other_requests != 0.0
        and limits.TOKEN_COUNTS.grade(excess := _token_difference(facts) or 0.0) != "ok"
    ):
        states.append("doubtful")
        parts.append(f"{short_percent(excess, 2)} of the output tokens were not ours")
    if facts.idle_before is not None:
        states += [] if facts.idle_before else ["doubtful"]
        parts.append("idle before" if facts.idle_before else "busy before")
    if not states:
        return None
    bad_sentence = "another client used the server at the same time and slowed it down"
    limit = f"{short_percent(limits.OTHER_REQUESTS.note)} of our requests"
    return Grade(worst(states), ", ".join(parts), "no other client used the server", bad_sentence, limit)


_ESTIMATED_SOURCES = {
    "tokenize": "counted after the run by the server's tokenizer: special tokens may be missing",
    "chunks": "chunks were counted, and a chunk can hold several tokens",
    "mixed": "requests were counted in different ways",
}


def _token_source(facts: QualityFacts) -> Grade | None:
    if not facts.token_sources:
        return None
    estimates = [source for source in facts.token_sources if source not in TOKEN_SOURCES]
    bad_sentence = _ESTIMATED_SOURCES.get(estimates[0], "some answers have no token count") if estimates else ""
    value = ", ".join(source.replace("_", " ") for source in facts.token_sources)
    return Grade("doubtful" if estimates else "ok", value, "the server counted the tokens", bad_sentence)


def _token_counts(facts: QualityFacts) -> Grade | None:
    states: list[QualityState] = []
    parts: list[str] = []
    within = bad_sentence = ""
    if facts.client_tokens is not None and facts.server_tokens is not None:
        apart = abs(facts.server_tokens - facts.client_tokens) / max(1.0, facts.server_tokens)
        within = f" within {short_percent(ceil(1e3 * apart) / 1e3, 2)}" if apart else ""
        states.append(limits.TOKEN_COUNTS.grade(abs(_token_difference(facts) or 0.0)))
        parts.append(f"client {facts.client_tokens:,.0f}, server {facts.server_tokens:,.0f}")
        bad_sentence = "client and server count differently: other clients, wrong usage, or requests that ended early"
    if facts.miscounted is not None:
        states.append(limits.MISCOUNTED.grade(facts.miscounted))
        if facts.miscounted:
            parts.append(f"{short_percent(facts.miscounted, 2)} of answers have fewer tokens than chunks")
            bad_sentence = "usage contradicts the text that arrived: rates and tokens per second are too low"
    if facts.usage_apart is not None:
        states.append(limits.USAGE_APART.grade(abs(facts.usage_apart)))
        if facts.usage_apart:
            parts.append(
                f"usage {signed_percent(facts.usage_apart, 2)} against /tokenize of {facts.usage_checked} answers"
            )
            bad_sentence = bad_sentence or "usage is not what the server's tokenizer counts: tokens per second are off"
    if not states:
        return None
    value = ", ".join(parts) or "usage fits the text"
    most, apart_by = short_percent(limits.MISCOUNTED.note), short_percent(limits.USAGE_APART.note)
    limit = f"{most} of answers, or {apart_by} of their tokens"
    return Grade(worst(states), value, f"all counts of the tokens agree{within}", bad_sentence, limit)


def _first_reads(facts: QualityFacts) -> Grade | None:
    if facts.first_coalesced is None:
        return None
    value = f"{short_percent(facts.first_coalesced, 2)} of answers"
    if facts.first_coalesced and facts.first_error is not None:
        value += f", TTFT or time per token up to {short_percent(facts.first_error, 2)} off"
    states = [limits.FIRST_COALESCED.grade(facts.first_coalesced)]
    states += [limits.FIRST_ERROR.grade(facts.first_error)] if facts.first_error is not None else []
    return Grade(
        min(states, key=STATES.index),
        value,
        "the first token of nearly every answer has its own timestamp",
        "first tokens were read together with later ones: TTFT may be too long, and time per token too short",
        f"{short_percent(limits.FIRST_ERROR.note)} off",
    )


def _token_difference(facts: QualityFacts) -> float | None:
    """Return the server's output tokens beyond ours as a share; null if unknown, 0 if cancelled requests explain it."""
    if facts.client_tokens is None or facts.server_tokens is None:
        return None
    difference = facts.server_tokens - facts.client_tokens
    if -(facts.uncounted_tokens or 0.0) <= difference <= (facts.uncertain_tokens or 0.0):
        return 0.0
    return difference / max(1.0, facts.server_tokens)


def _decode_rate(facts: QualityFacts) -> Grade | None:
    if facts.engine_ratio is None:
        return None
    off = facts.engine_ratio - 1.0
    bad_sentence = "client and engine disagree on the decode rate: tokens are held back between them"
    value = f"engine {signed_percent(off, 2)}"
    return Grade(limits.DECODE_RATE.grade(abs(off)), value, "client and engine agree on the decode rate", bad_sentence)


def _cold_cache(facts: QualityFacts) -> Grade | None:
    share = f", {short_percent(facts.cached_share, 2)} cached" if facts.cached_share is not None else ""
    if facts.cache == "warm" or (facts.cache == "shared" and facts.unique_cached is None):
        return Grade("ok", f"declared {facts.cache}{share}", "the workload uses the prefix cache by design", "")
    if facts.cache == "shared":
        unique = facts.unique_cached or 0.0
        value = f"declared shared{share}" + (f", {short_percent(unique, 2)} of answers beyond that" if unique else "")
        bad_sentence = "the part of prompts that should be new was in the prefix cache: TTFT is too short"
        return Grade(
            limits.CACHED.grade(unique), value, "only what prompts share was in the prefix cache", bad_sentence
        )
    if facts.cache is None or facts.cached_share is None:
        return None
    bad_sentence = "prompts that should be new were in the prefix cache: TTFT is too short"
    value = f"{short_percent(facts.cached_share, 2)} cached"
    return Grade(
        limits.CACHED.grade(facts.cached_share), value, "the prompts were not in the prefix cache", bad_sentence
    )


def _throttling(facts: QualityFacts) -> Grade | None:
    if facts.throttled is None:
        return None
    reasons = [reason for reason in facts.throttle if reason in THROTTLE_REASONS] if facts.throttled else []
    state = limits.THROTTLED.grade(facts.throttled)
    if state == "doubtful" and not _CHANGING_REASONS.intersection(reasons):
        state = "note"
    value = f"{short_percent(facts.throttled, 2)} of the time {', '.join(reasons)}".rstrip()
    bad_sentence = "the GPUs were throttled: figures will differ on another day, or on a cooler machine"
    if state == "note":
        bad_sentence = "the GPUs run at their power limit: that is as fast as this machine allows"
    return Grade(state, value, "the GPUs were not throttled", bad_sentence)


def _single(
    fact: Callable[[QualityFacts], float | None],
    limit: Limit,
    amount: Callable[[float], str],
    good_sentence: str,
    bad_sentence: str,
    value: str = "{}",
) -> Callable[[QualityFacts], Grade | None]:
    """Build the grade of a single fact with a limit; `value` is the sentence around its amount."""

    def grade(facts: QualityFacts) -> Grade | None:
        found = fact(facts)
        if found is None:
            return None
        shown = value.format(amount(found))
        return Grade(limit.grade(found), shown, good_sentence, bad_sentence, amount(limit.note))

    return grade


def _within(limit: Limit) -> str:
    return f"within {short_percent(limit.ok)}"


RULES = (
    Rule("server_restart", "server restart", "none", "", _server_restart, doubt="the server restarted"),
    Rule("server_stall", "stall of all streams", "none", "", _server_stall, doubt="the server froze", slows=True),
    Rule("several_servers", "several servers", "one server per metrics URL", "", _several_servers),
    Rule("connections", "connections", "kept open", "", _connections),
    Rule(
        "client_lag", "client lag",
        f"kernel stamps, or p99 ≤ {short_percent(limits.CLIENT_LAG.ok)} of the time per token",
        "the client's lag was not recorded", _client_lag, enough=limits.ENOUGH_TIME,
        doubt="the client read late", slows=True,
    ),
    Rule(
        "turnaround", "turnaround", f"≤ {short_percent(limits.TURNAROUND.ok)} of the time of requests", "",
        _single(
            lambda facts: facts.turnaround, limits.TURNAROUND, lambda share: f"{short_percent(share, 2)} of the time",
            "the next request follows at once", "the client is slow to send the next request: C is not held",
        ),
        enough=limits.ENOUGH_TIME, doubt="the client was slow to send", slows=True,
    ),
    Rule(
        "send_delay", "send delay", f"≤ {short_percent(limits.SEND_DELAY.ok)} of TTFT", "",
        _single(
            lambda facts: facts.send_delay, limits.SEND_DELAY, lambda share: f"{short_percent(share, 2)} of TTFT",
            "requests were sent when they were due", "requests were sent late: the delay is part of TTFT",
        ),
        touches=WAITS, enough=limits.ENOUGH_TIME, doubt="requests were sent late", slows=True,
    ),
    Rule(
        "client_cpu", "client CPU", f"≤ {short_percent(limits.CLIENT_CPU.note)} of a core",
        "the client's CPU time was not recorded",
        _single(
            lambda facts: facts.worker_cpu, limits.CLIENT_CPU, lambda share: f"{short_percent(share, 2)} of a core",
            "the client has CPU time to spare", "the client may be the bottleneck; use fewer streams, or more cores",
        ),
        enough=limits.ENOUGH_TIME, doubt="the client had no CPU time to spare", slows=True,
    ),
    Rule(
        "host_pressure", "host CPU", HOST_LIMIT,
        "the host does not report how long tasks wait for a CPU", grade_host, external=True,
        enough=limits.ENOUGH_TIME, doubt="the host was busy", slows=True,
    ),
    Rule(
        "host_steal", "host steal", f"≤ {short_percent(limits.STEAL.note)}",
        "the host does not report what its hypervisor takes", grade_steal, external=True,
        enough=limits.ENOUGH_TIME, doubt="other virtual machines took CPU time", slows=True,
    ),
    Rule(
        "in_flight", "held C", f"{_within(limits.IN_FLIGHT)} of C", "too few requests per level to hold C", _held_c,
        doubt="C was not held",
    ),
    Rule(
        "other_clients", "other clients", "none, idle before",
        "the server does not report requests of other clients", _other_clients, external=True,
        doubt="another client used the server", slows=True,
    ),
    Rule(
        "token_source", "token source", "usage or engine", "nothing was measured", _token_source, touches=_COUNTED,
        doubt="tokens were estimated",
    ),
    Rule(
        "token_counts", "token counts", _within(limits.TOKEN_COUNTS), "", _token_counts, touches=_COUNTED,
        doubt="token counts contradict each other",
    ),
    Rule(
        "decode_rate", "decode rate", _within(limits.DECODE_RATE),
        "the engine reports no decode rate, or no level lasted for two samples", _decode_rate, external=True,
        touches=(RATE, "tpot", "stall"), enough=limits.ENOUGH_TIME,
        doubt="client and engine disagree on the decode rate",
    ),
    Rule(
        "cold_cache", "cold cache", f"≤ {short_percent(limits.CACHED.ok)} cached, or declared",
        "the server does not report cached prompt tokens", _cold_cache, external=True,
        doubt="prompts were in the prefix cache",
    ),
    Rule(
        "preemptions", "preemptions", "0", "the server does not report preemptions",
        _single(
            lambda facts: facts.preemptions, limits.PREEMPTIONS, lambda count: f"{count:g}",
            "the KV cache had room for all requests",
            "the KV cache was full: requests were preempted and computed again",
        ),
        external=True, doubt="requests were preempted",
    ),
    Rule(
        "throttling", "throttling", f"≤ {short_percent(limits.THROTTLED.ok)} of the time",
        "no GPU reports whether it is throttled", _throttling, external=True,
        enough=limits.ENOUGH_TIME, doubt="the GPUs were throttled", slows=True,
    ),
    Rule(
        "gpu_clocks", "GPU clocks", _within(limits.GPU_CLOCKS), "no GPU reported its clocks under load",
        _single(
            lambda facts: facts.clock_spread, limits.GPU_CLOCKS, lambda spread: short_percent(spread, 2),
            "the GPU clocks were steady", "the GPU clocks changed under load", "within {}",
        ),
        external=True, doubt="the GPU clocks changed", slows=True,
    ),
    Rule(
        "client_clock", "client clock", "not set during the run", "",
        _single(
            lambda facts: facts.clock_steps, limits.CLOCK_STEPS, lambda steps: count_noun(int(steps), "step"),
            "the clock of this machine ran evenly",
            "the clock of this machine was set during the run; arrival times around that moment may be off",
        ),
        doubt="the clock was set",
    ),
    Rule(
        "host_clocks", "host clocks", f"within ±{short(1e3 * limits.HOST_CLOCKS.note)} ms", "",
        _single(
            lambda facts: facts.clock_bound_s, limits.HOST_CLOCKS, lambda bound: f"±{short(1e3 * bound)} ms",
            "the clocks of the hosts are known well enough to order their requests",
            "the clocks of the hosts are not known exactly: throughput may be off; TTFT and gaps are not", "within {}",
        ),
        touches=(OUTPUT,), doubt="the clocks of the hosts are not known",
    ),
    Rule(
        "first_reads", "shared first reads", f"≤ {short_percent(limits.FIRST_COALESCED.ok)}", "", _first_reads,
        touches=("ttft", "ttfo", "tpot", RATE), enough=limits.ENOUGH_ANSWERS, doubt="first tokens were read late",
    ),
    Rule(
        "coalesced_chunks", "coalesced chunks", f"≤ {short_percent(limits.COALESCED_CHUNKS.note)}", "",
        _single(
            lambda facts: facts.coalesced_chunks, limits.COALESCED_CHUNKS, lambda share: short_percent(share, 2),
            "each chunk has its own timestamp",
            "several chunks were read at once: gaps between tokens and stalls are inexact (fewer agents, or the "
            "client on another machine, may make them exact)",
        ),
        touches=("stall",), doubt="chunks arrived together",
    ),
)  # fmt: skip


def worst(states: Sequence[QualityState]) -> QualityState:
    return max(states, key=STATES.index)
