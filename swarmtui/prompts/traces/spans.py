"""Read OpenTelemetry spans of model calls (GenAI semantic conventions), as JSON lines.

Both forms are read: the OTLP batches that a collector writes to a file, and single spans as SDKs print them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.trace import TraceSession
from swarmtui.prompts.traces.arrivals import records_of
from swarmtui.prompts.traces.calls import Call, session_from_calls

_INPUT, _OUTPUT, _CONVERSATION = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.conversation.id"
_AGENT, _CACHED = "gen_ai.agent.id", "gen_ai.usage.cache_read.input_tokens"


class _OtlpValue(Stored, frozen=True, kw_only=True):
    """Integers are written as text in OTLP's JSON."""

    int_value: int | str | None = msgspec.field(name="intValue", default=None)
    string_value: str | None = msgspec.field(name="stringValue", default=None)


class _OtlpAttribute(Stored, frozen=True, kw_only=True):
    key: str
    value: _OtlpValue = _OtlpValue()


class _OtlpSpan(Stored, frozen=True, kw_only=True, rename="camel"):
    trace_id: str
    start_time_unix_nano: int | str
    end_time_unix_nano: int | str
    attributes: tuple[_OtlpAttribute, ...] = ()


class _OtlpScope(Stored, frozen=True, kw_only=True):
    spans: tuple[_OtlpSpan, ...] = ()


class _OtlpResource(Stored, frozen=True, kw_only=True):
    scopes: tuple[_OtlpScope, ...] = msgspec.field(name="scopeSpans", default=())


class _SdkContext(Stored, frozen=True, kw_only=True):
    trace_id: str


class _Line(Stored, frozen=True, kw_only=True):
    """One of the two forms; the fields of the other are empty."""

    resources: tuple[_OtlpResource, ...] = msgspec.field(name="resourceSpans", default=())
    context: _SdkContext | None = None
    start_time: str = ""
    end_time: str = ""
    attributes: dict[str, Any] = {}


def read_spans(path: Path) -> Iterator[TraceSession]:
    """Group the spans by conversation, or by trace if none is named; other agents in it are sub-agents."""
    sessions: dict[str, list[tuple[str, Call]]] = {}
    for number, found in records_of(path, _Line):
        try:
            for session, agent, call in _calls(found):
                sessions.setdefault(session, []).append((agent, call))
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput(f"not a valid span: {error}", source=str(path), line=number) from None
    for index, calls in enumerate(sessions.values(), 1):
        agents: dict[str, list[Call]] = {}
        for agent, call in sorted(calls, key=lambda pair: pair[1].start_s):
            agents.setdefault(agent, []).append(call)
        # The agent of the first call is the parent of the others.
        parent, *others = agents.values()
        yield session_from_calls(f"{path.stem}:{index}", parent, others)


def _calls(line: _Line) -> Iterator[tuple[str, str, Call]]:
    """Yield the session, the agent and the call of each span of a model."""
    for resource in line.resources:
        for scope in resource.scopes:
            for span in scope.spans:
                attributes = {item.key: item.value.int_value or item.value.string_value for item in span.attributes}
                start, end = int(span.start_time_unix_nano) / 1e9, int(span.end_time_unix_nano) / 1e9
                yield from _model_call(span.trace_id, start, end, attributes)
    if line.context is not None:
        start, end = (datetime.fromisoformat(text).timestamp() for text in (line.start_time, line.end_time))
        yield from _model_call(line.context.trace_id, start, end, line.attributes)


def _model_call(
    trace_id: str, start_s: float, end_s: float, attributes: Mapping[str, Any]
) -> Iterator[tuple[str, str, Call]]:
    """Yield the call if it has token counts; spans of tools and of whole agents have none."""
    if attributes.get(_INPUT) is None or attributes.get(_OUTPUT) is None:
        return
    session = str(attributes.get(_CONVERSATION) or trace_id)
    input_tokens, output_tokens = int(attributes[_INPUT]), int(attributes[_OUTPUT])
    if min(input_tokens, output_tokens) < 0 or end_s < start_s:
        raise ValueError("negative tokens or duration")
    cached = max(0, int(attributes.get(_CACHED) or 0))
    yield session, str(attributes.get(_AGENT) or ""), Call(start_s, end_s, input_tokens, cached, output_tokens)
