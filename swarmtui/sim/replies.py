"""One response to one client: its progress, and the point at which a fault applies."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from swarmtui.sim.batching import Job
from swarmtui.sim.http import SimConnection
from swarmtui.sim.presets import Fault
from swarmtui.sim.requests import ParsedRequest

FAILED = {"message": "EngineCore encountered an issue (simulated).", "type": "InternalServerError", "param": None}


class ReplySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all responses of one simulator have in common."""

    model: str
    boot: int
    speed: float
    reasoning_field: str
    reports_cache: bool


class Reply(ABC):
    """A response in progress. `faulted` is set when its fault applies, `stalled` during a stall."""

    def __init__(
        self, connection: SimConnection, job: Job, request: ParsedRequest, fault: Fault | None, settings: ReplySettings
    ) -> None:
        self.connection = connection
        self.job = job
        self.request = request
        self.fault = fault
        self.settings = settings
        self.created = int(time.time())
        self.sent = 0
        self.faulted = False
        self.stalled = False
        # A fault applies in the middle of the answer; an answer of one token fails before it.
        self._limit = request.output_tokens if fault is None else request.output_tokens // 2

    def produce(self, count: int) -> None:
        """Add `count` tokens; those before the fault are still sent."""
        if self.sent + count > self._limit and not self.stalled:
            self.flush()
            self.faulted = True
            if self.fault != "stall":
                return
            self.stalled = True
        start, self.sent = self.sent, self.sent + count
        self._add(start, count)

    def resume(self) -> None:
        """End the stall; there is only one per response."""
        self.stalled = False
        self._limit = self.request.output_tokens

    def usage(self, produced: int) -> dict[str, Any]:
        prompt = self.job.prompt_tokens
        usage: dict[str, Any] = {"prompt_tokens": prompt, "total_tokens": prompt + produced}
        usage["completion_tokens"] = produced
        if self.settings.reports_cache:
            usage["prompt_tokens_details"] = {"cached_tokens": self.job.cached}
        if self.request.reasoning_tokens:
            usage["completion_tokens_details"] = {"reasoning_tokens": min(produced, self.request.reasoning_tokens)}
        return usage

    @abstractmethod
    def start(self) -> None:
        """Send what precedes the first token."""

    @abstractmethod
    def _add(self, start: int, count: int) -> None:
        """Add tokens `start` to `start + count`."""

    @abstractmethod
    def flush(self) -> None:
        """Write pending tokens."""

    @abstractmethod
    def complete(self) -> None:
        """Write the rest, and free the connection for the next request."""

    @abstractmethod
    def fail(self) -> None:
        """Write an error in place of the next token."""


class WholeReply(Reply):
    """A response that is not streamed."""

    def start(self) -> None:
        return

    def _add(self, start: int, count: int) -> None:
        return

    def flush(self) -> None:
        return

    def complete(self) -> None:
        words, reasoned, total = self.request.words, self.request.reasoning_tokens, self.request.output_tokens
        reasoning = words.text(0, reasoned).decode() if reasoned else None
        content = words.text(reasoned, total - reasoned).decode()
        if self.request.dialect == "ollama":
            message = {"role": "assistant", "content": content, **({"thinking": reasoning} if reasoning else {})}
            body = {"message": message, **ollama_end(self)}
        else:
            body = self._openai(content, reasoning)
        self.connection.respond(200, msgspec.json.encode(body))

    def fail(self) -> None:
        error: Any = FAILED["message"] if self.request.dialect == "ollama" else {**FAILED, "code": 500}
        self.connection.respond(500, msgspec.json.encode({"error": error}))

    def _openai(self, content: str, reasoning: str | None) -> dict[str, Any]:
        chat = self.request.dialect == "chat"
        choice: dict[str, Any] = {"index": 0}
        if chat:
            choice["message"] = {"role": "assistant", "content": content, self.settings.reasoning_field: reasoning}
        else:
            choice["text"] = (reasoning or "") + content
        choice |= {"logprobs": None, "finish_reason": self.request.finish_reason, "stop_reason": None}
        return {
            "id": openai_id(self),
            "object": "chat.completion" if chat else "text_completion",
            "created": self.created,
            "model": self.settings.model,
            "choices": [choice],
            "usage": self.usage(self.request.output_tokens),
        }


def openai_id(reply: Reply) -> str:
    return (
        f"{'chatcmpl' if reply.request.dialect == 'chat' else 'cmpl'}-{reply.settings.boot:08x}{reply.job.number:08x}"
    )


def ollama_end(reply: Reply) -> dict[str, Any]:
    """Return the fields of Ollama's last message: counts, and durations in nanoseconds of the client's clock."""
    job, count = reply.job, reply.request.output_tokens
    assert job.admitted is not None and job.first_token is not None and job.last_token is not None
    # The first token comes with the last prefill step, so its decode time is taken to be the mean of the others.
    decoding = (job.last_token - job.first_token) * count / (count - 1) if count > 1 else 0.0
    scale = 1e9 / reply.settings.speed
    return {
        "model": reply.settings.model,
        "created_at": iso(int(time.time())),
        "done": True,
        "done_reason": reply.request.finish_reason,
        "total_duration": round((job.last_token - job.arrived) * scale),
        "load_duration": 0,
        "prompt_eval_count": job.prompt_tokens,
        "prompt_eval_duration": round(max(job.last_token - job.admitted - decoding, 0.0) * scale),
        "eval_count": count,
        "eval_duration": round(decoding * scale),
    }


def iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
