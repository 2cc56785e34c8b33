"""Say what a header that changes with every request does to the prefix cache of a server."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Literal

from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.machine.by_level import level_counters
from swarmtui.analysis.machine.server_counters import counter_change
from swarmtui.model.base import Stored
from swarmtui.model.plan import AgentHeader
from swarmtui.model.session import Level
from swarmtui.model.tuning import CacheUse
from swarmtui.numbers import count, percent
from swarmtui.sessions.store import load_session

# A cache that serves less than this share of the prompt tokens is off, or too small.
_NO_CACHE = 0.05
# Up to this share of the cached tokens may be missing by chance: other turns, blocks that were evicted.
_SURVIVES = 0.1

HeaderCode = Literal["unknown", "no_cache", "survives", "partly", "lost"]
_LINES: dict[AgentHeader, str] = {
    "billing": "a billing line",
    "date": "a line with session, date and time",
    "both": "a billing line and a line with session, date and time",
}


class HeaderEffect(Stored, frozen=True, kw_only=True):
    """Cache use without and with the header; null if the server reports none."""

    code: HeaderCode
    without_header: CacheUse | None
    with_header: CacheUse | None
    sentence: str


def cache_use(root: Path, session: str, level: Level) -> CacheUse | None:
    """Return the cache use of the only level of a session."""
    if not level.ok or not level.tokens_in:
        return None
    if level.cached_tokens is not None:
        return CacheUse(
            prompt_tokens=level.tokens_in / level.ok, cached_tokens=level.cached_tokens / level.ok, source="usage"
        )
    journal = load_session(root, session).journal
    counters = level_counters(level.c, journal.stages, journal.ends, journal.telemetry)
    samples = [sample.servers for sample in journal.telemetry if sample.servers]
    if counters.cache_queries is None and len(samples) > 1 and (change := counter_change(samples[0], samples[-1])):
        # A level of less than a second has no two samples; the session has, with its warm-up.
        counters = change.state
    if counters.cache_queries is None or counters.cache_hits is None:
        return None
    tokens = level.tokens_in / level.ok
    # A server without a cache counts no queries.
    cached = tokens * (ratio(counters.cache_hits, counters.cache_queries) or 0.0)
    return CacheUse(prompt_tokens=tokens, cached_tokens=cached, source="counters")


def header_effect(
    kind: AgentHeader, without: Sequence[CacheUse | None], with_header: Sequence[CacheUse | None]
) -> HeaderEffect:
    """Compare the runs without and with the header."""
    a, b = _mean(without), _mean(with_header)
    code, sentence = _judge(_LINES[kind], a, b)
    return HeaderEffect(code=code, without_header=a, with_header=b, sentence=sentence)


def _mean(uses: Sequence[CacheUse | None]) -> CacheUse | None:
    known = [use for use in uses if use is not None]
    if not known or len(known) < len(uses):
        return None
    return CacheUse(
        prompt_tokens=fsum(use.prompt_tokens for use in known) / len(known),
        cached_tokens=fsum(use.cached_tokens for use in known) / len(known),
        source=known[0].source,
    )


def _judge(lines: str, a: CacheUse | None, b: CacheUse | None) -> tuple[HeaderCode, str]:
    if a is None or b is None:
        return "unknown", "the server reports no cache hits; whether its cache survives the header shows in TTFT only"
    with_shares = [f"{count(use.cached_tokens)} ({percent(use.hit_rate)})" for use in (a, b)]
    served = f"{with_shares[0]} without the header and {with_shares[1]} with it"
    if a.hit_rate < _NO_CACHE:
        return "no_cache", (
            f"no prefix cache: of {count(a.prompt_tokens)} prompt tokens per request the cache served {served}. It is "
            "off, or too small for this load; the header costs nothing here"
        )
    lost = a.cached_tokens - b.cached_tokens
    of = f"of {count(b.prompt_tokens)} prompt tokens per request the cache served {served}"
    if lost <= _SURVIVES * a.cached_tokens:
        return "survives", f"the prefix cache survives {lines} in front of the system prompt: {of}"
    cause = (
        f"in front of the system prompt, {lines} changed with every request, so that what followed was not in the cache"
    )
    again = f"{count(lost)} tokens of shared prefix are computed again for each request"
    advice = "Keep the header out of the prompt, or put it after what requests share"
    if b.hit_rate > _NO_CACHE:
        rest = "what the chat template puts before the header, such as tools, is still served"
        return "partly", f"{cause}: {of}; {again}, {rest}. {advice}"
    return "lost", f"{cause}: {of}; {again}. {advice}"
