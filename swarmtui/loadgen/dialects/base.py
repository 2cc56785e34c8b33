"""Define what an API dialect provides; the defaults suit APIs that resemble OpenAI's chat API."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from swarmtui.loadgen.response import Response
from swarmtui.loadgen.sse import ErrorPayload, EventSplitter, Splitter
from swarmtui.model.base import DECODE_ERRORS
from swarmtui.model.workload import Message, Task, Tool

# Some servers write whole numbers as 5.0. Above 2**53 they are not exact in JSON, and no token count is that large.
Count = Annotated[float, msgspec.Meta(ge=0, le=1 << 53, multiple_of=1)]

# The last payload of OpenAI-compatible streams.
DONE = b"[DONE]"

_encode = msgspec.json.Encoder().encode


ToolChoice = Literal["auto", "none"]
_TOOL_CHOICE = "tool_choice"


class Chunk(msgspec.Struct, gc=False):
    """Base of decoded chunks. They declare only the fields that are used; the decoder skips all others."""


_ChunkT = TypeVar("_ChunkT", bound=Chunk)
Read = Callable[[Response, list[bytes], list[int]], None]


def bearer(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def chat_messages(messages: tuple[Message, ...]) -> dict[str, Any]:
    return {"messages": [_chat_message(message) for message in join_system(messages)]}


def join_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Make one of several system messages at the start: many chat templates accept only one."""
    if len(messages) < 2 or messages[1].role != "system":
        return messages
    system, others = split_system(messages)
    return (Message(role="system", content=system), *others)


def split_system(messages: tuple[Message, ...]) -> tuple[str, list[Message]]:
    """Separate the system prompt from the conversation, for APIs that have a field for it."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    return system, [message for message in messages if message.role != "system"]


def _chat_message(message: Message) -> Message | dict[str, Any]:
    if not message.tool_calls:
        return message
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content, "tool_calls": calls}


def chat_tools(tools: tuple[Tool, ...], choice: ToolChoice) -> dict[str, Any]:
    return {
        "tools": [{"type": "function", "function": tool_definition(tool)} for tool in tools],
        _TOOL_CHOICE: choice,
    }


def tool_definition(tool: Tool, schema: str = "parameters") -> dict[str, Any]:
    """Return the definition of a tool; `schema` is the API's name for the JSON Schema of its arguments."""
    return {"name": tool.name, "description": tool.description, schema: json_text(tool.parameters)}


def json_text(text: str) -> msgspec.Raw:
    """Return text that is JSON already, to be inserted as it is."""
    return msgspec.Raw(text.encode())


def tokenize_chat(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> dict[str, Any]:
    """Return the fields that `/tokenize` takes for any API that has messages."""
    return chat_messages(messages) | ({"tools": chat_tools(tools, "none")["tools"]} if tools else {})


def sampling_fields(task: Task) -> dict[str, Any]:
    return sampling_options(task, "max_tokens") | task.extra


def sampling_options(task: Task, limit: str) -> dict[str, Any]:
    """Return the token limit, by the API's name for it, and the temperature, where the task sets them."""
    options = {limit: task.max_tokens, "temperature": task.temperature}
    return {name: value for name, value in options.items() if value is not None}


class ApiDialect(NamedTuple):
    """One HTTP API: how its requests are built and how its streamed responses are read.

    `read` adds the payloads that the splitter returned, with their arrival times, to a response. `last_event` ends a
    complete response, if one text does. `models_path` lists the served models, and `auth_headers` has what each request
    carries besides the user's own headers. The fields are those of a request body: `stream_fields` in every one,
    `prompt_fields` from the messages, `sampling_fields` from the task, `tool_fields` from its tools (null if the API
    has none); `tokenize_fields` are those of a request to `/tokenize`. `prompt_tokens` reads a response that is not
    streamed.

    The model may call tools, as that of an agent may. If the server rejects that (vLLM does without a tool parser), the
    definitions are sent with the choice `none`: they are still part of the prompt.
    """

    read: Read
    accept: str = "text/event-stream"
    models_path: str = "/v1/models"
    auth_headers: Callable[[str | None], dict[str, str]] = bearer
    splitter: Callable[[], Splitter] = EventSplitter
    last_event: bytes | None = None
    stream_fields: dict[str, Any] = {"stream": True}
    prompt_fields: Callable[[tuple[Message, ...]], dict[str, Any]] = chat_messages
    tool_fields: Callable[[tuple[Tool, ...], ToolChoice], dict[str, Any]] | None = chat_tools
    sampling_fields: Callable[[Task], dict[str, Any]] = sampling_fields
    tokenize_fields: Callable[[tuple[Message, ...], tuple[Tool, ...]], dict[str, Any]] = tokenize_chat
    prompt_tokens: Callable[[Any], int] = lambda found: int(found["usage"]["prompt_tokens"])

    def body(self, model: str, task: Task, messages: tuple[Message, ...], omit: Collection[str] = ()) -> bytes:
        """Encode the request body, without the fields named in `omit`."""
        fields = {"model": model} | self.stream_fields | self.prompt_fields(messages) | self.sampling_fields(task)
        fields = {name: value for name, value in fields.items() if name not in omit}
        return _encode(self.tools(task.tools, "none" if _TOOL_CHOICE in omit else "auto") | fields)

    def tools(self, tools: tuple[Tool, ...], choice: ToolChoice) -> dict[str, Any]:
        return self.tool_fields(tools, choice) if tools and self.tool_fields else {}

    def optional_fields(self, task: Task) -> tuple[str, ...]:
        """Name the fields that can be omitted if a server rejects them."""
        sent = self.sampling_fields(task)
        return (
            *(name for name in self.stream_fields if name != "stream"),
            *(name for name in task.extra if name in sent and name != _TOOL_CHOICE),
            *(name for name in self.tools(task.tools, "auto") if name == _TOOL_CHOICE),
        )


def read_each(decode: Callable[[bytes], _ChunkT], add: Callable[[Response, _ChunkT, bytes, int], None]) -> Read:
    """Return a dialect's `read`, which decodes each payload and passes the chunk, its payload and its time to `add`."""

    def read(response: Response, payloads: list[bytes], times: list[int]) -> None:
        for payload, t in zip(payloads, times, strict=True):
            chunk = decode_payload(decode, response, payload)
            if chunk is not None:
                if response.t_first_event is None:
                    response.t_first_event = t
                add(response, chunk, payload, t)

    return read


def decode_payload(decode: Callable[[bytes], _ChunkT], response: Response, payload: bytes) -> _ChunkT | None:
    """Decode one payload; return None after the end, for a keep-alive, and for an error, which fails the response."""
    if response.finished:
        return None
    if type(payload) is ErrorPayload:
        response.fail("error_event", error_text(payload))
        return None
    try:
        return decode(payload)
    except DECODE_ERRORS as error:
        if payload.strip() not in (b"", DONE):  # empty events are keep-alives
            response.fail("bad_json", f"{error}: {payload!r}")
        return None


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
