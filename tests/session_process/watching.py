"""A face for tests: starts sessions, reads what they say, and waits for what must come."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarmtui.client import client
from swarmtui.model import client_protocol as said
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.run_request import Order
from swarmtui.sessions.journal import Journal, read_journal
from tests.cli.programs import TIMEOUT_S, Place, with_signal

OFTEN = said.Subscribe(hz=20.0)


def plan(*levels: int, requests: int = 12, **given: Any) -> Plan:
    """No warm-up, and a fixed number of requests a level."""
    return Plan(levels=levels, requests=Requests(count=requests, per_stream=False), warmup=0, **given)


def ramp(c: int, **given: Any) -> Plan:
    return Plan(mode="manual", levels=(c,), warmup=0, **given)


class Face:
    """One client, and what it has heard so far."""

    def __init__(self, joined: client.Client) -> None:
        self.client = joined
        self.hello: said.Hello | None = None
        self.frames: list[said.Frame] = []
        self.ended: said.Ended | None = None

    def say(self, command: said.Command) -> None:
        self.client.say(command)

    def hear(self, patience_s: float) -> said.Message | None:
        message = self.client.next(patience_s)
        match message:
            case said.Hello():
                assert self.hello is None
                self.hello = message
            case said.Frame():
                self.frames.append(message)
            case said.Ended():
                self.ended = message
        return message

    def until(self, condition: Callable[[said.Frame], bool]) -> said.Frame:
        """The first frame from now on that is so."""
        give_up = time.monotonic() + TIMEOUT_S
        while (left := give_up - time.monotonic()) > 0:
            message = self.hear(left)
            assert self.ended is None, self.ended
            if isinstance(message, said.Frame) and condition(message):
                return message
        raise AssertionError(f"never came true; last seen: {self.frames[-1:]}")

    def to_the_end(self) -> said.Ended:
        give_up = time.monotonic() + TIMEOUT_S
        while self.ended is None:
            left = give_up - time.monotonic()
            assert left > 0, f"no end; last seen: {self.frames[-1:]}"
            self.hear(left)
        return self.ended

    def known(self) -> said.Hello:
        while self.hello is None:
            assert self.hear(TIMEOUT_S) is not None
        return self.hello


class Stage:
    """Where sessions are played: their directories, and the faces that look on."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._faces: list[Face] = []

    def start(self, url: str, wanted: Plan, wish: said.Subscribe = OFTEN, **given: Any) -> Face:
        order = Order(
            endpoints=(url,), workload="chat", plan=wanted, session_root=str(self.place.sessions), **given
        )  # fmt: skip
        return self._keep(client.start(order, wish))

    def attach(self, session: str, wish: said.Subscribe = OFTEN) -> Face:
        return self._keep(client.attach(session, wish))

    def _keep(self, joined: client.Client) -> Face:
        face = Face(joined)
        self._faces.append(face)
        return face

    def journal(self, face: Face) -> Journal:
        assert face.ended is not None
        return read_journal(Path(face.ended.directory))

    def close(self) -> None:
        for process in self.place.processes():
            with_signal(process.pid, signal.SIGKILL)
        for face in self._faces:
            face.client.close()
