"""Run one session of an experiment, and count the signals that stop it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from swarmtui.client.session_client import ConnectionLost, StopControl, attach, running_sessions, start_session
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.processes.exits import exit_if_stuck, ignore_signals_unless_stuck
from swarmtui.sessions.documents import read_saved_summary

_POLL_S = 0.1
_END_TIMEOUT_S = 10.0


class StopRequest:
    """Count SIGINT and SIGTERM. Calling it returns whether one arrived; `immediate` whether a second one did."""

    def __init__(self) -> None:
        self._signals = 0

    def __call__(self) -> bool:
        return self._signals > 0

    def immediate(self) -> bool:
        return self._signals > 1

    def count(self, number: int = 0, frame: FrameType | None = None) -> None:
        self._signals += 1
        if self.immediate():
            exit_if_stuck()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[StopRequest]:
        before = [(number, signal.signal(number, self.count)) for number in (signal.SIGINT, signal.SIGTERM)]
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
    stop: StopRequest,
    failure: Callable[[], str | None],
    on_message: Callable[[client_protocol.SessionMessage], None],
) -> tuple[Summary | None, str]:
    """Run one session; return its summary, and why its plan was not completed.

    `failure` is called ten times per second; a reason that it returns, or a stop request, ends the run at once.
    """
    client = start_session(request, client_protocol.Subscribe(hz=4.0))
    control = StopControl()
    control.attach(client)
    reason, message = "", None
    try:
        while not isinstance(message, client_protocol.Ended):
            message = client.receive(_POLL_S)
            if message is not None:
                on_message(message)
            if not reason and (reason := "stopped" if stop() else failure() or ""):
                control.request(grace_s=0.0)
            if stop.immediate() and not control.immediate:
                control.request(grace_s=0.0)
            control.kill_if_overdue()
    except ConnectionLost:
        return None, f"the session process {client.exit_description()}"
    finally:
        client.close()
    problem = "" if message.ending == "done" else message.message or message.ending
    return read_saved_summary(message.directory), reason or problem


def stop_orphaned_runs(kind: str, name: str) -> int:
    """Stop sessions of this series that an interrupted experiment left running; return how many there were."""
    ended = 0
    for session in running_sessions():
        try:
            client = attach(session, client_protocol.Subscribe(hz=1.0))
        except BadInput:
            continue
        try:
            hello = client.receive(1.0)
            series = hello.session.series if isinstance(hello, client_protocol.Hello) else None
            if series is not None and (series.kind, series.name) == (kind, name):
                client.send(client_protocol.Stop(grace_s=0.0))
                deadline = time.monotonic() + _END_TIMEOUT_S
                while time.monotonic() < deadline and not isinstance(client.receive(_POLL_S), client_protocol.Ended):
                    continue
                ended += 1
        except ConnectionLost:
            continue
        finally:
            client.close()
    return ended
