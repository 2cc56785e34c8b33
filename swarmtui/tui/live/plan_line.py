"""The line of the header that shows the plan: its levels as chips, the bracket of a search, and gauges of the SLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.limits.slo import parse_slo, time_text
from swarmtui.analysis.quality.doubts import find_disturbances
from swarmtui.model.client_protocol import Frame
from swarmtui.model.findings import SearchState
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS
from swarmtui.model.session import Session
from swarmtui.report.levels import KEPT, SLO_SIGNS
from swarmtui.report.table import MARKS
from swarmtui.text import count_noun
from swarmtui.tui.lines import Line, Span, bar
from swarmtui.tui.tables import STYLES

_NAMES = {"capacity": "how many agents?", "cliff": "cliff", "sweep": "sweep", "manual": "manual control"}
_MANUAL_HINT = "+ - change C, s sweeps, N finds how many agents"
# The curve has the words.
_STATES: dict[str, Span] = {state: (sign, STYLES[code]) for state, (sign, code) in SLO_SIGNS.items()}
_GAP = "  "
_BAR = 8
_CUT = "‹ "
_RUNS, AGAIN = MARKS["partial"], "again"
# What the running chip may need in each version, and all chips of a search: the bracket and a few levels.
_RUNNING_ROOMS = (30, 22, 12)
_SEARCH_ROOMS = (60, 45, 30)


class Chip(NamedTuple):
    """A level, from long to short: the running one with its progress as a bar, in words, and in few words."""

    versions: tuple[Line, Line, Line]
    # Whether it is the running one, or an end of the bracket.
    is_border: bool = False


class Gauge(NamedTuple):
    """A condition of the SLO, with a sign for whether the running level keeps it; the levels panel has the counts."""

    long: str
    short: str
    style: str
    sign: str = ""


class PlanView(NamedTuple):
    """`rooms` is the width that the chips may need, by version: it is the same from the start of a plan to its end."""

    name: str = ""
    chips: tuple[Chip, ...] = ()
    hint: str = ""
    gauges: tuple[Gauge, ...] = ()
    rooms: tuple[int, int, int] = (0, 0, 0)


def plan_view(session: Session | None, frame: Frame | None, requested_c: int | None = None) -> PlanView:
    """`requested_c` is a C that the user wants, until a frame reports it."""
    if session is None or frame is None:
        return PlanView()
    gauges = _gauges(frame)
    search = frame.search
    if search is not None:
        return PlanView(_NAMES[search.goal], _search_chips(search, frame, requested_c), "", gauges, _SEARCH_ROOMS)
    judged = {level.offered_load: _STATES[KEPT[level.kept]] for level in frame.goodput}
    done = {level.offered_load for level in frame.levels if level.complete}
    now = frame.c if frame.rate is None else frame.rate
    running = frame.status not in ("ended", "starting", "warming up")
    if frame.steered and frame.status != "ended":
        loads = sorted({*done, now})
        chips = tuple(_plan_chip(at, at in done, at == now, frame, requested_c) for at in loads)
        return PlanView(_NAMES["manual"], chips, _MANUAL_HINT, gauges, _rooms(loads))
    if not frame.planned:
        return PlanView(_NAMES[session.plan.goal], (), "", gauges)
    chips = tuple(
        _plan_chip(at, at in done, running and at == now, frame, requested_c, judged.get(at)) for at in frame.planned
    )
    name = "rates" if session.plan.load.rates else _NAMES["sweep"]
    return PlanView(name, chips, "", gauges, _rooms(frame.planned))


def _rooms(loads: Sequence[float]) -> tuple[int, int, int]:
    done = sum(len(f"{at:g} ✓") + len(_GAP) for at in loads[1:])
    long, middle, short = (done + room for room in _RUNNING_ROOMS)
    return long, middle, short


def progress(frame: Frame) -> tuple[int, int | None]:
    """The requests of this level, and how many make it one; None if the time does, or it is one.

    In a search for the capacity they are those of this visit that are judged.
    """
    if (counts := judged_so_far(frame)) is not None:
        _, n = counts
        # Each turn of a conversation is judged, but `of` counts whole conversations.
        if n <= frame.done + 2 * frame.c:
            return n, max(n, frame.of) if frame.of else None
    if frame.of or not frame.steered:
        return frame.done, frame.of
    enough = MIN_STEERED_COMPLETIONS * frame.c
    return frame.done, enough if frame.done < enough else None


def judged_so_far(frame: Frame) -> tuple[int, int] | None:
    """The requests of this visit that met the condition that was met least often, and all that are judged.

    None if it is no level of a search for the capacity, or if the search has counted this visit.
    """
    search = frame.search
    if search is None or search.goal != "capacity" or search.next_c != frame.c or frame.status == "ended":
        return None
    known = search.level(frame.c)
    if known is not None and known.visits >= frame.run:
        return None
    counts = [(one.good, one.n) for one in frame.slo_kept if one.n]
    return min(counts, key=lambda of: of[0] / of[1], default=(0, 0))


def is_visited(frame: Frame) -> bool:
    """Whether the running level is one that a search for the capacity judges."""
    search = frame.search
    return search is not None and search.goal == "capacity" and search.next_c == frame.c and frame.status == "running"


def level_text(frame: Frame) -> str:
    """Say how many agents began, then how far a visit of a search for the capacity is; empty for other levels."""
    agents = count_noun(frame.c, "agent")
    if frame.begun is not None:
        return f"warming up: {frame.begun} of {agents} began"
    if not is_visited(frame):
        return ""
    done, of = progress(frame)
    counted = f"{done} of at most {count_noun(of, 'request')}" if of else ""
    known = frame.search is not None and any(level.c == frame.c for level in frame.search.levels)
    return f"measuring {agents}{' again' if known else ''}: {counted or count_noun(done, 'request')}"


def _plan_chip(
    at: float, done: bool, running: bool, frame: Frame, requested_c: int | None, judged: Span | None = None
) -> Chip:
    """A level of a plan. With an SLO, ✓ would say that it is kept, which is known at the end: see `judged`."""
    if running:
        return _running_chip(f"{at:g}", frame, _RUNS, requested_c)
    sign, style = judged or (("", "") if frame.slo else ("✓", "good"))
    span = (f"{at:g} {sign}".rstrip(), style) if done else (f"{at:g}", "dim")
    return Chip(([span], [span], [span]))


def _running_chip(c: str, frame: Frame, sign: str, requested_c: int | None) -> Chip:
    """The level that is measured now with its progress, or with the C that follows."""
    done, of = progress(frame)
    wanted = f" → {requested_c}" if requested_c not in (None, frame.c) else ""
    short: Line = [(f"{c}{wanted or f' {sign}'}", "bold")]
    if wanted or frame.status == "warming up":
        return Chip((short, short, short), is_border=True)
    if not of:
        counted: Line = [*short, (f" {count_noun(done, 'request')}", "")]
        # The line below has the requests, too.
        return Chip((counted, counted, short), is_border=True)
    full, rest = bar(done / of, _BAR)
    name = f"{c} {sign} " if sign == AGAIN else f"{c} "
    gauge: Line = [(name, "bold"), (full, "throughput"), (rest, "frame")]
    if is_visited(frame):
        # The line below has the words.
        return Chip((gauge, short, short), is_border=True)
    words = (f" {done} of {of} requests", "")
    return Chip(([*gauge, words], [*short, words], [*short, (f" {done} of {of}", "")]), is_border=True)


def _search_chips(search: SearchState, frame: Frame, requested_c: int | None) -> tuple[Chip, ...]:
    """The levels in order of C, each with its state; one that is visited again has none until it is judged again."""
    known = {level.c: level for level in search.levels}
    border = (search.low, search.high, search.bound, search.next_c)
    chips = []
    for c in sorted({*known, *([search.next_c] if search.next_c is not None else [])}):
        level = known.get(c)
        now = AGAIN if level is not None else _RUNS
        if c == search.next_c and frame.status != "ended":
            chips.append(_running_chip(f"{c}", frame, now, requested_c))
            continue
        sign, style = ("", "")
        if level is not None:
            sign, style = _STATES[search.shown_state(level)]
        chip: Line = [(f"{c} {sign}".rstrip(), style)]
        chips.append(Chip((chip, chip, chip), is_border=c in border))
    return tuple(chips)


def _gauges(frame: Frame) -> tuple[Gauge, ...]:
    if not frame.slo:
        return ()
    conditions = parse_slo(frame.slo).conditions
    running = frame.slo_kept if frame.status != "ended" else ()
    # What slows the server down proves nothing about it.
    disturbed = bool(find_disturbances(frame.quality))
    found = []
    for number, condition in enumerate(conditions):
        words = condition.words(brief=True)
        brief = f"≤ {time_text(condition.limits['ttft'])}" if [*condition.limits] == ["ttft"] else words
        kept = running[number] if number < len(running) else None
        if kept is None or not kept.n:
            found.append(Gauge(words, brief, "dim"))
            continue
        met = kept.good >= kept.required * kept.n
        sign, style = _STATES[KEPT[None if disturbed and not met else met]]
        found.append(Gauge(words, brief, style, sign))
    return tuple(found)


def plan_line(view: PlanView, width: int) -> Line:
    """Name and chips at the left, gauges at the right; a width has one shape, and fewer chips if there is no room."""
    if not view.name:
        return []
    start, chips, gauges = _shape(view, width)
    right = _gauge_spans(view.gauges, gauges)
    # A sign that appears later takes no room from the chips.
    room = width - _width(right) - 2 * sum(not gauge.sign for gauge in view.gauges) - len(_GAP) - 1
    kept, cut = list(view.chips), ""
    while len(kept) > 1 and _width([*start, (cut, ""), *_chip_spans(kept, chips)]) > room:
        # What is far from the border goes first, below it before above it.
        border = [at for at, chip in enumerate(kept) if chip.is_border] or [0]
        inside = next((at for at in range(border[0], border[-1]) if not kept[at].is_border), 0)
        kept.pop(0 if border[0] else -1 if border[-1] < len(kept) - 1 else inside)
        cut = _CUT
    left = [*start, (cut, "dim"), *_chip_spans(kept, chips)]
    hint = [(_GAP + view.hint, "dim")] if view.hint and _width(left) + len(_GAP + view.hint) <= room else []
    return [*left, *hint, (" " * max(1, width - _width([*left, *hint]) - _width(right) - 1), ""), *right]


def _shape(view: PlanView, width: int) -> tuple[Line, int, int]:
    """Return the name, and the versions of chips and gauges, by what stays the same while the plan is run."""
    long: Line = [(f" {view.name}{_GAP}", "title")]
    short: Line = [(f" {view.name.split(' ')[-1]} ", "title")]
    named, brief = (
        sum(len(text) + 2 for text in texts) + 3 * max(0, len(texts) - 1)
        for texts in ([gauge.long for gauge in view.gauges], [gauge.short for gauge in view.gauges])
    )
    shapes = ((long, 0, 0), (long, 1, 0), (long, 2, 0), (short, 2, 0), (long, 2, 1), (short, 2, 1))
    for hint in sorted({len(view.hint), 0}, reverse=True):
        for start, chips, gauges in shapes:
            # The hint goes before the name is shortened: it ends with the second level, and the name would come back.
            if hint and start is short:
                continue
            if _width(start) + view.rooms[chips] + hint + (named, brief)[gauges] + 2 * len(_GAP) <= width:
                return start, chips, gauges
    return shapes[-1]


def _chip_spans(chips: Sequence[Chip], version: int) -> Line:
    spans: list[Span] = []
    for number, chip in enumerate(chips):
        spans += [(_GAP, "")] if number else []
        spans += chip.versions[version]
    return spans


def _gauge_spans(gauges: Sequence[Gauge], short: int) -> Line:
    spans: list[Span] = []
    for number, gauge in enumerate(gauges):
        spans += [(" · ", "dim")] if number else []
        spans.append((f"{gauge.sign} {(gauge.long, gauge.short)[short]}".lstrip(), gauge.style))
    return spans


def _width(line: Sequence[Span]) -> int:
    return sum(len(text) for text, _ in line)
