"""Where the time to the first token goes: waiting for a seat, reading the prompt, and the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import takewhile

from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.machine.server_counters import counter_change, histogram_mean, sum_changes
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import ServerState, Telemetry, TtftSplit

_CLOCKS_APART = 0.05
SAME_LENGTH = 0.10

# The last seconds; where answers are long, the last few requests of a minute.
RECENT_NS = 10_000_000_000
MAX_AGE_NS = 60_000_000_000
_FEW = 4


def split_by_counters(
    ttft_s: float | None, prompt_tokens: float | None, n: int, server: ServerState | None
) -> TtftSplit | None:
    """`ttft_s` and `prompt_tokens` are the client's means of `n` requests, `server` what figures rose by in that time.

    None when the server does not tell, or tells of more time than the client saw: then it was of other requests.
    """
    if ttft_s is None or server is None:
        return None
    queue_s, prefill_s = histogram_mean(None, server.queue), _prefill_s(server, prompt_tokens, n)
    if queue_s is None and prefill_s is None:
        return None
    rest_s = ttft_s - (queue_s or 0.0) - (prefill_s or 0.0)
    if rest_s < -_CLOCKS_APART * ttft_s:
        return None
    return TtftSplit(ttft_s=ttft_s, queue_s=queue_s, prefill_s=prefill_s, rest_s=max(0.0, rest_s))


def estimate_split(
    ttft_s: float | None, prompt_tokens: float | None, alone_s: float | None, alone_prompt_tokens: float | None
) -> TtftSplit | None:
    """By the time that one stream alone had to wait: what is more than that is the queue.

    None when the prompts were not of the same length (within 10 %), or when nobody counted them.
    """
    if ttft_s is None or alone_s is None or not prompt_tokens or not alone_prompt_tokens:
        return None
    if abs(prompt_tokens / alone_prompt_tokens - 1.0) > SAME_LENGTH:
        return None
    prefill_s = min(alone_s, ttft_s)
    return TtftSplit(ttft_s=ttft_s, queue_s=ttft_s - prefill_s, prefill_s=prefill_s, estimated=True)


def split_by_timings(records: Sequence[Record]) -> TtftSplit | None:
    """By what each answer told of itself: the engine's time for its prompt, in the timings at the end of its stream.

    Such an engine sends headers when a seat takes the request; where the rest is longer than that took, it does not.
    """
    told = [
        (ttft_s, (record.t_headers_ns - record.t_sent_ns) / 1e9, record.engine_prefill_s)
        for record in records
        if record.ok and (ttft_s := record.ttft_s) is not None and record.engine_prefill_s is not None
        if record.t_headers_ns is not None and record.t_sent_ns is not None
    ]
    if not told or 2 * len(told) < len(records):
        return None
    ttft_s, headers_s, prefill_s = (sum(column) / len(told) for column in zip(*told, strict=True))
    rest_s = max(0.0, ttft_s - prefill_s)
    queue_s = headers_s if rest_s - headers_s <= headers_s else None
    return TtftSplit(
        ttft_s=ttft_s, queue_s=queue_s, prefill_s=min(ttft_s, prefill_s), rest_s=max(0.0, rest_s - (queue_s or 0.0))
    )


def level_split(
    runs: Sequence[Sequence[Record]], ends: Sequence[tuple[int, int]], looks: Sequence[Telemetry]
) -> TtftSplit | None:
    """Of the requests of all its runs; `ends` are those of the session. None where servers tell of less than half."""
    itself = split_by_timings([record for own in runs for record in own])
    if itself is not None:
        return itself
    told: list[Record] = []
    grown: list[ServerState] = []
    for own in runs:
        found = _between_looks(own, looks, *_undisturbed(ends, own)) if own else None
        if found is not None:
            told += found[0]
            grown.append(found[1])
    if not told or 2 * len(told) < sum(map(len, runs)):
        return None
    return split_by_counters(*_means(told), len(told), sum_changes(grown))


def request_ends(records: Iterable[Record]) -> list[tuple[int, int]]:
    """When requests ended, in the order of time, each with the number of its stretch."""
    return sorted((_ended(record), record.stage) for record in records)


def recent_split(
    now_ns: int, c: int, finished: Sequence[Record], looks: Sequence[Telemetry], levels: Sequence[Level]
) -> TtftSplit | None:
    """Of the requests at this C that ended in the last seconds; `finished` and `looks` are in the order of time."""
    newest = list(takewhile(lambda record: record.phase == "level" and record.c == c, reversed(finished)))
    late = [record for record in newest if _ended(record) > now_ns - RECENT_NS]
    if len(late) < _FEW:
        late = [record for record in newest[:_FEW] if _ended(record) > now_ns - MAX_AGE_NS]
    if not late:
        return None
    itself = split_by_timings(late)
    if itself is not None:
        return itself
    others_ns = _ended(finished[-len(newest) - 1]) if len(finished) > len(newest) else 0
    early_ns = min(_ended(record) for record in late)
    before = [look.servers_read_ns for look in looks if look.servers and others_ns <= look.servers_read_ns < early_ns]
    found = _between_looks(newest, looks, max(before, default=others_ns), now_ns)
    parts = split_by_counters(*_means(found[0]), len(found[0]), found[1]) if found is not None else None
    alone = next((level for level in levels if level.c == 1 and level.ok), None)
    if parts is not None or alone is None:
        return parts
    return estimate_split(*_means(late), alone.ttft_s.mean, ratio(alone.tokens_in, alone.ok))


def _undisturbed(ends: Sequence[tuple[int, int]], own: Sequence[Record]) -> tuple[int, int]:
    """The time around these requests of one stretch in which no request of another one ended."""
    number, times = own[0].stage, [_ended(record) for record in own]
    middle = bisect_left(ends, ((min(times) + max(times)) // 2, 0))
    before = (ends[place][0] for place in range(middle - 1, -1, -1) if ends[place][1] != number)
    behind = (ends[place][0] for place in range(middle, len(ends)) if ends[place][1] != number)
    return next(before, 0), next(behind, max(times) + MAX_AGE_NS)


def _between_looks(
    own: Sequence[Record], looks: Sequence[Telemetry], since_ns: int, until_ns: int
) -> tuple[list[Record], ServerState] | None:
    """The first and the last look at servers in this time, and the requests that ended between the two.

    Servers tell of a request when it has ended: so what they tell is of those requests, and of no others of ours.
    """
    seen = [look for look in looks if look.servers and since_ns <= look.servers_read_ns <= until_ns]
    found = counter_change(seen[0].servers, seen[-1].servers) if len(seen) > 1 else None
    if found is None or found.restarted:
        return None
    first_ns, last_ns = seen[0].servers_read_ns, seen[-1].servers_read_ns
    return [record for record in own if first_ns < _ended(record) <= last_ns], found.state


def _ended(record: Record) -> int:
    return record.t_done_ns or record.t_last_ns or record.t_sent_ns or 0


def _means(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Time to the first token, and tokens of the prompt; null where one of them was not counted."""
    good = [record for record in records if record.ok]
    times = [record.ttft_s for record in good if record.ttft_s is not None]
    prompts = [record.tokens_in for record in good if record.tokens_in is not None]
    prompt = sum(prompts) / len(prompts) if prompts and len(prompts) == len(good) else None
    return sum(times) / len(times) if times else None, prompt


def _prefill_s(server: ServerState, prompt_tokens: float | None, n: int) -> float | None:
    """Its own histogram; else the server's first token less its queue; else a counter of seconds over the requests.

    So many requests as their prompts make, by the server's own count: a look may come before or behind some of ours.
    """
    known = histogram_mean(None, server.prefill)
    if known is not None:
        return known
    first_s, queue_s = histogram_mean(None, server.ttft), histogram_mean(None, server.queue)
    if first_s is not None and queue_s is not None:
        return max(0.0, first_s - queue_s)
    requests = server.prompt_tokens / prompt_tokens if server.prompt_tokens and prompt_tokens else n
    return server.prefill_seconds / requests if server.prefill_seconds is not None and requests else None
