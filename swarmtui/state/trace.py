"""Count what a running stage has replayed of a trace: sessions, prefix-cache hits, live contexts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.levels.traces import reusable_tokens, server_block_size
from swarmtui.model.client_protocol import LiveTrace
from swarmtui.model.record import Record
from swarmtui.model.telemetry import DiscoveredServer, ServerState
from swarmtui.model.trace import ReplayedRequest

# Answers, and the time of the server counters, that the live hit rate covers.
_RECENT_REPLAYS = 32
_COUNTERS_NS = 20_000_000_000


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
