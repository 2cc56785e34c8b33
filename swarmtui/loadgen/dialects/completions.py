"""OpenAI completions: one prompt without roles."""

from __future__ import annotations

from typing import Any

from swarmtui.loadgen.dialects import openai
from swarmtui.loadgen.dialects.base import ApiDialect, bearer
from swarmtui.loadgen.sse import EventSplitter
from swarmtui.model.workload import Message, Tool


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    return {"prompt": "\n\n".join(message.content for message in messages)}


def _tokenize_fields(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> dict[str, Any]:
    return _prompt_fields(messages)


DIALECT = ApiDialect(
    accept=openai.ACCEPT,
    models_path=openai.MODELS_PATH,
    auth_headers=bearer,
    splitter=EventSplitter,
    read=openai.read_chunks,
    last_event=openai.LAST_EVENT,
    stream_fields=openai.STREAM_FIELDS,
    prompt_fields=_prompt_fields,
    tool_fields=None,
    sampling_fields=openai.sampling_fields,
    tokenize_fields=_tokenize_fields,
    prompt_tokens=openai.prompt_tokens,
)
