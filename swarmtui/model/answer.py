"""The answer of a session to three questions: how many agents, why no more, what to change."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored

# A range is wide if its low end is below this share of the number.
_WIDE = 0.75


def wide_range(agents: int | None, low: int | None, high: int | None) -> tuple[int, int] | None:
    """Return the range of a number of agents if its low end is far below them."""
    if not agents or not low or high is None:
        return None
    return (low, high) if low < _WIDE * agents and agents - low > 1 else None


class AnswerSentence(Stored, frozen=True, kw_only=True):
    """A sentence for readers, and its stable `code` for programs."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class AnswerPoint(Stored, frozen=True, kw_only=True):
    """One level: median TTFT, its p90 if there are enough requests, and its maximum; tok/s per stream and in total.

    With an SLO on it, the p90 is that of the requests that it judged: `ttft_good` of these `ttft_n` had their first
    token within `ttft_limit_s`. The median is that of the tables; null if it contradicts that count. `half_width` is
    that of the 95 % interval of the total, as a share of it. `tokens_in` and `tokens_out` are the mean lengths of
    prompts and answers, `e2e_s` the median time from request to last token. A server with fewer slots than agents
    serves this many `at_once`.
    """

    c: int
    ttft_s: float | None
    ttft_p90_s: float | None = None
    ttft_max_s: float | None = None
    ttft_limit_s: float | None = None
    ttft_good: int | None = None
    ttft_n: int | None = None
    e2e_s: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    at_once: int | None = None
    per_stream_tps: float | None
    out_tps: float | None
    half_width: float | None = None


class SlotsForecast(Stored, frozen=True, kw_only=True):
    """The prediction for a server with `slots` in total, which `setting` gives it: how many agents keep the SLO.

    `agents_low` is null if it is not known that there are more than now, `agents_high` if nothing is predicted. Where
    only the tok/s in total are known, `agents_shared` are the agents if these do not grow.
    `each_tps` is what each agent has now while it writes, `shared_tps` what it has then if the total stays the same.
    """

    setting: str
    slots: int
    agents_low: int | None = None
    agents_high: int | None = None
    agents_shared: int | None = None
    each_tps: float | None = None
    shared_tps: float | None = None


class NextStep(Stored, frozen=True, kw_only=True):
    """Something to try: a sentence, the command or flag to copy, if there is one, and the figures behind it.

    `forecast` is what is predicted for more slots.
    """

    code: str
    sentence: str
    command: str = ""
    evidence: str = ""
    forecast: SlotsForecast | None = None


class Answer(Stored, frozen=True, kw_only=True):
    """`headline` says how many agents (after a search, or a run with an SLO), else which level is best.

    `agents` with `low` and `high` is the capacity, null if no SLO was judged: these ends are the highest level that is
    surely kept, and one below the lowest that is surely missed. `high` is null if none is. If something made the
    server look slower, `disturbed`, only levels that were missed by far count for it. `missed_c` is the lowest level
    that misses it as measured. `confidence` is that of each bound: 0.99 for a search at 1 %. `best_c` is the best
    measured level.
    `at_capacity` is the level of `agents`, else the best one. `limit` says why there are no more: its code is
    `not_known` where no fact tells. `border` says what the levels at the capacity and above it did, and which were not
    tried. `doubts` is empty if nothing puts the measurement in doubt.
    """

    headline: AnswerSentence
    agents: int | None = None
    low: int | None = None
    high: int | None = None
    missed_c: int | None = None
    slo: str = ""
    confidence: float | None = None
    best_c: int | None = None
    one_agent: AnswerPoint | None = None
    at_capacity: AnswerPoint | None = None
    limit: AnswerSentence
    border: str = ""
    next: tuple[NextStep, ...] = ()
    quality: Literal["ok", "note", "doubtful"] = "ok"
    doubts: str = ""
    disturbed: str = ""

    @property
    def wide_range(self) -> tuple[int, int] | None:
        """The range if the number alone would look more certain than it is."""
        return wide_range(self.agents, self.low, self.high)

    @property
    def is_doubtful(self) -> bool:
        """Whether the number has the sign of doubt: by the quality of the measurement, or if any fewer are possible."""
        return self.quality == "doubtful" or bool(self.agents and not self.low)

    @property
    def is_open(self) -> bool:
        """Whether it is the agents or any number more."""
        return self.agents is not None and (self.low, self.high) == (self.agents, None)
