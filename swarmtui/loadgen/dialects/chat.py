"""OpenAI chat completions."""

from __future__ import annotations

import re
from itertools import repeat
from typing import Any

import msgspec

from swarmtui.loadgen.dialects.base import (
    DONE,
    ApiDialect,
    Chunk,
    Count,
    decode_payload,
    error_message,
    error_text,
    to_int,
)
from swarmtui.loadgen.dialects.engine_timings import read_sglang_meta, read_vllm_metrics
from swarmtui.loadgen.response import Response
from swarmtui.loadgen.sse import ErrorPayload
from swarmtui.model.base import DECODE_ERRORS
from swarmtui.model.record import EngineTimings

_NOTHING = msgspec.Raw()


class _Function(Chunk):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Chunk):
    function: _Function | None = None


class _Delta(Chunk):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Chunk):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class UsageDetails(Chunk):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Usage(Chunk):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None


class Timings(Chunk):
    """llama.cpp's own measurement of a request."""

    prompt_n: Count | None = None
    prompt_ms: float | None = None
    predicted_n: Count | None = None
    predicted_per_second: float | None = None
    cache_n: Count | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class _OpenAiChunk(Chunk):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    metrics: msgspec.Raw = _NOTHING
    meta_info: msgspec.Raw = _NOTHING
    error: Any = None


class _ErrorObject(Chunk):
    """`{"object": "error", "message": …}`, which some servers send instead of `{"error": …}`."""

    object: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_OpenAiChunk).decode
_decode_all = msgspec.json.Decoder(list[_OpenAiChunk]).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_error_object = msgspec.json.Decoder(_ErrorObject).decode

_find_content = re.compile(rb'"content": ?"').search
_json_text = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL).match


def _read_chunks(response: Response, payloads: list[bytes], times: list[int]) -> None:
    """Decode only the texts of payloads that are otherwise equal; else all as one array; else one by one."""
    if payloads and payloads[-1] == DONE:
        _read_chunks(response, payloads[:-1], times[:-1])
        response.finished = True
        return
    if len(payloads) > 1 and not response.finished and ErrorPayload not in map(type, payloads):
        if response.times and (texts := _texts_of_equals(payloads)) is not None:
            response.add_contents(times, texts)
            return
        try:
            chunks = _decode_all(b"[%b]" % b",".join(payloads))
        except DECODE_ERRORS:
            chunks = []
        if len(chunks) == len(payloads):
            contents = _contents(chunks) if response.times else []
            if contents:
                response.add_contents(times[: len(contents)], contents)
            for chunk, payload, t in list(zip(chunks, payloads, times, strict=True))[len(contents) :]:
                _add_chunk(response, chunk, payload, t)
            return
    for payload, t in zip(payloads, times, strict=True):
        if type(payload) is not ErrorPayload and payload.strip() == DONE:
            response.finished = True
        elif (decoded := decode_payload(_decode, response, payload)) is not None:
            _add_chunk(response, decoded, payload, t)


def _texts_of_equals(payloads: list[bytes]) -> list[str] | None:
    """Return the texts of payloads that are equal but for their content, without decoding the rest of each.

    Return None if they are not, or have anything but content.
    """
    first = payloads[0]
    key = _find_content(first)
    text = _json_text(first, key.end()) if key is not None else None
    if text is None or first.count(b'"content"') > 1:
        return None
    start, before, after = text.start(), first[: text.start()], first[text.end() :]
    if not all(map(bytes.startswith, payloads, repeat(before))) or not all(
        map(bytes.endswith, payloads, repeat(after))
    ):
        return None
    end = -len(after)
    try:
        texts = _decode_texts(b'["%b"]' % b'","'.join([payload[start:end] for payload in payloads]))
        whole = len(texts) == len(payloads) and all(texts) and _contents([_decode(first)])
    except DECODE_ERRORS:
        return None
    return texts if whole else None


def _contents(chunks: list[_OpenAiChunk]) -> list[str]:
    """Return the text of chunks that have nothing else, as nearly all do, up to the first other one."""
    contents: list[str] = []
    for chunk in chunks:
        if chunk.choices is None or len(chunk.choices) != 1 or chunk.usage or chunk.timings or chunk.error is not None:
            break
        if chunk.metrics is not _NOTHING or chunk.meta_info is not _NOTHING:
            break
        choice = chunk.choices[0]
        delta = choice.delta
        if delta is None or not delta.content or choice.finish_reason is not None:
            break
        if delta.reasoning_content or delta.reasoning or delta.tool_calls:
            break
        contents.append(delta.content)
    return contents


def _add_chunk(response: Response, chunk: _OpenAiChunk, payload: bytes, t: int) -> None:
    if response.t_first_event is None:
        response.t_first_event = t
        response.id = chunk.id or ""
    had_output = False
    for choice in chunk.choices or ():
        delta = choice.delta
        if delta is None:
            content, reasoning, other = choice.text, None, ""
        else:
            content = delta.content
            reasoning = delta.reasoning_content or delta.reasoning
            other = ""
            for call in delta.tool_calls or ():
                if call.function is not None:
                    other += (call.function.name or "") + (call.function.arguments or "")
        if content or reasoning or other:
            had_output = True
            response.add_output(t, content, reasoning, other)
        elif choice.finish_reason not in (None, "length") or (content == "" and (delta is None or delta.role is None)):
            # Stands for a token: the end of the sequence, or part of a character. The role may precede the first token,
            # and a finish reason without text may follow the last one if that reached the limit.
            response.add_empty()
            response.t_finish = t
        if choice.finish_reason is not None:
            response.finish_reason = choice.finish_reason
    if chunk.usage is not None:
        read_usage(response, chunk.usage, had_output)
    if chunk.timings is not None:
        read_timings(response, chunk.timings)
    if chunk.metrics is not _NOTHING:
        read_vllm_metrics(response, chunk.metrics)
    if chunk.meta_info is not _NOTHING:
        read_sglang_meta(response, chunk.meta_info)
    if chunk.error is not None:
        response.fail("error_event", error_message(chunk.error))
    elif not chunk.choices and bytes(_decode_error_object(payload).object) == b'"error"':
        response.fail("error_event", error_text(payload))


def read_usage(response: Response, usage: Usage, had_output: bool) -> None:
    if usage.completion_tokens is not None:
        tokens = int(usage.completion_tokens)
        # With n > 1 llama.cpp sends one usage per choice; the largest is the total.
        response.usage_tokens = max(tokens, response.usage_tokens or 0)
        if had_output:
            response.usage_after.append(tokens)
    if usage.prompt_tokens is not None:
        response.tokens_in = int(usage.prompt_tokens)
    if usage.prompt_tokens_details is not None:
        response.cached_tokens = to_int(usage.prompt_tokens_details.cached_tokens)
        response.cache_write_tokens = to_int(usage.prompt_tokens_details.cache_write_tokens)
    if usage.completion_tokens_details is not None:
        response.reasoning_tokens = to_int(usage.completion_tokens_details.reasoning_tokens)


def read_timings(response: Response, timings: Timings) -> None:
    response.engine_tokens = to_int(timings.predicted_n)
    response.count_hidden_first(response.engine_tokens)
    response.engine_decode_tps = timings.predicted_per_second
    if timings.prompt_ms is not None:
        response.engine_prefill_s = timings.prompt_ms / 1e3
    if response.cached_tokens is None:
        response.cached_tokens = to_int(timings.cache_n)
    response.engine = EngineTimings(
        computed_tokens=to_int(timings.prompt_n),
        local_cached_tokens=to_int(timings.cache_n),
        draft_tokens=to_int(timings.draft_n),
        accepted_tokens=to_int(timings.draft_n_accepted),
    )


DIALECT = ApiDialect(
    read=_read_chunks,
    last_event=b"data: [DONE]\n\n",
    stream_fields={"stream": True, "stream_options": {"include_usage": True}},
)
