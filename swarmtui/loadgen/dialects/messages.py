"""Anthropic Messages: typed Server-Sent Events, with input tokens in the first and output tokens near the last."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.loadgen.dialects.base import (
    ApiDialect,
    Chunk,
    Count,
    bearer,
    error_message,
    json_text,
    read_each,
    sampling_fields,
    split_system,
    tool_definition,
)
from swarmtui.loadgen.response import Response
from swarmtui.model.workload import Message

_VERSION = "2023-06-01"
# The API requires a limit; this one is sent if the task has none.
_MAX_TOKENS = 4096

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class _MessagesDelta(Chunk):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _ContentBlock(Chunk):
    """The start of a content block. That of a tool call has its name."""

    text: str | None = None
    thinking: str | None = None
    name: str | None = None


class _MessagesUsage(Chunk):
    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None


class _MessageStart(Chunk):
    id: str | None = None
    usage: _MessagesUsage | None = None


class _MessagesEvent(Chunk):
    type: str = ""
    delta: _MessagesDelta | None = None
    content_block: _ContentBlock | None = None
    message: _MessageStart | None = None
    usage: _MessagesUsage | None = None
    error: Any = None


def _auth_headers(api_key: str | None) -> dict[str, str]:
    """Send the key both ways: the API wants `x-api-key`, and some servers that imitate it know only Bearer."""
    return {"anthropic-version": _VERSION} | ({"x-api-key": api_key} if api_key else {}) | bearer(api_key)


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    """Send several system messages as blocks: servers look for a billing line at the start of a block."""
    system, conversation = split_system(messages)
    blocks = [{"type": "text", "text": message.content} for message in messages if message.role == "system"]
    fields: dict[str, Any] = {"system": blocks if len(blocks) > 1 else system} if system else {}
    return fields | {"messages": _turns(conversation)}


def _turns(messages: list[Message]) -> list[Message | dict[str, Any]]:
    """Calls are blocks of the assistant's content; all results that follow them are blocks of one user message."""
    turns: list[Message | dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for message in messages:
        if message.role == "tool":
            if results is None:
                results = []
                turns.append({"role": "user", "content": results})
            results.append({"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content})
            continue
        results = None
        turns.append({"role": message.role, "content": _blocks(message)} if message.tool_calls else message)
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message.content}] if message.content else []
    return text + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json_text(call.arguments)}
        for call in message.tool_calls
    ]


def _prompt_tokens(document: Any) -> int:
    usage = document["usage"]
    cached = (usage.get(f"cache_{how}_input_tokens") or 0 for how in ("read", "creation"))
    return int(usage["input_tokens"]) + sum(map(int, cached))


def _add_event(response: Response, event: _MessagesEvent, payload: bytes, t: int) -> None:
    delta, block = event.delta, event.content_block
    if delta is not None:
        if delta.text or delta.thinking or delta.partial_json:
            response.add_output(t, delta.text, delta.thinking, delta.partial_json or "")
        if delta.stop_reason is not None:
            response.end(_FINISH_REASONS.get(delta.stop_reason, delta.stop_reason), t)
    elif block is not None and (block.text or block.thinking or block.name):
        response.add_output(t, block.text, block.thinking, block.name or "")
    if event.message is not None:
        response.id = event.message.id or ""
        if event.message.usage is not None:
            _read_input(response, event.message.usage)
    if event.usage is not None:
        _read_input(response, event.usage)
        if event.usage.output_tokens is not None:
            response.usage_tokens = int(event.usage.output_tokens)
    if event.error is not None:
        response.fail("error_event", error_message(event.error))
    elif event.type == "message_stop":
        response.finished = True


def _read_input(response: Response, usage: _MessagesUsage) -> None:
    """Read the input tokens, which the API reports in three parts: not cached, read from the cache, and written."""
    if usage.input_tokens is None:
        return
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    response.tokens_in = int(usage.input_tokens + (read or 0) + (written or 0))
    if read is not None:
        response.cached_tokens = int(read)
    if written is not None:
        response.cache_write_tokens = int(written)


DIALECT = ApiDialect(
    read=read_each(msgspec.json.Decoder(_MessagesEvent).decode, _add_event),
    auth_headers=_auth_headers,
    prompt_fields=_prompt_fields,
    tool_fields=lambda tools, choice: {
        "tools": [tool_definition(tool, "input_schema") for tool in tools],
        "tool_choice": {"type": choice},
    },
    sampling_fields=lambda task: {"max_tokens": _MAX_TOKENS} | sampling_fields(task),
    prompt_tokens=_prompt_tokens,
)
