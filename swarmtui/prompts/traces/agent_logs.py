"""Make traces from the logs that coding agents keep: lengths, times and structure, never text.

Only the fields declared here are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.trace import TraceSession
from swarmtui.prompts.traces.arrivals import lines_of
from swarmtui.prompts.traces.calls import Call, session_from_calls
from swarmtui.prompts.traces.recordings import MAX_PROMPT_TOKENS
from swarmtui.prompts.traces.weka import BLOCK_SIZE, MAX_BLOCKS

T = TypeVar("T")

CodingAgent = Literal["claude-code", "codex"]

LOG_FOLDERS: dict[CodingAgent, str] = {"claude-code": "~/.claude/projects", "codex": "~/.codex/sessions"}


class _ClaudeUsage(Stored, frozen=True, kw_only=True):
    input_tokens: int = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)


class _ClaudeMessage(Stored, frozen=True, kw_only=True):
    id: str = ""
    usage: _ClaudeUsage | None = None


class _ClaudeEvent(Stored, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    timestamp: str = ""
    session_id: str = ""
    agent_id: str = ""
    uuid: str = ""
    parent_uuid: str | None = None
    is_sidechain: bool = False
    message: _ClaudeMessage | None = None


class _CodexUsage(Stored, frozen=True, kw_only=True):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


class _CodexInfo(Stored, frozen=True, kw_only=True):
    last_token_usage: _CodexUsage | None = None
    total_token_usage: _CodexUsage | None = None


class _CodexPayload(Stored, frozen=True, kw_only=True):
    """`source` names the parent thread if this one is a sub-agent."""

    type: str = ""
    id: str = ""
    info: _CodexInfo | None = None
    source: msgspec.Raw = msgspec.Raw(b"null")


class _CodexEvent(Stored, frozen=True, kw_only=True):
    type: str = ""
    timestamp: str = ""
    payload: _CodexPayload = _CodexPayload()


# The calls of each agent, that of the parent first.
_Recorded = list[list[Call]]


def record_sessions(agent: CodingAgent, path: Path, leave_out: Callable[[str], None]) -> Iterator[TraceSession]:
    """Yield a trace for each logged session that called a model; `leave_out` is told what cannot be replayed."""
    if not path.exists():
        raise BadInput("no such file or directory", source=str(path))
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    recorded = _read_claude(files, leave_out) if agent == "claude-code" else _read_codex(files, leave_out)
    number = 0
    for agents in recorded:
        called = [calls for calls in agents if calls]
        if not agents[0]:
            called.sort(key=lambda calls: calls[0].start_s)  # the first sub-agent takes the place of the parent
        if sum(call.input_tokens for calls in called for call in calls) > MAX_BLOCKS * BLOCK_SIZE:
            leave_out(f"a session of {sum(map(len, called)):,} calls, which is more than a trace can hold")
        elif called:
            number += 1
            yield session_from_calls(f"trace_{number:04}", called[0], called[1:])


def _read_claude(files: Sequence[Path], leave_out: Callable[[str], None]) -> Iterator[_Recorded]:
    """Group events by session and agent; sub-agents are in the same file, or in a file of their own."""
    decoder = msgspec.json.Decoder(_ClaudeEvent)
    sessions: dict[str, dict[str, list[_ClaudeEvent]]] = {}
    for file in files:
        chain_of: dict[str, str] = {}
        for line, event in _events(decoder, file):
            if event.type not in ("user", "assistant") or not event.timestamp:
                continue
            # Without an agent id, a sub-agent is known by the first event of its chain.
            chain = event.agent_id or (chain_of.get(event.parent_uuid or "", event.uuid) if event.is_sidechain else "")
            chain_of[event.uuid] = chain
            usage = event.message and event.message.usage
            if usage and _is_too_long(usage.prompt_tokens, usage.output_tokens, file, line, leave_out):
                continue
            sessions.setdefault(event.session_id or file.stem, {}).setdefault(chain, []).append(event)
    for chains in sessions.values():
        yield [_claude_calls(chains.pop("", [])), *map(_claude_calls, chains.values())]


def _claude_calls(events: Sequence[_ClaudeEvent]) -> list[Call]:
    """Make one call of the events of one answer: each part of it is an event, with the usage so far."""
    calls: dict[str, Call] = {}
    before: float | None = None
    for event in sorted(events, key=lambda event: event.timestamp):
        at = _seconds(event.timestamp)
        if at is None:
            continue
        message = event.message
        if event.type != "assistant" or message is None or message.usage is None:
            before = at
            continue
        usage, known = message.usage, calls.get(message.id)
        cached = usage.cache_read_input_tokens or 0
        calls[message.id or event.uuid] = Call(
            start_s=known.start_s if known else min(at, before if before is not None else at),
            end_s=at,
            input_tokens=max(0, usage.prompt_tokens),
            cached=max(0, cached),
            output_tokens=max(usage.output_tokens, known.output_tokens if known else 0),
        )
        before = at
    return [call for call in calls.values() if call.input_tokens]


def _is_too_long(prompt: int, output: int, file: Path, line: int, leave_out: Callable[[str], None]) -> bool:
    longest = max(prompt, output)
    if longest > MAX_PROMPT_TOKENS:
        leave_out(f"{file}, line {line}: a call of {longest:,} tokens; at most {MAX_PROMPT_TOKENS:,} can be sent")
    return longest > MAX_PROMPT_TOKENS


def _read_codex(files: Sequence[Path], leave_out: Callable[[str], None]) -> Iterator[_Recorded]:
    """Read one thread per file, or a part of one; threads that a sub-agent started are sub-agents of the session."""
    decoder = msgspec.json.Decoder(_CodexEvent)
    calls: dict[str, list[Call]] = {}
    parents: dict[str, str] = {}
    for file in files:
        thread = file.stem
        made: list[Call] = []
        before: float | None = None
        total: _CodexUsage | None = None
        for line, event in _events(decoder, file):
            payload, at = event.payload, _seconds(event.timestamp)
            if event.type == "session_meta" and payload.id:
                thread = payload.id
                parents[thread] = _codex_parent(payload.source)
            info = payload.info
            if at is None or payload.type != "token_count" or info is None or info.last_token_usage is None:
                # What the user or a tool sent is the last event before the model is called.
                if at is not None and payload.type in ("user_message", "function_call_output", "message"):
                    before = at
                continue
            if info.total_token_usage == total:
                continue  # the same usage again, with new rate limits
            total, usage = info.total_token_usage, info.last_token_usage
            if _is_too_long(usage.input_tokens, usage.output_tokens, file, line, leave_out):
                continue
            start = min(at, before if before is not None else at)
            made.append(
                Call(start, at, max(0, usage.input_tokens), max(0, usage.cached_input_tokens), usage.output_tokens)
            )
            before = at
        calls.setdefault(thread, []).extend(call for call in made if call.input_tokens)
    sessions: dict[str, list[str]] = {}
    for thread in calls:
        sessions.setdefault(_first_ancestor(thread, parents, calls), []).append(thread)
    for root, threads in sessions.items():
        yield [_once(calls[thread]) for thread in sorted(threads, key=lambda thread: thread != root)]


def _once(calls: list[Call]) -> list[Call]:
    """Drop calls that a thread repeats when it is resumed in another file."""
    once = {(call.end_s, call.input_tokens): call for call in reversed(calls)}
    return sorted(once.values(), key=lambda call: (call.start_s, call.end_s))


def _first_ancestor(thread: str, parents: dict[str, str], calls: dict[str, list[Call]]) -> str:
    """Return the thread that began the session; of threads that name each other as their parent, the earliest."""
    seen: list[str] = []
    while thread not in seen:
        seen.append(thread)
        if (parent := parents.get(thread, "")) not in calls:
            return thread
        thread = parent
    circle = seen[seen.index(thread) :]
    return min(circle, key=lambda one: (min((call.start_s for call in calls[one]), default=inf), one))


def _codex_parent(source: msgspec.Raw) -> str:
    try:
        return str(msgspec.json.decode(source)["subagent"]["thread_spawn"]["parent_thread_id"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return ""


def _events(decoder: msgspec.json.Decoder[T], file: Path) -> Iterator[tuple[int, T]]:
    """Skip lines that cannot be read: logs end in a torn line, and other versions have other events."""
    for number, line in lines_of(file):
        try:
            yield number, decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return None
