"""Gather the facts about the conditions of a measurement, while it runs and from its journal."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from swarmtui.analysis.levels.runs import Span, group_by_stage, in_flight_span, in_flight_spans
from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.analysis.machine.host import busiest
from swarmtui.analysis.machine.server_counters import change_within, counter_change, counters_reset
from swarmtui.model.findings import SearchState
from swarmtui.model.journal import QualityEntry
from swarmtui.model.load import traits
from swarmtui.model.record import LEVEL_PHASES, Record
from swarmtui.model.session import Level, Session
from swarmtui.model.telemetry import CachePromise, QualityFacts, ServerState, Telemetry

# Clocks drop between levels: only samples of a busy GPU show whether they were lowered.
_BUSY = 0.5
# The share of an engine's tokens that our answers must cover for a comparison of decode rates. More than all of them
# means that a sample was taken far later than asked for.
_MIN_COVERED, _MAX_COVERED = 0.5, 1.05
# How long after it was asked a server may read its counters, with the time that a token takes to arrive.
_READ_NS = (0, 50_000_000, 200_000_000)
# The chat template of a model may begin all prompts with this many tokens.
_TEMPLATE_TOKENS = 32
# A prompt with a unique number ends with more tokens than these: the number, the question, and the template's end.
_UNIQUE_TOKENS = 16
# Usage may differ from the tokens of the text by this share, and this many tokens (the end of a text, of reasoning).
_RETOKENIZED, _SPECIAL_TOKENS = 0.02, 3
# About as many chunks as tokens: each chunk holds one.
_SINGLE_TOKENS = 0.2
# A server generates tokens of a cancelled request for this time before it notices, and at least this many.
_NOTICED_S, _UNCERTAIN_TOKENS = 0.5, 16


def merge_facts(*parts: QualityFacts) -> QualityFacts:
    """Combine facts; if several parts have the same one, the last of them counts."""
    known: dict[str, Any] = {}
    for part in parts:
        known |= {name: value for name, value in msgspec.structs.asdict(part).items() if value not in (None, ())}
    known["restarted"] = any(part.restarted for part in parts)
    known["several_servers"] = any(part.several_servers for part in parts)
    return QualityFacts(**known)


def session_facts(
    session: Session,
    levels: Sequence[Level],
    records: Sequence[Record],
    telemetry: Sequence[Telemetry],
    measured: QualityEntry | None = None,
    search: SearchState | None = None,
) -> QualityFacts:
    """Return the facts of a whole session; `measured` adds what only its own process could see."""
    turnaround = Turnaround()
    if session.plan.load.holds_c:
        for record in sorted(records, key=lambda record: record.t_sent_ns or 0):
            turnaround.add(record)
    own = measured.facts if measured is not None else QualityFacts()
    return merge_facts(
        # How busy the host was is known of each level.
        msgspec.structs.replace(own, host=None),
        _telemetry_facts(records, telemetry, sum(level.tokens_in or 0 for level in levels)),
        record_facts([record for record in records if record.ok and record.phase == "level"]),
        level_facts(levels, search),
        QualityFacts(cache=with_turns(cache_promise(session), records), turnaround=turnaround.share),
    )


def cache_promise(session: Session) -> CachePromise:
    """Return what of the prompts may be in the prefix cache, by the workload."""
    spec = session.workload_spec
    if spec.get("cache") == "warm":
        return "warm"
    return "shared" if spec.get("cache") == "shared" or spec.get("kind") in ("trace", "shared_prefix") else "cold"


def with_turns(promise: CachePromise, records: Iterable[Record]) -> CachePromise:
    """The history of a conversation is in the cache when its next turn is sent."""
    return "shared" if promise == "cold" and any(record.turn for record in records) else promise


class Turnaround:
    """Adds up the time between the end of a stream and its next request, while C streams should be in flight.

    Before the first measured request of a stream, a pause changes no figure.
    """

    def __init__(self) -> None:
        self._ended: dict[int, tuple[int, int]] = {}
        self._idle_ns = self._busy_ns = 0

    def add(self, record: Record) -> None:
        """Add a request; those of an agent in order of time. An agent that waits after an error is not slow."""
        span = in_flight_span(record)
        if span is None or record.phase not in LEVEL_PHASES:
            return
        stage, end_ns = self._ended.pop(record.agent, (record.stage, None))
        if record.phase != "preroll":
            if end_ns is not None and stage == record.stage:
                self._idle_ns += max(0, span[0] - end_ns)
            self._busy_ns += span[1] - span[0]
        if record.ok:
            self._ended[record.agent] = record.stage, record.t_done_ns or span[1]

    @property
    def share(self) -> float | None:
        return ratio(self._idle_ns, self._busy_ns)


def uncertain_tokens(cancelled: int, tpot_s: float | None) -> float:
    """Return how many tokens of cancelled requests the server may have generated that never arrived."""
    return float(cancelled * max(_UNCERTAIN_TOKENS, round(_NOTICED_S / tpot_s) if tpot_s else 0))


def record_facts(answered: Sequence[Record]) -> QualityFacts:
    """Return what the answered requests of levels show."""
    chunks = sum(record.chunks for record in answered)
    cached = [r for r in answered if r.cached_tokens is not None and r.tokens_in and not r.turn]
    return QualityFacts(
        tpot_s=median(record.tpot_s for record in answered if record.tpot_s is not None),
        kernel_stamps=all(record.stamp == "kernel" for record in answered) if answered else None,
        engine_ratio=median(
            found
            for record in answered
            if (found := ratio(record.engine_decode_tps, _rate_since_first_token(record))) is not None
        ),
        cached_share=ratio(
            sum(max(0, (r.cached_tokens or 0) - min(_TEMPLATE_TOKENS, (r.tokens_in or 0) // 2)) for r in cached),
            sum(r.tokens_in or 0 for r in cached),
        ),
        unique_cached=_unique_cached(cached),
        miscounted=ratio(sum(record.miscounted for record in answered), len(answered)),
        coalesced_chunks=ratio(sum(record.coalesced_chunks for record in answered), chunks),
        first_coalesced=ratio(sum(record.first_coalesced > 0 for record in answered), len(answered)),
        first_error=_first_error(answered),
        closed_connections=any(record.new_connection for record in answered) or None,
    )


def usage_facts(counted: Sequence[tuple[Record, int]]) -> QualityFacts:
    """Compare the usage of answers with the tokens of their text, as the server's tokenizer counts them.

    A text is not always split as it was generated. Where each chunk holds a token, their number is another count: usage
    between the two, or close to one, contradicts neither.
    """
    apart = 0.0
    for record, tokens in counted:
        usage = record.tokens_out or 0
        known = (tokens, record.chunks) if abs(record.chunks - tokens) <= _SINGLE_TOKENS * tokens else (tokens,)
        few, many = min(known), max(known)
        low, high = (1 - _RETOKENIZED) * few - _SPECIAL_TOKENS, (1 + _RETOKENIZED) * many + _SPECIAL_TOKENS
        apart += 0.0 if low <= usage <= high else usage - tokens
    total = sum(tokens for _, tokens in counted)
    return QualityFacts(usage_apart=ratio(apart, total), usage_checked=len(counted) or None)


def _first_error(answered: Sequence[Record]) -> float | None:
    """Return by how much mean TTFT or mean time per token may be off since first tokens were read late, as a share.

    The largest error is left out: one late read is no property of the measurement.
    """
    errors_s = sorted(record.first_error_s or 0.0 for record in answered)
    error_s = sum(errors_s[:-1])
    times = [sum(r.ttft_s or 0.0 for r in answered), sum(r.decoded[1] for r in answered if r.decoded is not None)]
    return max((error_s / seconds for seconds in times if seconds), default=None)


def _unique_cached(answered: Sequence[Record]) -> float | None:
    """Return the share of first turns of whose prompts the cache had more than what other prompts begin with.

    For a trace that is what the same play has sent before; otherwise it is shorter than the shortest prompt.
    """
    shared = min((record.tokens_in or 0 for record in answered), default=0) - _UNIQUE_TOKENS
    found = 0
    for record in answered:
        replayed, tokens, cached = record.replayed, record.tokens_in or 0, record.cached_tokens or 0
        known = shared
        if replayed is not None:
            known = round(replayed.reusable_tokens * tokens / max(1, replayed.input_tokens)) + tokens // 50
            known += _TEMPLATE_TOKENS
        found += cached > max(0, known)
    return ratio(found, len(answered))


def _rate_since_first_token(record: Record) -> float | None:
    """Return the decode rate as an engine counts it: from the first token on, also if its text came later."""
    t_event, t_first, t_end = record.t_event_ns, record.t_first_ns, record.t_end_ns
    hidden = (record.first_tokens or 0) > 1 and t_event is not None and t_first is not None and t_event < t_first
    if not hidden or t_event is None or t_end is None or record.tokens_out is None:
        return record.decode_tps
    return (record.tokens_out - 1) / ((t_end - t_event) / 1e9)


def level_facts(levels: Sequence[Level], search: SearchState | None = None) -> QualityFacts:
    """Return the load, its furthest distance from the planned concurrency, and the worst of the other conditions.

    What a `search` for the capacity has kept, it kept in spite of a busy host: its other levels tell how busy that was.
    """
    kept = {level.c for level in search.levels if search.is_kept(level)} if search is not None else set()
    closed = [level for level in levels if traits(level.load).holds_c]
    off = [(1.0 - level.c_held / level.c, level) for level in closed if level.c_held is not None]
    furthest = max(off, key=lambda pair: pair[0])[1] if off else None
    delays = [share for level in levels if (share := send_delay_share(level)) is not None]
    energy = [level.energy for level in levels if level.energy is not None]
    silences = [silence for level in levels for silence in level.silences]
    throttled = [(used.throttled, used.throttle) for used in energy if used.throttled is not None]
    kinds = Counter(silence.kind for silence in silences)
    return QualityFacts(
        load=levels[-1].load if levels else None,
        c=furthest.c if furthest else None,
        c_held=furthest.c_held if furthest else None,
        send_delay=max(delays, default=None),
        host=busiest(level.host for level in levels if level.c not in kept),
        frozen=kinds["frozen"] if levels else None,
        all_waiting=kinds["all_waiting"] if levels else None,
        no_cpu=kinds["no_cpu"] if levels else None,
        silence_s=max((silence.seconds for silence in silences if silence.kind != "no_cpu"), default=None),
        throttled=max((share for share, _ in throttled), default=None),
        throttle=tuple(sorted({reason for share, reasons in throttled if share for reason in reasons})),
        token_sources=tuple(sorted({level.token_source or "not known" for level in levels if level.ok})),
    )


def send_delay_share(level: Level) -> float | None:
    """Return how much of the mean TTFT of scheduled requests is that they were sent late."""
    return ratio(level.send_delay_s.mean, level.ttft_s.mean) if level.send_delay_s is not None else None


def other_clients(samples: Sequence[tuple[float, float]]) -> float | None:
    """Count requests of other clients from several samples of (our requests in flight, the server's running + waiting).

    The two numbers of a sample are not read at the same instant, so one sample may be off by the requests that began or
    ended in between; the smallest excess of several samples is what was there all the time.
    """
    return max(0.0, min(server - ours for ours, server in samples)) if samples else None


def counter_facts(growth: ServerState | None, prompt_tokens: float = 0.0) -> QualityFacts:
    """Return what the server's counters show; `prompt_tokens` replaces a missing count of cache queries."""
    if growth is None:
        return QualityFacts()
    hits = growth.cache_hits
    return QualityFacts(
        preemptions=growth.preemptions,
        cached_share=0.0 if hits == 0 else ratio(hits, growth.cache_queries or prompt_tokens),
    )


def _telemetry_facts(records: Sequence[Record], telemetry: Sequence[Telemetry], prompt_tokens: float) -> QualityFacts:
    own = len(in_flight_spans(records))
    if not own:
        return QualityFacts()
    cancelled = sum(record.cancelled and record.t_sent_ns is not None for record in records)
    first_ns, last_ns = _window(records)
    samples = sorted((sample for sample in telemetry if sample.servers), key=lambda sample: sample.servers_read_ns)
    before = [sample.servers for sample in samples if sample.servers_read_ns < first_ns]
    after = [sample.servers for sample in samples if sample.servers_read_ns > last_ns]
    reset = _was_reset(samples)
    growth = None if reset or len(samples) < 2 else counter_change(samples[0].servers, samples[-1].servers)
    return merge_facts(
        QualityFacts(
            clock_spread=_clock_spread(records, telemetry),
            idle_before=_idle(before[-1]) if before else None,
            other_requests=_other_requests(own, cancelled, before[-1], after[0])
            if before and after and not reset
            else None,
            own_requests=own,
            engine_ratio=None if reset else _engine_ratio(records, samples),
        ),
        counter_facts(None if growth is None else growth.state, prompt_tokens),
    )


def _was_reset(samples: Sequence[Telemetry]) -> bool:
    """Whether a counter ever decreased: a server restarted, or several are behind one URL."""
    for earlier, later in pairwise(samples):
        before = {state.url: state for state in earlier.servers}
        if any(counters_reset(before.get(state.url, state), state) for state in later.servers):
            return True
    return False


def _stages(records: Sequence[Record]) -> Iterable[list[Record]]:
    """Return the requests of each stage of a level."""
    return group_by_stage([record for record in records if record.phase in LEVEL_PHASES]).values()


def _window(records: Sequence[Record]) -> Span:
    spans = in_flight_spans(records)
    return min((start for start, _ in spans), default=0), max((end for _, end in spans), default=0)


def _clock_spread(records: Sequence[Record], telemetry: Sequence[Telemetry]) -> float | None:
    """Return the largest spread of the clocks of a GPU during a stage, without the lowest and highest tenth."""
    spreads = []
    for start, end in map(_window, _stages(records)):
        by_gpu: defaultdict[str, list[int]] = defaultdict(list)
        for gpu in (gpu for sample in telemetry if start <= sample.t_ns <= end for gpu in sample.serving_gpus):
            if gpu.sm_mhz and (gpu.utilisation is None or gpu.utilisation >= _BUSY):
                by_gpu[gpu.uuid].append(gpu.sm_mhz)
        for clocks in map(sorted, by_gpu.values()):
            low, high = clocks[len(clocks) // 10], clocks[-1 - len(clocks) // 10]
            spreads += [(high - low) / high] if len(clocks) > 1 else []
    return max(spreads, default=None)


def _idle(servers: Sequence[ServerState]) -> bool | None:
    """Whether no request was on the servers."""
    busy = [server.running + (server.waiting or 0.0) for server in servers if server.running is not None]
    return not any(busy) if busy else None


def _other_requests(
    ours: int, cancelled: int, before: Sequence[ServerState], after: Sequence[ServerState]
) -> float | None:
    """Return the requests that finished on the servers beyond ours, from before our first one to after our last.

    All requests that we sent are ours, whatever their phase. Servers do not always count those that were cancelled:
    as many of others may be hidden behind them, so nothing is known then.
    """
    change = counter_change(before, after)
    finished = change.state.finished if change is not None else None
    if finished is None or ours - cancelled < finished <= ours:
        return None
    return max(0.0, finished - ours)


def _engine_ratio(records: Sequence[Record], samples: Sequence[Telemetry]) -> float | None:
    """Return the engine's decode rate over the client's, from the engine's histogram of inter-token times.

    Both count the tokens that arrived between the first and the last sample of a stage, with the whole of their
    inter-token time: complete answers alone would be another time of a machine whose speed varies. A server may hold
    one token back while it reads the prompt of another request: a single gap that one side alone saw is no difference
    of their rates. With drafts an inter-token time is not that of a token.
    """
    ratios = []
    for found in _stages(records):
        if (within := change_within(samples, *_window(found))) is None:
            continue
        (change, window), itl = within, within[0].state.itl
        if itl is None or change.state.drafts is not None:
            continue
        gap_s = max((record.longest_gap_us or 0 for record in found), default=0) / 1e6
        close = [
            min(max(1.0, (seconds - gap_s) * per_s), (seconds + gap_s) * per_s)
            for tokens, seconds in _decoded_between(found, window)
            if tokens and itl.sum and _MIN_COVERED * itl.count <= tokens <= _MAX_COVERED * itl.count
            for per_s in (itl.count / itl.sum / tokens,)
        ]
        ratios += [min(close, key=lambda found: abs(found - 1.0))] if close else []
    return median(ratios)


def _decoded_between(records: Sequence[Record], window: Span) -> list[tuple[float, float]]:
    """Return the tokens that arrived in the window and their inter-token times, for each moment that may bound it.

    A server counts a token a little before it arrives here, and a little after it is asked for its counters. A single
    long gap, while it reads a prompt, makes a difference at either end.
    """
    start, end = window
    bounds = [*(start + later for later in _READ_NS), *(end + later for later in _READ_NS)]
    if bounds != sorted(bounds):
        return []
    # The tokens and times between each two of the bounds.
    tokens, seconds = [0.0] * (len(bounds) + 1), [0.0] * (len(bounds) + 1)
    for record in records:
        first, last, pair = record.t_first_ns, record.t_end_ns, record.decoded
        if first is None or last is None or pair is None or last <= start or first > bounds[-1]:
            continue
        part = bisect_left(bounds, first)
        if part == bisect_left(bounds, last):
            tokens[part] += pair[0]
            seconds[part] += pair[1]
            continue
        times = record.chunk_times_ns()
        if last != record.t_last_ns:
            times.append(last)
        for earlier, later in pairwise(times):
            part = bisect_left(bounds, later)
            tokens[part] += pair[0] / (len(times) - 1)
            seconds[part] += (later - earlier) / 1e9
    half = len(_READ_NS)
    parts = [slice(begin + 1, stop + 1) for begin in range(half) for stop in range(half, len(bounds))]
    return [(sum(tokens[part]), sum(seconds[part])) for part in parts]
