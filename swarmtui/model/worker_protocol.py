"""Messages between a session process and its workers: length-prefixed MessagePack over one stream.

Everything that a worker needs is in `Setup`, so it could run on another host.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from swarmtui.model.endpoint import Dialect
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Phase, Record
from swarmtui.model.workload import Task

HEADER_BYTES = 4
MAX_MESSAGE = 256 << 20


class ProtocolMessage(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the class name is the tag."""


class Target(msgspec.Struct, frozen=True):
    """An endpoint with its credentials; it is only sent in pipes, never stored."""

    url: str
    model: str
    dialect: Dialect = "chat"
    api_key: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    insecure: bool = False


class Setup(ProtocolMessage, frozen=True):
    """First message to a worker, which is number `worker` of `workers`.

    Its agents have the numbers worker, worker + workers, … If the session process exits, it writes its unacknowledged
    records to the first of `spools` that accepts them, in the clock of the session: its own is `clock_offset_ns` ahead.
    """

    worker: int
    workers: int
    targets: tuple[Target, ...]
    timeouts: Timeouts
    spools: tuple[str, ...] = ()
    keep_text: bool = False
    clock_offset_ns: int = 0


class Enqueue(ProtocolMessage, frozen=True):
    """Append tasks to the queue."""

    tasks: tuple[Task, ...]


class StartStage(ProtocolMessage, frozen=True):
    """Run `agents` streams; requests sent from now on belong to this stage, which has `c` streams over all workers.

    Agents above that number finish their request, unless `cancel`. Zero agents is a pause. `preconnect` is the number
    of connections to open before the first request, if not all agents will need one. `hold`: report `Ready` when they
    are open and tasks have arrived, and wait for `Begin`.
    """

    number: int
    agents: int
    c: int = 0
    run: int = 0
    phase: Phase = "level"
    cancel: bool = False
    preconnect: int | None = None
    hold: bool = False


class Begin(ProtocolMessage, frozen=True):
    """Start the requests of a stage that is on hold at this time, by the worker's clock: all workers at once."""

    stage: int
    at_ns: int


class TakeBack(ProtocolMessage, frozen=True):
    """Return up to `count` tasks from the end of the queue, to be started by other workers."""

    count: int


class Drop(ProtocolMessage, frozen=True):
    """Return all queued tasks; with `cancel` also cancel the requests in flight."""

    cancel: bool = False


class Ack(ProtocolMessage, frozen=True):
    """Acknowledge that records up to this number are in the journal, on disk."""

    number: int


class WatchAgent(ProtocolMessage, frozen=True):
    """Send the timestamps and text of this agent's response with each frame; None: stop sending them."""

    agent: int | None


class SendTails(ProtocolMessage, frozen=True):
    """Send the end of the text of these agents' responses a few times per second; no others."""

    agents: tuple[int, ...]


class SpoolTo(ProtocolMessage, frozen=True):
    """Write the spool file to one of these paths: the session has moved, or its clock was compared again."""

    paths: tuple[str, ...]
    clock_offset_ns: int = 0


WorkerCommand = Setup | Enqueue | StartStage | Begin | TakeBack | Drop | Ack | WatchAgent | SendTails | SpoolTo


class StreamRow(msgspec.Struct, frozen=True, array_like=True):
    """One agent in one window. `chunks` counts those of this window, `total` those since the request started.

    `span_s` is the time from the first chunk of the request to the latest. `measured`: it is in flight, and counts in
    its level.
    """

    agent: int
    state: str
    task: int
    type: str
    t_sent_ns: int
    chunks: int
    total: int
    ttft_s: float | None
    span_s: float = 0.0
    measured: bool = False

    @property
    def request(self) -> tuple[int, int]:
        """Identifies the request among those of its agent."""
        return self.task, self.t_sent_ns

    def continues(self, before: StreamRow | None) -> bool:
        """Whether `before` is an earlier row of the same answer."""
        return (
            before is not None and before.total > 0 and before.t_sent_ns == self.t_sent_ns and before.task == self.task
        )

    def written_since(self, before: StreamRow | None) -> tuple[int, int, float]:
        """Return whether this answer began since `before`, its chunks without its first one, and the time they took."""
        if before is not None and self.continues(before):
            return 0, max(0, self.total - before.total), max(0.0, self.span_s - before.span_s)
        return int(self.total > 0), max(0, self.total - 1), self.span_s


class WatchedUpdate(msgspec.Struct, frozen=True):
    """The timestamps of the watched agent's request, and its output since the previous frame.

    `times` are those of the new chunks. `task` is -1 if the agent has no request at the moment.
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


class TextTail(msgspec.Struct, frozen=True, array_like=True):
    """The end of the text of an agent's current response, which has `length` characters so far."""

    agent: int
    length: int
    text: str


class WorkerFrame(ProtocolMessage, frozen=True):
    """The streams that changed and the state of the worker, about ten times per second.

    `measured` counts the tasks in flight whose phase is that of the stage, `drops` the `Drop` commands executed so far.
    `tails` are those that changed. What nobody measured is null: in frames that are made from a journal.
    """

    t_ns: int
    agents: int
    in_flight: int
    waiting: int
    queued: int
    rows: tuple[StreamRow, ...]
    lag_ms: float | None
    cpu_ns: int | None
    clock_steps: int | None
    drops: int
    watched: WatchedUpdate | None = None
    measured: int = 0
    tails: tuple[TextTail, ...] = ()


class Finished(ProtocolMessage, frozen=True):
    """A finished request; the worker keeps it until it is acknowledged."""

    number: int
    record: Record


class Returned(ProtocolMessage, frozen=True):
    """The tasks removed from the queue by a `TakeBack` or `Drop`: those that have not been started."""

    tasks: tuple[int, ...]


class Ready(ProtocolMessage, frozen=True):
    """The connections of a stage on hold are open, or took too long, and its first tasks have arrived."""

    stage: int


class Failed(ProtocolMessage, frozen=True):
    """The worker cannot continue; `problem` is a sentence for the user."""

    problem: str


WorkerReport = WorkerFrame | Finished | Returned | Ready | Failed

_encoder = msgspec.msgpack.Encoder()
decode_command: Callable[[bytes], WorkerCommand] = msgspec.msgpack.Decoder(WorkerCommand).decode
decode_report: Callable[[bytes], WorkerReport] = msgspec.msgpack.Decoder(WorkerReport).decode


def pack(message: msgspec.Struct) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Unpacker:
    """Split a byte stream into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._pending += data
        pending, messages, start = self._pending, [], 0
        while len(pending) - start >= HEADER_BYTES:
            size = int.from_bytes(pending[start : start + HEADER_BYTES], "big")
            if size > MAX_MESSAGE:
                raise ValueError(f"invalid message of {size} bytes")
            end = start + HEADER_BYTES + size
            if len(pending) < end:
                break
            messages.append(bytes(pending[start + HEADER_BYTES : end]))
            start = end
        del pending[:start]
        return messages
