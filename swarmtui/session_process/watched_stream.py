"""The stream that somebody looks at, as it comes in from its worker, and what every agent answered last."""

from __future__ import annotations

from collections import defaultdict, deque

from swarmtui.analysis.stream_detail import answered, watched
from swarmtui.model import client_protocol as said
from swarmtui.model import worker_protocol
from swarmtui.model.record import Record

# So many answers of an agent are remembered, and so much of the present one is shown.
_ANSWERS = 8
_MOST_TEXT = 32 << 10


class Watching:
    """Of one agent at a time; of the others nothing is known but their last answers."""

    def __init__(self) -> None:
        self._agent: int | None = None
        self._news: worker_protocol.Watched | None = None
        self._times: list[int] = []
        self._reasoning = self._text = ""
        self._before: defaultdict[int, deque[said.Answered]] = defaultdict(lambda: deque(maxlen=_ANSWERS))

    def choose(self, agent: int | None) -> None:
        self._agent, self._news = agent, None
        self._times, self._reasoning, self._text = [], "", ""

    def hear(self, news: worker_protocol.Watched) -> None:
        """What comes after the last answer and before the next request leaves that answer in sight."""
        if news.agent != self._agent or news.task < 0:
            return
        if self._news is None or (news.task, news.turn) != (self._news.task, self._news.turn):
            self._times, self._reasoning, self._text = [], "", ""
        self._news = news
        self._times += news.times
        self._reasoning = (self._reasoning + news.reasoning)[-_MOST_TEXT:]
        self._text = (self._text + news.text)[-_MOST_TEXT:]

    def finish(self, record: Record) -> None:
        self._before[record.agent].appendleft(answered(record))

    def shown(self) -> said.Watched | None:
        if self._agent is None:
            return None
        news, before = self._news, tuple(self._before.get(self._agent, ()))
        if news is None:
            return said.Watched(agent=self._agent, before=before)
        return watched(news, self._times, self._reasoning, self._text, before)
