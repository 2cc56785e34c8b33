"""Recorded agent sessions: lengths, times, prefix blocks and sub-agents."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from swarmtui.model.base import Stored


class TraceRequest(Stored, frozen=True, kw_only=True):
    """A recorded request.

    `at_s` counts from the start of the agent. `think_s` is the time between the end of the previous answer and this
    request, `took_s` the time of its answer; null if it was not recorded. `blocks` identify the blocks of the prompt:
    prompts whose first ids are equal begin with the same text. The last block may be shorter than the others; tokens
    after the last block are unique. `subagents` start after the previous answer, and end before this request.
    """

    input_tokens: int
    output_tokens: int
    at_s: float = 0.0
    think_s: float | None = None
    took_s: float | None = None
    blocks: tuple[int, ...] = ()
    subagents: tuple[SubAgent, ...] = ()


class SubAgent(Stored, frozen=True, kw_only=True):
    """Requests that run beside those of the parent; `at_s` counts from the start of the session."""

    at_s: float
    requests: tuple[TraceRequest, ...]


class TraceSession(Stored, frozen=True, kw_only=True):
    """The requests of one agent in order, with its sub-agents.

    `arrival_s` is when it started, for traces that are replayed by arrival time. `shared_blocks`: block ids have the
    same meaning in all sessions of the file, otherwise only in this one. `subagents` start after the last request.
    """

    id: str
    requests: tuple[TraceRequest, ...]
    block_size: int = 64
    arrival_s: float | None = None
    shared_blocks: bool = False
    subagents: tuple[SubAgent, ...] = ()


class ReplayedRequest(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """The recorded request that a request replays.

    `play` numbers the plays of recorded sessions within a session of swarmtui. `turn` counts the requests of one agent
    from 0; `subagent` is 0 for the parent. `requests` are those of the recorded session, of which the play skipped the
    first `skipped`. `input_tokens` are as recorded, of which `reusable_tokens` were sent before in this play.
    """

    play: int
    session: str
    turn: int
    subagent: int = 0
    requests: int = 1
    skipped: int = 0
    input_tokens: int = 0
    reusable_tokens: int = 0


def leading_blocks(blocks: Sequence[int], seen: Container[int]) -> int:
    """Return how many blocks before the first new one were sent before."""
    return next((index for index, block in enumerate(blocks) if block not in seen), len(blocks))


def subagents_of(session: TraceSession) -> Iterator[SubAgent]:
    for request in session.requests:
        yield from request.subagents
    yield from session.subagents


def requests_of(session: TraceSession) -> Iterator[TraceRequest]:
    """Yield all requests, those of sub-agents before the request that waits for them."""
    for request in session.requests:
        for agent in request.subagents:
            yield from agent.requests
        yield request
    for agent in session.subagents:
        yield from agent.requests
