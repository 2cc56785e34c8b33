"""Streamed responses: OpenAI chat and completions in the format of vLLM, and Ollama's NDJSON."""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from swarmtui.sim.batching import Job
from swarmtui.sim.http import LAST_CHUNK, SimConnection
from swarmtui.sim.presets import Fault
from swarmtui.sim.replies import FAILED, Reply, ReplySettings, iso, ollama_end, openai_id
from swarmtui.sim.requests import ParsedRequest


class Stream(Reply):
    """Collects the bytes of all steps until the next flush, so that a late wake-up does one write."""

    content_type: str

    def __init__(
        self, connection: SimConnection, job: Job, request: ParsedRequest, fault: Fault | None, settings: ReplySettings
    ) -> None:
        super().__init__(connection, job, request, fault, settings)
        self._pending: list[bytes] = []

    def start(self) -> None:
        self.connection.start_stream(self.content_type)

    def _add(self, start: int, count: int) -> None:
        if not start:
            self._open()
        thinking = self.request.reasoning_tokens - start
        if thinking <= 0:
            self._emit(self._delta(start, count, reasoning=False))
        elif thinking >= count:
            self._emit(self._delta(start, count, reasoning=True))
        else:
            self._emit(self._delta(start, thinking, reasoning=True))
            self._emit(self._delta(start + thinking, count - thinking, reasoning=False))

    def flush(self) -> None:
        if self._pending:
            self.connection.transport.write(b"".join(self._pending))
            self._pending.clear()

    def complete(self) -> None:
        self._close()
        self._end()

    def fail(self) -> None:
        self._emit(self._error())
        self._end()

    def _end(self) -> None:
        self._pending.append(LAST_CHUNK)
        self.flush()
        self.connection.finish()

    def _emit(self, event: bytes) -> None:
        self._pending.append(b"%x\r\n%b\r\n" % (len(event), event))

    def _open(self) -> None:
        """Send what precedes the first token."""
        return

    @abstractmethod
    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _error(self) -> bytes: ...


class OpenAiStream(Stream):
    """Server-sent events; the constant parts of the events are built once."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(
        self, connection: SimConnection, job: Job, request: ParsedRequest, fault: Fault | None, settings: ReplySettings
    ) -> None:
        super().__init__(connection, job, request, fault, settings)
        kind = "chat.completion.chunk" if request.dialect == "chat" else "text_completion"
        same = f'"id":"{openai_id(self)}","object":"{kind}","created":{self.created},"model":"{settings.model}"'
        self._head = f'data: {{{same},"choices":['.encode()
        if request.dialect == "chat":
            self._content = self._head + b'{"index":0,"delta":{"content":"'
            self._reasoning = self._head + b'{"index":0,"delta":{"%b":"' % settings.reasoning_field.encode()
            after = b'"},"logprobs":null,"finish_reason":'
        else:
            self._content = self._reasoning = self._head + b'{"index":0,"text":"'
            after = b'","logprobs":null,"finish_reason":'
        self._more = after + b"null}]"
        self._last = after + b'"%b","stop_reason":null}]' % request.finish_reason.encode()

    def _open(self) -> None:
        if self.request.dialect == "chat":
            role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            self._emit(self._head + role + self._tail(0))

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        produced = start + count
        head = self._reasoning if reasoning else self._content
        end = self._last if produced >= self.request.output_tokens else self._more
        return head + self.request.words.text(start, count) + end + self._tail(produced)

    def _tail(self, produced: int) -> bytes:
        if not self.request.continuous_usage:
            return b"}\n\n"
        return b',"usage":%b}\n\n' % msgspec.json.encode(self.usage(produced))

    def _close(self) -> None:
        if self.request.include_usage:
            self._emit(self._head + b'],"usage":%b}\n\n' % msgspec.json.encode(self.usage(self.sent)))
        self._emit(b"data: [DONE]\n\n")

    def _error(self) -> bytes:
        return b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode({"error": {**FAILED, "code": 500}})


class OllamaStream(Stream):
    """One JSON object per line."""

    content_type = "application/x-ndjson"

    def __init__(
        self, connection: SimConnection, job: Job, request: ParsedRequest, fault: Fault | None, settings: ReplySettings
    ) -> None:
        super().__init__(connection, job, request, fault, settings)
        same = f'{{"model":"{settings.model}","created_at":"{iso(self.created)}","message":{{"role":"assistant",'
        self._content = f'{same}"content":"'.encode()
        self._reasoning = f'{same}"content":"","thinking":"'.encode()

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        head = self._reasoning if reasoning else self._content
        return head + self.request.words.text(start, count) + b'"},"done":false}\n'

    def _close(self) -> None:
        last = {"message": {"role": "assistant", "content": ""}, **ollama_end(self)}
        self._emit(msgspec.json.encode(last) + b"\n")

    def _error(self) -> bytes:
        return msgspec.json.encode({"error": FAILED["message"]}) + b"\n"
