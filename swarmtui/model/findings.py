"""Conclusions drawn from the figures of a session, each with its reason: checks, scaling, goodput."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored
from swarmtui.model.plan import PerLevel

# Codes of findings on a level that are shown as alarms: the answers are worse than those at C=1.
ALARMS = ("answers_worse", "answers_degenerate")


class Finding(Stored, frozen=True, kw_only=True):
    """A remark: a stable `code` for programs, and its `text` for readers."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


Findings = tuple[Finding, ...]


class Check(Stored, frozen=True, kw_only=True):
    """One line of the publication checklist. A condition that was not measured is unknown, and does not pass.

    One that the server or the machine cannot report is not applicable, and is no obstacle.
    """

    name: str
    state: Literal["ok", "not ok", "unknown", "not applicable"]
    value: str
    limit: str
    sentence: str
    code: str = ""


class Slots(Stored, frozen=True, kw_only=True):
    """Requests that the server runs at once; `inferred` ones are seen from the client, not reported."""

    per_replica: int
    replicas: int = 1
    inferred: bool = False
    reason: str = ""

    @property
    def total(self) -> int:
        return self.per_replica * self.replicas

    def __str__(self) -> str:
        if self.replicas > 1:
            return f"{self.replicas} replicas × {self.per_replica} slots"
        return f"{self.per_replica} slot{'s' if self.per_replica > 1 else ''}{', inferred' if self.inferred else ''}"


class Cliff(Stored, frozen=True, kw_only=True):
    """The lowest level that queues, `c`, and the highest level below it, `c_before`, which does not.

    Requests wait at `c` by the queue or the slots that the server reports, the slots that the client sees, or the TTFT
    of `c` and of the next higher level.

    `gain` is the change of output tok/s between them, `ttft_factor` the mean TTFT at `c` over the median of the mean
    TTFTs of the last three levels that do not queue.
    """

    c_before: int
    c: int
    gain: float
    ttft_factor: float | None


class QueueingDelay(Stored, frozen=True, kw_only=True):
    """TTFT at `c` streams, compared with the highest level at which each had a slot."""

    c: int
    seconds: float
    factor: float


class Scaling(Stored, frozen=True, kw_only=True):
    """The scaling law: a decode step of b streams takes a + c·b. What is null is in `refused`, with the reason.

    `sigma` = c/(a+c), `ceiling_tps` = replicas/c, `knee` = replicas·a/c: where half of the ceiling is reached.
    `fit_error` is the largest relative distance of a measured step from the line. `queue_forms` is the lowest level at
    which requests wait for others.
    """

    slots: Slots | None = None
    step_a_s: float | None = None
    step_c_s: float | None = None
    fit_error: float | None = None
    sigma: float | None = None
    ceiling_tps: float | None = None
    knee: float | None = None
    sweet_spot: int | None = None
    queue_forms: int | None = None
    cliff: Cliff | None = None
    queueing_delay: tuple[QueueingDelay, ...] = ()
    anomalies: Findings = ()
    refused: dict[str, Finding] = {}
    sentence: str = ""

    @property
    def reported_slots(self) -> Slots | None:
        """The slots, unless they were inferred from the levels."""
        return None if self.slots is None or self.slots.inferred else self.slots


class KeptShare(Stored, frozen=True, kw_only=True):
    """One condition of an SLO at a level: the share of requests that met it, with one-sided 95 % bounds.

    `n` are those that met or missed it, `good` of them met it. `kept` is null while the bounds do not decide whether
    the share is at least the `required` one. A limit on the time of jobs has jobs `counted`. `median` and `value`, the
    percentile that the limit is on, are those of the counted requests, at the end of a session; null with too few.
    """

    limit: str
    counted: Literal["requests", "jobs", "requests and jobs"] = "requests"
    required: float
    good: int
    n: int
    share: float | None
    share_low: float | None
    share_high: float | None
    kept: bool | None
    median: float | None = None
    value: float | None = None


class Goodput(PerLevel, frozen=True, kw_only=True):
    """Requests of a level that met the SLO; a failed request did not. `per_s` and `out_tps` count only these.

    `share_low` and `share_high` are one-sided 95 % bounds of the share. `kept`: all conditions are kept, by such bounds
    or as the search judged that visited the level; null while that is not decided, and where it was missed while
    something made the server look slower than it is.
    """

    n: int
    good: int
    share: float | None
    share_low: float | None = None
    share_high: float | None = None
    per_s: float | None
    out_tps: float | None
    kept: bool | None
    conditions: tuple[KeptShare, ...] = ()

    @property
    def met_least(self) -> tuple[int, int]:
        """The requests that met the condition that was met least often, and all that met or missed it.

        It is the count by which a search judges a level: unfinished requests that had met or missed it are in it.
        """
        worst = min(self.conditions, key=lambda condition: condition.share or 0.0, default=self)
        return worst.good, worst.n


class KvCliff(Stored, frozen=True, kw_only=True):
    """The number of agents from which prompts are evicted from the prefix cache.

    `predicted` is the size of the KV cache over the mean context of an agent. `c` is the lowest level with a lower hit
    rate, null if it did not fall, and `c_before` the level below it that it is compared with, null if no hit rate is
    known. `max_hit_before` and `max_hit_after` are the highest possible hit rates of a trace. `slots` are those of all
    servers: no more contexts are needed at once.
    """

    pool_tokens: int | None = None
    context_tokens: float | None = None
    predicted: float | None = None
    c_before: int | None = None
    c: int | None = None
    hit_before: float | None = None
    hit_after: float | None = None
    max_hit_before: float | None = None
    max_hit_after: float | None = None
    slots: int | None = None


# What a visit of a level is for, in a search: C doubles; a level at twice the one that failed has to fail, too; the gap
# is bisected; a level at the border needs more requests; the interval needs an end; the border is visited once more.
SearchStep = Literal["climb", "check", "bisect", "decide", "beside", "repeat"]


# Why a search ends although more visits could narrow its range: its time, or levels too close to a limit to tell apart.
SearchEnd = Literal["no_time", "close"]


LevelState = Literal["kept", "missed", "unsure", "dip"]
ShownState = Literal[LevelState, "likely kept", "likely missed"]


class SearchedLevel(Stored, frozen=True, kw_only=True):
    """Holds what a search knows of a level. For a cliff, a level that queues is missed, and `n` are its requests.

    For an SLO, `good` of `n` requests met the condition that was met least often. `dip`: it was missed, although a
    higher level is kept. `room`: how far the level is from the condition that is nearest to being missed, as a share of
    its limit: 0.27 with a first token after 1.46 s of 2 s, below 0 if that was missed; at most a factor of two, and
    null if it is not known. A limit of tok/s counts as one on the time of a token. `close`: by so little that another
    minute may be otherwise. `cut`: its last visit ended with too few requests to say anything. Each by itself,
    `kept_visits` of its visits are shown to keep the SLO, and `missed_visits` to miss it. `by_visit` are the requests
    of each visit that met it, and all.
    """

    c: int
    visits: int
    n: int
    good: int | None
    state: LevelState
    room: float | None = None
    close: bool = False
    cut: bool = False
    kept_visits: int = 0
    missed_visits: int = 0
    by_visit: tuple[tuple[int, int], ...] = ()

    @property
    def differs(self) -> bool:
        """Whether one visit kept the SLO, and another one missed it."""
        return bool(self.kept_visits and self.missed_visits)

    @property
    def unlike_visits(self) -> tuple[tuple[int, int], ...]:
        """The requests of each visit, if one is shown to keep or to miss the SLO and another is not; else empty."""
        whole = self.by_visit[: len(self.by_visit) - self.cut]
        shares = {good / n for good, n in whole if n}
        decided = {self.kept_visits, self.missed_visits} - {0, len(whole)}
        return whole if len(shares) > 1 and decided else ()


class VisitSpread(Stored, frozen=True):
    """By how much the visits of a search scatter around what is fitted to them: squared logarithms, and their number.

    `freedom` is that number less what is fitted.
    """

    squares: float = 0.0
    freedom: int = 0


class SearchState(Stored, frozen=True, kw_only=True):
    """A search for the cliff or the capacity: the answer is at least `low`, and below `high`, by what is known so far.

    `visits` counts the runs. `next_c` is visited now, for the step `step`; null at the end of the search, for which
    `end` has the reason unless the answer is as narrow as it can be.
    `low` may be kept by a few requests only. `at_least` are the agents that were shown to keep an SLO: other levels do
    not lower it, but another visit of that level or one below it may. `withdrawn` is what it was before that.
    `spread` is how much its visits differ.
    """

    goal: Literal["cliff", "capacity"]
    low: int | None = None
    high: int | None = None
    visits: int = 0
    next_c: int | None = None
    step: SearchStep | None = None
    end: SearchEnd | None = None
    at_least: int | None = None
    withdrawn: int | None = None
    levels: tuple[SearchedLevel, ...] = ()
    spread: VisitSpread = VisitSpread()

    def shown_state(self, level: SearchedLevel) -> ShownState:
        """What is shown of a level: one that is not decided may keep the SLO so far, or be close to a limit."""
        if level.state != "unsure":
            return level.state
        if self.keeps_so_far(level):
            return "likely kept"
        if level.room is None or not level.close or level.differs:
            return "unsure"
        return "likely kept" if level.room >= 0.0 else "likely missed"

    def is_kept(self, level: SearchedLevel) -> bool:
        """Whether a level keeps the SLO, so far or for sure, and not close to a limit."""
        return self.goal == "capacity" and (level.state == "kept" or self.keeps_so_far(level))

    def keeps_so_far(self, level: SearchedLevel) -> bool:
        """Whether a level keeps the SLO with too few requests to show it, while higher levels may still do so."""
        running = self.goal == "capacity" and self.next_c is not None and self.low is not None
        kept = level.good == level.n if level.room is None else level.room >= 0.0
        return running and kept and level.state == "unsure" and level.c <= (self.low or 0)

    def level(self, c: int | None) -> SearchedLevel | None:
        return next((level for level in self.levels if level.c == c), None)

    @property
    def bound(self) -> int | None:
        """The lowest level above `low` that is shown to be missed: the range of the answer ends below it."""
        missed = (level.c for level in self.levels if level.state == "missed" and level.c > (self.low or 0))
        return min(missed, default=None)


class Capacity(Stored, frozen=True, kw_only=True):
    """The most agents that keep an SLO, from a search; 0 if not even one does.

    `low` is the highest C that is shown to keep it, and `high` the C below the lowest one that is shown to miss it, by
    one-sided bounds with the error `alpha` each, at all visits; null if no level missed it. Both are further apart if
    the speed varied from visit to visit (`runs_vary` in `findings`). `next_c` is the lowest level that misses the SLO
    as measured. `visits` and `requests` are those of the search. Other `findings` name levels that missed it although a
    higher level keeps it (`dip`), or that kept it at one visit and missed it at another (`visits_differ`).
    `far_c` is the lowest level that missed it by more than other work on the host can explain; null if that is not
    known of any. `price_per_million` is the cost of a million output tokens with that many agents.
    """

    slo: str
    agents: int
    low: int
    high: int | None
    next_c: int | None
    alpha: float
    visits: int
    requests: int
    findings: Findings = ()
    far_c: int | None = None
    kv: KvCliff | None = None
    agents_per_gpu: float | None = None
    agents_per_kw: float | None = None
    price_per_million: float | None = None
