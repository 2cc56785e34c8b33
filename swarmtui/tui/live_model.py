"""The state that the live screens show: the newest frame, the session, the history and the rate of each stream."""

from __future__ import annotations

from copy import copy

import msgspec

from swarmtui.model.client_protocol import Ended, Frame, Hello, SessionMessage
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS, LevelKey
from swarmtui.model.session import Session
from swarmtui.model.telemetry import HistoryPoint, Telemetry
from swarmtui.model.worker_protocol import StreamRow

RECENT_RATES = 8
_WINDOW_NS = 1_000_000_000
_ENOUGH_CHUNKS = 50
_MAX_POINTS = 1_200
_GPU_SAMPLES = 60


class StreamRate:
    """The tok/s of one stream: its output of each second in `recent`, the newest last.

    `rate` is that of the stream while it writes, without its time to first token, over as many of the latest seconds
    in which it wrote as it takes to count enough chunks.
    """

    __slots__ = ("_chunks", "_row", "_since_ns", "_span_s", "_unrated", "_written", "rate", "recent")

    def __init__(self, t_ns: int) -> None:
        self._since_ns = t_ns
        self._row: StreamRow | None = None
        # Of the current second: chunks without a rate (first ones of answers), others, and the time that these took.
        self._unrated, self._chunks, self._span_s = 0, 0, 0.0
        self._written: tuple[tuple[int, float], ...] = ()
        self.rate: float | None = None
        self.recent: tuple[float | None, ...] = ()

    def update(self, t_ns: int, row: StreamRow, tokens_per_chunk: float) -> None:
        """Add what arrived since the last update."""
        chunks, span_s = row.written_since(self._row)
        self._unrated += row.total > 0 and not row.continues(self._row)
        self._chunks, self._span_s, self._row = self._chunks + chunks, self._span_s + span_s, row
        passed = t_ns - self._since_ns
        if passed < _WINDOW_NS:
            return
        produced = self._unrated + self._chunks
        known = produced > 0 or row.state in ("writing", "thinking", "prefill", "waiting")
        newest = produced * tokens_per_chunk * 1e9 / passed if known else None
        self.recent = (*self.recent[1 - RECENT_RATES :], newest)
        if not known:
            self._written = ()
        elif self._span_s:
            self._written = (*self._written, (self._chunks, self._span_s))[-RECENT_RATES:]
        self.rate = self._mean_rate(tokens_per_chunk)
        self._since_ns, self._unrated, self._chunks, self._span_s = t_ns, 0, 0, 0.0

    def restart(self) -> None:
        """Forget the rate under another load; the chunks of the current second still count in `recent`."""
        self._written, self._unrated, self._chunks, self._span_s = (), self._unrated + self._chunks, 0, 0.0

    def _mean_rate(self, tokens_per_chunk: float) -> float | None:
        chunks, span_s = 0, 0.0
        for written, length_s in reversed(self._written):
            chunks, span_s = chunks + written, span_s + length_s
            if chunks >= _ENOUGH_CHUNKS:
                break
        return chunks * tokens_per_chunk / span_s if span_s else None


class ProvisionalLevel(msgspec.Struct, frozen=True):
    """A level before it is measured completely: `done` of the `of` requests that make it one; figures are so far.

    `of` is None if the time makes it a level. `is_rate`: the load is a request rate, not a C.
    """

    load: float
    done: int
    of: int | None
    out_tps: float | None
    per_stream_tps: float | None
    ttft_s: float | None
    is_rate: bool = False


class LiveModel:
    """Updated by a frame source with whole messages; widgets see only the views made from it."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.directory = ""
        self.frame: Frame | None = None
        self.ended: Ended | None = None
        self.points: list[HistoryPoint] = []
        self.stream_rates: dict[int, StreamRate] = {}
        self.power: dict[str, tuple[float | None, ...]] = {}
        self.memory: dict[str, tuple[float | None, ...]] = {}
        self._sampled_ns = 0
        self._provisional: dict[LevelKey, ProvisionalLevel] = {}
        self._stage: tuple[LevelKey, int] = ((0, None), 0)
        self._stage_ns = 0

    @property
    def provisional(self) -> tuple[ProvisionalLevel, ...]:
        """The levels that are not in the frame yet, with at least one finished request."""
        known = {level.key for level in self.frame.levels} if self.frame is not None else set()
        found = [level for key, level in self._provisional.items() if key not in known]
        return tuple(sorted(found, key=lambda level: level.load))

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
        kept.stream_rates = {agent: copy(rate) for agent, rate in self.stream_rates.items()}
        kept.power, kept.memory = dict(self.power), dict(self.memory)
        kept._provisional = dict(self._provisional)
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

    def reset(self, points: list[HistoryPoint]) -> None:
        """Discard what belongs to another moment, after a replay has jumped."""
        self.points, self.stream_rates = points, {}
        self.power, self.memory, self._sampled_ns = {}, {}, 0
        self._provisional, self._stage = {}, ((0, None), 0)

    def _apply_frame(self, frame: Frame) -> None:
        newest = self.points[-1].t_ns if self.points else 0
        self.points.extend(point for point in frame.points if point.t_ns > newest)
        if len(self.points) > _MAX_POINTS:
            self.points = self.points[::2]
        if self.frame is not None and (self.frame.c, self.frame.rate) != (frame.c, frame.rate):
            for known in self.stream_rates.values():
                known.restart()
        for row in frame.rows:
            rate = self.stream_rates.get(row.agent)
            if rate is None:
                rate = self.stream_rates[row.agent] = StreamRate(frame.t_ns)
            rate.update(frame.t_ns, row, frame.tokens_per_chunk)
        if frame.telemetry is not None:
            self._apply_telemetry(frame.telemetry)
        if frame.status == "running":
            self._apply_progress(frame)
        self.frame = frame

    def _apply_progress(self, frame: Frame) -> None:
        """Keep the figures of the current stage, with each request that finishes."""
        key = (frame.c, frame.rate)
        if self._stage != (key, frame.run):
            self._stage, self._stage_ns = (key, frame.run), frame.t_ns
        known = self._provisional.get(key)
        of = frame.of or (MIN_STEERED_COMPLETIONS * frame.c if frame.steered else None)
        if not frame.done or (known is not None and (known.done, known.of) == (frame.done, of)):
            return
        if known is not None and known.done > frame.done and frame.steered:
            # The same C again, with fewer requests than the first time.
            return
        rates = [point.out_tps for point in self.points if point.t_ns >= self._stage_ns and point.out_tps is not None]
        out_tps = sum(rates) / len(rates) if rates else frame.out_tps
        load, is_rate = (frame.c, False) if frame.rate is None else (frame.rate, True)
        figures = out_tps, frame.per_stream_tps, frame.ttft_s
        self._provisional[key] = ProvisionalLevel(load, frame.done, of, *figures, is_rate)

    def _apply_telemetry(self, telemetry: Telemetry) -> None:
        """Store each GPU sample once: several frames may repeat it."""
        if telemetry.t_ns == self._sampled_ns:
            return
        self._sampled_ns = telemetry.t_ns
        for gpu in telemetry.gpus:
            self.power[gpu.uuid] = (*self.power.get(gpu.uuid, ())[1 - _GPU_SAMPLES :], gpu.power_w)
            used = None if gpu.memory_used is None else float(gpu.memory_used)
            self.memory[gpu.uuid] = (*self.memory.get(gpu.uuid, ())[1 - _GPU_SAMPLES :], used)
