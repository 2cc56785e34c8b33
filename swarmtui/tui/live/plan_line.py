"""The line of the header that shows the plan: its levels as chips, the bracket of a search, and gauges of the SLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model.client_protocol import Frame
from swarmtui.model.findings import SearchedLevel, SearchState
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS
from swarmtui.model.session import Session
from swarmtui.tui.lines import Line, Span, bar

_NAMES = {"capacity": "how many agents?", "cliff": "cliff", "sweep": "sweep", "manual": "manual control"}
_MANUAL_HINT = "+ and - change C, s sweeps, N finds how many agents"
_STATES = {
    "kept": ("kept", "good"),
    "missed": ("missed", "bad"),
    "unsure": ("not sure", "warn"),
    "dip": ("dip", "warn"),
}
_CLIFF_STATES = _STATES | {"kept": ("no queue", "good"), "missed": ("queues", "bad")}
_SIGNS = {"kept": "✓", "missed": "✖", "unsure": "?", "dip": "▽"}
_GAP = "  "
_BAR = 8
_MORE_GAP = 14
_CUT = "… "


class Chip(NamedTuple):
    """A level, from long to short: with its progress as a bar or with a word, without the bar, and with a sign."""

    versions: tuple[Line, Line, Line]
    # Whether it is the running one, or an end of the bracket.
    is_border: bool = False


class Gauge(NamedTuple):
    """A condition of the SLO, with a sign for whether the running level keeps it; the levels panel has the counts."""

    long: str
    short: str
    style: str


class PlanView(NamedTuple):
    name: str = ""
    chips: tuple[Chip, ...] = ()
    hint: str = ""
    gauges: tuple[Gauge, ...] = ()


def plan_view(session: Session | None, frame: Frame | None, requested_c: int | None = None) -> PlanView:
    """`requested_c` is a C that the user wants, until a frame reports it."""
    if session is None or frame is None:
        return PlanView()
    gauges = _gauges(frame)
    search = frame.search
    if search is not None:
        return PlanView(_NAMES[search.goal], _search_chips(search, frame, requested_c), "", gauges)
    done = {level.offered_load for level in frame.levels if level.complete}
    now = frame.c if frame.rate is None else frame.rate
    running = frame.status not in ("ended", "starting", "warming up")
    if frame.steered and frame.status != "ended":
        chips = tuple(_plan_chip(at, at in done, at == now, frame, requested_c) for at in sorted({*done, now}))
        return PlanView(_NAMES["manual"], chips, _MANUAL_HINT, gauges)
    load = session.plan.load
    planned = tuple(load.rates or load.levels)
    if session.plan.goal != "sweep" or not planned:
        return PlanView(_NAMES[session.plan.goal], (), "", gauges)
    chips = tuple(_plan_chip(at, at in done, running and at == now, frame, requested_c) for at in planned)
    return PlanView("rates" if load.rates else _NAMES["sweep"], chips, "", gauges)


def progress(frame: Frame) -> tuple[int, int | None]:
    """The finished requests of this stage, and how many make it a level; None if the time does, or it is one."""
    if frame.of or not frame.steered:
        return frame.done, frame.of
    enough = MIN_STEERED_COMPLETIONS * frame.c
    return frame.done, enough if frame.done < enough else None


def following_c(frame: Frame) -> int | None:
    """The C of a level that a search has chosen and not begun: the rest of the frame is about the one before."""
    next_c = frame.search.next_c if frame.search is not None and frame.status != "ended" else None
    return next_c if next_c != frame.c else None


def _plan_chip(at: float, done: bool, running: bool, frame: Frame, requested_c: int | None) -> Chip:
    if running:
        return _running_chip(f"{at:g}", frame, "▸", requested_c)
    span = (f"{at:g} ✓", "good") if done else (f"{at:g}", "dim")
    return Chip(([span], [span], [span]))


def _running_chip(c: str, frame: Frame, sign: str, requested_c: int | None) -> Chip:
    """The level that is measured now, with its progress if its end is known, or with the C that follows."""
    done, of = progress(frame)
    wanted = f" → {requested_c}" if requested_c not in (None, frame.c) else ""
    short: Line = [(f"{c}{wanted or f' {sign}'}", "bold")]
    if not of or wanted or frame.status == "warming up":
        return Chip((short, short, short), is_border=True)
    if frame.begun is not None:
        return Chip(([(f"{c} ", "bold"), ("warming up", "dim")], short, short), is_border=True)
    full, rest = bar(done / of, _BAR)
    counted: Line = [(f"{c} ", "bold"), (f"{done}/{of}", "")]
    return Chip(
        ([(f"{c} ", "bold"), (full, "throughput"), (rest, "frame"), (f" {done}/{of}", "")], counted, short),
        is_border=True,
    )


def _search_chips(search: SearchState, frame: Frame, requested_c: int | None) -> tuple[Chip, ...]:
    """The levels in order of C, with words at the ends of the bracket and at the level that is visited now."""
    words = _STATES if search.goal == "capacity" else _CLIFF_STATES
    known = {level.c: level for level in search.levels}
    border = (search.low, search.high, search.next_c)
    following = following_c(frame)
    chips = []
    for c in sorted({*known, *([search.next_c] if search.next_c is not None else [])}):
        level = known.get(c)
        if c == following:
            begins: Line = [(f"{c} {_sign(level)}".rstrip(), "dim")]
            chips.append(Chip(([(f"{c} planned", "dim")], begins, begins), is_border=True))
            continue
        if c == search.next_c and frame.status != "ended":
            chips.append(_running_chip(f"{c}", frame, f"{_sign(level)}▸", requested_c))
            continue
        word, style = words[level.state] if level is not None else ("", "")
        long: Line = [(f"{c} {word if c in border else _sign(level)}", style)]
        short: Line = [(f"{c} {_sign(level)}", style)]
        chips.append(Chip((long, long, short), is_border=c in border))
    return tuple(chips)


def _sign(level: SearchedLevel | None) -> str:
    return _SIGNS[level.state] if level is not None else ""


def _gauges(frame: Frame) -> tuple[Gauge, ...]:
    if not frame.slo:
        return ()
    conditions = parse_slo(frame.slo).conditions
    running = frame.slo_kept if frame.status != "ended" and following_c(frame) is None else ()
    found = []
    for number, condition in enumerate(conditions):
        words = condition.words(brief=True)
        brief = words.removeprefix("first token ")
        kept = running[number] if number < len(running) else None
        if kept is None or not kept.n:
            found.append(Gauge(words, brief, "dim"))
            continue
        sign, style = ("✓", "good") if kept.good >= kept.required * kept.n else ("✖", "bad")
        found.append(Gauge(f"{sign} {words}", f"{sign} {brief}", style))
    return tuple(found)


def plan_line(view: PlanView, width: int) -> Line:
    """Name and chips at the left, gauges at the right: long if there is room, and fewer chips if there is none."""
    if not view.name:
        return []
    long: Line = [(f" {view.name}{_GAP}", "title")]
    short: Line = [(f" {view.name.split(' ')[-1]} ", "title")]
    hinted = ((long, 0, 0, view.hint), (long, 2, 0, view.hint)) if view.hint else ()
    # A gauge keeps its name as long as the chips keep their words.
    named = ((long, 0, 0, ""), (long, 1, 0, ""), (short, 0, 0, ""), (short, 1, 0, ""))
    for start, chips, gauges, hint in (*hinted, *named, (long, 0, 1, ""), (long, 1, 1, ""), (long, 2, 1, "")):
        left = [*start, *_chip_spans(view.chips, chips), (_GAP + hint if hint else "", "dim")]
        right = _gauge_spans(view.gauges, gauges)
        spare = width - _width(left) - _width(right) - len(_GAP) - 1
        if spare >= 0:
            # On a wide screen the chips stand further apart.
            gap = _GAP + " " * min(_MORE_GAP, spare // max(1, len(view.chips)))
            left = [*start, *_chip_spans(view.chips, chips, gap), (gap + hint if hint else "", "dim")]
            return [*left, (" " * (width - _width(left) - _width(right) - 1), ""), *right]
    start, right = short, _gauge_spans(view.gauges, 1)
    if not view.chips:
        return [*start, *right]
    # Only the border and what is next to it.
    kept = list(view.chips)
    while len(kept) > 1 and _width(start + _chip_spans(kept, 2)) + len(_CUT) + _width(right) + 1 > width:
        kept.remove(next((chip for chip in kept if not chip.is_border), kept[0]))
    left = [*start, (_CUT, "dim"), *_chip_spans(kept, 2)]
    return [*left, (" " * max(1, width - _width(left) - _width(right) - 1), ""), *right]


def _chip_spans(chips: Sequence[Chip], version: int, gap: str = _GAP) -> Line:
    spans: list[Span] = []
    for number, chip in enumerate(chips):
        before = chips[number - 1] if number else None
        joined = " ┄ " if before is not None and before.is_border and chip.is_border else gap
        spans += [(joined, "dim")] if number else []
        spans += chip.versions[version]
    return spans


def _gauge_spans(gauges: Sequence[Gauge], short: int) -> Line:
    spans: list[Span] = []
    for number, gauge in enumerate(gauges):
        spans += [(" · ", "dim")] if number else []
        spans.append(((gauge.long, gauge.short)[short], gauge.style))
    return spans


def _width(line: Sequence[Span]) -> int:
    return sum(len(text) for text, _ in line)


def step_texts(search: SearchState) -> tuple[str, ...]:
    """Say what the running level is for, from long to short."""
    low, high = search.low, search.high
    gap = f"between {low} and {high}" if low is not None and high is not None else ""
    missed = "the SLO is missed" if search.goal == "capacity" else "requests queue"
    words: dict[str, tuple[str, str]] = {
        "climb": (f"C doubles until {missed}", "C doubles"),
        "check": (f"a check far above {high}: {missed} at {high}, so that it has to be here, too", "checking above"),
        "bisect": (f"halving the gap {gap}", gap),
        "decide": ("more requests, to be sure of this level", "to be sure"),
        "beside": ("a level beside the border, for the interval", "beside the border"),
        "repeat": ("once more, to confirm", "once more"),
    }
    if search.step is None:
        return ()
    long, short = words[search.step]
    step = f"step {search.visits + 1}"
    return f"{long} · {step}", f"{short} · {step}", short
