"""Make traces from the logs that coding agents keep: lengths, times and structure, never text.

Only the fields declared here are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.trace import TraceSession
from swarmtui.prompts.traces.arrivals import lines_of
from swarmtui.prompts.traces.calls import Call, session_from_calls

T = TypeVar("T")

CodingAgent = Literal["claude-code", "codex"]

LOG_FOLDERS: dict[CodingAgent, str] = {"claude-code": "~/.claude/projects", "codex": "~/.codex/sessions"}


class _ClaudeUsage(Stored, frozen=True, kw_only=True):
    input_tokens: int = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    output_tokens: int = 0


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


class _CodexSpawn(Stored, frozen=True, kw_only=True):
    parent_thread_id: str = ""


class _CodexSubAgent(Stored, frozen=True, kw_only=True):
    thread_spawn: _CodexSpawn = _CodexSpawn()


class _CodexSource(Stored, frozen=True, kw_only=True):
    subagent: _CodexSubAgent = _CodexSubAgent()


# The calls of the parent, and those of each of its sub-agents.
_Recorded = tuple[list[Call], list[list[Call]]]


def record_sessions(agent: CodingAgent, path: Path) -> Iterator[TraceSession]:
    """Yield a trace for each logged session that called a model."""
    if not path.exists():
        raise BadInput("no such file or directory", source=str(path))
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    recorded = _read_claude(files) if agent == "claude-code" else _read_codex(files)
    number = 0
    for parent, subagents in recorded:
        if parent:
            number += 1
            yield session_from_calls(f"trace_{number:04}", parent, [calls for calls in subagents if calls])


def _read_claude(files: Sequence[Path]) -> Iterator[_Recorded]:
    """Group events by session and agent; sub-agents are in the same file, or in a file of their own."""
    decoder = msgspec.json.Decoder(_ClaudeEvent)
    sessions: dict[str, dict[str, list[_ClaudeEvent]]] = {}
    for file in files:
        chain_of: dict[str, str] = {}
        for event in _events(decoder, file):
            if event.type not in ("user", "assistant") or not event.timestamp:
                continue
            # Without an agent id, a sub-agent is known by the first event of its chain.
            chain = event.agent_id or (chain_of.get(event.parent_uuid or "", event.uuid) if event.is_sidechain else "")
            chain_of[event.uuid] = chain
            sessions.setdefault(event.session_id or file.stem, {}).setdefault(chain, []).append(event)
    for chains in sessions.values():
        parent = _claude_calls(chains.pop("", []))
        yield parent, [_claude_calls(events) for events in chains.values()]


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
            input_tokens=max(0, usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)),
            cached=max(0, cached),
            output_tokens=max(usage.output_tokens, known.output_tokens if known else 0),
        )
        before = at
    return [call for call in calls.values() if call.input_tokens]


def _read_codex(files: Sequence[Path]) -> Iterator[_Recorded]:
    decoder = msgspec.json.Decoder(_CodexEvent)
    calls: dict[str, list[Call]] = {}
    parents: dict[str, str] = {}
    for file in files:
        thread = file.stem
        made: list[Call] = []
        before: float | None = None
        total: _CodexUsage | None = None
        for event in _events(decoder, file):
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
            start = min(at, before if before is not None else at)
            made.append(
                Call(start, at, max(0, usage.input_tokens), max(0, usage.cached_input_tokens), usage.output_tokens)
            )
            before = at
        calls[thread] = [call for call in made if call.input_tokens]
    for thread, own in calls.items():
        if parents.get(thread, "") not in calls:
            yield own, [calls[child] for child, parent in parents.items() if parent == thread and child in calls]


def _codex_parent(source: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(source, type=_CodexSource).subagent.thread_spawn.parent_thread_id
    except msgspec.DecodeError:
        return ""


def _events(decoder: msgspec.json.Decoder[T], file: Path) -> Iterator[T]:
    """Skip lines that cannot be read: logs end in a torn line, and other versions have other events."""
    for _, line in lines_of(file):
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None
