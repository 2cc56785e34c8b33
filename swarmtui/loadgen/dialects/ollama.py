"""Ollama's own chat API: newline-delimited JSON, with token counts and durations in the last line."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.loadgen.dialects.base import (
    ApiDialect,
    Chunk,
    Count,
    chat_tools,
    error_message,
    join_system,
    json_text,
    read_each,
    sampling_options,
    to_int,
)
from swarmtui.loadgen.response import Response
from swarmtui.loadgen.sse import LineSplitter
from swarmtui.model.workload import Message, Task


class _OllamaMessage(Chunk):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _OllamaChunk(Chunk):
    message: _OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: Count | None = None
    prompt_eval_duration: Count | None = None
    eval_count: Count | None = None
    eval_duration: Count | None = None
    error: Any = None


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    """Calls have their arguments as an object, and no id: a result names its tool."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return {"messages": [_message(message, names) for message in join_system(messages)]}


def _message(message: Message, names: dict[str, str]) -> Message | dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "content": message.content, "tool_name": names.get(message.tool_call_id, "")}
    if not message.tool_calls:
        return message
    calls = [{"function": {"name": call.name, "arguments": json_text(call.arguments)}} for call in message.tool_calls]
    return {"role": message.role, "content": message.content, "tool_calls": calls}


def _sampling_fields(task: Task) -> dict[str, Any]:
    # Ollama has no ignore_eos: an exact output length can only be requested as a limit.
    extra = {name: value for name, value in task.extra.items() if name != "ignore_eos"}
    return {"options": sampling_options(task, "num_predict")} | extra


def _add_chunk(response: Response, chunk: _OllamaChunk, payload: bytes, t: int) -> None:
    message = chunk.message
    if message is not None and (message.content or message.thinking or message.tool_calls):
        other = "".join(bytes(call).decode("utf-8", "replace") for call in message.tool_calls or ())
        response.add_output(t, message.content, message.thinking, other)
    if chunk.error is not None:
        response.fail("error_event", error_message(chunk.error))
    if chunk.done:
        response.finished = True
        response.finish_reason, response.t_finish = chunk.done_reason or "stop", t
        response.engine_tokens = to_int(chunk.eval_count)
        response.tokens_in = to_int(chunk.prompt_eval_count)
        if chunk.eval_count and chunk.eval_duration:
            response.engine_decode_tps = chunk.eval_count / (chunk.eval_duration / 1e9)
        if chunk.prompt_eval_duration:
            response.engine_prefill_s = chunk.prompt_eval_duration / 1e9


DIALECT = ApiDialect(
    read=read_each(msgspec.json.Decoder(_OllamaChunk).decode, _add_chunk),
    accept="application/x-ndjson",
    models_path="/api/tags",
    splitter=LineSplitter,
    prompt_fields=_prompt_fields,
    # This API has no choice: the model may always call tools.
    tool_fields=lambda tools, choice: {"tools": chat_tools(tools, choice)["tools"]},
    sampling_fields=_sampling_fields,
    prompt_tokens=lambda found: int(found["prompt_eval_count"]),
)
