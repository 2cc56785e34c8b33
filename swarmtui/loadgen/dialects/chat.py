"""OpenAI chat completions."""

from __future__ import annotations

from swarmtui.loadgen.dialects import openai
from swarmtui.loadgen.dialects.base import ApiDialect, bearer, chat_messages, chat_tools, tokenize_chat
from swarmtui.loadgen.sse import EventSplitter

DIALECT = ApiDialect(
    accept=openai.ACCEPT,
    models_path=openai.MODELS_PATH,
    auth_headers=bearer,
    splitter=EventSplitter,
    read=openai.read_chunks,
    last_event=openai.LAST_EVENT,
    stream_fields=openai.STREAM_FIELDS,
    prompt_fields=chat_messages,
    tool_fields=chat_tools,
    sampling_fields=openai.sampling_fields,
    tokenize_fields=tokenize_chat,
    prompt_tokens=openai.prompt_tokens,
)
