"""A response gives the same chunks however it is framed and split into reads."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.loadgen.dialects import load_dialect
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.model.endpoint import Dialect
from tests.loadgen.raw_server import DONE, ROLE, delta, usage

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = ["Hel", "lo ", "wörld\\n", "x" * 3000, "", "a\r\n"]
EVENTS = [ROLE, *(delta(content=word) for word in WORDS), delta("stop", content="end"), usage(7), DONE]


class Connection:
    open = True

    def close(self) -> None:
        pass


class Pool:
    """What an exchange uses of its endpoint."""

    def __init__(self, dialect: Dialect) -> None:
        self.loop, self.dialect = EventLoop(), load_dialect(dialect)

    def release(self, connection: Connection) -> None:
        pass


def exchange(dialect: Dialect = "chat") -> HttpExchange:
    found = HttpExchange(cast(EndpointPool, Pool(dialect)), lambda: None)
    found._attach(cast(Any, Connection()))
    return found


def read(reads: list[bytes], dialect: Dialect = "chat") -> HttpExchange:
    found = exchange(dialect)
    for t, data in enumerate(reads, 1):
        found.t = t
        found.data_received(data)
    return found


def chunk(data: bytes, size_format: str = "%x") -> bytes:
    return (size_format % len(data)).encode() + b"\r\n" + data + b"\r\n"


def result(found: HttpExchange) -> tuple[object, ...]:
    response = found.response
    return response.content, response.usage_tokens, response.finish_reason, response.finished, response.error


WHOLE = read([HEAD + b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"])


def test_whole_response_is_read() -> None:
    assert WHOLE.t_done is not None and WHOLE.response.error is None
    assert "".join(WHOLE.response.content) == "".join([*WORDS, "end"])


@pytest.mark.parametrize("size_format", ["%x", "%X", "%06x"])
@pytest.mark.parametrize("first", [1, 3])
def test_chunk_in_a_read_of_its_own_has_its_own_time(size_format: str, first: int) -> None:
    """Also where the head and the first chunks share a read."""
    chunks = [chunk(event, size_format) for event in EVENTS]
    found = read([HEAD + b"".join(chunks[:first]), *chunks[first:], b"0\r\n\r\n"])
    assert result(found) == result(WHOLE) and found.t_done is not None
    times = found.response.times
    assert len(set(times)) == len(times) - (1 if first == 3 else 0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 20_000), max_size=30),
    st.lists(st.booleans(), min_size=len(EVENTS), max_size=len(EVENTS)),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_framing_and_split_gives_the_same_chunks(cuts: list[int], joined: list[bool], line_end: bytes) -> None:
    """Events that share a chunk, chunks that share a read, reads that end anywhere, and other line ends."""
    bodies: list[bytes] = []
    for event, with_previous in zip(EVENTS, joined, strict=True):
        if not (with_previous and bodies):
            bodies.append(b"")
        bodies[-1] += event.replace(b"\n", line_end)
    chunks = list(map(chunk, bodies))
    stream = HEAD + b"".join(chunks) + b"0\r\n\r\n"
    bounds = itertools.accumulate([len(HEAD), *map(len, chunks)])
    edges = sorted({0, len(stream), *bounds, *(cut % len(stream) for cut in cuts)})
    assert result(read([stream[a:b] for a, b in itertools.pairwise(edges)])) == result(WHOLE)
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    assert result(read([stream[a:b] for a, b in itertools.pairwise(edges)])) == result(WHOLE)


def test_event_inside_a_longer_chunk_is_not_taken_for_a_chunk() -> None:
    inner = chunk(EVENTS[2])
    framed = chunk(EVENTS[1] + b"\r\n" + inner)
    at = framed.index(inner)
    found = read([HEAD, framed[:at], framed[at:], *map(chunk, EVENTS[3:]), b"0\r\n\r\n"])
    assert result(found) == result(WHOLE) and found.t_done is not None


def test_error_event_ends_the_response() -> None:
    error = b'data: {"error": {"message": "out of memory, cannot continue"}}\n\n'
    found = read([HEAD, chunk(EVENTS[0]), chunk(EVENTS[1]), chunk(error)])
    assert (found.response.error, found.response.error_detail) == ("error_event", "out of memory, cannot continue")
    assert found.t_done is not None
