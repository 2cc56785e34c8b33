"""Read and write agent traces in the Weka format: one JSON file per session, with block ids that are local to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from swarmtui.files import read_file
from swarmtui.model.base import BadInput, Stored, reading
from swarmtui.model.parsing import decode_json
from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession, requests_of

BLOCK_SIZE = 64
# One session: the longest public ones have a few megabytes. Its block ids need five times as much memory.
_MAX_FILE = 64 << 20
# What a file can hold: an id has at least one digit and a comma.
MAX_BLOCKS = _MAX_FILE // 2

Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]
_Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
BlockId = Annotated[int, Meta(ge=0, le=1 << 53)]


class _Request(Stored, frozen=True, kw_only=True, tag_field="type", tag="s"):
    """A streamed request."""

    t: _Seconds
    input_tokens: Tokens = msgspec.field(name="in")
    output_tokens: Tokens = msgspec.field(name="out")
    hash_ids: tuple[BlockId, ...] = ()
    think_time: _Seconds | None = None
    api_time: _Seconds | None = None


class _NotStreamed(_Request, frozen=True, kw_only=True, tag_field="type", tag="n"):
    """A request that was not streamed; it is replayed as a stream."""


class _SubAgent(Stored, frozen=True, kw_only=True, tag_field="type", tag="subagent"):
    """A sub-agent. With a duration, `t` is when it ended; without one, when it started."""

    t: _Seconds
    requests: tuple[_Request | _NotStreamed, ...]
    duration_ms: _Seconds | None = None


class _File(Stored, frozen=True, kw_only=True):
    id: str
    requests: tuple[_Request | _NotStreamed | _SubAgent, ...]
    block_size: Annotated[int, Meta(ge=1, le=65_536)] = BLOCK_SIZE
    hash_id_scope: Literal["local", "global"] = "local"


def read_weka(path: Path) -> Iterator[TraceSession]:
    with reading(path):
        data = read_file(path, _MAX_FILE)
    found: _File = decode_json(data, _File, str(path))
    _check_block_counts(found, path)
    requests: list[TraceRequest] = []
    waiting: list[SubAgent] = []
    for item in found.requests:
        if isinstance(item, _SubAgent):
            start_s = max(0.0, item.t - (item.duration_ms or 0.0) / 1000.0)
            waiting.append(SubAgent(at_s=start_s, requests=tuple(map(_to_request, item.requests))))
        else:
            requests.append(msgspec.structs.replace(_to_request(item), subagents=tuple(waiting)))
            waiting = []
    yield TraceSession(
        id=found.id,
        requests=tuple(requests),
        block_size=found.block_size,
        shared_blocks=found.hash_id_scope == "global",
        subagents=tuple(waiting),
    )


def _to_request(item: _Request) -> TraceRequest:
    return TraceRequest(
        input_tokens=item.input_tokens,
        output_tokens=item.output_tokens,
        at_s=item.t,
        think_s=item.think_time,
        took_s=item.api_time,
        blocks=item.hash_ids,
    )


def _check_block_counts(found: _File, path: Path) -> None:
    for index, item in enumerate(found.requests):
        for request in item.requests if isinstance(item, _SubAgent) else (item,):
            if len(request.hash_ids) > -(-request.input_tokens // found.block_size):
                problem = (
                    f"{len(request.hash_ids)} blocks of {found.block_size} are more than {request.input_tokens} tokens"
                )
                raise BadInput(problem, source=str(path), key=f"requests[{index}].hash_ids")


def weka_json(session: TraceSession) -> bytes:
    """Return a session as a file of this format, without any text."""

    def request(item: TraceRequest) -> dict[str, object]:
        return {
            "t": round(item.at_s, 3), "type": "s", "in": item.input_tokens, "out": item.output_tokens,
            "hash_ids": item.blocks, "think_time": None if item.think_s is None else round(item.think_s, 3),
            "api_time": None if item.took_s is None else round(item.took_s, 3),
        }  # fmt: skip

    def subagents(agents: Sequence[SubAgent]) -> list[dict[str, object]]:
        return [
            {"t": round(agent.at_s, 3), "type": "subagent", "requests": [request(item) for item in agent.requests]}
            for agent in agents
        ]

    rows: list[dict[str, object]] = []
    for item in session.requests:
        rows += [*subagents(item.subagents), request(item)]
    rows += subagents(session.subagents)
    totals = {
        "input": sum(item.input_tokens for item in requests_of(session)),
        "output": sum(item.output_tokens for item in requests_of(session)),
    }
    return msgspec.json.encode(
        {
            "id": session.id,
            "models": [],
            "block_size": session.block_size,
            "hash_id_scope": "local",
            "requests": rows,
            "totals": totals,
        }
    )
