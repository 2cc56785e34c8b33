"""Describe a set of recorded agent sessions: lengths, think times, sub-agents, and how much of the prompts repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from swarmtui.analysis.levels.stats import spread
from swarmtui.model.base import Stored
from swarmtui.model.session import Spread
from swarmtui.model.trace import TraceSession, leading_blocks, requests_of, subagents_of

_CLASSES = 40


class TraceStats(Stored, frozen=True, kw_only=True):
    """Figures of a set of sessions. Token counts are sums over all requests; `hit_rate` is that of an unlimited cache.

    `new_tokens` are the prompt tokens of a request that such a cache would not hold, `mean_context` those of prompt and
    answer. `fan_out` is the largest number of sub-agents between two requests, `arrivals_s` the time of the last
    arrival. `input_histogram` counts prompts by length, in classes of `histogram_step` tokens.
    """

    sessions: int
    requests: int
    subagents: int
    fan_out: int
    input_tokens: int
    output_tokens: int
    hit_rate: float | None
    mean_context: float | None
    turns: Spread
    input: Spread
    output: Spread
    new_tokens: Spread | None
    think_s: Spread
    arrivals_s: float | None
    input_histogram: tuple[int, ...]
    histogram_step: int


def trace_stats(sessions: Iterable[TraceSession]) -> TraceStats:
    """Read the sessions once; only numbers are kept of each."""
    turns, inputs, outputs, new, thinks = (list[float]() for _ in range(5))
    subagents = fan_out = 0
    has_blocks, last_arrival = False, None
    shared: set[int] = set()
    for session in sessions:
        turns.append(len(session.requests))
        subagents += sum(1 for _ in subagents_of(session))
        groups = (*(request.subagents for request in session.requests), session.subagents)
        fan_out = max(fan_out, *map(len, groups))
        seen = shared if session.shared_blocks else set()
        for request in requests_of(session):
            inputs.append(request.input_tokens)
            outputs.append(request.output_tokens)
            sent_before = leading_blocks(request.blocks, seen) * session.block_size
            new.append(max(0, request.input_tokens - sent_before))
            has_blocks = has_blocks or bool(request.blocks)
            seen.update(request.blocks)
            if request.think_s is not None and request.at_s:
                thinks.append(request.think_s)
        if session.arrival_s is not None:
            last_arrival = max(last_arrival or 0.0, session.arrival_s)
    total, step = sum(inputs), _round_step(max(inputs, default=1.0))
    return TraceStats(
        sessions=len(turns),
        requests=len(inputs),
        subagents=subagents,
        fan_out=fan_out,
        input_tokens=int(total),
        output_tokens=int(sum(outputs)),
        hit_rate=1.0 - sum(new) / total if has_blocks and total else None,
        mean_context=(total + sum(outputs)) / len(inputs) if inputs else None,
        turns=spread(turns),
        input=spread(inputs),
        output=spread(outputs),
        new_tokens=spread(new) if has_blocks else None,
        think_s=spread(thinks),
        arrivals_s=last_arrival,
        input_histogram=_histogram(inputs, step),
        histogram_step=step,
    )


def _round_step(highest: float) -> int:
    """Return the width of at most `_CLASSES` classes up to `highest`: 1, 2 or 5 times a power of ten."""
    step = 1
    while step * _CLASSES <= highest:
        first = int(str(step)[0])
        step = step * 5 // 2 if first == 2 else step * 2
    return step


def _histogram(values: Sequence[float], step: int) -> tuple[int, ...]:
    counts = Counter(int(value // step) for value in values)
    return tuple(counts[index] for index in range(max(counts, default=-1) + 1))
