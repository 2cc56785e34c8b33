"""Parse requests of the three dialects, with the same validation as vLLM and Ollama."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from swarmtui.sim import tokens
from swarmtui.sim.presets import Preset

T = TypeVar("T")

Dialect = Literal["chat", "completions", "ollama"]
Cap = Annotated[int, Meta(ge=1)]


class RequestRefused(Exception):
    """A request that gets an error response, with the message of the simulated server."""

    def __init__(self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "text"
    text: str = ""


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[ContentPart] | None = None

    def pair(self) -> tuple[str, str]:
        if isinstance(self.content, list):
            return self.role, "".join(part.text for part in self.content)
        return self.role, self.content or ""


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


class CompletionsBody(Completion, frozen=True, kw_only=True):
    prompt: str | list[str | int]


class OllamaOptions(msgspec.Struct, frozen=True, kw_only=True):
    num_predict: int | None = None


class OllamaBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    options: OllamaOptions | None = None


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool = True


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request, with the answer that it will get."""

    dialect: Dialect
    stream: bool
    include_usage: bool
    continuous_usage: bool
    prompt: list[str]
    words: tokens.AnswerText
    output_tokens: int
    reasoning_tokens: int
    finish_reason: Literal["stop", "length"]


def parse_chat(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = _decode(body, ChatBody)
    _check_model(request.model, preset)
    prompt = tokens.chat_pieces(message.pair() for message in request.messages)
    return _openai("chat", request, prompt, request.max_completion_tokens or request.max_tokens, preset, seed)


def parse_completions(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = _decode(body, CompletionsBody)
    _check_model(request.model, preset)
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
    return _openai("completions", request, prompt, request.max_tokens, preset, seed)


def parse_ollama(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = _decode(body, OllamaBody)
    if request.model != preset.model:
        raise RequestRefused(404, f"model '{request.model}' not found")
    prompt = tokens.chat_pieces(message.pair() for message in request.messages)
    cap = request.options.num_predict if request.options else None
    room = max(preset.max_model_len - len(prompt), 1)
    cap = room if cap is None or cap < 1 else min(cap, room)
    return _parsed("ollama", request.stream is not False, prompt, cap, preset, seed)


def tokenize(body: bytes, preset: Preset) -> bytes:
    request = _decode(body, TokenizeBody)
    _check_model(request.model, preset)
    if request.messages is not None:
        prompt = tokens.chat_pieces(
            (message.pair() for message in request.messages), open_answer=request.add_generation_prompt
        )
    elif request.prompt is not None:
        prompt = tokens.pieces(request.prompt)
    else:
        raise RequestRefused(400, "Give a prompt or messages.", param="prompt")
    answer = {"count": len(prompt), "max_model_len": preset.max_model_len, "tokens": tokens.token_ids(prompt)}
    return msgspec.json.encode({**answer, "token_strs": None})


def _openai(
    dialect: Dialect, request: Completion, prompt: list[str], cap: int | None, preset: Preset, seed: int
) -> ParsedRequest:
    room = preset.max_model_len - len(prompt)
    if room < 1:
        raise RequestRefused(
            400,
            f"This model's maximum context length is {preset.max_model_len} tokens. However, your prompt contains "
            f"{len(prompt)} input tokens. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    if cap is not None and cap > room:
        raise RequestRefused(
            400,
            f"max_tokens={cap} cannot be greater than {room}, what max_model_len={preset.max_model_len} leaves beside "
            f"{len(prompt)} input tokens. Please request fewer output tokens.",
            param="max_tokens",
        )
    options = request.stream_options or StreamOptions()
    parsed = _parsed(dialect, bool(request.stream), prompt, cap or room, preset, seed, exact=request.ignore_eos)
    return msgspec.structs.replace(
        parsed,
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
    )


def _parsed(
    dialect: Dialect, stream: bool, prompt: list[str], cap: int, preset: Preset, seed: int, *, exact: bool = False
) -> ParsedRequest:
    words = tokens.AnswerText(prompt, preset.output, seed)
    length = cap if exact else min(words.natural_length, cap)
    reasoning = preset.reasoning
    return ParsedRequest(
        dialect=dialect,
        stream=stream,
        include_usage=False,
        continuous_usage=False,
        prompt=prompt,
        words=words,
        output_tokens=length,
        reasoning_tokens=min(length, max(reasoning.tokens, round(reasoning.share * length))),
        finish_reason="length" if exact or words.natural_length > cap else "stop",
    )


def _check_model(name: str | None, preset: Preset) -> None:
    if name and name != preset.model:
        message = f"The model `{name}` does not exist. Valid aliases: {preset.model}."
        raise RequestRefused(404, message, kind="NotFoundError", param="model")


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.?(.*)`", str(error))
        param = f"body.{where.group(1)}" if where else "body"
        raise RequestRefused(400, f"1 validation error:\n  {error}", kind="Bad Request", param=param) from None
    except msgspec.DecodeError as error:
        message = f"1 validation error:\n  JSON decode error: {error}"
        raise RequestRefused(400, message, kind="Bad Request", param="body") from None
