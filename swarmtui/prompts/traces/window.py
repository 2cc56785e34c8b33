"""Fit recorded sessions into the context window of a server: count what is too long, leave it out, or shorten it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from swarmtui.model.plan import TooLong
from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession, requests_of
from swarmtui.prompts.traces.agentperf import TextRequest

# Prompts have their recorded length to within 2 %.
_INEXACT = 1.02


class Window(NamedTuple):
    """The context window of a server, and what happens to requests that do not fit into it."""

    tokens: int
    too_long: TooLong

    def fit(self, session: TraceSession) -> TraceSession:
        """Return the session with the requests that fit, which may be none; recorded text is not shortened."""
        requests: list[TraceRequest] = []
        waiting: tuple[SubAgent, ...] = ()
        for request in session.requests:
            waiting += self._fit_agents(request.subagents, session.block_size)
            if fitting := self._fit_requests((request,), session.block_size):
                requests.append(msgspec.structs.replace(fitting[0], subagents=waiting))
                waiting = ()
        subagents = waiting + self._fit_agents(session.subagents, session.block_size)
        return msgspec.structs.replace(session, requests=tuple(requests), subagents=subagents if requests else ())

    def _fit_agents(self, agents: Iterable[SubAgent], block_size: int) -> tuple[SubAgent, ...]:
        fitting = ((agent, self._fit_requests(agent.requests, block_size)) for agent in agents)
        return tuple(msgspec.structs.replace(agent, requests=requests) for agent, requests in fitting if requests)

    def _fit_requests(self, requests: Iterable[TraceRequest], block_size: int) -> tuple[TraceRequest, ...]:
        fitting = (self._fit_request(request, block_size) for request in requests)
        return tuple(request for request in fitting if request is not None)

    def _fit_request(self, request: TraceRequest, block_size: int) -> TraceRequest | None:
        room = _room(self.tokens)
        if request.input_tokens + request.output_tokens <= room:
            return request
        if self.too_long == "skip" or isinstance(request, TextRequest):
            return None
        output_tokens = min(request.output_tokens, room // 2)
        input_tokens = min(request.input_tokens, room - output_tokens)
        blocks = request.blocks[: -(-input_tokens // block_size)]
        return msgspec.structs.replace(request, input_tokens=input_tokens, output_tokens=output_tokens, blocks=blocks)


def describe_too_long(sessions: Iterable[TraceSession], window: int, chosen: TooLong | None) -> str:
    """Say which requests do not fit into a window, and what is done about it or could be; empty if all fit."""
    lengths = [r.input_tokens + r.output_tokens for session in sessions for r in requests_of(session)]
    too_long = sum(length > _room(window) for length in lengths)
    if not too_long:
        return ""
    found = (
        f"{too_long:,} of {len(lengths):,} requests of the trace do not fit into the "
        f"server's context of {window:,} tokens; the longest has {max(lengths):,} with its answer"
    )
    match chosen:
        case "skip":
            return f"{found}: they are left out"
        case "truncate":
            return f"{found}: the ends of their prompts are cut off, and those with recorded text are left out"
    return (
        f"{found}. --too-long skip leaves them out, --too-long truncate cuts off the ends of their prompts "
        "(in the app: the field too long)"
    )


def _room(window: int) -> int:
    return int(window / _INEXACT)
