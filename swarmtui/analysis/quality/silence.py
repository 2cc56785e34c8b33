"""Find the times in which no stream received anything, although some were in flight, and tell why.

While a server reads the prompt of one request, the streams of others may wait: that is ordinary. Otherwise it was
`frozen`, or all requests waited for their first token for longer than reading their prompts takes; unless the host had
no CPU time for the client and a server on it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.runs import LevelRun, Span
from swarmtui.analysis.levels.stats import Tally, count_gaps_us, percentile
from swarmtui.analysis.levels.window import first_tokens_in
from swarmtui.analysis.machine.host import host_use_within
from swarmtui.analysis.quality.quality_limits import OTHER_PROGRAMS
from swarmtui.model.findings import Finding
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Silence
from swarmtui.model.telemetry import HostLoad, HostUse
from swarmtui.numbers import short

# A shorter silence moves no figure. Times to the first token vary more than gaps.
_MIN_NS, _MIN_WAITING_NS = 500_000_000, 1_000_000_000
# Streams are silent if they receive nothing for this many times the 99th percentile of their gaps.
_GAPS = 8
# Reading prompts may take this many times as long as usual, and more if they are far longer than usual: other streams
# share the server, and the time per token grows with the prompt.
_SLOWER, _SLOWER_IF_LONG, _LONG = 2.0, 4.0, 2.0
# The host explains a silence if client and server had to wait for this share of it, or its hypervisor took this share.
_WAITED, _STOLEN = 0.5, 0.1
# Requests queue for slots if no more than this share of the streams ever received tokens at the same time.
_QUEUED = 0.8
# What is usual, among answers of which some had to wait for something else.
_USUAL = 0.25

_SENTENCES = {
    "frozen": "no stream received anything for {} s: the server or the network froze",
    "all_waiting": "all requests waited for their first token for {} s, longer than reading their prompts takes",
    "no_cpu": "no stream received anything for {} s, while client and server had to wait for a CPU",
}


class PrefillTimes(NamedTuple):
    """The usual time of a first token, in all and per prompt token, and the usual number of prompt tokens.

    `fastest_s` is the TTFT of the fastest level: in others, requests may wait for a slot.
    """

    ttft_s: float = 0.0
    per_token_s: float = 0.0
    tokens: float = 0.0
    fastest_s: float = 0.0

    def longest_ns(self, tokens: int) -> float:
        """Return how long it may take to read these prompt tokens; a few after a long context take long, too."""
        slower = _SLOWER_IF_LONG if tokens > _LONG * self.tokens else _SLOWER
        return 1e9 * max(slower * self.per_token_s * tokens, _SLOWER * self.fastest_s)


def with_silences(
    levels: Sequence[Level], runs: Mapping[LevelKey, Sequence[LevelRun]], host: Sequence[HostLoad] = ()
) -> list[Level]:
    """Add the silences of each level, and flag it."""
    usual = [prefill_times(runs[level.key]) for level in levels]
    # The level with the shortest queue tells best how long a prompt takes.
    fastest = min((times for times in usual if times.ttft_s), default=PrefillTimes(), key=lambda times: times.ttft_s)
    found = []
    for level, times in zip(levels, usual, strict=True):
        known = times._replace(per_token_s=fastest.per_token_s, fastest_s=fastest.ttft_s)
        silences = tuple(_named(silence, host) for run in runs[level.key] for silence in find_silences(run, known))
        longest = {silence.kind: silence for silence in sorted(silences, key=lambda silence: silence.seconds)}
        flags = [Finding(code=kind, text=silence_sentence(silence)) for kind, silence in sorted(longest.items())]
        found.append(msgspec.structs.replace(level, silences=silences, flags=(*level.flags, *flags)))
    return found


def _named(silence: Silence, host: Sequence[HostLoad]) -> Silence:
    """Name the host as the reason of a silence if it was too busy with others at the time, as far as that is known."""
    use = host_use_within(host, [(silence.t_ns, silence.t_ns + round(1e9 * silence.seconds))]) or HostUse()
    quiet = use.others is not None and OTHER_PROGRAMS.grade(use.others) == "ok"
    busy = ((use.waited or 0.0) >= _WAITED and not quiet) or (use.steal or 0.0) >= _STOLEN
    return msgspec.structs.replace(silence, kind="no_cpu") if busy else silence


def prefill_times(runs: Iterable[LevelRun]) -> PrefillTimes:
    """Return what is usual in a level; while a request waits, the prompts of others are read as well."""
    reads: list[tuple[float, int]] = []
    for run in runs:
        longest = _longest_prompt(run.records)
        firsts = sorted((r.t_first_ns, _fresh_tokens(r, longest)) for r in run.records if r.t_first_ns is not None)
        times, read = [t_ns for t_ns, _ in firsts], [0, *accumulate(tokens for _, tokens in firsts)]
        for r in run.sent:
            if r.ok and r.ttft_s is not None and r.t_sent_ns is not None and r.t_first_ns is not None:
                # Prompts that were read together end with first tokens a little apart.
                together_ns = r.t_first_ns + (r.t_first_ns - r.t_sent_ns) // 20
                tokens = read[bisect_right(times, together_ns)] - read[bisect_right(times, r.t_sent_ns)]
                reads.append((r.ttft_s, tokens))
    if not reads:
        return PrefillTimes()
    return PrefillTimes(
        percentile(sorted(ttft_s for ttft_s, _ in reads), _USUAL),
        percentile(sorted(ttft_s / max(1, tokens) for ttft_s, tokens in reads), _USUAL),
        percentile(sorted(tokens for _, tokens in reads), 0.5),
    )


def silence_sentence(silence: Silence) -> str:
    return _SENTENCES[silence.kind].format(short(silence.seconds))


def find_silences(run: LevelRun, usual: PrefillTimes) -> list[Silence]:
    """Return the silences in the measured part of a run, without those that reading prompts explains."""
    window, records = _measured_window(run), [r for r in run.records if r.t_sent_ns is not None]
    if window is None:
        return []
    gaps = {id(record): _long_gaps(record) for record in records}
    slots, longest = run.streaming, _longest_prompt(records)
    queues = 0 < slots <= _QUEUED * run.c
    silences = []
    for hole in _holes(records, gaps, window):
        start, end = hole
        decoding = [
            r for r in records if r.t_first_ns is not None and r.t_first_ns <= start and _overlaps(r, start, end)
        ]
        waiting = [r for r in records if (r.t_first_ns or end) >= end and _overlaps(r, start, end)]
        reading = sorted((_fresh_tokens(r, longest) for r in waiting), reverse=True)
        # Those that wait for a slot are not being read; the slots are taken by streams, or free for as many prompts.
        reading = reading[: max(0, slots - len(decoding))] if queues else reading
        explained_ns = usual.longest_ns(sum(reading)) if reading else 0.0
        if decoding:
            least_ns = _GAPS * _usual_gap_ns(records, gaps, hole)
        else:
            start = max(start, min((r.t_sent_ns or 0 for r in waiting), default=end))
            least_ns = max(_MIN_WAITING_NS, 1e9 * _SLOWER * usual.ttft_s)
        if end - start >= max(_MIN_NS, least_ns, explained_ns):
            silences.append(
                Silence(kind="frozen" if decoding else "all_waiting", t_ns=start, seconds=(end - start) / 1e9)
            )
    return silences


def _measured_window(run: LevelRun) -> Span | None:
    """Return the time from the first measured send until the measured requests had ended, or were cancelled.

    Requests of the pre-roll that wait in a queue are part of TTFT if their first token comes later than that: then the
    time begins when the first of these was sent.
    """
    measured = [r for r in (*run.sent, *run.unfinished) if r.t_sent_ns is not None]
    if not measured:
        return None
    counted = [*measured, *(first_tokens_in(run) if run.has_cycles else ())]
    return min(r.t_sent_ns or 0 for r in counted), max(r.left_ns for r in measured)


def _overlaps(record: Record, start: int, end: int) -> bool:
    """Whether a request was in flight for long enough of this time."""
    return min(record.left_ns, end) - max(record.t_sent_ns or 0, start) >= min(_MIN_NS, end - start)


def _long_gaps(record: Record) -> list[Span]:
    """Return the gaps between chunks that may be part of a silence."""
    if record.t_first_ns is None or (record.longest_gap_us or 0) * 1000 < _MIN_NS or not record.chunk_us:
        return []
    times = [record.t_first_ns + 1000 * offset for offset in accumulate(record.chunk_us)]
    return [(start, end) for start, end in pairwise(times) if end - start >= _MIN_NS]


def _holes(records: Iterable[Record], gaps: Mapping[int, list[Span]], window: Span) -> list[Span]:
    """Return the parts of the window in which no chunk arrived and no answer ended, if they are long enough."""
    active = [(window[0], window[0]), (window[1], window[1])]
    for record in records:
        if record.t_first_ns is None or record.t_last_ns is None:
            continue
        edges = [record.t_first_ns, *(t for gap in gaps[id(record)] for t in gap), record.t_last_ns]
        active += zip(edges[::2], edges[1::2], strict=True)
        if record.ok and record.t_done_ns is not None:
            active.append((record.t_done_ns, record.t_done_ns))
    holes, last = [], window[0]
    for start, end in sorted(active):
        if start - last >= _MIN_NS and window[0] <= last and start <= window[1]:
            holes.append((last, start))
        last = max(last, end)
    return holes


def _usual_gap_ns(records: Sequence[Record], gaps: Mapping[int, list[Span]], hole: Span) -> float:
    """Return the 99th percentile of the gaps of streams, without those over the hole itself."""
    pool = count_gaps_us(records)
    for record in records:
        pool.subtract((end - start) // 1000 for start, end in gaps[id(record)] if start <= hole[0] and hole[1] <= end)
    pool = +pool
    return 1000.0 * percentile(Tally(pool), 0.99) if pool else 0.0


def _longest_prompt(records: Iterable[Record]) -> int:
    return max((_fresh_tokens(record, 0) for record in records), default=0)


def _fresh_tokens(record: Record, longest: int) -> int:
    """Return the prompt tokens that the server had to read; `longest` for a request without a count."""
    replayed = record.replayed
    tokens = record.tokens_in or (replayed.input_tokens if replayed is not None else None)
    if tokens is None:
        return longest
    cached = record.cached_tokens
    if cached is None:
        cached = replayed.reusable_tokens if replayed is not None else 0
    return max(0, tokens - cached)
