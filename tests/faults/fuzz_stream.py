"""Fuzz the agents of a worker with hostile responses: each ends its own request, with one record of bounded size.

    python -m tests.faults.fuzz_stream --answers 200000

Reports how many requests ended with each error. An internal error of swarmtui is printed with its input; exit code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator

from swarmtui.loadgen.agent import Agent, FinishedRequest
from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.connection import CLIENT_FAULT
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.model.endpoint import PATHS, Dialect
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import Finished, StartStage, Target, pack
from swarmtui.model.workload import Message, Task
from tests.loadgen.scripted_reads import ScriptedConnection

_DATA = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
FRAGMENTS = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 No\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 Up\r\n\r\n",
    b"HTTP/1.1 101 Up\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", b"HTTP/1.1 000 X\r\n\r\n",
    b"HTTP/1.1 422 No\r\nContent-Length: 14\r\n\r\nstream_options",
    b"Content-Type: text/event-stream\r\n", b"Content-Type: application/x-ndjson\r\n", b"Content-Encoding: br\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 10\r\n", b"Content-Length: -1\r\n", b"Connection: close\r\n",
    b"\r\n", b"\n", b"\r", b"57\r\n" + _DATA + b"\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", _DATA,
    b"data: [DONE]\n\n", b"data: [DONE]\n\ndata: bye\n\n", b"event: error\ndata: {}\n\n",
    b"data: {\n\n", b"data:", b":", b'data: {"usage":{"completion_tokens":-1}}\n\n', b'{"message":{"content":"a"}}\n',
    b'data: {"error":{"error":{"message":1}}}\n\n', b'data: {"object":"error"}\n\n', b"\xff\xfe\x00", b"\xef\xbb\xbf",
    b'{"done":true,"eval_count":9,"eval_duration":0}\n', b'{"done":true,"eval_count":5.0,"eval_duration":1e-320}\n',
    b'{"done":true,"eval_count":5.0,"eval_duration":' + b"9" * 400 + b"}\n",
    b'data: {"usage":{"completion_tokens":9007199254740992}}\n\n', b'data: {"usage":{"completion_tokens":5.0}}\n\n',
    b'data: {"choices":[{"delta":{"tool_calls":[{}]}}],"timings":{"predicted_n":1}}\n\n', b"[" * 2_000,
    b'data: {"timings":{"predicted_per_second":1e308,"prompt_ms":-1e308}}\n\n', b"data: " + b"9" * 5_000 + b"\n\n",
    b'data: {"id":"' + b"x" * 9_000 + b'"}\n\n', b'data: {"choices":[{"finish_reason":"\\ud800"}]}\n\n',
    b'data: {"type":"message_start","message":{"id":"x","usage":{"input_tokens":9007199254740992,'
    b'"cache_read_input_tokens":9007199254740992}}}\n\n', b'data: {"type":"message_stop"}\n\n',
    b'data: {"type":"content_block_start","content_block":{"name":"\\ud800"}}\n\n',
    b'data: {"type":"content_block_delta","delta":{"text":"a","partial_json":"b"}}\n\n',
    b'event: message_delta\ndata: {"delta":{"stop_reason":"' + b"x" * 900 + b'"},"usage":{"output_tokens":5.0}}\n\n',
    b'data: {"type":"response.created","response":{"id":"x"}}\n\n',
    b'data: {"type":"response.output_text.delta","delta":"a"}\n\n', b'data: {"type":"response.failed"}\n\n',
    b'data: {"type":"response.completed","response":{"usage":{"output_tokens":1e400}}}\n\n',
    b'data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":[]}}}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\udfff"}}]}\n\n',
    b'{"message":{"tool_calls":[{"a":' + b"[" * 300 + b"}]}}\n",
]  # fmt: skip
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADS = (
    HEAD,
    HEAD.replace(b"text/event-stream", b"application/x-ndjson"),
    HEAD.replace(b"text/event-stream", b"text/html"),
    HEAD.replace(b"Transfer-Encoding: chunked\r\n", b""),
    b"HTTP/1.1 103 Early\r\nContent-Type: text/html\r\n\r\n" + HEAD,
    b"",
)
_LONGEST_DETAIL, _LONGEST_NAME = 500, 200
_MAX_TRIES = 8


class _UnconnectedConnection(ScriptedConnection):
    """Is connected at once."""

    def connect(self) -> None:
        self._on_established()


class _UnconnectedPool(EndpointPool):
    """Keeps the connections that were made, and reuses none."""

    def __init__(self, dialect: Dialect) -> None:
        target = Target(url="http://127.0.0.1:9", model="m", dialect=dialect, api_key="sk-secret-of-a-fuzz")
        super().__init__(_loop, _clock, 0, target)
        self.made: list[ScriptedConnection] = []

    def new_connection(self) -> ScriptedConnection:
        self.made.append(_UnconnectedConnection(_loop))
        return self.made[-1]

    def idle_connection(self) -> None:
        return None


_loop, _clock = EventLoop(), KernelClock()
_pools = {dialect: _UnconnectedPool(dialect) for dialect in PATHS}


def run_request(dialect: Dialect, pieces: list[bytes]) -> Record:
    """Return the record of a request that received these bytes, in these reads, and then the end of the connection.

    A request that is sent again receives the same bytes again.
    """
    pool, records = _pools[dialect], list[Record]()
    pool.made.clear()
    pool.rejected_fields.clear()

    def finish(request: FinishedRequest) -> None:
        try:
            record = request.record()
            pack(Finished(1, record))
        except Exception as error:  # noqa: BLE001 — as in the worker
            record = request.faulty_record(error)
        records.append(record)

    agent = Agent(0, StartStage(1, 1), True, finish, lambda agent, pause: None)
    agent.start(Task(id=1, messages=(Message(role="user", content="q"),)), pool)
    while not records:
        assert len(pool.made) <= _MAX_TRIES, "it is sent again and again"
        _feed(pool.made[-1], pieces, agent)
        while _loop._after:
            _loop._after.popleft()()
    (record,) = records
    assert not agent.busy and pool.in_flight == 0
    assert record.t_done_ns is not None
    assert len(record.id) <= _LONGEST_NAME >= len(record.finish_reason or "")
    assert record.error is None or record.error.replace("_", "").isalnum()
    assert len(record.error_detail) <= _LONGEST_DETAIL
    assert len(record.text or "") + len(record.reasoning or "") <= sum(map(len, pieces))
    return record


def _feed(connection: ScriptedConnection, pieces: list[bytes], agent: Agent) -> None:
    """Let data and then its end arrive."""
    t = 1_000
    for piece in pieces:
        if connection.user is not None and piece:
            t += 1_000
            connection.receive(t, piece)
    connection.end()
    agent.row_if_changed()
    agent.watched_update()


def random_response(chance: random.Random) -> list[bytes]:
    """Return the reads of a random response: fragments, some of them damaged, behind one of several heads."""
    chunked, parts = chance.random() < 0.6, list[bytes]()
    for _ in range(chance.randint(0, 14)):
        part = bytearray(
            chance.choice(FRAGMENTS) if chance.random() < 0.85 else chance.randbytes(chance.randint(0, 60))
        )
        if part and chance.random() < 0.15:
            part[chance.randrange(len(part))] = chance.randrange(256)
        parts.append(b"%x\r\n%s\r\n" % (len(part), part) if chunked and part else bytes(part))
    end = b"0\r\n\r\n" if chunked and chance.random() < 0.7 else b""
    data = chance.choice(HEADS) + b"".join(parts) + end
    size = chance.choice((1 if len(data) < 4_000 else 97, 7, 40, 200, 1_400, len(data) or 1))
    return [data[at : at + size] for at in range(0, len(data), size)]


def _random_requests(count: int, chance: random.Random) -> Iterator[tuple[Dialect, list[bytes]]]:
    dialects = list(PATHS)
    for number in range(count):
        yield dialects[number % len(dialects)], random_response(chance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    errors: Counter[str] = Counter()
    for dialect, pieces in _random_requests(options.answers, random.Random(options.seed)):
        record = run_request(dialect, pieces)
        errors[record.error or "none"] += 1
        if record.error == CLIENT_FAULT:
            sys.stdout.write(f"{dialect}: {record.error_detail}: {b''.join(pieces)[:500]!r}\n")
    for name, count in errors.most_common():
        sys.stdout.write(f"{count:>8} {name}\n")
    sys.exit(1 if errors[CLIENT_FAULT] else 0)


if __name__ == "__main__":
    main()
