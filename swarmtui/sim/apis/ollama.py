"""Ollama's own chat API: one JSON object per line."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from swarmtui.sim.presets import Preset
from swarmtui.sim.replies import FAILURE, Reply, SimApi, Stream, WholeReply
from swarmtui.sim.requests import ChatMessage, ParsedRequest, RequestRefused, answer_within, chat_prompt, decode


class OllamaOptions(msgspec.Struct, frozen=True, kw_only=True):
    num_predict: int | None = None


class OllamaBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    messages: list[ChatMessage]
    tools: list[Any] = []
    stream: bool | None = None
    options: OllamaOptions | None = None


def _parse(body: bytes, preset: Preset, seed: int) -> ParsedRequest:
    request = decode(body, OllamaBody)
    if request.model != preset.model:
        raise RequestRefused(404, f"model '{request.model}' not found")
    prompt = chat_prompt((message.pair() for message in request.messages), request.tools)
    cap = request.options.num_predict if request.options else None
    room = max(preset.max_model_len - len(prompt), 1)
    cap = room if cap is None or cap < 1 else min(cap, room)
    return answer_within(prompt, cap, preset, seed, stream=request.stream is not False)


def _end(reply: Reply) -> dict[str, Any]:
    """Return the fields of the last message: counts, and durations in nanoseconds of the client's clock."""
    job, count = reply.job, reply.request.output_tokens
    assert job.admitted is not None and job.first_token is not None and job.last_token is not None
    # The first token comes with the last prefill step, so its decode time is taken to be the mean of the others.
    decoding = (job.last_token - job.first_token) * count / (count - 1) if count > 1 else 0.0
    scale = 1e9 / reply.speed
    return {
        "model": reply.preset.model,
        "created_at": _iso(int(time.time())),
        "done": True,
        "done_reason": reply.request.finish_reason,
        "total_duration": round((job.last_token - job.arrived) * scale),
        "load_duration": 0,
        "prompt_eval_count": job.prompt_tokens,
        "prompt_eval_duration": round(max(job.last_token - job.admitted - decoding, 0.0) * scale),
        "eval_count": count,
        "eval_duration": round(decoding * scale),
    }


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class OllamaStream(Stream):
    content_type = "application/x-ndjson"

    def start(self) -> None:
        super().start()
        same = f'{{"model":"{self.preset.model}","created_at":"{_iso(self.created)}","message":{{"role":"assistant",'
        self._content = f'{same}"content":"'.encode()
        self._reasoning = f'{same}"content":"","thinking":"'.encode()

    def _delta(self, start: int, count: int, *, reasoning: bool) -> bytes:
        head = self._reasoning if reasoning else self._content
        return head + self.request.words.text(start, count) + b'"},"done":false}\n'

    def _close(self) -> None:
        last = {"message": {"role": "assistant", "content": ""}, **_end(self)}
        self._emit(msgspec.json.encode(last) + b"\n")

    def _error(self) -> bytes:
        return msgspec.json.encode(OllamaWhole.error(FAILURE)) + b"\n"


class OllamaWhole(WholeReply):
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": content, **({"thinking": reasoning} if reasoning else {})}
        return {"message": message, **_end(self)}

    @staticmethod
    def error(refusal: RequestRefused) -> dict[str, Any]:
        return {"error": refusal.message}


API = SimApi(parse=_parse, stream=OllamaStream, whole=OllamaWhole)
