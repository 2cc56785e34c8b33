"""Validate requests as vLLM does, and determine the prompt and the answer; the bodies are those of each API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from swarmtui.sim import tokens
from swarmtui.sim.presets import Preset

T = TypeVar("T")

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
    tool_calls: list[Any] = []

    def pair(self) -> tuple[str, str]:
        text = "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""
        return self.role, text + _compact(self.tool_calls)


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Any] = []
    add_generation_prompt: bool = True


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request, with the answer that it will get."""

    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    prompt: list[str]
    words: tokens.AnswerText
    output_tokens: int
    reasoning_tokens: int
    finish_reason: Literal["stop", "length"]


def tokenize(body: bytes, preset: Preset) -> bytes:
    request = decode(body, TokenizeBody)
    check_model(request.model, preset)
    if request.messages is not None:
        pairs = (message.pair() for message in request.messages)
        prompt = chat_prompt(pairs, request.tools, open_answer=request.add_generation_prompt)
    elif request.prompt is not None:
        prompt = tokens.pieces(request.prompt)
    else:
        raise RequestRefused(400, "Give a prompt or messages.", param="prompt")
    answer = {"count": len(prompt), "max_model_len": preset.max_model_len, "tokens": tokens.token_ids(prompt)}
    return msgspec.json.encode({**answer, "token_strs": None})


def chat_prompt(messages: Iterable[tuple[str, str]], tools: list[Any], *, open_answer: bool = True) -> list[str]:
    """Return the tokens of messages; tool definitions come first, as chat templates put them."""
    defined = [("system", _compact(tools))] if tools else []
    return tokens.chat_pieces([*defined, *messages], open_answer=open_answer)


def plain_text(content: Any) -> str:
    """Return a content field as text: a string, or parts of which those without text count as JSON."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    return "".join(text if isinstance(text, str) else _compact([part]) for part, text in zip(parts, texts, strict=True))


def _compact(values: list[Any]) -> str:
    return msgspec.json.encode(values).decode() if values else ""


def plan_answer(
    prompt: list[str], cap: int | None, preset: Preset, seed: int, *, stream: bool, exact: bool = False
) -> ParsedRequest:
    """Check the lengths as vLLM does, and determine the answer."""
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
    return answer_within(prompt, cap or room, preset, seed, stream=stream, exact=exact)


def answer_within(
    prompt: list[str], cap: int, preset: Preset, seed: int, *, stream: bool, exact: bool = False
) -> ParsedRequest:
    words = tokens.AnswerText(prompt, preset.output, seed)
    length = cap if exact else min(words.natural_length, cap)
    reasoning = preset.reasoning
    return ParsedRequest(
        stream=stream,
        prompt=prompt,
        words=words,
        output_tokens=length,
        reasoning_tokens=min(length, max(reasoning.tokens, round(reasoning.share * length))),
        finish_reason="length" if exact or words.natural_length > cap else "stop",
    )


def check_model(name: str | None, preset: Preset) -> None:
    if name and name != preset.model:
        message = f"The model `{name}` does not exist. Valid aliases: {preset.model}."
        raise RequestRefused(404, message, kind="NotFoundError", param="model")


def decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.?(.*)`", str(error))
        param = f"body.{where.group(1)}" if where else "body"
        raise RequestRefused(400, f"1 validation error:\n  {error}", kind="Bad Request", param=param) from None
    except msgspec.DecodeError as error:
        message = f"1 validation error:\n  JSON decode error: {error}"
        raise RequestRefused(400, message, kind="Bad Request", param="body") from None
