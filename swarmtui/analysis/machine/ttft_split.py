"""Split the time to first token into waiting for a slot, prefill, and the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import takewhile

from swarmtui.analysis.levels.stats import mean, ratio
from swarmtui.analysis.machine.server_counters import change_within, histogram_mean, sum_changes
from swarmtui.model.record import LEVEL_PHASES, Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import ServerState, Telemetry, TtftSplit

# The parts may exceed the TTFT by this share: client and server have different clocks.
_CLOCK_TOLERANCE = 0.05
# Prompts whose mean lengths differ by more are not comparable.
SAME_LENGTH = 0.10

# Recent requests are those of the last 10 s; with long answers, the last four within a minute.
RECENT_NS = 10_000_000_000
MAX_AGE_NS = 60_000_000_000
_MIN_RECENT = 4


def split_by_counters(
    ttft_s: float | None, prompt_tokens: float | None, n: int, server: ServerState | None
) -> TtftSplit | None:
    """Split by server counters: `ttft_s` and `prompt_tokens` are means of `n` requests, `server` the counters' change.

    None if the server does not report the parts, or reports more time than the client measured: then it includes other
    requests.
    """
    if ttft_s is None or server is None:
        return None
    queue_s, prefill_s = histogram_mean(server.queue), _prefill_s(server, prompt_tokens, n)
    if queue_s is None and prefill_s is None:
        return None
    return _reported_split(ttft_s, queue_s, prefill_s)


def _reported_split(ttft_s: float, queue_s: float | None, prefill_s: float | None) -> TtftSplit | None:
    """Return the parts that a server reports, and the rest; None if they are longer than what the client measured."""
    rest_s = ttft_s - (queue_s or 0.0) - (prefill_s or 0.0)
    if rest_s < -_CLOCK_TOLERANCE * ttft_s:
        return None
    return TtftSplit(ttft_s=ttft_s, queue_s=queue_s, prefill_s=prefill_s, rest_s=max(0.0, rest_s))


def estimate_split(ttft_s: float | None, prompt_tokens: float | None, single: Level) -> TtftSplit | None:
    """Estimate from the TTFT of the level of a single stream: everything above it is queueing.

    None if the prompts differ in length by more than 10 %, or were not counted.
    """
    single_s, single_tokens = single.ttft_s.mean, ratio(single.tokens_in, single.ok)
    if ttft_s is None or single_s is None or not prompt_tokens or not single_tokens:
        return None
    if abs(prompt_tokens / single_tokens - 1.0) > SAME_LENGTH:
        return None
    prefill_s = min(single_s, ttft_s)
    return TtftSplit(ttft_s=ttft_s, queue_s=ttft_s - prefill_s, prefill_s=prefill_s, estimated=True)


def split_by_timings(records: Sequence[Record]) -> TtftSplit | None:
    """Split by what the engine says of each request at the end of its stream; None if it does so for less than half.

    Some engines report queueing and prefill; others only the prefill, and send the headers when a slot takes the
    request: the time until then is queueing. If the rest is longer than that time, they send them earlier, and the
    queueing is not known. None if headers and prefill together exceed the TTFT: the headers came with the first token.
    """
    reported = [
        (ttft_s, (record.t_headers_ns - record.t_sent_ns) / 1e9, record.engine_prefill_s, record.engine)
        for record in records
        if record.ok and (ttft_s := record.ttft_s) is not None and record.engine_prefill_s is not None
        if record.t_headers_ns is not None and record.t_sent_ns is not None
    ]
    if not reported or 2 * len(reported) < len(records):
        return None
    queues = [engine.queue_s for *_, engine in reported if engine is not None and engine.queue_s is not None]
    ttft_s, headers_s, prefill_s = (
        sum(column) / len(reported)
        for column in zip(*((ttft, at, read) for ttft, at, read, _ in reported), strict=True)
    )
    if len(queues) == len(reported):
        return _reported_split(ttft_s, sum(queues) / len(queues), prefill_s)
    if headers_s + prefill_s > (1.0 + _CLOCK_TOLERANCE) * ttft_s:
        return None
    rest_s = max(0.0, ttft_s - prefill_s)
    queue_s = headers_s if rest_s - headers_s <= headers_s else None
    return TtftSplit(
        ttft_s=ttft_s, queue_s=queue_s, prefill_s=min(ttft_s, prefill_s), rest_s=max(0.0, rest_s - (queue_s or 0.0))
    )


def level_split(
    runs: Sequence[Sequence[Record]], ends: Sequence[tuple[int, int]], samples: Sequence[Telemetry]
) -> TtftSplit | None:
    """Split the TTFT of a level; None if servers report less than half of its requests."""
    by_timings = split_by_timings([record for records in runs for record in records])
    if by_timings is not None:
        return by_timings
    reported: list[Record] = []
    changes: list[ServerState] = []
    for records in runs:
        found = _between_samples(records, samples, *_undisturbed_window(ends, records)) if records else None
        if found is not None:
            reported += found[0]
            changes.append(found[1])
    if not reported or 2 * len(reported) < sum(map(len, runs)):
        return None
    return split_by_counters(*_means(reported), len(reported), sum_changes(changes))


def request_ends(records: Iterable[Record]) -> list[tuple[int, int]]:
    """Return the end time and the stage of each request, in order of time."""
    return sorted((record.left_ns, record.stage) for record in records)


def recent_split(
    now_ns: int, c: int, finished: Sequence[Record], samples: Sequence[Telemetry], levels: Sequence[Level]
) -> TtftSplit | None:
    """Split the TTFT of recent requests at this C; `finished` and `samples` are in order of time."""
    newest = list(takewhile(lambda record: record.phase in LEVEL_PHASES and record.c == c, reversed(finished)))
    recent = [record for record in newest if record.left_ns > now_ns - RECENT_NS]
    if len(recent) < _MIN_RECENT:
        recent = [record for record in newest[:_MIN_RECENT] if record.left_ns > now_ns - MAX_AGE_NS]
    if not recent:
        return None
    by_timings = split_by_timings(recent)
    if by_timings is not None:
        return by_timings
    others_ns = finished[-len(newest) - 1].left_ns if len(finished) > len(newest) else 0
    early_ns = min(record.left_ns for record in recent)
    before = [
        sample.servers_read_ns
        for sample in samples
        if sample.servers and others_ns <= sample.servers_read_ns < early_ns
    ]
    found = _between_samples(newest, samples, max(before, default=others_ns), now_ns)
    parts = split_by_counters(*_means(found[0]), len(found[0]), found[1]) if found is not None else None
    single = next((level for level in levels if level.c == 1 and level.ok), None)
    if parts is not None or single is None:
        return parts
    return estimate_split(*_means(recent), single)


def _undisturbed_window(ends: Sequence[tuple[int, int]], records: Sequence[Record]) -> tuple[int, int]:
    """Return the time around these requests of one stage in which no request of another stage ended."""
    number, times = records[0].stage, [record.left_ns for record in records]
    middle = bisect_left(ends, ((min(times) + max(times)) // 2, 0))
    before = (ends[index][0] for index in range(middle - 1, -1, -1) if ends[index][1] != number)
    after = (ends[index][0] for index in range(middle, len(ends)) if ends[index][1] != number)
    return next(before, 0), next(after, max(times) + MAX_AGE_NS)


def _between_samples(
    records: Sequence[Record], samples: Sequence[Telemetry], since_ns: int, until_ns: int
) -> tuple[list[Record], ServerState] | None:
    """Return the requests that ended between the first and the last sample in this time, and the counters' change.

    Servers count a request when it ends, so the change belongs to these requests and to no others of ours.
    """
    found = change_within(samples, since_ns, until_ns)
    if found is None or found[0].restarted:
        return None
    change, (first_ns, last_ns) = found
    return [record for record in records if first_ns < record.left_ns <= last_ns], change.state


def _means(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Return the mean TTFT, and the mean prompt tokens; null if a prompt was not counted."""
    good = [record for record in records if record.ok]
    times = [record.ttft_s for record in good if record.ttft_s is not None]
    prompts = [record.tokens_in for record in good if record.tokens_in is not None]
    return mean(times), mean(prompts) if len(prompts) == len(good) else None


def _prefill_s(server: ServerState, prompt_tokens: float | None, n: int) -> float | None:
    """Return the mean prefill time from its histogram; else TTFT less queueing; else a counter of seconds per request.

    The number of requests follows from the server's count of prompt tokens, since a sample can miss some of ours.
    """
    known = histogram_mean(server.prefill)
    if known is not None:
        return known
    first_s, queue_s = histogram_mean(server.ttft), histogram_mean(server.queue)
    if first_s is not None and queue_s is not None:
        return max(0.0, first_s - queue_s)
    requests = server.prompt_tokens / prompt_tokens if server.prompt_tokens and prompt_tokens else n
    return server.prefill_seconds / requests if server.prefill_seconds is not None and requests else None
