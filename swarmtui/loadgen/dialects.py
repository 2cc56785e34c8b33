"""The three tongues: OpenAI chat, OpenAI completions, Ollama's own chat. Tasks to bodies, payloads to answers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

import msgspec

from swarmtui.loadgen.response import Answer
from swarmtui.loadgen.sse import EventSplitter, LineSplitter, Splitter
from swarmtui.model.endpoint import Dialect
from swarmtui.model.workload import Message, Task

# More is no count, and no pipe could carry it.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]

# What a decoder raises: not JSON or not as expected, not UTF-8, and nested without an end.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Chunk(msgspec.Struct, gc=False):
    """Only what is read; everything else in a chunk is skipped by the decoder."""


class _Function(_Chunk):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(_Chunk):
    function: _Function | None = None


class _Delta(_Chunk):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(_Chunk):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Details(_Chunk):
    cached_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None


class _Usage(_Chunk):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Timings(_Chunk):
    """llama.cpp's own measurement of a request."""

    prompt_ms: float | None = None
    predicted_n: _Count | None = None
    predicted_per_second: float | None = None
    cache_n: _Count | None = None


class _OpenAiChunk(_Chunk):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


class _OllamaMessage(_Chunk):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _OllamaChunk(_Chunk):
    message: _OllamaMessage | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: _Count | None = None
    prompt_eval_duration: int | None = None
    eval_count: _Count | None = None
    eval_duration: int | None = None
    error: Any = None


_MAX_SENTENCE = 300

_decode_openai = msgspec.json.Decoder(_OpenAiChunk).decode
_decode_ollama = msgspec.json.Decoder(_OllamaChunk).decode
_encode = msgspec.json.Encoder().encode


def splitter(dialect: Dialect) -> Splitter:
    return LineSplitter() if dialect == "ollama" else EventSplitter()


def reader(dialect: Dialect) -> Callable[[Answer, bytes, int], None]:
    return _read_ollama if dialect == "ollama" else _read_openai


def body(
    dialect: Dialect, model: str, task: Task, messages: tuple[Message, ...], without: Collection[str] = ()
) -> bytes:
    """The request's body; `without` names fields that this server has refused."""
    if dialect == "ollama":
        fields = _ollama_fields(model, task, messages)
    else:
        fields = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        if dialect == "chat":
            fields["messages"] = messages
        else:
            fields["prompt"] = "\n\n".join(message.content for message in messages)
        if task.max_tokens is not None:
            fields["max_tokens"] = task.max_tokens
        if task.temperature is not None:
            fields["temperature"] = task.temperature
        fields |= task.extra
    return _encode({key: value for key, value in fields.items() if key not in without})


def optional_fields(dialect: Dialect, task: Task) -> tuple[str, ...]:
    """What may be left out when a server refuses it."""
    return tuple(_ollama_extra(task)) if dialect == "ollama" else ("stream_options", *task.extra)


def _ollama_fields(model: str, task: Task, messages: tuple[Message, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if task.max_tokens is not None:
        options["num_predict"] = task.max_tokens
    if task.temperature is not None:
        options["temperature"] = task.temperature
    return {"model": model, "stream": True, "messages": messages, "options": options} | _ollama_extra(task)


def _ollama_extra(task: Task) -> dict[str, Any]:
    # It has no such switch: a length that is wanted exactly can only be asked for as a cap.
    return {key: value for key, value in task.extra.items() if key != "ignore_eos"}


def _read_openai(answer: Answer, payload: bytes, t: int) -> None:
    if payload == b"[DONE]":
        answer.finished = True
        return
    try:
        chunk = _decode_openai(payload)
    except _UNREADABLE as error:
        said = payload.strip()
        if said == b"[DONE]":
            answer.finished = True
        elif said:  # an event with nothing in it keeps a connection awake
            answer.fail("bad_json", f"{error}: {payload[:200]!r}")
        return
    if answer.t_first_event is None:
        answer.t_first_event = t
        answer.id = chunk.id or ""
    had_output = False
    for choice in chunk.choices or ():
        delta = choice.delta
        if delta is None:
            content, reasoning, other = choice.text, None, ""
        else:
            content = delta.content
            reasoning = delta.reasoning_content or delta.reasoning
            other = _tool_text(delta.tool_calls) if delta.tool_calls else ""
        if content or reasoning or other:
            had_output = True
            answer.output(t, content, reasoning, other)
        if choice.finish_reason is not None:
            answer.finish_reason = choice.finish_reason
    if chunk.usage is not None:
        _read_usage(answer, chunk.usage, had_output)
    if chunk.timings is not None:
        _read_timings(answer, chunk.timings)
    if chunk.error is not None:
        answer.fail("error_event", _sentence(chunk.error))


def _tool_text(calls: list[_ToolCall]) -> str:
    return "".join((call.function.name or "") + (call.function.arguments or "") for call in calls if call.function)


def _read_usage(answer: Answer, usage: _Usage, had_output: bool) -> None:
    if usage.completion_tokens is not None:
        # n = 2 and the like: llama.cpp sends one usage for each choice; the largest is the whole.
        answer.usage_tokens = max(usage.completion_tokens, answer.usage_tokens or 0)
        if had_output:
            answer.usage_after.append(usage.completion_tokens)
    if usage.prompt_tokens is not None:
        answer.tokens_in = usage.prompt_tokens
    if usage.prompt_tokens_details is not None:
        answer.cached_tokens = usage.prompt_tokens_details.cached_tokens
    if usage.completion_tokens_details is not None:
        answer.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens


def _read_timings(answer: Answer, timings: _Timings) -> None:
    answer.engine_tokens = timings.predicted_n
    answer.engine_decode_tps = timings.predicted_per_second
    if timings.prompt_ms is not None:
        answer.engine_prefill_s = timings.prompt_ms / 1e3
    if answer.cached_tokens is None:
        answer.cached_tokens = timings.cache_n


def _read_ollama(answer: Answer, payload: bytes, t: int) -> None:
    try:
        chunk = _decode_ollama(payload)
    except _UNREADABLE as error:
        answer.fail("bad_json", f"{error}: {payload[:200]!r}")
        return
    if answer.t_first_event is None:
        answer.t_first_event = t
    message = chunk.message
    if message is not None and (message.content or message.thinking or message.tool_calls):
        other = "".join(bytes(call).decode("utf-8", "replace") for call in message.tool_calls or ())
        answer.output(t, message.content, message.thinking, other)
    if chunk.error is not None:
        answer.fail("error_event", _sentence(chunk.error))
    if chunk.done:
        answer.finished = True
        answer.finish_reason = chunk.done_reason or "stop"
        answer.engine_tokens = chunk.eval_count
        answer.tokens_in = chunk.prompt_eval_count
        if chunk.eval_count and chunk.eval_duration:
            answer.engine_decode_tps = chunk.eval_count / (chunk.eval_duration / 1e9)
        if chunk.prompt_eval_duration:
            answer.engine_prefill_s = chunk.prompt_eval_duration / 1e9


def error_text(data: bytes) -> str:
    """The sentence in an error body: `{"error":{"message":…}}`, `{"error":…}`, `{"detail":…}` or plain text."""
    try:
        found = msgspec.json.decode(data)
    except _UNREADABLE:
        return data[:_MAX_SENTENCE].decode("utf-8", "replace").strip()
    return _sentence(found)


def _sentence(found: Any) -> str:
    for key in ("error", "detail", "message"):
        while isinstance(found, dict) and key in found:
            found = found[key]
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return text[:_MAX_SENTENCE]
