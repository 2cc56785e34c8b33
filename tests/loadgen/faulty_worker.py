"""A worker whose dialect has a fault for each step of a request, selected by the text of the request or response."""

from __future__ import annotations

from typing import Any

from swarmtui.loadgen import endpoint_pool, worker
from swarmtui.loadgen.dialects import load_dialect
from swarmtui.loadgen.response import Response
from swarmtui.model.workload import Message

FAULTS = ("build", "read", "finish", "close", "record", "encode")

_CHAT = load_dialect("chat")


def _prompt_fields(messages: tuple[Message, ...]) -> dict[str, Any]:
    if messages[-1].content == "build":
        raise OverflowError("fault in build")
    return {"messages": messages}


def _read(response: Response, payloads: list[bytes], times: list[int]) -> None:
    for payload, t in zip(payloads, times, strict=True):
        _CHAT.read(response, [payload], [t])
        if any(fault in payload for fault in (b'"read"', b'"finish"', b'"close"')):
            raise OverflowError("fault in read")
        if b'"record"' in payload:
            response.finish_reason = 1  # type: ignore[assignment]
        if b'"encode"' in payload:
            response.tokens_in = 1 << 70


if __name__ == "__main__":
    endpoint_pool.load_dialect = lambda name: _CHAT._replace(  # type: ignore[attr-defined]
        read=_read, prompt_fields=_prompt_fields
    )
    worker.main()
