"""OpenAI Responses: typed Server-Sent Events, with status and token counts in the last one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from swarmtui.loadgen.dialects.base import (
    ApiDialect,
    Chunk,
    Count,
    error_message,
    error_text,
    read_each,
    sampling_options,
    split_system,
    tool_definition,
)
from swarmtui.loadgen.dialects.chat import Timings, Usage, UsageDetails, read_timings, read_usage
from swarmtui.loadgen.response import COMPLETED, Response
from swarmtui.model.workload import Message

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_FINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class _OutputItem(Chunk):
    """An output item. That of a tool call has its name."""

    name: str | None = None


class _IncompleteDetails(Chunk):
    reason: str | None = None


class _ResponsesUsage(Usage):
    """The same counts as in chat, by other names."""

    prompt_tokens: Count | None = msgspec.field(default=None, name="input_tokens")
    completion_tokens: Count | None = msgspec.field(default=None, name="output_tokens")
    prompt_tokens_details: UsageDetails | None = msgspec.field(default=None, name="input_tokens_details")
    completion_tokens_details: UsageDetails | None = msgspec.field(default=None, name="output_tokens_details")


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
    timings: Timings | None = None
    error: Any = None


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


def _add_event(response: Response, event: _ResponsesEvent, payload: bytes, t: int) -> None:
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
        read_timings(response, event.timings)
    if event.error is not None or kind == "error":
        response.fail("error_event", error_text(payload))


def _finish(response: Response, final: _FinalResponse, t: int) -> None:
    response.finished = True
    details = final.incomplete_details
    if final.status == "failed" or final.error is not None:
        response.fail("error_event", error_message(final.error))
        response.end(None, t)
    elif details is msgspec.UNSET:
        response.end(COMPLETED, t)
    elif details is None or details.reason is None:
        response.end("stop", t)
    else:
        response.end("length" if details.reason == "max_output_tokens" else details.reason, t)
    if final.usage is not None:
        read_usage(response, final.usage, had_output=False)


DIALECT = ApiDialect(
    read=read_each(msgspec.json.Decoder(_ResponsesEvent).decode, _add_event),
    stream_fields={"stream": True, "store": False},
    prompt_fields=_prompt_fields,
    tool_fields=lambda tools, choice: {
        "tools": [{"type": "function"} | tool_definition(tool) for tool in tools],
        "tool_choice": choice,
    },
    sampling_fields=lambda task: sampling_options(task, "max_output_tokens") | task.extra,
    prompt_tokens=lambda found: int(found["usage"]["input_tokens"]),
)
