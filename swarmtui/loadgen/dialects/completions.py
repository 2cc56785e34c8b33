"""OpenAI completions: one prompt without roles. The chunks are those of chat, with `text` instead of a delta."""

from __future__ import annotations

from typing import Any

from swarmtui.loadgen.dialects import chat
from swarmtui.model.workload import Message


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    return {"prompt": "\n\n".join(message.content for message in messages)}


DIALECT = chat.DIALECT._replace(
    prompt_fields=_prompt_fields, tool_fields=None, tokenize_fields=lambda messages, tools: _prompt_fields(messages)
)
