"""Where frames come from: a conductor that runs now, or a session that is watched again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from swarmtui.client.client import Client, Gone
from swarmtui.model.client_protocol import Command, Ended, WatchStream
from swarmtui.tui.live_model import Track

if TYPE_CHECKING:
    from swarmtui.sessions.replay import Replay

SPEEDS = (1, 2, 5, 10, 20, 50)
_PRIMED_S = 9
# The screen stands still while a conductor that has hung up is waited for.
_ENDS_WITHIN_S = 0.2


class Source(Protocol):
    """Both kinds fill a track and call `wake` when there is something new to show."""

    track: Track

    def open(self, wake: Callable[[], None]) -> None: ...
    def say(self, command: Command) -> None: ...
    def close(self) -> None: ...


class Live:
    """A running conductor, read as its messages come; it never waits for us, so we read all that is there."""

    def __init__(self, client: Client) -> None:
        self.track = Track()
        self._client = client
        self._open = False
        self._wake: Callable[[], None] = lambda: None
        # What came while the screen was being made ready is there for its first picture.
        self._read()

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        asyncio.get_running_loop().add_reader(self._client.fileno(), self._read)
        self._open = True

    def say(self, command: Command) -> None:
        self._client.say(command)

    def close(self) -> None:
        """The run goes on: a conductor does not mind that a face leaves."""
        self._stop_reading()
        self._client.close(wait_s=0.0 if self.track.ended is None else 2.0)

    def _read(self) -> None:
        try:
            while (message := self._client.next(0.0)) is not None:
                self.track.hear(message)
        except Gone:
            self._stop_reading()
            if self.track.ended is None:
                kept = "; what had finished by then is saved" if self.track.directory else ""
                why = f"the conductor {self._client.how_it_ended(_ENDS_WITHIN_S)}{kept}"
                self.track.hear(Ended("interrupted", why, self.track.directory))
        self._wake()

    def _stop_reading(self) -> None:
        if self._open:
            asyncio.get_running_loop().remove_reader(self._client.fileno())
            self._open = False


class Past:
    """A saved session on a clock of its own, which can stand still, run faster, and jump."""

    def __init__(self, replay: Replay, hz: float) -> None:
        self.track = Track()
        self._replay = replay
        self._pause_s = 1.0 / hz
        self.at_s = 0.0
        self.playing = True
        self.speed = SPEEDS[0]
        self._task: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._watched: int | None = None
        self.track.hear(replay.hello)

    @property
    def length_s(self) -> float:
        return self._replay.length_s

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.seek(0.0)
        self._task = asyncio.create_task(self._play())

    def say(self, command: Command) -> None:
        """What happened has happened; only what one looks at can be chosen."""
        if isinstance(command, WatchStream):
            self._watched = command.agent
            self._show(0)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def seek(self, at_s: float) -> None:
        self.at_s = min(self.length_s, max(0.0, at_s))
        self.track.restart(self._replay.points_until(self.at_s))
        self._show(_PRIMED_S)

    def faster(self, steps: int) -> None:
        place = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, place))]
        self._wake()

    def toggle(self) -> None:
        if self.at_s >= self.length_s:
            self.seek(0.0)
        self.playing = not self.playing
        self._wake()

    async def _play(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            if self.playing:
                step = min(self._pause_s * self.speed, self.length_s - self.at_s)
                self.at_s += step
                self._show(min(_PRIMED_S, int(step)))
                self.playing = self.at_s < self.length_s

    def _show(self, before_s: int) -> None:
        """The seconds before it are told first, so that rates of streams are those of this moment."""
        known = self.track.points[-1].t_ns if self.track.points else 0
        self.track.points.extend(point for point in self._replay.points_until(self.at_s) if point.t_ns > known)
        for second in range(before_s, -1, -1):
            if self.at_s >= second:
                frame = self._replay.frame_at(self.at_s - second)
                if self._watched is not None and not second:
                    frame = msgspec.structs.replace(frame, watched=self._replay.watched_at(self._watched, self.at_s))
                self.track.hear(frame)
        self._wake()
