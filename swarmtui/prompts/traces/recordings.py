"""Recorded sessions prepared for replay: a graph of requests with pauses, and block ids stored as differences."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from swarmtui.files import read_file
from swarmtui.model.base import BadInput
from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession, requests_of
from swarmtui.model.workload import Message, Tool
from swarmtui.prompts.traces.agentperf import TextRequest, read_agentperf
from swarmtui.prompts.traces.reader import reader_of, trace_files
from swarmtui.prompts.traces.weka import read_weka
from swarmtui.prompts.traces.window import Window

# Longer prompts than any model reads would fill the memory.
MAX_PROMPT_TOKENS = 2_000_000
# Enough sessions for a mean, and few enough to read them during the first level.
_MEASURED_SESSIONS = 256
_TOKEN_S = 0.02
# Bytes that are read to count requests, and the key that each request of a Weka or agentperf file has once.
_MAX_COUNTED = 64 << 20
_REQUEST_KEYS = {".json": b'"out"', ".jsonl": b'"turn_id"'}


class RecordedRequest(NamedTuple):
    """A request of a recording: `turn` of the parent, or of a sub-agent, numbered from 1.

    It is due `gap_s` after the last of the requests `after` has ended. Its prompt begins with the first `keep` blocks
    of the prompt before it of the same agent, followed by `new` blocks. If its text was recorded, it is sent.
    """

    turn: int
    subagent: int
    input_tokens: int
    output_tokens: int
    keep: int
    new: array[int]
    after: tuple[int, ...]
    gap_s: float
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()


class Recording(NamedTuple):
    """A session. Requests come after those that they wait for; `parents` are the positions of the parent's requests.

    `shared_blocks`: block ids have the same meaning in all sessions of the trace.
    """

    id: str
    block_size: int
    shared_blocks: bool
    requests: tuple[RecordedRequest, ...]
    parents: tuple[int, ...]


def check_replayable(session: TraceSession, source: str) -> None:
    if not session.requests:
        raise BadInput(f"session {session.id} contains no request", source=source)
    longest = max(request.input_tokens for request in requests_of(session))
    if longest > MAX_PROMPT_TOKENS:
        problem = f"session {session.id} has a prompt of {longest:,} tokens; at most {MAX_PROMPT_TOKENS:,} can be sent"
        raise BadInput(problem, source=source)


def make_recording(session: TraceSession) -> Recording:
    made = _Builder(session.block_size)
    end_s = 0.0
    for turn, request in enumerate(session.requests):
        agents = made.add_subagents(request.subagents, end_s)
        waited_for = agents or made.parents[-1:]
        gap_s = _pause(request, session.requests[turn - 1] if turn else None)
        if agents:
            gap_s = max(0.0, request.at_s - max(map(_end_of, request.subagents)))
        made.parents.append(made.add(0, turn, request, tuple(waited_for), gap_s if turn else 0.0))
        end_s = request.at_s + (request.took_s or 0.0)
    made.add_subagents(session.subagents, end_s)
    return Recording(session.id, session.block_size, session.shared_blocks, tuple(made.requests), tuple(made.parents))


class _Builder:
    """Collects the requests of a session in an order in which they can be sent."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.requests: list[RecordedRequest] = []
        self.parents: list[int] = []
        self._agents = 0
        self._blocks: dict[int, tuple[int, ...]] = {}

    def add_subagents(self, agents: Sequence[SubAgent], parent_end_s: float) -> list[int]:
        """Add agents that start after the parent's last request; return the positions of their last requests."""
        last: list[int] = []
        for agent in agents:
            self._agents += 1
            after, gap_s = tuple(self.parents[-1:]), max(0.0, agent.at_s - parent_end_s)
            for turn, request in enumerate(agent.requests):
                if turn:
                    gap_s = _pause(request, agent.requests[turn - 1])
                after = (self.add(self._agents, turn, request, after, gap_s),)
            last += after if agent.requests else ()
        return last

    def add(self, agent: int, turn: int, request: TraceRequest, after: tuple[int, ...], gap_s: float) -> int:
        before, blocks = self._blocks.get(agent, ()), request.blocks
        keep = _common_length(before, blocks)
        # A block that was cut short has other text when it is whole.
        self._blocks[agent] = blocks[: request.input_tokens // self._block_size]
        made = RecordedRequest(
            turn, agent, request.input_tokens, request.output_tokens, keep, array("q", blocks[keep:]), after, gap_s
        )
        if isinstance(request, TextRequest):
            made = made._replace(messages=request.messages, tools=request.tools)
        self.requests.append(made)
        return len(self.requests) - 1


def live_context(recordings: Recordings | Sequence[Recording], *, max_gap_s: float, time_scale: float) -> float | None:
    """Estimate the tokens in the contexts of one session, as a mean over its time.

    An agent keeps its context until its next request. Answers are assumed to take 20 ms per token.
    """
    tokens_s = total_s = 0.0
    for number in range(min(len(recordings), _MEASURED_SESSIONS)):
        ends: list[float] = []
        newest: dict[int, tuple[float, int]] = {}
        for request in recordings[number].requests:
            gap_s = min(request.gap_s, max_gap_s) / time_scale
            start = max((ends[before] for before in request.after), default=0.0) + gap_s
            ends.append(start + request.output_tokens * _TOKEN_S)
            context = request.input_tokens + request.output_tokens
            tokens_s += request.output_tokens * _TOKEN_S * context
            if request.subagent in newest:
                end, before_tokens = newest[request.subagent]
                tokens_s += max(0.0, start - end) * before_tokens
            newest[request.subagent] = ends[-1], context
        total_s += max(ends)
    return tokens_s / total_s if total_s else None


def first_sessions(lengths: Sequence[int]) -> list[int]:
    """Choose the sessions with which as many slots start, in proportion to their lengths.

    At any later time, long sessions are in more slots than short ones: they take longer.
    """
    ends = list(accumulate(lengths))
    return [bisect_right(ends, slot * ends[-1] / len(lengths)) for slot in range(len(lengths))]


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    return next(index for index in range(length) if first[index] != second[index])


def _pause(request: TraceRequest, before: TraceRequest | None) -> float:
    """Return the time between an answer and the next request, from send to send if that is all that was recorded."""
    if request.think_s is not None:
        return request.think_s
    return max(0.0, request.at_s - before.at_s - (before.took_s or 0.0)) if before is not None else 0.0


def _end_of(agent: SubAgent) -> float:
    last = agent.requests[-1] if agent.requests else None
    return agent.at_s + (last.at_s + (last.took_s or 0.0) if last is not None else 0.0)


class Recordings:
    """The sessions of a trace in the order of their files, which no seed changes: it decides what is measured.

    A file with one session is read when it is played, and again when it is played again; sessions of files with many
    are kept, which is why their blocks are stored as differences.
    """

    def __init__(self, paths: Iterable[Path], window: Window | None = None) -> None:
        self._sessions: list[Path | Recording] = []
        self._window = window
        for path in trace_files(paths):
            reader = reader_of(path)
            if reader not in (read_weka, read_agentperf):
                self._sessions += [made for session in reader(path) if (made := self._record(session)).parents]
            elif window is None or window.fit(next(reader(path))).requests:
                self._sessions.append(path)

    def _record(self, session: TraceSession) -> Recording:
        return make_recording(session if self._window is None else self._window.fit(session))

    def __len__(self) -> int:
        return len(self._sessions)

    def lengths(self, first: int, count: int) -> list[int]:
        """Count the requests of sessions without parsing them; files beyond a total size get the mean of the others."""
        counts: list[int] = []
        size = 0
        for number in range(first, first + count):
            found = self._sessions[number % len(self._sessions)]
            if isinstance(found, Recording):
                counts.append(len(found.requests))
                continue
            try:
                data = read_file(found, max(0, _MAX_COUNTED - size))
            except OSError:  # too large, or reported when it is played
                break
            size += len(data)
            counts.append(max(1, data.count(_REQUEST_KEYS[found.suffix])))
        mean = max(1, sum(counts) // max(1, len(counts)))
        return counts + [mean] * (count - len(counts))

    def __getitem__(self, number: int) -> Recording:
        """Return the session at this place of the order, which repeats without end; raises BadInput."""
        found = self._sessions[number % len(self._sessions)]
        if isinstance(found, Recording):
            return found
        session = next(reader_of(found)(found))
        check_replayable(session, str(found))
        return self._record(session)
