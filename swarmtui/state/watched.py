"""Follow single streams: the request of a selected agent chunk by chunk, and the end of the text of others."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from itertools import pairwise

import msgspec

from swarmtui.analysis.levels.stats import spread
from swarmtui.analysis.machine.waterfall import waterfall
from swarmtui.model.base import copy_fields
from swarmtui.model.client_protocol import EarlierRequest, WatchedStream
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import TextTail, WatchedUpdate

# Finished requests that are kept per agent, and characters of the current answer.
_FINISHED_REQUESTS = 8
_MAX_TEXT = 32 << 10
# The newest gaps are shown individually, up to this number.
_MAX_GAPS = 240
# Each frame carries the previews of all finished requests of the agent.
_MAX_PREVIEW = 2_000


class WatchedStreams:
    """Collects the current request of one selected agent, the last requests of all agents, and the tails of some."""

    def __init__(self) -> None:
        self._agent: int | None = None
        self._latest: WatchedUpdate | None = None
        self._times: list[int] = []
        self._reasoning = self._text = ""
        self._finished: defaultdict[int, deque[Record]] = defaultdict(partial(deque[Record], maxlen=_FINISHED_REQUESTS))
        self._tails: dict[int, TextTail] = {}

    def select(self, agent: int | None) -> None:
        self._agent, self._latest = agent, None
        self._times, self._reasoning, self._text = [], "", ""

    def select_tails(self, agents: tuple[int, ...]) -> None:
        """Keep the end of the text of these agents, empty until it arrives."""
        self._tails = {agent: self._tails.get(agent) or TextTail(agent, 0, "") for agent in agents}

    def update(self, update: WatchedUpdate) -> None:
        """Add what arrived; between two requests the last answer stays."""
        if update.agent != self._agent or update.task < 0:
            return
        if self._latest is None or (update.task, update.turn) != (self._latest.task, self._latest.turn):
            self._times, self._reasoning, self._text = [], "", ""
        self._latest = update
        self._times += update.times
        self._reasoning = (self._reasoning + update.reasoning)[-_MAX_TEXT:]
        self._text = (self._text + update.text)[-_MAX_TEXT:]

    def update_tails(self, tails: tuple[TextTail, ...]) -> None:
        # A worker may send some after a client has stopped watching them.
        self._tails |= {tail.agent: tail for tail in tails if tail.agent in self._tails}

    def add_record(self, record: Record) -> None:
        preview = (record.text or record.reasoning or "")[:_MAX_PREVIEW]
        kept = msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None, text=preview, reasoning=None)
        self._finished[record.agent].appendleft(kept)

    @property
    def tails(self) -> tuple[TextTail, ...]:
        return tuple(self._tails.values())

    def view(self) -> WatchedStream | None:
        if self._agent is None:
            return None
        latest, times, records = self._latest, self._times, tuple(self._finished.get(self._agent, ()))
        finished = tuple(map(_earlier, records, (*records[1:], None)))
        time_spent = waterfall(record for record in records if record.stage == records[0].stage)
        if latest is None:
            return WatchedStream(agent=self._agent, before=finished, waterfall=time_spent)
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
        return copy_fields(
            WatchedStream,
            latest,
            t_first_ns=times[0] if times else None,
            t_last_ns=times[-1] if times else None,
            chunks=len(times),
            gaps_s=spread(gaps),
            recent_gaps_s=tuple(gaps[-_MAX_GAPS:]),
            reasoning=self._reasoning,
            text=self._text,
            before=finished,
            waterfall=time_spent,
        )


def _earlier(record: Record, before: Record | None) -> EarlierRequest:
    """Describe a request; what passes between two stages is no part of its time."""
    spent = waterfall([record], before=before if before and before.stage == record.stage else None)
    return copy_fields(EarlierRequest, record, waterfall=spent, preview=record.text or "")
