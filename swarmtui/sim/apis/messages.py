"""Anthropic Messages, in the format of vLLM."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from swarmtui.sim.presets import Preset
from swarmtui.sim.replies import FAILURE, Reply, SimApi, Stream, WholeReply
from swarmtui.sim.requests import (
    Cap,
    ParsedRequest,
    RequestRefused,
    chat_prompt,
    check_model,
    decode,
    plain_text,
    plan_answer,
)

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


class MessagesTurn(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: Any


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    messages: Annotated[list[MessagesTurn], Meta(min_length=1)]
    max_tokens: Cap
    system: Any = None
    tools: list[Any] = []
    stream: bool = False
    ignore_eos: bool = False


def _parse(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = decode(body, MessagesBody)
    check_model(request.model, preset)
    turns = [(turn.role, plain_text(turn.content)) for turn in request.messages]
    if request.system:
        turns.insert(0, ("system", plain_text(request.system)))
    prompt = chat_prompt(turns, request.tools)
    return plan_answer(prompt, request.max_tokens, preset, seed, stream=request.stream, exact=request.ignore_eos)


def _usage(reply: Reply, produced: int) -> dict[str, int]:
    """Return the counts; input tokens are those that were not cached."""
    usage = {"input_tokens": reply.job.prompt_tokens, "output_tokens": produced}
    if reply.preset.prefix_cache:
        usage["input_tokens"] -= reply.job.cached
        usage |= {"cache_read_input_tokens": reply.job.cached, "cache_creation_input_tokens": 0}
    return usage


def _message(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": reply.preset.model,
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop(reply: Reply) -> dict[str, Any]:
    return {"stop_reason": _STOP_REASONS[reply.request.finish_reason], "stop_sequence": None}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


class MessagesStream(Stream):
    """Text and thinking are content blocks, each with a start and an end."""

    _block = -1
    _thinking = False

    def _open(self) -> None:
        self._emit(_event("message_start", message=_message(self) | {"usage": _usage(self, 0)}))

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        change = b""
        if self._block < 0 or reasoning != self._thinking:
            change = self._end_block()
            self._block, self._thinking = self._block + 1, reasoning
            field = "thinking" if reasoning else "text"
            block = {"type": field, field: ""}
            change += _event("content_block_start", index=self._block, content_block=block)
            head = f'{{"type":"content_block_delta","index":{self._block},"delta":{{"type":"{field}_delta","{field}":"'
            self._head = b"event: content_block_delta\ndata: " + head.encode()
        return change + self._head + self.request.words.text(start, count) + b'"}}\n\n'

    def _end_block(self) -> bytes:
        return b"" if self._block < 0 else _event("content_block_stop", index=self._block)

    def _close(self) -> None:
        self._emit(self._end_block() + _event("message_delta", delta=_stop(self), usage=_usage(self, self.sent)))
        self._emit(_event("message_stop"))

    def _error(self) -> bytes:
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(MessagesWhole.error(FAILURE))


class MessagesWhole(WholeReply):
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]:
        blocks = [{"type": "thinking", "thinking": reasoning}] if reasoning else []
        blocks += [{"type": "text", "text": content}] if content else []
        usage = _usage(self, self.request.output_tokens)
        return _message(self) | {"content": blocks} | _stop(self) | {"usage": usage}

    @staticmethod
    def error(refusal: RequestRefused) -> dict[str, Any]:
        return {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}


API = SimApi(parse=_parse, stream=MessagesStream, whole=MessagesWhole)
