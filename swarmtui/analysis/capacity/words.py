"""The words of a search, wherever it is shown: how certain an answer is, what a level is for, and the time left."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose
from typing import Literal, get_args

import msgspec

from swarmtui.analysis.capacity.margins import LEAST_ROOM, MOST_ROOM
from swarmtui.analysis.limits.slo import RATE, SloCondition, parse_slo, time_text
from swarmtui.analysis.quality.doubts import find_disturbances
from swarmtui.model.answer import wide_range
from swarmtui.model.client_protocol import Frame, TimeBound
from swarmtui.model.findings import Goodput, KeptShare, SearchedLevel, SearchEnd, SearchState, SearchStep
from swarmtui.numbers import clock, percent, wait_s
from swarmtui.text import count_noun


def agents_number(
    agents: int, *, is_open: bool, doubtful: bool, wide: tuple[int, int] | None = None
) -> tuple[str, str]:
    """Return a number that stands alone, after the sign of doubt: `5`, `5+` with an open end, `?` and `5`.

    A `wide` range stands for the number: `16–35`. What an open end says is true of a server that looked slower than it
    is, unless not even one agent was kept.
    """
    if is_open:
        return ("", f"{agents}+") if agents else ("?", "")
    return "?" if doubtful else "", str(agents) if wide is None else f"{wide[0]}–{wide[1]}"


def range_text(agents: int, low: int | None, high: int | None) -> str:
    """Return what to add to a number of agents: ` (6–8)`, ` or more`, or nothing if both ends are it.

    A `low` of 0 is not decided, unless there are no agents; `high` is null if no level is shown to miss the SLO.
    """
    if low is None and high is None:
        return ""
    if agents and not low:
        if high is not None and high > agents:
            return f" (at most {high})"
        return ", perhaps fewer" if high is not None else ", perhaps fewer or more"
    if high is None:
        return " or more" if low == agents else f" ({low} or more)"
    return "" if low == high == agents else f" ({low}–{high})"


def known_agents(agents: int, low: int | None, high: int | None, *, unit: bool = False) -> str:
    """Return a number of agents with its range, `12 (11–13)`; without any level that is decided it is not known."""
    if not agents and low == 0 and high is None:
        return "not known"
    return f"{count_noun(agents, 'agent') if unit else agents}{range_text(agents, low, high)}"


def range_clause(agents: int, low: int | None, high: int | None) -> str:
    """Return the same for the middle of a sentence: `, perhaps fewer,`"""
    text = range_text(agents, low, high)
    return f"{text}," if text.startswith(",") else text


def agents_clause(agents: int, low: int | None, high: int | None) -> str:
    """Return a number of agents with its range for the middle of a sentence: `8 agents, perhaps up to 9,`"""
    if high is not None and high > agents > 0 and low == agents:
        return f"{count_noun(agents, 'agent')}, perhaps up to {high},"
    if high is not None and high > agents > 0 and not low:
        return f"at most {count_noun(high, 'agent')}, most likely {agents},"
    if wide := wide_range(agents, low, high):
        return f"{wide[0]} to {count_noun(wide[1], 'agent')}, most likely {agents},"
    return f"{count_noun(agents, 'agent')}{range_clause(agents, low, high)}"


_TIMES = {1: "once", 2: "twice"}


def doubt_words(level: SearchedLevel | None) -> str:
    """Say why a level is not decided: `kept once, missed once`, `close to the limit`; else nothing."""
    if level is None or level.state != "unsure":
        return ""
    if not level.differs:
        return "close to the limit" if level.close else "not sure yet"
    kept, missed = (_TIMES.get(visits, f"{visits} times") for visits in (level.kept_visits, level.missed_visits))
    return f"kept {kept}, missed {missed}"


UnsureReason = Literal["few", "running", "differs", "close", "slowed"]
_REASONS: tuple[UnsureReason, ...] = get_args(UnsureReason)


def unsure_reasons(
    judged: Iterable[Goodput], search: SearchState | None, *, disturbed: bool
) -> tuple[UnsureReason, ...]:
    """Say why levels are not decided: too few requests, visits that differ, a limit nearby, or a slowed server.

    What was missed while something made the server look slower (`disturbed`) proves nothing. A search that goes on may
    be `running` such a level again.
    """
    if search is not None and search.goal == "capacity":
        levels = (level for level in search.levels if search.shown_state(level) == "unsure")
        found = {_unsure_reason(level, search.next_c, disturbed) for level in levels}
    else:
        found = {"slowed" if disturbed and _misses(level) else "few" for level in judged if level.kept is None}
    return tuple(reason for reason in _REASONS if reason in found)


def _unsure_reason(level: SearchedLevel, running_c: int | None, disturbed: bool) -> UnsureReason:
    if level.differs:
        return "differs"
    if disturbed and (level.room or 0.0) < 0.0:
        return "slowed"
    if level.c == running_c:
        return "running"
    return "close" if level.close else "few"


def _misses(level: Goodput) -> bool:
    return any(one.share is not None and one.share < one.required for one in level.conditions)


def room_share(share: float) -> str:
    """`18 %` of a limit; searches look no further than a factor of two from one."""
    text = percent(round(share, 2))
    return f"≥{text}" if isclose(share, MOST_ROOM) else f"≤{text}" if isclose(share, LEAST_ROOM) else text


def visit_counts(visits: Iterable[tuple[int, int]], of: str = " of ") -> str:
    """Return the requests of each visit that met the SLO: `17 of 17, then 5 of 17`"""
    return ", then ".join(f"{good}{of}{n}" for good, n in visits)


def step_texts(search: SearchState) -> tuple[str, ...]:
    """Say what the running level is for, from long to short."""
    low, high = search.low, search.high
    gap = f"below {high}" if low is None else f"between {low} and {high}"
    missed, too_high = ("the SLO is missed", "missed") if search.goal == "capacity" else ("requests queue", "queues")
    at_high = search.level(high)
    is_unsure = at_high is not None and at_high.state == "unsure"
    unsure = f"{high} {'was' if at_high and at_high.differs else 'is'} {doubt_words(at_high)}"
    more = "trying more agents"
    why = f"{unsure}: {more}" if is_unsure else f"{high} {too_high}: {more}, to rule out chance"
    # A level that was taken for the answer may not be it any more.
    fewer = (f"{unsure}: trying fewer",) if is_unsure and at_high is not None and at_high.kept_visits else ()
    words: dict[SearchStep, tuple[str, ...]] = {
        "climb": (f"more agents until {missed}", "more agents", "more"),
        "check": (why, f"checking {high} with more agents", f"to check {high}"),
        "bisect": (*fewer, f"halving the gap {gap}", f"trying {gap}", gap),
        "decide": ("more requests at this level, to be sure of it", "more requests, to be sure", "more requests"),
        "beside": ("a clearer level nearby, to narrow the range", "narrowing the range"),
        "repeat": ("the same level once more, to confirm it", "once more, to confirm it", "to confirm it"),
    }
    if search.step is None:
        return ()
    step = f"step {search.visits + 1}"
    return tuple(text for said in words[search.step] for text in (f"{said} · {step}", said))


_ENDS: dict[SearchEnd, str] = {
    "no_time": "the time was up: range not narrowed",
    "close": "levels in between are too close to the limit to tell",
}


def end_text(search: SearchState | None) -> str:
    """Say why a search left its range open; empty if the range has both ends, or while the search goes on."""
    end = search.end if search is not None else None
    return "" if end is None else _ENDS[end]


_BOUNDS: dict[TimeBound, str] = {"exact": "", "about": "about ", "at_least": "at least ", "at_most": "at most "}


def is_finishing(frame: Frame) -> bool:
    """Whether a search has visited its last level."""
    return frame.search is not None and frame.search.next_c is None and frame.status == "running"


def left_text(frame: Frame) -> str:
    """`about 2:10 left`; nothing when the rest of the plan is skipped, or a search has visited its last level.

    A search for the capacity without a deadline knows no time until a level has missed.
    """
    if frame.status in ("stopping", "saving", "ended") or is_finishing(frame):
        return ""
    if frame.left_s is None:
        return "some minutes left" if frame.search is not None and frame.search.goal == "capacity" else ""
    return f"{_BOUNDS[frame.left_bound]}{clock(frame.left_s)} left"


def outlook(share: KeptShare, most: int) -> Literal["miss", "keep"] | None:
    """Return how a condition ends, if that does not depend on the rest of `most` requests; null while it does."""
    total = max(most, share.n)
    if not share.n or not most:
        return None
    if total - (share.n - share.good) < share.required * total:
        return "miss"
    return "keep" if share.good >= share.required * total else None


def first_token_texts(frame: Frame) -> tuple[str, ...]:
    """Say what decides a running level before its requests end: `oldest wait > 1 s (limit 2 s)`.

    It is the longest wait among those of the agents, in the same digits, that count.
    """
    known = frame.first_tokens
    if known is None or frame.status != "running":
        return ()
    waits = ""
    if known.oldest_s is not None and (oldest_s := wait_s(known.oldest_s)):
        limit = time_text(known.limit_s)
        over = known.oldest_s > known.limit_s
        beside = f", over {limit}" if oldest_s > known.limit_s else " (the limit)" if over else f" (limit {limit})"
        waits = f"oldest wait > {oldest_s:g} s{beside}"
    # Otherwise there are more first tokens than requests, of which only those that ended are counted.
    early = f" ({known.in_flight} in flight)" if known.in_flight else ""
    in_time = f"{count_noun(known.in_time, 'first token')} in time{early}" if known.in_time else ""
    late = f"{known.late} late" if known.in_time else f"{count_noun(known.late, 'first token')} late"
    came = ", ".join(filter(None, (in_time, late if known.late else "")))
    return tuple(dict.fromkeys(filter(None, (", ".join(filter(None, (came, waits))), waits, came))))


def most_requests(frame: Frame) -> int:
    """Return how many requests a visit may count, with those in flight at its end; 0 if that is not known."""
    # Each turn of a conversation is judged, but whole conversations are counted.
    alike = all(share.n <= frame.done + 2 * frame.c for share in frame.slo_kept)
    return frame.of + frame.c if frame.of and alike else 0


def with_outlook(frame: Frame) -> Frame:
    """Return the frame with the best level of its search open once its repeated visit can only miss the SLO."""
    search, most = frame.search, most_requests(frame)
    if search is None or search.goal != "capacity" or frame.status == "ended" or not most:
        return frame
    best = search.level(search.low)
    if best is None or not frame.c == best.c == search.next_c or best.visits >= frame.run:
        return frame
    together = [
        msgspec.structs.replace(share, good=share.good + (best.good or 0), n=share.n + best.n)
        for share in frame.slo_kept
        if share.n
    ]
    # The search has its own verdict at the end of a visit that something slowed down.
    if all(outlook(share, most + best.n) != "miss" for share in together) or find_disturbances(frame.quality):
        return frame
    below = [level.c for level in search.levels if level.c < best.c and level.state in ("kept", "unsure")]
    levels = tuple(
        msgspec.structs.replace(level, state="unsure") if level is best else level for level in search.levels
    )
    opened = msgspec.structs.replace(search, low=max(below, default=None), high=best.c, levels=levels)
    if search.at_least == best.c:
        kept = (level.c for level in levels if level.c < best.c and level.state == "kept")
        opened = msgspec.structs.replace(opened, at_least=max(kept, default=None), withdrawn=best.c)
    return msgspec.structs.replace(frame, search=opened)


def outlook_texts(frame: Frame) -> tuple[str, ...]:
    """`already over 2 s too often: 16 will miss`, from long to short; none while a level may still go either way.

    The requests that are in flight at its end may count, too. What slows the server down proves nothing about it.
    """
    search = frame.search
    if search is None or search.goal != "capacity" or search.next_c != frame.c or frame.status != "running":
        return ()
    most = most_requests(frame)
    ends = [outlook(share, most) for share in frame.slo_kept]
    if "miss" in ends:
        condition = parse_slo(frame.slo).conditions[ends.index("miss")]
        why, end = f"{_already(condition)} too often", f"{frame.c} will miss"
        return () if find_disturbances(frame.quality) else (f"{why}: {end}", why, end)
    return (f"{frame.c} will be kept",) if ends and set(ends) == {"keep"} else ()


def _already(condition: SloCondition) -> str:
    if len(condition.limits) != 1:
        return "already past a limit"
    ((figure, limit),) = condition.limits.items()
    return f"already below {limit:g} tok/s" if figure == RATE else f"already over {time_text(limit)}"
