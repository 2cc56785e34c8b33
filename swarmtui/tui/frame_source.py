"""Sources of frames: a running session process, a saved session that is replayed, or its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from swarmtui.client.session_client import ConnectionLost, SessionClient
from swarmtui.model.client_protocol import ClientCommand, Ended, Ending, Hello, WatchStream, WatchTails
from swarmtui.model.session import Summary
from swarmtui.tui.live_model import GPU_SAMPLES, LiveModel

if TYPE_CHECKING:
    from swarmtui.sessions.replay import Replay

SPEEDS = (1, 2, 5, 10, 20, 50)
# The app does not respond while it waits for the exit status of a session process.
_EXIT_WAIT_S = 0.2


class FrameSource(Protocol):
    """Fills a live model and calls `on_change` when there is something new to show."""

    live: LiveModel

    def open(self, on_change: Callable[[], None]) -> None: ...
    def send(self, command: ClientCommand) -> None: ...
    def close(self) -> None: ...


class LiveSource:
    """A running session process; messages are read as they arrive, because it does not wait for clients."""

    def __init__(self, client: SessionClient) -> None:
        self.live = LiveModel()
        self._client = client
        self._open = False
        self._on_change: Callable[[], None] = lambda: None
        # Messages that arrived while Textual was imported are part of the first paint.
        self._read()

    def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        asyncio.get_running_loop().add_reader(self._client.fileno(), self._read)
        self._open = True

    def send(self, command: ClientCommand) -> None:
        self._client.send(command)

    def close(self) -> None:
        """Disconnect; the run continues."""
        self._stop_reading()
        self._client.close(wait_s=0.0 if self.live.ended is None else 2.0)

    def _read(self) -> None:
        try:
            while (message := self._client.receive(0.0)) is not None:
                self.live.apply(message)
        except ConnectionLost:
            self._stop_reading()
            if self.live.ended is None:
                problem = f"the session process {self._client.exit_description(_EXIT_WAIT_S)}"
                self.live.apply(_interrupted(problem, self.live.directory))
        self._on_change()

    def _stop_reading(self) -> None:
        if self._open:
            asyncio.get_running_loop().remove_reader(self._client.fileno())
            self._open = False


def _interrupted(problem: str, directory: str) -> Ended:
    from swarmtui.sessions.journal import has_journal
    from swarmtui.sessions.store import removed_sentence, summary_hint

    if not directory:
        return Ended("interrupted", problem, "")
    if not has_journal(Path(directory)):
        return Ended("unsaved", f"{problem}; {removed_sentence(Path(directory))}", "")
    return Ended("interrupted", f"{problem}; {summary_hint(Path(directory))}", directory)


class SavedSource:
    """The result of a saved session: one frame, made from its summary; `since` is what another run changed since."""

    def __init__(self, summary: Summary, directory: str, since: tuple[str, ...] = ()) -> None:
        from swarmtui.sessions.replay import result_frame

        self.live = LiveModel()
        self.summary = summary
        self.since = since
        self.live.apply(Hello(summary.session, directory))
        self.live.apply(result_frame(summary))
        ending: Ending = "interrupted" if summary.state == "running" else summary.state
        self.live.apply(Ended(ending, summary.message, directory))

    def open(self, on_change: Callable[[], None]) -> None:
        on_change()

    def send(self, command: ClientCommand) -> None:
        """Do nothing: the session has ended."""

    def close(self) -> None:
        pass


class ReplaySource:
    """A saved session with its own clock, which can pause, run faster and jump."""

    def __init__(self, replay: Replay, hz: float) -> None:
        self.live = LiveModel()
        self._replay = replay
        self._interval_s = 1.0 / hz
        self.at_s = 0.0
        self.playing = True
        self.speed = SPEEDS[0]
        self._task: asyncio.Task[None] | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._watched: int | None = None
        self._tails: tuple[int, ...] = ()
        self._computing: asyncio.Task[None] | None = None
        self.live.apply(replay.hello)

    @property
    def length_s(self) -> float:
        return self._replay.length_s

    @property
    def at_end(self) -> bool:
        return self.at_s >= self.length_s

    def open(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.seek(0.0)
        self._task = asyncio.create_task(self._play())

    def send(self, command: ClientCommand) -> None:
        """Ignore every command except the selection of streams."""
        match command:
            case WatchStream(agent):
                self._watched = agent
                self._show()
            case WatchTails(agents):
                self._tails = agents
                self._show()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def seek(self, at_s: float) -> None:
        self.at_s = min(self.length_s, max(0.0, at_s))
        self.live.reset([], self._replay.samples_until(self.at_s, GPU_SAMPLES))
        self._show()

    def change_speed(self, steps: int) -> None:
        position = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, position))]
        self._on_change()

    def toggle(self) -> None:
        if self.at_end:
            self.seek(0.0)
        self.playing = not self.playing
        self._on_change()

    async def _play(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self.playing:
                self.at_s += min(self._interval_s * self.speed, self.length_s - self.at_s)
                self._show()
                self.playing = not self.at_end

    def _show(self) -> None:
        frame = self._replay.frame_at(self.at_s, watched=self._watched, tails=self._tails)
        self.live.points = self._replay.history
        self.live.apply(frame)
        missing = self._replay.missing_levels(self.at_s)
        if missing is not None and (self._computing is None or self._computing.done()):
            self._computing = asyncio.create_task(self._compute_levels(missing))
        self._on_change()

    async def _compute_levels(self, missing: int) -> None:
        """Compute the levels of a long session in a thread, then show them."""
        await asyncio.to_thread(self._replay.compute_levels, missing)
        self._show()
