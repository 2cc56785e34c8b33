"""Count the finished requests of a session: all since its start, by the conditions of an SLO, and of a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import ceil, inf
from typing import NamedTuple

import msgspec

from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.levels.traces import reusable_tokens, server_block_size
from swarmtui.analysis.limits.slo import SloCondition, SloTally, parse_slo
from swarmtui.model.client_protocol import TTFT_BOUNDS, FirstTokens, LiveTrace, Totals
from swarmtui.model.findings import KeptShare
from swarmtui.model.record import Record
from swarmtui.model.session import Spread
from swarmtui.model.telemetry import DiscoveredServer, ServerState
from swarmtui.model.trace import ReplayedRequest
from swarmtui.model.worker_protocol import StreamRow

# Answers, and the time of the server counters, that the live hit rate covers.
_RECENT_REPLAYS = 32
_COUNTERS_NS = 20_000_000_000


def add_to_totals(totals: Totals, record: Record, *, scheduled: bool) -> Totals:
    """Count what was sent and received since the start, for metrics that only grow."""
    if record.cancelled:
        return totals
    requests, errors, counts = totals.requests + 1, totals.errors, list(totals.ttft_counts)
    if record.error is not None:
        errors = errors | {record.error: errors.get(record.error, 0) + 1}
        return msgspec.structs.replace(totals, requests=requests, errors=errors)
    ttft_s = record.waited_s(scheduled=scheduled)
    if ttft_s is not None:
        counts[bisect_left(TTFT_BOUNDS, ttft_s)] += 1
    return Totals(
        requests=requests,
        errors=errors,
        tokens_in=totals.tokens_in + (record.tokens_in or 0),
        tokens_out=totals.tokens_out + (record.tokens_out or 0),
        ttft_sum_s=totals.ttft_sum_s + (ttft_s or 0.0),
        ttft_counts=tuple(counts),
    )


class _InFlight(NamedTuple):
    """A measured request without a record: whether it is past a limit of each condition, and its first token.

    While that is `awaited`, `ttft_s` is how long.
    """

    late: tuple[bool, ...]
    ttft_s: float
    awaited: bool


class RunningSlo:
    """Counts the requests of the running level by the conditions of an SLO.

    A request whose first token is late has missed the SLO from that moment on: otherwise a level would keep it until
    its last seconds. It counts as late until its record counts, so that both counts are the same in the end.

        running.see(rows, now)
        running.conditions(), running.first_tokens()
    """

    def __init__(self, slo: str, stage: int, since_ns: int) -> None:
        self._tally = SloTally(parse_slo(slo))
        self._stage, self._since_ns = stage, since_ns
        # By agent and request.
        self._in_flight: dict[tuple[int, int, int], _InFlight] = {}
        # Those with a record, whose last row may be seen after it.
        self._counted: set[tuple[int, int, int]] = set()

    def add(self, record: Record) -> None:
        if record.stage == self._stage:
            self._tally.add(record)
            request = (record.agent, record.task, record.t_sent_ns or 0)
            self._counted.add(request)
            self._in_flight.pop(request, None)

    def see(self, rows: Iterable[StreamRow], now: int) -> None:
        """Follow the requests in flight; `rows` are the newest ones of all agents."""
        for row in rows:
            request = (row.agent, *row.request)
            if row.measured and row.t_sent_ns >= self._since_ns and request not in self._counted:
                late = tuple(_is_late(condition, row, now) for condition in self._tally.slo.conditions)
                if (before := self._in_flight.get(request)) is not None:
                    late = tuple(was or now_late for was, now_late in zip(before.late, late, strict=True))
                awaited = row.ttft_s is None
                ttft_s = (now - row.t_sent_ns) / 1e9 if row.ttft_s is None else row.ttft_s
                self._in_flight[request] = _InFlight(late, ttft_s, awaited)

    def conditions(self) -> tuple[KeptShare, ...]:
        """Return which requests met each condition, with those in flight that are past a limit."""
        late = (request.late for request in self._in_flight.values() if any(request.late))
        counts = [sum(of) for of in zip(*late, strict=True)]
        return self._tally.conditions(counts)

    def judged_ttft_s(self) -> Spread | None:
        """Return the first tokens of the requests that are counted; None without a limit on them."""
        limit_s = self._tally.slo.strictest("ttft")
        if limit_s is None:
            return None
        in_flight = ((inf if one.awaited else one.ttft_s, one.ttft_s) for one in self._in_flight.values())
        return self._tally.first_tokens(shown for shown, ttft_s in in_flight if ttft_s > limit_s)

    def first_tokens(self) -> FirstTokens | None:
        """Return what is known about the first tokens; None without a limit on them, or without a request."""
        conditions = self._tally.slo.conditions
        limited = [at for at, condition in enumerate(conditions) if condition.limits.keys() == {"ttft"}]
        if not limited:
            return None
        number = max(limited, key=lambda at: conditions[at].share)
        limit_s, came = conditions[number].limits["ttft"], list(self._tally.counted_values[number])
        writing = [request.ttft_s for request in self._in_flight.values() if not request.awaited]
        came += writing
        waits = [request.ttft_s for request in self._in_flight.values() if request.awaited]
        in_time, late = sum(one <= limit_s for one in came), sum(one > limit_s for one in (*came, *waits))
        # A wait that may still end in time says nothing, unless there is nothing else.
        known = sorted((*came, *(one for one in waits if one > limit_s))) or sorted(waits)
        if not known:
            return None
        percentile_s = known[max(0, ceil(conditions[number].share * len(known)) - 1)]
        return FirstTokens(
            limit_s=limit_s,
            percentile=conditions[number].percentile,
            in_time=in_time,
            late=late,
            in_flight=sum(one <= limit_s for one in writing),
            oldest_s=max(waits, default=None),
            # A request that failed has no first token.
            percentile_s=limit_s if percentile_s == inf else percentile_s,
            awaited=percentile_s == inf or percentile_s not in came,
        )


def _is_late(condition: SloCondition, row: StreamRow, now: int) -> bool:
    age_s = (now - row.t_sent_ns) / 1e9
    waits_s = {"ttft": age_s if row.ttft_s is None else row.ttft_s, "e2e": age_s}
    if row.state != "writing":
        waits_s["ttfo"] = age_s
    return any(waits_s[name] > limit for name, limit in condition.limits.items() if name in waits_s)


class TraceCounts:
    """Counts what a stage has replayed; a session is live from its first answer to its last."""

    def __init__(self) -> None:
        self._contexts: dict[int, dict[int, int]] = {}
        self._answered: Counter[int] = Counter()
        self._ended: set[int] = set()
        self._latest: deque[tuple[int, int | None, ReplayedRequest]] = deque(maxlen=_RECENT_REPLAYS)
        self._jobs = 0
        self._counters: deque[tuple[int, float, float]] = deque()

    def add_sample(self, t_ns: int, servers: Sequence[ServerState]) -> None:
        """Keep the counters of the prefix cache, for servers whose answers do not report cached tokens."""
        known = [
            (s.cache_queries, s.cache_hits) for s in servers if s.cache_queries is not None and s.cache_hits is not None
        ]
        if known:
            self._counters.append((t_ns, sum(queries for queries, _ in known), sum(hits for _, hits in known)))
            while self._counters[0][0] < t_ns - _COUNTERS_NS:
                self._counters.popleft()

    def _server_hit_rate(self) -> float | None:
        if not self._counters:
            return None
        (_, queries, hits), (_, before, hits_before) = self._counters[-1], self._counters[0]
        return (hits - hits_before) / (queries - before) if queries > before and hits >= hits_before else None

    def add(self, record: Record) -> None:
        replayed = record.replayed
        if replayed is None or replayed.play in self._ended:
            return
        if not record.ok:
            self.end_plays([replayed.play])
            return
        tokens_in = record.tokens_in or replayed.input_tokens
        context = {replayed.subagent: tokens_in + (record.tokens_out or 0)}
        # The sub-agents before a request of the parent have ended.
        before = self._contexts.get(replayed.play, {}) if replayed.subagent else {}
        self._contexts[replayed.play] = before | context
        self._answered[replayed.play] += 1
        if self._answered[replayed.play] == replayed.requests - replayed.skipped:
            self._jobs += 1
            del self._contexts[replayed.play], self._answered[replayed.play]
        self._latest.append((tokens_in, record.cached_tokens, replayed))

    def end_plays(self, plays: Iterable[int]) -> None:
        """Forget plays that failed or were abandoned, and what is answered of them later."""
        self._ended.update(plays)
        for play in self._ended & self._contexts.keys():
            del self._contexts[play]

    def view(self, servers: Iterable[DiscoveredServer] = ()) -> LiveTrace | None:
        if not self._latest:
            return None
        known = [(tokens, cached) for tokens, cached, _ in self._latest if cached is not None]
        prompt, block_size = sum(tokens for tokens, _ in known), server_block_size(servers)
        reusable = sum(reusable_tokens(replayed, tokens, block_size) for tokens, _, replayed in self._latest)
        return LiveTrace(
            jobs=self._jobs,
            hit_rate=sum(cached for _, cached in known) / prompt if prompt else self._server_hit_rate(),
            max_hit_rate=ratio(reusable, sum(replayed.input_tokens for _, _, replayed in self._latest)),
            context=sum(sum(agents.values()) for agents in self._contexts.values()),
        )
