"""One response to one client, streamed or whole: its progress, and the point at which a fault applies."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from swarmtui.sim.batching import Job
from swarmtui.sim.http import LAST_CHUNK, SimConnection
from swarmtui.sim.presets import Fault, Preset
from swarmtui.sim.requests import ParsedRequest, RequestRefused

FAILURE = RequestRefused(500, "EngineCore encountered an issue (simulated).", kind="InternalServerError")


class Reply(ABC):
    """A response in progress. `faulted` is set when its fault applies, `stalled` during a stall."""

    def __init__(
        self,
        connection: SimConnection,
        job: Job,
        request: ParsedRequest,
        fault: Fault | None,
        preset: Preset,
        speed: float,
        boot: int,
    ) -> None:
        self.connection, self.job, self.request, self.fault = connection, job, request, fault
        self.preset, self.speed = preset, speed
        self.id = f"{boot:08x}{job.number:08x}"
        self.created, self.sent = int(time.time()), 0
        self.faulted = self.stalled = False
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

    def start(self) -> None:
        """Send what precedes the first token."""
        return

    def _add(self, start: int, count: int) -> None:
        return

    def flush(self) -> None:
        return

    @abstractmethod
    def complete(self) -> None:
        """Write the rest, and free the connection for the next request."""

    @abstractmethod
    def fail(self) -> None:
        """Write an error in place of the next token."""


class WholeReply(Reply):
    def complete(self) -> None:
        words, reasoned, total = self.request.words, self.request.reasoning_tokens, self.request.output_tokens
        reasoning = words.text(0, reasoned).decode() if reasoned else None
        content = words.text(reasoned, total - reasoned).decode()
        self.connection.respond(200, msgspec.json.encode(self._document(content, reasoning)))

    def fail(self) -> None:
        self.connection.respond(FAILURE.status, msgspec.json.encode(self.error(FAILURE)))

    @abstractmethod
    def _document(self, content: str, reasoning: str | None) -> dict[str, Any]: ...

    @staticmethod
    @abstractmethod
    def error(refusal: RequestRefused) -> dict[str, Any]:
        """Return the body of an error."""


class Stream(Reply):
    """Collects the bytes of all steps until the next flush, so that a late wake-up does one write."""

    content_type = "text/event-stream; charset=utf-8"

    def start(self) -> None:
        self._pending: list[bytes] = []
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
        transport = self.connection.transport
        if self._pending and not transport.is_closing():  # asyncio prints a warning for a lost connection
            transport.write(b"".join(self._pending))
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


class SimApi(NamedTuple):
    """One HTTP API: how its requests are read, and in which form it responds."""

    parse: Callable[[bytes, Preset, int], ParsedRequest]
    stream: type[Stream]
    whole: type[WholeReply]
