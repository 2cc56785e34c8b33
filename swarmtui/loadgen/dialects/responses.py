"""OpenAI Responses: typed Server-Sent Events, with status and token counts in the last one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from swarmtui.loadgen.dialects import openai
from swarmtui.loadgen.dialects.base import (
    DECODE_ERRORS,
    ApiDialect,
    Chunk,
    Count,
    ToolChoice,
    bearer,
    each,
    error_message,
    error_text,
    function_definition,
    split_system,
    to_int,
    tokenize_chat,
)
from swarmtui.loadgen.response import COMPLETED, Response
from swarmtui.loadgen.sse import ErrorPayload, EventSplitter
from swarmtui.model.workload import Message, Task, Tool

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_FINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class _OutputItem(Chunk):
    """An output item. That of a tool call has its name."""

    name: str | None = None


class _IncompleteDetails(Chunk):
    reason: str | None = None


class _InputDetails(Chunk):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _OutputDetails(Chunk):
    reasoning_tokens: Count | None = None


class _ResponsesUsage(Chunk):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _FinalResponse(Chunk):
    id: str | None = None
    status: str | None = None
    usage: _ResponsesUsage | None = None
    error: Any = None
    incomplete_details: _IncompleteDetails | msgspec.UnsetType | None = msgspec.UNSET


class _ResponsesEvent(Chunk):
    type: str = ""
    delta: str | None = None
    item: _OutputItem | None = None
    response: _FinalResponse | None = None
    timings: openai.Timings | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_ResponsesEvent).decode


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    system, conversation = split_system(messages)
    return ({"instructions": system} if system else {}) | {
        "input": [item for message in conversation for item in _input_items(message)]
    }


def _input_items(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the items of one message: calls and results are items of their own."""
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
    elif message.content or not message.tool_calls:
        kind = "output_text" if message.role == "assistant" else "input_text"
        yield {"type": "message", "role": message.role, "content": [{"type": kind, "text": message.content}]}
    for call in message.tool_calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _tool_fields(tools: tuple[Tool, ...], choice: ToolChoice) -> dict[str, Any]:
    return {"tools": [{"type": "function"} | function_definition(tool) for tool in tools], "tool_choice": choice}


def _sampling_fields(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if task.max_tokens is not None:
        fields["max_output_tokens"] = task.max_tokens
    if task.temperature is not None:
        fields["temperature"] = task.temperature
    return fields | task.extra


def _prompt_tokens(document: Any) -> int:
    return int(document["usage"]["input_tokens"])


def _read_event(response: Response, payload: bytes, t: int) -> None:
    if response.finished:
        return
    if type(payload) is ErrorPayload:
        response.fail("error_event", error_text(payload))
        return
    try:
        event = _decode(payload)
    except DECODE_ERRORS as error:
        text = payload.strip()
        if text and text != b"[DONE]":  # empty events are keep-alives
            response.fail("bad_json", f"{error}: {payload!r}")
        return
    if response.t_first_event is None:
        response.t_first_event = t
    kind = event.type
    if event.delta and kind.endswith(".delta"):
        if kind in _TEXT:
            response.add_output(t, event.delta, None, "")
        elif "reasoning" in kind:
            response.add_output(t, None, event.delta, "")
        else:
            response.add_output(t, None, None, event.delta)
    elif event.item is not None and event.item.name and kind == "response.output_item.added":
        response.add_output(t, None, None, event.item.name)
    elif event.response is not None:
        response.id = event.response.id or response.id
        if kind in _FINAL:
            _finish(response, event.response, t)
    if event.timings is not None:
        openai.read_timings(response, event.timings)
    if event.error is not None or kind == "error":
        response.fail("error_event", error_text(payload))


def _finish(response: Response, final: _FinalResponse, t: int) -> None:
    response.finished = True
    details = final.incomplete_details
    if final.status == "failed" or final.error is not None:
        response.fail("error_event", error_message(final.error))
    elif details is msgspec.UNSET:
        response.finish_reason = COMPLETED
    elif details is None or details.reason is None:
        response.finish_reason = "stop"
    else:
        response.finish_reason = "length" if details.reason == "max_output_tokens" else details.reason
    if response.finish_reason != "length":
        # Stands for the token that ends the sequence.
        response.add_empty()
        response.t_finish = t
    if final.usage is not None:
        _read_usage(response, final.usage)


def _read_usage(response: Response, usage: _ResponsesUsage) -> None:
    response.usage_tokens = to_int(usage.output_tokens)
    response.tokens_in = to_int(usage.input_tokens)
    if usage.input_tokens_details is not None:
        response.cached_tokens = to_int(usage.input_tokens_details.cached_tokens)
        response.cache_write_tokens = to_int(usage.input_tokens_details.cache_write_tokens)
    if usage.output_tokens_details is not None:
        response.reasoning_tokens = to_int(usage.output_tokens_details.reasoning_tokens)


DIALECT = ApiDialect(
    accept="text/event-stream",
    models_path="/v1/models",
    auth_headers=bearer,
    splitter=EventSplitter,
    read=each(_read_event),
    last_event=None,
    stream_fields={"stream": True, "store": False},
    prompt_fields=_prompt_fields,
    tool_fields=_tool_fields,
    sampling_fields=_sampling_fields,
    tokenize_fields=tokenize_chat,
    prompt_tokens=_prompt_tokens,
)
