"""Run one measurement of an A/B test or a tune, and return its summary."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from swarmtui.client.session_client import (
    ConnectionLost,
    SessionClient,
    StopControl,
    attach,
    running_sessions,
    start_session,
)
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.model.session_tags import Series
from swarmtui.processes.exits import exit_if_stuck, ignore_signals_unless_stuck
from swarmtui.sessions.documents import read_saved_summary

_POLL_S = 0.1
_END_TIMEOUT_S = 10.0


class FrameDisplay(Protocol):
    """Shows the frames of a running measurement."""

    def show(self, frame: client_protocol.Frame) -> None: ...
    def clear(self) -> None: ...


class NoDisplay:
    """Show nothing: for a process without a terminal."""

    def show(self, frame: client_protocol.Frame) -> None:
        pass

    def clear(self) -> None:
        pass


class Measurement(Stored, frozen=True, kw_only=True):
    """The result of one run: `problem` is empty if the plan was completed."""

    summary: Summary | None = None
    problem: str = ""


class StopRequest:
    """Count SIGINT and SIGTERM. Calling it returns whether one arrived; `immediate` whether a second one did."""

    def __init__(self) -> None:
        self._signals = 0

    def __call__(self) -> bool:
        return self._signals > 0

    def immediate(self) -> bool:
        return self._signals > 1

    def _count(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self.immediate():
            exit_if_stuck()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[StopRequest]:
        before = [(number, signal.signal(number, self._count)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield self
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            if self():
                # Further signals must not interrupt the clean-up and the report.
                ignore_signals_unless_stuck()


def measure(
    request: RunRequest,
    display: FrameDisplay,
    stop: StopRequest,
    abort_reason: Callable[[], str | None],
    on_message: Callable[[client_protocol.SessionMessage], None] = lambda message: None,
) -> Measurement:
    """Run one session. `abort_reason` is called ten times per second; a reason it returns ends the run at once."""
    client = start_session(request, client_protocol.Subscribe(hz=4.0))
    control = StopControl()
    control.attach(client)
    try:
        ended, reason = _follow(client, display, control, stop, abort_reason, on_message)
    except ConnectionLost:
        return Measurement(problem=f"the session process {client.exit_description()}")
    finally:
        display.clear()
        client.close()
    summary = read_saved_summary(ended.directory)
    problem = "" if ended.ending == "done" else ended.message or ended.ending
    return Measurement(summary=summary, problem=reason or problem)


def _follow(
    client: SessionClient,
    display: FrameDisplay,
    control: StopControl,
    stop: StopRequest,
    abort_reason: Callable[[], str | None],
    on_message: Callable[[client_protocol.SessionMessage], None],
) -> tuple[client_protocol.Ended, str]:
    """Read messages until the session ends; return the last one and why we aborted it, if we did."""
    reason = ""
    while True:
        message = client.receive(_POLL_S)
        if message is not None:
            on_message(message)
        if not reason and (found := abort_reason()):
            reason = found
            control.request(grace_s=0.0)
        if stop.immediate() and not control.immediate:
            control.request(grace_s=0.0)
        control.kill_if_overdue()
        match message:
            case client_protocol.Frame():
                display.show(message)
            case client_protocol.Ended():
                return message, reason


def stop_orphaned_runs(series: Series) -> int:
    """Stop sessions of this series that an interrupted experiment left running; return how many there were."""
    ended = 0
    for name in running_sessions():
        try:
            client = attach(name, client_protocol.Subscribe(hz=1.0))
        except BadInput:
            continue
        try:
            hello = client.receive(1.0)
            if isinstance(hello, client_protocol.Hello) and hello.session.series == series:
                client.send(client_protocol.Stop(grace_s=0.0))
                _wait_for_end(client)
                ended += 1
        except ConnectionLost:
            continue
        finally:
            client.close()
    return ended


def _wait_for_end(client: SessionClient) -> None:
    deadline = time.monotonic() + _END_TIMEOUT_S
    while time.monotonic() < deadline:
        if isinstance(client.receive(_POLL_S), client_protocol.Ended):
            return
