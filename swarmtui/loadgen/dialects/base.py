"""Define what an API dialect provides, and what all dialects share: chunk base class, body encoding, error messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, NamedTuple

import msgspec

from swarmtui.loadgen.response import Response
from swarmtui.loadgen.sse import Splitter
from swarmtui.model.workload import Message, Task

# Some servers write whole numbers as 5.0. Above 2**53 they are not exact in JSON, and no token count is that large.
Count = Annotated[float, msgspec.Meta(ge=0, le=1 << 53, multiple_of=1)]

# Raised by a decoder for invalid JSON or an unexpected type, invalid UTF-8, and endless nesting.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


_encode = msgspec.json.Encoder().encode


class Chunk(msgspec.Struct, gc=False):
    """Base of decoded chunks. They declare only the fields that are used; the decoder skips all others."""


class ApiDialect(NamedTuple):
    """One HTTP API: how its requests are built and how its streamed responses are read.

    `read` is called for each payload that the splitter returns, with the payload's arrival time. `models_path` lists
    the served models, and `auth_headers` has what each request carries besides the user's own headers. The fields are
    those of a request body: `stream_fields` in every one, `prompt_fields` from the messages, `sampling_fields` from the
    task; `tokenize_fields` are those of a request to `/tokenize`. `prompt_tokens` reads a response that is not
    streamed.
    """

    accept: str
    models_path: str
    auth_headers: Callable[[str | None], dict[str, str]]
    splitter: Callable[[], Splitter]
    read: Callable[[Response, bytes, int], None]
    stream_fields: dict[str, Any]
    prompt_fields: Callable[[tuple[Message, ...]], dict[str, Any]]
    sampling_fields: Callable[[Task], dict[str, Any]]
    tokenize_fields: Callable[[tuple[Message, ...]], dict[str, Any]]
    prompt_tokens: Callable[[Any], int]

    def body(self, model: str, task: Task, messages: tuple[Message, ...], omit: Collection[str] = ()) -> bytes:
        """Encode the request body, without the fields named in `omit`."""
        fields = {"model": model} | self.stream_fields | self.prompt_fields(messages) | self.sampling_fields(task)
        return _encode({name: value for name, value in fields.items() if name not in omit})

    def optional_fields(self, task: Task) -> tuple[str, ...]:
        """Name the fields that can be omitted if a server rejects them."""
        sent = self.sampling_fields(task)
        return (
            *(name for name in self.stream_fields if name != "stream"),
            *(name for name in task.extra if name in sent),
        )


def bearer(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def chat_messages(messages: tuple[Message, ...]) -> dict[str, Any]:
    return {"messages": messages}


def split_system(messages: tuple[Message, ...]) -> tuple[str, list[Message]]:
    """Separate the system prompt from the conversation, for APIs that have a field for it."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    return system, [message for message in messages if message.role != "system"]


def to_int(count: float | None) -> int | None:
    return None if count is None else int(count)


def error_text(data: bytes) -> str:
    """Extract the message of an error body: `{"error":{"message":…}}`, `{"error":…}`, `{"detail":…}` or plain text."""
    try:
        document = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return data.decode("utf-8", "replace").strip()
    return error_message(document)


def error_message(document: Any) -> str:
    for key in ("error", "detail", "message"):
        while isinstance(document, dict) and key in document:
            document = document[key]
    return document if isinstance(document, str) else msgspec.json.encode(document).decode()
