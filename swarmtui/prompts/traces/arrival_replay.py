"""Replay traces of single requests by their arrival times."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from swarmtui.model.base import BadInput
from swarmtui.model.load import Load, Open, Sessions
from swarmtui.model.trace import ReplayedRequest, TraceSession, leading_blocks
from swarmtui.prompts.filler_text import Calibration
from swarmtui.prompts.sampling import nonce
from swarmtui.prompts.traces.block_text import BlockText, PromptChain
from swarmtui.prompts.traces.play import ComposedRequest
from swarmtui.prompts.traces.reader import read_sessions


def recorded_load(paths: Sequence[Path]) -> Load:
    """Return how a trace is replayed: by its arrival times, or in sessions if it has none."""
    times: list[float] = []
    for session in read_sessions(paths):
        if session.arrival_s is None:
            return Sessions()
        times += [session.arrival_s + request.at_s for request in session.requests]
    if not times:
        raise BadInput("the trace contains no request", source=str(paths[0]))
    return Open(rate=_mean_rate(min(times), max(times), len(times)), arrival="recorded", requests=len(times))


def _mean_rate(first_s: float, last_s: float, count: int) -> float:
    return (count - 1) / (last_s - first_s) if last_s > first_s else float(count)


class _Arrival(NamedTuple):
    at_s: float
    session: int
    turn: int
    input_tokens: int
    output_tokens: int
    blocks: array[int]


class ArrivingRequests:
    """The requests of a trace in the order of their arrival; after the last one it starts again."""

    def __init__(self, sessions: Iterable[TraceSession], seed: int, salt: str, calibration: Calibration) -> None:
        self._seed, self._salt = seed, salt
        self._names: list[str] = []
        self._requests: list[_Arrival] = []
        block_size, shared = 1, False
        for number, session in enumerate(sessions):
            self._names.append(session.id)
            block_size, shared = session.block_size, session.shared_blocks
            start_s = session.arrival_s or 0.0
            self._requests += [
                _Arrival(start_s + r.at_s, number, turn, r.input_tokens, r.output_tokens, array("q", r.blocks))
                for turn, r in enumerate(session.requests)
            ]
        self._requests.sort(key=lambda request: request[:3])
        self._text = BlockText(block_size, calibration)
        self._reusable = list(self._find_reusable(block_size)) if shared else [0] * len(self._requests)

    def _find_reusable(self, block_size: int) -> Iterator[int]:
        seen: set[int] = set()
        for request in self._requests:
            yield min(leading_blocks(request.blocks, seen) * block_size, request.input_tokens)
            seen.update(request.blocks)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def rate(self) -> float:
        """The mean number of requests per second, from the first to the last."""
        return _mean_rate(self._requests[0].at_s, self._requests[-1].at_s, len(self._requests))

    def arrival_times(self, rate: float) -> Iterator[float]:
        """Yield the times of the requests, in seconds from the first, at this mean rate, without end."""
        scale, first, start = self.rate / rate, self._requests[0].at_s, 0.0
        while True:
            for request in self._requests:
                yield start + (request.at_s - first) * scale
            start += (self._requests[-1].at_s - first) * scale + 1.0 / rate

    def compose(self, position: int, group: int) -> ComposedRequest:
        """Return the request at this position of a run; runs differ by their `group`, and share no text."""
        passed, index = divmod(position, len(self._requests))
        request = self._requests[index]
        number = group + passed * len(self._requests)
        chain = PromptChain(self._text, f"{self._seed}/{self._salt}/{number}", nonce(number, self._seed, self._salt))
        return ComposedRequest(
            chain.next_prompt(0, request.blocks, request.input_tokens, str(position)),
            request.output_tokens,
            ReplayedRequest(
                play=number + request.session,
                session=self._names[request.session],
                turn=request.turn,
                input_tokens=request.input_tokens,
                reusable_tokens=self._reusable[index],
            ),
        )
