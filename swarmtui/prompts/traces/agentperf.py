"""Read replays of agentperf-local: the messages, tools and answer lengths of recorded agents, one file per task.

A replay is a directory with a manifest, which names the files; each line of them is a request with all its messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from swarmtui.files import read_file
from swarmtui.model.base import BadInput, Stored, reading
from swarmtui.model.parsing import decode_json
from swarmtui.model.trace import TraceRequest, TraceSession
from swarmtui.model.workload import Message, Tool, ToolCall
from swarmtui.prompts.traces.arrivals import records_of
from swarmtui.prompts.traces.weka import BLOCK_SIZE, Tokens

_MANIFESTS, _MODE = "manifest*.json", "single_user_agentic_replay"
# Of prompts whose number of tokens was not recorded.
_CHARACTERS_PER_TOKEN = 4.0

_Milliseconds = Annotated[float, Meta(ge=0.0, le=1e12)]


class TextRequest(TraceRequest, frozen=True, kw_only=True):
    """A recorded request with its text; its blocks are parts of the text of about the size of a block."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class _Part(Stored, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A part of a message; only text can be replayed."""

    text: str


class _Function(Stored, frozen=True, kw_only=True):
    name: str
    arguments: str = "{}"


class _Call(Stored, frozen=True, kw_only=True):
    function: _Function
    id: str = ""


class RecordedMessage(Stored, frozen=True, kw_only=True):
    """A message as the chat API writes it: an assistant that calls a tool may have no content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[_Part, ...] | None = None
    tool_calls: tuple[_Call, ...] | None = None
    tool_call_id: str | None = None


class _Definition(Stored, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _Tool(Stored, frozen=True, kw_only=True):
    function: _Definition


class _Row(Stored, frozen=True, kw_only=True):
    """A request. Answers have the target length, else the recorded one, else the longest allowed."""

    version: Literal[1]
    task_id: str
    messages: Annotated[tuple[RecordedMessage, ...], Meta(min_length=1)]
    simulated_tool_delay_ms_after: _Milliseconds
    tools: tuple[_Tool, ...] = ()
    target_output_tokens: Tokens | None = None
    recorded_completion_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    recorded_prompt_tokens: Tokens | None = None
    recorded_model_duration_ms: _Milliseconds = 0.0


class _ManifestTask(Stored, frozen=True, kw_only=True):
    trace: str


class _Manifest(Stored, frozen=True, kw_only=True):
    version: Literal[1]
    tasks: tuple[_ManifestTask, ...]


def manifest_files(path: Path) -> tuple[Path, ...]:
    """Return the files that a manifest names, or the manifest of a directory; empty if there is no manifest."""
    with reading(path):
        for manifest in sorted(path.glob(_MANIFESTS)) if path.is_dir() else [path] if path.match(_MANIFESTS) else []:
            if _MODE.encode() in (data := read_file(manifest)):
                found: _Manifest = decode_json(data, _Manifest, str(manifest))
                return tuple(_inside(manifest, task.trace) for task in found.tasks)
    return ()


def _inside(manifest: Path, name: str) -> Path:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise BadInput(f"{name} is not below the directory of the manifest", source=str(manifest), key="tasks")
    return manifest.parent / name


def read_agentperf(path: Path) -> Iterator[TraceSession]:
    """Yield the session of a file; a message that requests repeat is kept once."""
    requests: list[TextRequest] = []
    known: dict[Message, Message] = {}
    blocks: _TextBlocks | None = None
    name, at_s, think_s = path.stem, 0.0, None
    for number, row in records_of(path, _Row):
        lengths = (row.target_output_tokens, row.recorded_completion_tokens, row.max_output_tokens)
        output_tokens = next((length for length in lengths if length is not None), None)
        if output_tokens is None:
            raise BadInput("the length of the answer is missing", source=str(path), line=number)
        messages = tuple(known.setdefault(message, message) for message in map(to_message, row.messages))
        tools = tuple(
            Tool(name=f.name, description=f.description or "", parameters=bytes(f.parameters).decode())
            for f in (tool.function for tool in row.tools)
        )
        text = "\n".join(msgspec.json.encode(part).decode() for part in (tools, *messages))
        input_tokens = row.recorded_prompt_tokens or round(len(text) / _CHARACTERS_PER_TOKEN)
        blocks = blocks or _TextBlocks(len(text) / max(1, input_tokens))
        took_s = row.recorded_model_duration_ms / 1000.0
        requests.append(
            TextRequest(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                at_s=at_s,
                think_s=think_s,
                took_s=took_s,
                blocks=blocks.split(text, input_tokens),
                messages=messages,
                tools=tools,
            )
        )
        name, think_s = row.task_id, row.simulated_tool_delay_ms_after / 1000.0
        at_s += took_s + think_s
    yield TraceSession(id=name, requests=tuple(requests))


class _TextBlocks:
    """Numbers the blocks of texts: texts that begin with the same characters begin with the same numbers."""

    def __init__(self, characters_per_token: float) -> None:
        self._size = max(1, round(characters_per_token * BLOCK_SIZE))
        self._numbers: dict[tuple[int, int], int] = {}

    def split(self, text: str, tokens: int) -> tuple[int, ...]:
        found: list[int] = []
        for start in range(0, min(len(text), tokens // BLOCK_SIZE * self._size) - self._size + 1, self._size):
            part = found[-1] if found else 0, hash(text[start : start + self._size])
            found.append(self._numbers.setdefault(part, len(self._numbers) + 1))
        return tuple(found)


def to_message(found: RecordedMessage) -> Message:
    content = found.content or ""
    return Message(
        role="system" if found.role == "developer" else found.role,
        content=content if isinstance(content, str) else "".join(part.text for part in content),
        tool_calls=tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in found.tool_calls or ()
        ),
        tool_call_id=found.tool_call_id or "",
    )
