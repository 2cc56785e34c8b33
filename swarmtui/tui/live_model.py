"""The state that the live screens show: the newest frame, the session and the history."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.answer import Answer
from swarmtui.model.client_protocol import Ended, Frame, Hello, ProvisionalLevel, SessionMessage, StreamRate
from swarmtui.model.findings import SearchState, Slots
from swarmtui.model.session import Session
from swarmtui.model.telemetry import HistoryPoint, Telemetry, thinned

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

GPU_SAMPLES = 60


class LiveModel:
    """Updated by a frame source with whole messages; widgets see only the views made from it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.directory = ""
        self.frame: Frame | None = None
        self.ended: Ended | None = None
        self.points: list[HistoryPoint] = []
        self.power: dict[str, tuple[float | None, ...]] = {}
        self._sampled_ns = 0

    @property
    def provisional(self) -> tuple[ProvisionalLevel, ...]:
        return self.frame.provisional if self.frame is not None else ()

    @property
    def marked_by(self) -> tuple[Slots | None, Answer | None, SearchState | None]:
        """What decides which levels are marked."""
        frame = self.frame
        return (frame.slots, frame.answer, frame.search) if frame is not None else (None, None, None)

    def next_command(self, pair: Pair | None) -> str:
        """Return the command, or the flags, of what to try next, by what a comparison has shown; empty if none is."""
        answer = self.frame.answer if self.frame is not None else None
        steps = (pair.next if pair is not None else ()) or (answer.next if answer is not None else ())
        return next((step.command for step in steps if step.command), "")

    @property
    def stream_rates(self) -> dict[int, StreamRate]:
        return {rate.agent: rate for rate in self.frame.rates} if self.frame is not None else {}

    def apply(self, message: SessionMessage) -> None:
        match message:
            case Hello(session, directory, history):
                self.session, self.directory = session, directory
                self.points = list(history)
            case Frame():
                self._apply_frame(message)
            case Ended():
                self.ended = message
                self.directory = message.directory or self.directory

    def snapshot(self) -> LiveModel:
        """Return a copy that later messages do not change."""
        kept = copy(self)
        kept.points = list(self.points)
        kept.power = dict(self.power)
        return kept

    def describe(self, label: str, note: str) -> None:
        """Store a label and note that were just sent: no frame repeats them."""
        if self.session is not None:
            self.session = msgspec.structs.replace(self.session, label=label, note=note)

    def set_directory(self, directory: str) -> None:
        """Store where an ended session was moved to."""
        self.directory = directory
        if self.ended is not None:
            self.ended = msgspec.structs.replace(self.ended, directory=directory)

    def reset(self, points: list[HistoryPoint], samples: Iterable[Telemetry]) -> None:
        """Replace what belongs to another moment, after a replay has jumped."""
        self.points = points
        self.power, self._sampled_ns = {}, 0
        for sample in samples:
            self._apply_telemetry(sample)

    def _apply_frame(self, frame: Frame) -> None:
        newest = self.points[-1].t_ns if self.points else 0
        self.points = thinned([*self.points, *(point for point in frame.points if point.t_ns > newest)])
        if frame.telemetry is not None:
            self._apply_telemetry(frame.telemetry)
        self.frame = frame

    def _apply_telemetry(self, telemetry: Telemetry) -> None:
        """Store each GPU sample once: several frames may repeat it."""
        if telemetry.t_ns == self._sampled_ns:
            return
        self._sampled_ns = telemetry.t_ns
        for gpu in telemetry.gpus:
            self.power[gpu.uuid] = (*self.power.get(gpu.uuid, ())[1 - GPU_SAMPLES :], gpu.power_w)
