"""OpenAI chat and completions, in the format of vLLM."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from swarmtui.sim import tokens
from swarmtui.sim.presets import Preset
from swarmtui.sim.replies import FAILURE, Reply, SimApi, Stream, WholeReply
from swarmtui.sim.requests import (
    Cap,
    ChatMessage,
    ParsedRequest,
    RequestRefused,
    chat_prompt,
    check_model,
    decode,
    plan_answer,
)


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that chat and completions share."""

    model: str | None = None
    max_tokens: Cap | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class ChatBody(Completion, frozen=True, kw_only=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Cap | None = None
    tools: list[Any] = []


class CompletionsBody(Completion, frozen=True, kw_only=True):
    prompt: str | list[str | int]


def parse_chat(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = decode(body, ChatBody)
    check_model(request.model, preset)
    prompt = chat_prompt((message.pair() for message in request.messages), request.tools)
    return _plan(request, prompt, request.max_completion_tokens or request.max_tokens, preset, seed)


def _parse_completions(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = decode(body, CompletionsBody)
    check_model(request.model, preset)
    if isinstance(request.prompt, str):
        prompt = tokens.pieces(request.prompt)
    elif all(isinstance(piece, int) for piece in request.prompt):
        prompt = [str(piece) for piece in request.prompt]
    elif len(request.prompt) == 1:
        prompt = tokens.pieces(str(request.prompt[0]))
    else:
        raise RequestRefused(400, "The simulator accepts one prompt per request.", param="prompt")
    if not prompt:
        raise RequestRefused(400, "The prompt is empty.", param="prompt")
    return _plan(request, prompt, request.max_tokens, preset, seed)


def _plan(request: Completion, prompt: list[str], cap: int | None, preset: Preset, seed: int) -> ParsedRequest:
    options = request.stream_options or StreamOptions()
    parsed = plan_answer(prompt, cap, preset, seed, stream=bool(request.stream), exact=request.ignore_eos)
    return msgspec.structs.replace(
        parsed,
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
    )


def _usage(reply: Reply, produced: int) -> dict[str, Any]:
    prompt = reply.job.prompt_tokens
    usage: dict[str, Any] = {"prompt_tokens": prompt, "total_tokens": prompt + produced}
    usage["completion_tokens"] = produced
    if reply.preset.prefix_cache:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.job.cached}
    if reply.request.reasoning_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": min(produced, reply.request.reasoning_tokens)}
    return usage


class _OpenAiStream(Stream):
    """Server-sent events; the constant parts of the events are built once."""

    kind: str
    prefix: str

    def start(self) -> None:
        super().start()
        same = f'"id":"{self.prefix}-{self.id}","object":"{self.kind}","created":{self.created}'
        self._head = f'data: {{{same},"model":"{self.preset.model}","choices":['.encode()
        self._content, self._reasoning, after = self._parts()
        self._more = after + b"null}]"
        self._last = after + b'"%b","stop_reason":null}]' % self.request.finish_reason.encode()

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        """Return what precedes content and reasoning, and what follows them."""
        raise NotImplementedError

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        produced = start + count
        head = self._reasoning if reasoning else self._content
        end = self._last if produced >= self.request.output_tokens else self._more
        return head + self.request.words.text(start, count) + end + self._tail(produced)

    def _tail(self, produced: int) -> bytes:
        if not self.request.continuous_usage:
            return b"}\n\n"
        return b',"usage":%b}\n\n' % msgspec.json.encode(_usage(self, produced))

    def _close(self) -> None:
        if self.request.include_usage:
            self._emit(self._head + b'],"usage":%b}\n\n' % msgspec.json.encode(_usage(self, self.sent)))
        self._emit(b"data: [DONE]\n\n")

    def _error(self) -> bytes:
        return b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(OpenAiWhole.error(FAILURE))


class ChatStream(_OpenAiStream):
    kind, prefix = "chat.completion.chunk", "chatcmpl"

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        field = self.preset.reasoning.field.encode()
        content = self._head + b'{"index":0,"delta":{"content":"'
        return content, self._head + b'{"index":0,"delta":{"%b":"' % field, b'"},"logprobs":null,"finish_reason":'

    def _open(self) -> None:
        role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        self._emit(self._head + role + self._tail(0))


class CompletionsStream(_OpenAiStream):
    kind, prefix = "text_completion", "cmpl"

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        text = self._head + b'{"index":0,"text":"'
        return text, text, b'","logprobs":null,"finish_reason":'


class OpenAiWhole(WholeReply):
    @staticmethod
    def error(refusal: RequestRefused) -> dict[str, Any]:
        error = {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.status}
        return {"error": error}

    def _envelope(self, prefix: str, kind: str, answer: dict[str, Any]) -> dict[str, Any]:
        end = {"logprobs": None, "finish_reason": self.request.finish_reason, "stop_reason": None}
        return {
            "id": f"{prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.preset.model,
            "choices": [{"index": 0} | answer | end],
            "usage": _usage(self, self.request.output_tokens),
        }


class ChatWhole(OpenAiWhole):
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": content, self.preset.reasoning.field: reasoning}
        return self._envelope("chatcmpl", "chat.completion", {"message": message})


class CompletionsWhole(OpenAiWhole):
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]:
        return self._envelope("cmpl", "text_completion", {"text": (reasoning or "") + content})


CHAT = SimApi(parse=parse_chat, stream=ChatStream, whole=ChatWhole)
COMPLETIONS = SimApi(parse=_parse_completions, stream=CompletionsStream, whole=CompletionsWhole)
