"""What a face keeps beside the newest frame: the session, the history, each stream's recent rates."""

from __future__ import annotations

from copy import copy

import msgspec

from swarmtui.model.client_protocol import Ended, Frame, Hello, Message
from swarmtui.model.session import Session
from swarmtui.model.telemetry import Point, Telemetry

SPARK = 8
_WINDOW_NS = 1_000_000_000
_MOST_POINTS = 1_200
_GPU_SAMPLES = 60


class Pace:
    """How fast one stream goes: a rate for each second, the newest last."""

    __slots__ = ("_key", "_mark_ns", "_produced", "_total", "rate", "recent")

    def __init__(self, t_ns: int) -> None:
        self._mark_ns, self._produced, self._total = t_ns, 0, 0
        self._key: tuple[int, int] | None = None
        self.rate: float | None = None
        self.recent: tuple[float | None, ...] = ()

    def note(self, t_ns: int, key: tuple[int, int], total: int, tokens_per_chunk: float, busy: bool) -> None:
        """`key` tells one request from the next: their totals begin anew."""
        self._produced += max(0, total - self._total) if key == self._key else total
        self._key, self._total = key, total
        passed = t_ns - self._mark_ns
        if passed >= _WINDOW_NS:
            self.rate = self._produced * tokens_per_chunk * 1e9 / passed if self._produced or busy else None
            self.recent = (*self.recent[1 - SPARK :], self.rate)
            self._mark_ns, self._produced = t_ns, 0


class Track:
    """Fed by a source with whole messages; widgets never see it, only views made of it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.directory = ""
        self.frame: Frame | None = None
        self.ended: Ended | None = None
        self.points: list[Point] = []
        self.paces: dict[int, Pace] = {}
        self.power: dict[str, tuple[float | None, ...]] = {}
        self.memory: dict[str, tuple[float | None, ...]] = {}
        self._sampled_ns = 0

    def hear(self, message: Message) -> None:
        match message:
            case Hello(session, directory, history):
                self.session, self.directory = session, directory
                self.points = list(history)
            case Frame():
                self._frame(message)
            case Ended():
                self.ended = message
                self.directory = message.directory or self.directory

    def still(self) -> Track:
        """As it is now, whatever is heard from now on."""
        kept = copy(self)
        kept.points, kept.paces = list(self.points), {agent: copy(pace) for agent, pace in self.paces.items()}
        kept.power, kept.memory = dict(self.power), dict(self.memory)
        return kept

    def describe(self, label: str, note: str) -> None:
        """As it was just commanded: no frame repeats it."""
        if self.session is not None:
            self.session = msgspec.structs.replace(self.session, label=label, note=note)

    def moved(self, directory: str) -> None:
        """Saved elsewhere since."""
        self.directory = directory
        if self.ended is not None:
            self.ended = msgspec.structs.replace(self.ended, directory=directory)

    def restart(self, points: list[Point]) -> None:
        """A replay that jumps: what was kept of another moment no longer holds."""
        self.points, self.paces = points, {}
        self.power, self.memory, self._sampled_ns = {}, {}, 0

    def _frame(self, frame: Frame) -> None:
        newest = self.points[-1].t_ns if self.points else 0
        self.points.extend(point for point in frame.points if point.t_ns > newest)
        if len(self.points) > _MOST_POINTS:
            self.points = self.points[::2]
        for row in frame.rows:
            pace = self.paces.get(row.agent)
            if pace is None:
                pace = self.paces[row.agent] = Pace(frame.t_ns)
            busy = row.state in ("writing", "thinking", "prefill", "waiting")
            pace.note(frame.t_ns, (row.task, row.t_sent_ns), row.total, frame.tokens_per_chunk, busy)
        if frame.telemetry is not None:
            self._sample(frame.telemetry)
        self.frame = frame

    def _sample(self, telemetry: Telemetry) -> None:
        """GPU readings are kept once for each sample that is new, not for each frame that repeats it."""
        if telemetry.t_ns == self._sampled_ns:
            return
        self._sampled_ns = telemetry.t_ns
        for gpu in telemetry.gpus:
            self.power[gpu.uuid] = (*self.power.get(gpu.uuid, ())[1 - _GPU_SAMPLES :], gpu.power_w)
            used = None if gpu.memory_used is None else float(gpu.memory_used)
            self.memory[gpu.uuid] = (*self.memory.get(gpu.uuid, ())[1 - _GPU_SAMPLES :], used)
