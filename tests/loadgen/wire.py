"""The bytes in which each API streams an answer, for servers of tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from swarmtui.model.endpoint import PATHS, Dialect
from tests.loadgen.raw_server import DONE, ROLE, RawCall, delta, event, usage


class Wire(NamedTuple):
    """The parts of a stream: `start`, a `word` for each token, and `end` with the number of tokens.

    `last` is the event after which nothing is read; `raw` frames any payload.
    """

    content_type: str
    start: bytes
    word: Callable[[str], bytes]
    end: Callable[[int], bytes]
    last: bytes
    error: Callable[[str], bytes]
    raw: Callable[[bytes], bytes]


def _data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


def _line(payload: bytes) -> bytes:
    return payload + b"\n"


def _typed(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def _chat_error(message: str) -> bytes:
    return event({"error": {"message": message}})


def _messages_end(tokens: int) -> bytes:
    counts = {"input_tokens": 7, "output_tokens": tokens}
    stop = {"stop_reason": "end_turn"}
    return _typed("content_block_stop", index=0) + _typed("message_delta", delta=stop, usage=counts) + _MESSAGE_STOP


def _responses_end(tokens: int) -> bytes:
    counts = {"input_tokens": 7, "output_tokens": tokens, "output_tokens_details": {"reasoning_tokens": 0}}
    final: dict[str, Any] = {"status": "completed", "incomplete_details": None, "output": [], "usage": counts}
    return _typed("response.completed", response=final)


def _ollama(**fields: Any) -> bytes:
    return _line(json.dumps(fields, ensure_ascii=False).encode())


def _ollama_end(tokens: int) -> bytes:
    return _ollama(done=True, done_reason="stop", prompt_eval_count=7, eval_count=tokens)


_STREAM = "text/event-stream"
_MESSAGE_STOP = _typed("message_stop")

WIRES: dict[Dialect, Wire] = {
    "chat": Wire(
        _STREAM,
        start=ROLE,
        word=lambda text: delta(content=text),
        end=lambda tokens: delta("stop") + usage(tokens) + DONE,
        last=DONE,
        error=_chat_error,
        raw=_data,
    ),
    "completions": Wire(
        _STREAM,
        start=b"",
        word=lambda text: event({"id": "answer", "choices": [{"index": 0, "text": text}]}),
        end=lambda tokens: event({"choices": [{"text": "", "finish_reason": "stop"}]}) + usage(tokens) + DONE,
        last=DONE,
        error=_chat_error,
        raw=_data,
    ),
    "messages": Wire(
        _STREAM,
        start=_typed("message_start", message={"id": "answer", "usage": {"input_tokens": 7, "output_tokens": 0}})
        + _typed("ping")
        + _typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        word=lambda text: _typed("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        end=_messages_end,
        last=_MESSAGE_STOP,
        error=lambda message: _typed("error", error={"type": "api_error", "message": message}),
        raw=_data,
    ),
    "responses": Wire(
        _STREAM,
        start=_typed("response.created", response={"id": "answer", "status": "in_progress"}),
        word=lambda text: _typed("response.output_text.delta", delta=text, item_id="m"),
        end=_responses_end,
        last=_responses_end(1),
        error=lambda message: _typed("response.failed", response={"status": "failed", "error": {"message": message}}),
        raw=_data,
    ),
    "ollama": Wire(
        "application/x-ndjson",
        start=b"",
        word=lambda text: _ollama(message={"role": "assistant", "content": text}, done=False),
        end=_ollama_end,
        last=_ollama_end(1),
        error=lambda message: _ollama(error=message),
        raw=_line,
    ),
}


def wire_of(call: RawCall) -> Wire:
    """Return the wire of the API that a request is sent to."""
    path = call.request_line.split()[1]
    return next(WIRES[dialect] for dialect in PATHS if PATHS[dialect] == path)
