"""One measurement of many, as `ab` and `tune` make them: a conductor, its progress, and what came out."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from swarmtui.cli.progress import Progress, progress_on
from swarmtui.client.client import Client, Gone, attach, running, start
from swarmtui.client.interrupt import Stopping
from swarmtui.model import client_protocol as said
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.session import Summary

_LOOK_S = 0.1
_GONE_WITHIN_S = 10.0


class Measured(Stored, frozen=True, kw_only=True):
    """`problem` is empty where the plan was carried out; `cut` says that we ended it."""

    summary: Summary | None = None
    problem: str = ""
    cut: bool = False


class Wish:
    """Whether somebody pressed Ctrl-C: looked at wherever we wait. `at_once`: and pressed it again."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self) -> bool:
        return self._asked > 0

    def at_once(self) -> bool:
        return self._asked > 1

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1

    @contextlib.contextmanager
    def heard(self) -> Iterator[Wish]:
        before = [(number, signal.signal(number, self._ask)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield self
        finally:
            # Whoever has stopped it already takes nothing of its end away by asking again.
            for number, handler in before:
                signal.signal(number, signal.SIG_IGN if self() else handler)


def measure(
    order: Order,
    quiet: bool,
    wish: Wish,
    stop: Callable[[], str | None],
    heard: Callable[[said.Message], None] = lambda message: None,
) -> Measured:
    """`stop` is asked ten times a second; its reason ends the run at once. `heard` gets what the conductor says."""
    progress = progress_on(sys.stderr, quiet)
    client = start(order, said.Subscribe(hz=4.0))
    stopping = Stopping()
    stopping.of(client)
    try:
        ended, why = _follow(client, progress, stopping, wish, stop, heard)
    except Gone:
        return Measured(problem=f"the conductor {client.how_it_ended()}")
    finally:
        progress.clear()
        client.close()
    summary = _summary(ended.directory)
    if why:
        return Measured(summary=summary, problem=why, cut=True)
    if ended.ending == "done":
        return Measured(summary=summary)
    return Measured(summary=summary, problem=ended.message or ended.ending)


def _follow(
    client: Client,
    progress: Progress,
    stopping: Stopping,
    wish: Wish,
    stop: Callable[[], str | None],
    heard: Callable[[said.Message], None],
) -> tuple[said.Ended, str]:
    why = ""
    while True:
        message = client.next(_LOOK_S)
        if message is not None:
            heard(message)
        if not why and (reason := stop()):
            why = reason
            stopping.ask(grace_s=0.0)
        if wish.at_once() and not stopping.at_once:
            stopping.ask(grace_s=0.0)
        stopping.check()
        match message:
            case said.Frame():
                progress.show(message)
            case said.Ended():
                return message, why


def _summary(directory: str) -> Summary | None:
    try:
        return msgspec.json.decode((Path(directory) / "detail.json").read_bytes(), type=Summary) if directory else None
    except (OSError, msgspec.DecodeError):
        return None


def end_leftovers(tag: str, value: str) -> int:
    """Ends runs that an earlier one of ours, killed in the middle, left going: their server is gone, or a new one."""
    ended = 0
    for name in running():
        try:
            client = attach(name, said.Subscribe(hz=1.0))
        except BadInput:
            continue
        try:
            hello = client.next(1.0)
            if isinstance(hello, said.Hello) and hello.session.tags.get(tag) == value:
                client.say(said.Stop(grace_s=0.0))
                _until_gone(client)
                ended += 1
        except Gone:
            continue
        finally:
            client.close()
    return ended


def _until_gone(client: Client) -> None:
    give_up = time.monotonic() + _GONE_WITHIN_S
    while time.monotonic() < give_up:
        if isinstance(client.next(_LOOK_S), said.Ended):
            return
