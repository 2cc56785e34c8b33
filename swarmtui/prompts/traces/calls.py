"""Make sessions from the calls of a model, of which lengths and times are known, but not which text was repeated.

Which tokens of a prompt are reused follows from the lengths: a prompt that is not shorter than the one before continues
it; a shorter one, as after a compaction, shares what the API read from its cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

import msgspec

from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession
from swarmtui.prompts.traces.weka import BLOCK_SIZE


class Call(msgspec.Struct, frozen=True):
    """A call of the model; `cached` are the prompt tokens that the API read from its cache."""

    start_s: float
    end_s: float
    input_tokens: int
    cached: int
    output_tokens: int


def session_from_calls(name: str, parent: list[Call], subagents: list[list[Call]]) -> TraceSession:
    """Return a session; sub-agents run between the calls of the parent before and after their first."""
    parent.sort(key=lambda call: call.start_s)
    start = parent[0].start_s
    ids = count(1)
    waiting = sorted(subagents, key=lambda calls: calls[0].start_s)
    requests = list(_requests(parent, ids, []))
    # Sub-agents share their system prompt and tools with each other.
    shared: list[int] = []
    made: list[tuple[float, SubAgent]] = []
    for calls in waiting:
        own = tuple(_requests(calls, ids, shared))
        shared = shared or list(own[0].blocks)
        made.append((calls[0].start_s, SubAgent(at_s=max(0.0, calls[0].start_s - start), requests=own)))
    with_subagents: list[TraceRequest] = []
    for request, call in zip(requests, parent, strict=True):
        before = tuple(agent for at, agent in made if at < call.start_s)
        made = [(at, agent) for at, agent in made if at >= call.start_s]
        with_subagents.append(msgspec.structs.replace(request, subagents=before))
    return TraceSession(id=name, requests=tuple(with_subagents), subagents=tuple(agent for _, agent in made))


def _requests(calls: Sequence[Call], ids: Iterator[int], blocks: list[int]) -> Iterator[TraceRequest]:
    """Yield the requests of one agent; `ids` are those of new blocks.

    `blocks` are those that its first prompt may share with another agent.
    """
    start, previous = calls[0].start_s, None
    for call in calls:
        needed = call.input_tokens // BLOCK_SIZE
        continues = previous is not None and call.input_tokens >= previous.input_tokens
        reused = len(blocks) if continues else min(len(blocks), call.cached // BLOCK_SIZE)
        blocks = blocks[: min(reused, needed)]
        blocks += islice(ids, needed - len(blocks))
        yield TraceRequest(
            input_tokens=call.input_tokens,
            output_tokens=max(1, call.output_tokens),
            at_s=max(0.0, call.start_s - start),
            think_s=None if previous is None else max(0.0, call.start_s - previous.end_s),
            took_s=max(0.0, call.end_s - call.start_s),
            blocks=tuple(blocks),
        )
        previous = call
