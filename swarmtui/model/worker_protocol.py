"""What conductor and worker say to each other: length-prefixed MessagePack over one stream.

A worker knows nothing of the conductor's host: everything it needs comes in `Setup`.
"""

from __future__ import annotations

import msgspec

from swarmtui.model.endpoint import Dialect
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Phase, Record
from swarmtui.model.workload import Task

HEADER_BYTES = 4
MAX_MESSAGE = 256 << 20


class _WorkerMessage(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the class name is the tag."""


class Target(msgspec.Struct, frozen=True):
    """One endpoint to load, with what authorises it; exists only in pipes and memory."""

    url: str
    model: str
    dialect: Dialect = "chat"
    api_key: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    insecure: bool = False


class Setup(_WorkerMessage, frozen=True):
    """First message to a worker. `spool` is where it leaves its records when the conductor is gone.

    It is number `worker` of `workers`, and its agents have the numbers worker, worker + workers, …
    """

    worker: int
    workers: int
    targets: tuple[Target, ...]
    timeouts: Timeouts
    spool: str | None = None
    keep_text: bool = False


class Enqueue(_WorkerMessage, frozen=True):
    """Tasks for agents to take, in this order."""

    tasks: tuple[Task, ...]


class StartStage(_WorkerMessage, frozen=True):
    """From now on `agents` streams; requests sent from now on belong to this stretch, of `c` streams in all.

    Agents above the number finish what they are doing, unless `cancel`. Zero agents is a pause.
    `ahead` is how many connections are to be open before the first request, where not all agents will need one.
    """

    number: int
    agents: int
    c: int = 0
    run: int = 0
    phase: Phase = "level"
    cancel: bool = False
    preconnect: int | None = None


class Drop(_WorkerMessage, frozen=True):
    """Forget the queued tasks; with `cancel` also end what is in flight."""

    cancel: bool = False


class Ack(_WorkerMessage, frozen=True):
    """Records up to this number are on disk."""

    number: int


class WatchAgent(_WorkerMessage, frozen=True):
    """Send the stamps and the text of this agent's answer with each frame; None: of nobody."""

    agent: int | None


class SpoolTo(_WorkerMessage, frozen=True):
    """The session has moved: what is left to spool goes there."""

    path: str


WorkerCommand = Setup | Enqueue | StartStage | Drop | Ack | WatchAgent | SpoolTo


class StreamRow(msgspec.Struct, frozen=True, array_like=True):
    """One agent in one window. `chunks` is new output in this window, `total` since the request began."""

    agent: int
    state: str
    task: int
    type: str
    t_sent_ns: int
    chunks: int
    total: int
    ttft_s: float | None


class WatchedUpdate(msgspec.Struct, frozen=True):
    """Of the agent that is watched: the stamps of its request, and what came since the frame before.

    `times` are of the new chunks. `task` is -1 where the agent has no request at this moment.
    """

    agent: int
    task: int
    turn: int = 0
    type: str = ""
    t_sched_ns: int | None = None
    t_sent_ns: int | None = None
    t_headers_ns: int | None = None
    t_first_content_ns: int | None = None
    times: tuple[int, ...] = ()
    reasoning: str = ""
    text: str = ""


class WorkerFrame(_WorkerMessage, frozen=True):
    """About ten a second: streams that changed, and the worker's own health.

    `chunks` and `shared_reads` are of finished requests. `drops` counts the `Drop` commands obeyed so far.
    """

    t_ns: int
    agents: int
    in_flight: int
    waiting: int
    queued: int
    rows: tuple[StreamRow, ...]
    lag_ms: float
    cpu_ns: int
    coalesced_chunks: int
    clock_steps: int
    drops: int
    watched: WatchedUpdate | None = None


class Finished(_WorkerMessage, frozen=True):
    """A finished request; kept by the worker until it is acknowledged."""

    number: int
    record: Record


class Failed(_WorkerMessage, frozen=True):
    """The worker cannot go on: what happened, in one sentence."""

    problem: str


WorkerReport = WorkerFrame | Finished | Failed

_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[WorkerCommand] = msgspec.msgpack.Decoder(WorkerCommand)
_report_decoder: msgspec.msgpack.Decoder[WorkerReport] = msgspec.msgpack.Decoder(WorkerReport)


def pack(message: msgspec.Struct) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode_command(body: bytes) -> WorkerCommand:
    return _command_decoder.decode(body)


def decode_report(body: bytes) -> WorkerReport:
    return _report_decoder.decode(body)


class Unpacker:
    """Bytes as they come, whole messages out."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._pending += data
        pending, messages, start = self._pending, [], 0
        while len(pending) - start >= HEADER_BYTES:
            size = int.from_bytes(pending[start : start + HEADER_BYTES], "big")
            if size > MAX_MESSAGE:
                raise ValueError(f"a message of {size} bytes is not one of ours")
            end = start + HEADER_BYTES + size
            if len(pending) < end:
                break
            messages.append(bytes(pending[start + HEADER_BYTES : end]))
            start = end
        del pending[:start]
        return messages
