"""A client for tests: starts sessions, records their messages, and waits for frames."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarmtui.client.session_client import SessionClient, attach, start_session
from swarmtui.model import client_protocol
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.sessions.journal import Journal, read_journal
from tests.cli.programs import TIMEOUT_S, Sandbox, send_signal

OFTEN = client_protocol.Subscribe(hz=20.0)


def plan(*levels: int, workers: int | None = None, **load: Any) -> Plan:
    """A closed loop without warm-up, with a fixed number of requests per level, all of which are answered."""
    return Plan(load=Closed(levels=levels, warmup=0, **({"requests": 12, "complete": True} | load)), workers=workers)


def ramp(c: int, **given: Any) -> Plan:
    return Plan(goal="manual", load=Closed(levels=(c,), warmup=0), **given)


class RecordingClient:
    """A client, and the messages it has received."""

    def __init__(self, connection: SessionClient) -> None:
        self.client = connection
        self.hello: client_protocol.Hello | None = None
        self.frames: list[client_protocol.Frame] = []
        self.ended: client_protocol.Ended | None = None

    def send(self, command: client_protocol.ClientCommand) -> None:
        self.client.send(command)

    def receive(self, timeout_s: float) -> client_protocol.SessionMessage | None:
        message = self.client.receive(timeout_s)
        match message:
            case client_protocol.Hello():
                assert self.hello is None
                self.hello = message
            case client_protocol.Frame():
                self.frames.append(message)
            case client_protocol.Ended():
                self.ended = message
        return message

    def wait_for_frame(self, condition: Callable[[client_protocol.Frame], bool]) -> client_protocol.Frame:
        """Return the first frame from now on that meets the condition."""
        deadline = time.monotonic() + TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            message = self.receive(left)
            assert self.ended is None, self.ended
            if isinstance(message, client_protocol.Frame) and condition(message):
                return message
        raise AssertionError(f"not within the time limit; last frame: {self.frames[-1:]}")

    def wait_for_frames(self, count: int) -> None:
        """Wait for this many more frames: the session goes on while nothing happens."""
        for _ in range(count):
            self.wait_for_frame(lambda frame: True)

    def wait_for_end(self) -> client_protocol.Ended:
        deadline = time.monotonic() + TIMEOUT_S
        while self.ended is None:
            left = deadline - time.monotonic()
            assert left > 0, f"no end; last frame: {self.frames[-1:]}"
            self.receive(left)
        return self.ended

    def wait_for_hello(self) -> client_protocol.Hello:
        while self.hello is None:
            assert self.receive(TIMEOUT_S) is not None
        return self.hello


class SessionHarness:
    """Starts sessions in a sandbox, and closes their clients."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._clients: list[RecordingClient] = []

    def start(
        self,
        url: str,
        plan: Plan,
        subscription: client_protocol.Subscribe = OFTEN,
        workload: str = "chat",
        **given: Any,
    ) -> RecordingClient:
        request = RunRequest(
            endpoints=(url,), workload=workload, plan=plan, session_root=str(self.sandbox.sessions), **given
        )
        return self._keep(start_session(request, subscription))

    def attach(self, session: str, subscription: client_protocol.Subscribe = OFTEN) -> RecordingClient:
        return self._keep(attach(session, subscription))

    def _keep(self, connection: SessionClient) -> RecordingClient:
        session_client = RecordingClient(connection)
        self._clients.append(session_client)
        return session_client

    def journal(self, session_client: RecordingClient) -> Journal:
        """Read the journal, also of a session that is running."""
        assert session_client.hello is not None
        return read_journal(Path(session_client.hello.directory))

    def close(self) -> None:
        for process in self.sandbox.processes():
            send_signal(process.pid, signal.SIGKILL)
        for session_client in self._clients:
            session_client.client.close()
