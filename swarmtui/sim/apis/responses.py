"""OpenAI Responses, in the format of vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from swarmtui.sim.apis.openai import OpenAiWhole
from swarmtui.sim.presets import Preset
from swarmtui.sim.replies import FAILURE, Reply, SimApi, Stream
from swarmtui.sim.requests import (
    Cap,
    ParsedRequest,
    chat_prompt,
    check_model,
    decode,
    plain_text,
    plan_answer,
)


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Cap | None = None
    tools: list[Any] = []
    stream: bool | None = None
    ignore_eos: bool = False


def _parse(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = decode(body, ResponsesBody)
    check_model(request.model, preset)
    prompt = chat_prompt(_turns(request), request.tools)
    stream, exact = bool(request.stream), request.ignore_eos
    return plan_answer(prompt, request.max_output_tokens, preset, seed, stream=stream, exact=exact)


def _turns(request: ResponsesBody) -> Iterator[tuple[str, str]]:
    """Yield role and text of each item; tool calls and their results count as JSON."""
    if request.instructions:
        yield "system", request.instructions
    if isinstance(request.input, str):
        yield "user", request.input
        return
    for item in request.input:
        if item.get("type", "message") == "message":
            yield str(item.get("role", "user")), plain_text(item.get("content"))
        else:
            yield "tool", plain_text([item])


def _document(reply: Reply, output: list[dict[str, Any]], status: str) -> dict[str, Any]:
    cut = status != "in_progress" and reply.request.finish_reason == "length"
    return {
        "id": f"resp_{reply.id}",
        "created_at": reply.created,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": reply.preset.model,
        "object": "response",
        "output": output,
        "status": "incomplete" if cut else status,
        "usage": None if status == "in_progress" else _usage(reply),
    }


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, produced = reply.job.prompt_tokens, reply.request.output_tokens
    usage: dict[str, Any] = {"input_tokens": prompt, "output_tokens": produced, "total_tokens": prompt + produced}
    if reply.preset.prefix_cache:
        usage["input_tokens_details"] = {"cached_tokens": reply.job.cached, "cache_write_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": reply.request.reasoning_tokens}
    return usage


def _item(reply: Reply, reasoning: bool, text: str | None, status: str) -> dict[str, Any]:
    part = {"type": "reasoning_text" if reasoning else "output_text", "text": text}
    content = [] if text is None else [part]
    if reasoning:
        return {"id": f"rs_{reply.id}", "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "content": content, "status": status}


class ResponsesStream(Stream):
    """Text and reasoning are output items; each event has a number."""

    _number = 0
    _reasoning: bool | None = None
    _item_start = 0

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = msgspec.json.encode({**fields, "sequence_number": self._number, "type": kind})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)

    def _open(self) -> None:
        started = _document(self, [], "in_progress")
        self._emit(self._event("response.created", response=started))
        self._emit(self._event("response.in_progress", response=started))

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        change = b""
        if reasoning is not self._reasoning:
            change = self._end_item(start)
            self._reasoning, self._item_start = reasoning, start
            item = _item(self, reasoning, None, "in_progress")
            change += self._event("response.output_item.added", item=item, output_index=self._index)
            kind = "response.reasoning_text.delta" if reasoning else "response.output_text.delta"
            place = f'"content_index":0,"item_id":"{item["id"]}","output_index":{self._index}'
            self._head = f'event: {kind}\ndata: {{{place},"delta":"'.encode()
            self._tail = f',"type":"{kind}"}}\n\n'.encode()
        number, self._number = self._number, self._number + 1
        text = self.request.words.text(start, count)
        return change + self._head + text + b'","sequence_number":%d' % number + self._tail

    @property
    def _index(self) -> int:
        return int(not self._reasoning and self.request.reasoning_tokens > 0)

    def _text(self, end: int) -> str:
        return self.request.words.text(self._item_start, end - self._item_start).decode()

    def _end_item(self, end: int) -> bytes:
        if self._reasoning is None:
            return b""
        item = _item(self, self._reasoning, self._text(end), "completed")
        return self._event("response.output_item.done", item=item, output_index=self._index)

    def _close(self) -> None:
        self._emit(self._end_item(self.sent))
        self._emit(self._event("response.completed", response=_whole(self)))

    def _error(self) -> bytes:
        failed = _document(self, [], "failed") | {"error": {"code": "server_error", "message": FAILURE.message}}
        return self._event("response.failed", response=failed)


def _whole(reply: Reply) -> dict[str, Any]:
    words, reasoned, total = reply.request.words, reply.request.reasoning_tokens, reply.request.output_tokens
    output = [_item(reply, True, words.text(0, reasoned).decode(), "completed")] if reasoned else []
    if total > reasoned:
        output.append(_item(reply, False, words.text(reasoned, total - reasoned).decode(), "completed"))
    return _document(reply, output, "completed")


class ResponsesWhole(OpenAiWhole):
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]:
        return _whole(self)


API = SimApi(parse=_parse, stream=ResponsesStream, whole=ResponsesWhole)
