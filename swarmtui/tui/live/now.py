"""The four numbers of the present moment, each with its course so far, and the parts of the first token's time.

After the end they are those of the level that the answer names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.levels.stats import mean
from swarmtui.analysis.limits.slo import parse_slo, time_text
from swarmtui.model.client_protocol import FirstTokens, Frame
from swarmtui.model.findings import KeptShare, Slots
from swarmtui.model.load import traits
from swarmtui.model.session import Level
from swarmtui.model.telemetry import HistoryPoint, TtftSplit
from swarmtui.numbers import MISSING, count, rate, seconds, short_percent
from swarmtui.report.colours import Hue
from swarmtui.text import count_noun
from swarmtui.tui.lines import Line, Panel, fit_line, ljust, longest_fit, per_column, scale_top, shaded_bars, tall
from swarmtui.tui.live.history import recent_columns
from swarmtui.tui.live.live_panel import LiveData, LivePanel
from swarmtui.tui.live.streams import mixed_rates

_GAP = 2
# A box this high has tall digits.
_TALL = 4
# The width of a time.
_TIME = len("99.9 ms")
# The width of the ends of a scale with a blank, and that of a box without a frame which has room for it.
_AXIS, _WITH_AXIS = len("800 ms "), 18
# The cells of a heading besides its title and its note.
_AROUND_TITLE = 8
# The title with most numbers of agents.
_TITLE = len("now · C=256")
# What stands for the parts before a request of a level has ended.
_NO_PARTS = ("first token ···  ▒ queue █ prefill ░ rest", "····  ▒ queue █ prefill ░ rest")
_SIGNS = {
    "queue": ("▒", "queue"),
    "prefill": ("█", "latency"),
    "recomputed": ("▓", "bad"),
    "first token": ("█", "latency"),
    "decode": ("▆", "throughput"),
    "tools": ("╌", "dim"),
    "client": ("░", "dim"),
    "rest": ("░", "dim"),
}
# The cells of a bar beside which the values are shown.
_LEAST_BAR = 3
# What stands for a time before the first measurement.
_NOT_YET = "·"


# The figures by their ids in help, during a run and after it.
_IDS = ("output", "stream", "ttft", "waiting")
_ENDED_IDS = ("steady", "stream", "ttft", "queued")
# All from 0 to a round number above the highest.
_BARS = ("bars: the last minute, from 0 to the most", "bars: the last minute, from 0", "bars: last minute")
_BARS_SO_FAR = ("bars: since the start, from 0 to the most", "bars: since the start, from 0", "bars: so far")
# One value for each column of a sparkline.
Course = tuple[float | None, ...]


class Figure(NamedTuple):
    """A number with its unit, from long to short, a note, and one value for each column of its course."""

    value: str
    units: tuple[str, ...]
    hue: Hue
    note: str
    values: Course
    top: float | None

    @property
    def scale(self) -> str:
        """The upper end of the scale, which begins at 0: `1,500`, `800 ms`; empty without a value."""
        if self.top is None or set(self.values) <= {None}:
            return ""
        if self.hue == "latency":
            return time_text(self.top)
        return f"{self.top / 1e3:g}k" if self.top >= 1e5 else f"{self.top:,g}"


class NowView(NamedTuple):
    """`bars` says what the bars are, from long to short: a course in time, or one over the levels."""

    title: str
    figures: tuple[Figure, ...]
    parts: TtftSplit | None
    # Only during a run: after its end the result has the tall digits.
    is_tall: bool = True
    bars: tuple[str, ...] = ()
    of_levels: bool = False


class _Numbers(NamedTuple):
    """What the four figures are made from: values, and a note each.

    `ttft_s` is a median, as in the curve and in the table of levels. `waiting` are the agents without a first token, of
    a finished level the mean of the requests in the server's queue.
    """

    out_tps: float | None
    per_stream_tps: float | None
    ttft_s: float | None
    waiting: float | None
    notes: tuple[str, str, str, str]
    half_width: float | None = None


# views


def now_view(data: LiveData, columns: int) -> NowView:
    live, frame = data.shown, data.shown.frame
    level = _level_of_answer(frame) if data.has_ended and frame is not None else None
    numbers = _of_level(level, frame) if level is not None else _of_frame(data)
    time = recent_columns(live.points, data.t0_ns, columns, data.has_ended)
    # The result has no history once it is saved: its course is that over its levels, also before.
    shown = frame.levels if frame is not None and (level is not None or not time.buckets) else ()
    levels = [one for one in shown if one.headline_tps is not None]

    def course(of_point: Callable[[HistoryPoint], float | None], of_level: Callable[[Level], float | None]) -> Course:
        if levels:
            return per_column(tuple(of_level(level) for level in levels), columns)
        return tuple(
            mean([known for point in bucket if (known := of_point(point)) is not None]) for bucket in time.buckets
        )

    # The total is that of the last second; the rate of an agent is that while it writes, over more seconds.
    ended = level is not None
    total = "tok/s" if ended else "tok/s now|tok/s"
    # C agents that take turns write more each than their share of the total.
    each = "per agent while it writes|per agent, writing|per agent writing|per agent"
    # During a run those of the last seconds, which differ from those of the whole level in the table.
    first = "first token, median|TTFT median|TTFT"
    first = first if ended else "first token (10 s), median|first token (10 s)|TTFT (10 s)|TTFT now"
    figures: tuple[Figure, ...] = (
        _figure(numbers.out_tps, rate(numbers.out_tps, numbers.half_width), total, "throughput", numbers.notes[0],
                course(lambda p: p.out_tps, lambda x: x.headline_tps)),
        _figure(numbers.per_stream_tps, rate(numbers.per_stream_tps, numbers.half_width), each, "throughput",
                numbers.notes[1], course(lambda p: p.per_stream_tps, lambda x: x.per_stream_tps.mean)),
        _figure(numbers.ttft_s, seconds(numbers.ttft_s), first, "latency", numbers.notes[2],
                course(lambda p: p.ttft_s, lambda x: x.shown_ttft_s.median)),
        _figure(numbers.waiting, count(numbers.waiting), "queued (mean)|queued" if ended else "waiting", "queue",
                numbers.notes[3], course(lambda p: float(p.waiting), lambda x: x.queued), 1.0),
    )  # fmt: skip
    # Not every server reports a queue, or often enough for each level.
    figures = figures[:-1] if ended and numbers.waiting is None else figures
    parts = level.ttft_split if level is not None else frame.ttft_split if frame is not None else None
    bars = _bars_texts(levels[-columns:]) if levels else _BARS if time.has_scrolled else _BARS_SO_FAR
    return NowView(_title(data, level), figures, parts, not ended, bars, of_levels=bool(levels))


def _bars_texts(levels: Sequence[Level]) -> tuple[str, ...]:
    """`a bar for each level, 1 to 32 agents`"""
    if len(levels) < 2:
        return ("bars: one level",) if levels else ()
    first, last = levels[0], levels[-1]
    loads = f"{first.offered_load:g} to {last.offered_load:g}"
    unit = "requests/s" if last.rate is not None else "agents"
    return f"a bar for each level, {loads} {unit}", f"a bar for each level, {loads}", f"bars: levels {loads}"


def _title(data: LiveData, level: Level | None) -> str:
    frame = data.shown.frame
    if level is not None:
        return f"at {level.name}" if level.rate is not None else f"at {count_noun(level.c, 'agent')}"
    if frame is None:
        return "now"
    if frame.rate is not None and data.requested_c is None:
        return f"now · {frame.rate:g} requests/s"
    if not frame.c and data.requested_c is None:
        return "now"
    wanted = f" → {data.requested_c}" if data.requested_c not in (None, frame.c) else ""
    return f"now · C={frame.c}{wanted}"


def _of_frame(data: LiveData) -> _Numbers:
    frame = data.shown.frame
    if frame is None:
        return _Numbers(None, None, None, None, ("", "", "", ""))
    level = next((level for level in frame.levels if level.key == (frame.c, frame.rate)), None)
    steady = level.headline_is_steady if level else traits(frame.load).holds_c
    kind = "steady" if steady else "wall"
    known = level is not None and level.headline_tps is not None
    headline = f"{kind} {rate(level.headline_tps, level.half_width)}" if level is not None and known else ""
    mixed = mixed_rates(data.shown.session, frame, data.shown.stream_rates)
    turns = _take_turns(frame.slots, frame.c)
    active = f"side {rate(mixed.side_tps)}" if mixed else "" if turns else f"{frame.in_flight} active"
    server = "" if frame.server_waiting is None else f"queue of the server {count(frame.server_waiting)}"
    return _Numbers(
        frame.out_tps,
        frame.per_stream_tps if mixed is None else mixed.primary_tps,
        frame.ttft_s,
        frame.waiting,
        (headline, active, _running_percentile(frame.first_tokens), server),
    )


def _take_turns(slots: Slots | None, c: int) -> bool:
    return slots is not None and slots.total < c


def _running_percentile(known: FirstTokens | None) -> str:
    """The percentile that the SLO limits, so far: `p90 > 1.4 s`; empty before a request is measured."""
    if known is None or known.percentile in (None, 50):
        return ""
    value = f"> {seconds(known.percentile_s, 2)}" if known.awaited else seconds(known.percentile_s)
    return f"p{known.percentile} {value}"


def _judged_percentile(frame: Frame, shares: Sequence[KeptShare], longest_s: float | None) -> str:
    """The percentile that the SLO limits: `p90 1.9 s`; empty without a limit on one.

    With few requests no percentile is known: it is at most their longest time, and the limit if it is kept.
    """
    for number, condition in enumerate(parse_slo(frame.slo).conditions if frame.slo else ()):
        if condition.limits.keys() == {"ttft"} and condition.percentile not in (None, 50):
            share = shares[number] if number < len(shares) else None
            value = share.value if share is not None else None
            late = share is not None and value is None and share.good < share.required * share.n
            text = f"> {time_text(condition.limits['ttft'])}" if late else seconds(value)
            if value is None and longest_s is not None and not late:
                text = f"≤ {seconds(min(longest_s, condition.limits['ttft']))}"
            return f"p{condition.percentile} {text}"
    return ""


def _level_of_answer(frame: Frame) -> Level | None:
    """The level that the answer is about; without one, the one with the most throughput."""
    point = frame.answer.at_capacity if frame.answer is not None else None
    if point is not None and (named := next((level for level in frame.levels if level.c == point.c), None)):
        return named
    return max(frame.levels, key=lambda level: level.headline_tps or 0.0, default=None)


def _of_level(level: Level, frame: Frame | None) -> _Numbers:
    """The figures and their digits are those of the table of levels."""
    half = (
        f"± {short_percent(level.half_width, 2)}" if level.half_width is not None and level.headline_is_steady else ""
    )
    found = next((one for one in frame.goodput if one.key == level.key), None) if frame is not None else None
    percentile = f"p90 {seconds(level.shown_ttft_s.p90)}" if level.shown_ttft_s.p90 is not None else ""
    if frame is not None and found is not None:
        percentile = _judged_percentile(frame, found.conditions, level.shown_ttft_s.max) or percentile
    numbers = level.headline_tps, level.per_stream_tps.mean, level.shown_ttft_s.median, level.queued
    return _Numbers(*numbers, (half, "", percentile, ""), level.half_width)


def _figure(
    value: float | None, text: str, unit: str, hue: Hue, note: str, values: Course, least: float = 0.0
) -> Figure:
    """`unit` may have shorter forms after bars; the scale has room for the value, and its top is at `least` this."""
    highest = max((known for known in (*values, value) if known is not None), default=0.0)
    units = tuple(part.strip() for part in unit.split("|"))
    return Figure(text, units, hue, note, values, scale_top(max(highest, least)) or None)


# widget


class NowPanel(LivePanel, Panel[NowView]):
    """Four boxes: two beside each other in a frame, or all in a strip without one."""

    title = "now"
    place = "numbers"

    @property
    def framed(self) -> bool:
        return self.size.height > 4

    @property
    def _boxes(self) -> int:
        """The boxes beside each other."""
        return 2 if self.framed else 4

    @property
    def _columns(self) -> int:
        return max(1, (self.inner_size.width - 2 - _GAP * (self._boxes - 1)) // self._boxes)

    @property
    def _axis(self) -> int:
        """The width of the scale before the bars: a frame has tall digits, and no room for it."""
        return 0 if self.framed or self._columns < _WITH_AXIS else _AXIS

    def update_from(self, data: LiveData) -> None:
        frame = data.shown.frame
        # For a moment nothing is known of a new level: the numbers of the one before it stay, under its name.
        if self.view is None or frame is None or frame.status != "running" or frame.out_tps is not None:
            self.show(now_view(data, self._columns - self._axis))

    def figure_at(self, x: int, y: int) -> str:
        if self.view is None:
            return ""
        ids, beside = _IDS if self.view.is_tall else _ENDED_IDS, self._boxes
        row = (y - self.framed) * len(ids) // beside // max(1, self.size.height - 2 * self.framed)
        number = row * beside + min(x // (self._columns + _GAP), beside - 1)
        return ids[number] if 0 <= number < len(ids) else ""

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        self.title = view.title if view else "now"
        bars = _bars_note(view, self.title, width) if view else ""
        lines = [self.heading(bars, width)] if self.framed else []
        if view is None:
            return lines
        room, boxes_beside, columns = height - len(lines), self._boxes, self._columns
        rows = -(-len(view.figures) // boxes_beside)
        below = 1 if self.framed and room > 2 * rows else 0
        each, more = divmod(max(rows, room - below), rows)
        for start in range(0, len(view.figures), boxes_beside):
            high = each + (1 if start < more * boxes_beside else 0)
            beside = view.figures[start : start + boxes_beside]
            tall_ones = [self._tall(figure, columns) for figure in beside] if high >= _TALL and view.is_tall else []
            # All figures of a row have digits of the same size.
            tall_ones = tall_ones if all(tall_ones) else []
            boxes = [
                self._box(figure, columns, high, digits, MISSING if view.of_levels else _NOT_YET)
                for figure, digits in zip(beside, tall_ones or [[]] * len(beside), strict=True)
            ]
            lines += [_beside(parts, columns) for parts in zip(*boxes, strict=True)]
        return [*lines, *([_split_line(view.parts, width - 1)] if below else [])]

    def _tall(self, figure: Figure, width: int) -> list[str]:
        """Return the figure in tall digits; nothing if it does not fit."""
        units = (version for unit in figure.units for version in (unit, _two_lines(figure.value, unit)))
        # The sign of a limit is part of the number.
        value = figure.value.replace("> ", ">").replace("≤ ", "≤")
        versions = (tall(f"{value} {unit}") for unit in units)
        return next((lines for lines in versions if lines and max(map(len, lines)) <= width), [])

    def _box(self, figure: Figure, width: int, height: int, digits: list[str], missing: str) -> list[Line]:
        """`missing` stands for the bar of a level or of a time without a value, which would read as zero."""
        style = f"bold {figure.hue}"
        if digits:
            lines: list[Line] = [[(line, style)] for line in digits]
            room = width - len(digits[0])
            note = figure.note if len(figure.note) < room else ""
            lines[0].append((f"{note:>{max(0, room)}}", "dim"))
        else:
            # The unit stays the same while the number of digits changes.
            least = _TIME if figure.hue == "latency" else 0
            unit = longest_fit([f" {unit}" for unit in figure.units], width - max(least, len(figure.value)))
            room = width - len(figure.value) - len(unit)
            note = figure.note if len(figure.note) < room else ""
            lines = [[(figure.value, style), (unit, figure.hue), (f"{note:>{max(0, room)}}", "dim")]]
        bars = shaded_bars(figure.values, figure.top, max(0, height - len(lines)), figure.hue, missing)
        if axis := self._axis:
            ends = [figure.scale, *[""] * (len(bars) - 2), "0" if figure.scale else ""]
            bars = [[(f"{end:>{axis - 1}} ", "dim"), *bar] for end, bar in zip(ends, bars, strict=False)]
        return [*lines, *bars][:height]


def _bars_note(view: NowView, title: str, width: int) -> str:
    """Say what the bars are; during a run it depends on the width, not on the digits of C."""
    room = width - len(title) - _AROUND_TITLE
    text = longest_fit((*view.bars, ""), room if view.of_levels else width - _TITLE - _AROUND_TITLE)
    return text if len(text) <= room else ""


def _two_lines(value: str, unit: str) -> str:
    """Break a unit of several words in two; one that belongs to a time stays in its line."""
    breaks = [at for at, char in enumerate(unit) if char == " "]
    if not breaks or " " in value:
        return unit
    at = min(breaks, key=lambda at: max(at, len(unit) - at - 1))
    return f"{unit[:at]}\n{unit[at + 1 :]}"


def _beside(parts: Sequence[Line], columns: int) -> Line:
    line: Line = [(" ", "")]
    for number, part in enumerate(parts):
        line += [*([(" " * _GAP, "")] if number else []), *fit_line(part, columns)]
    return line


def _split_line(split: TtftSplit | None, width: int) -> Line:
    """The parts of the mean TTFT as one bar, with their names behind it; ~ marks an estimate.

    They are of all requests that ended, also of the warm-up of a level, which wait less than those that are judged: the
    mean itself is only shown with these words.
    """
    if split is None or not any(value > 0 for _, value in split.known_parts):
        return [(f" {ljust(longest_fit(_NO_PARTS, width - 2), width - 2)}", "dim")]
    about = "~" if split.estimated else ""

    def painted(name: str) -> Line:
        return [(name, "dim"), *parts_line(split.known_parts, lambda x: seconds(x, 2), width - len(name), about)]

    names = (f" mean with warm-up {seconds(split.ttft_s, 2)}", " first token", "")
    versions = [painted(name) for name in names]
    return next((line for line in versions if sum(len(text) for text, _ in line) <= width), versions[-1])


def parts_line(parts: Sequence[tuple[str, float]], text: Callable[[float], str], width: int, about: str = "") -> Line:
    """Paint the parts of a time as one bar, with their names behind it.

    `text` formats the values of the parts, which are left out where there is no room for them.

    `about` is the sign of an estimate.
    """
    known = [(name, value) for name, value in parts if value > 0]
    names = [(name, f"{about}{name} {text(value)}") for name, value in known]
    used = sum(len(label) + 3 for _, label in names)
    if width - used < _LEAST_BAR:
        names = [(name, f"{about}{name}") for name, _ in known]
        used = sum(len(label) + 3 for _, label in names)
    room, total = max(3, width - used - 2), sum(value for _, value in known)
    line: Line = [(" ", "")]
    for number, (name, value) in enumerate(known):
        rest = room - sum(len(label) for label, _ in line) + 1
        cells = rest if number == len(known) - 1 else max(1, round(room * value / total))
        line.append((_SIGNS[name][0] * min(rest, cells), _SIGNS[name][1]))
    line.append((" ", ""))
    for name, label in names:
        line += [(f" {_SIGNS[name][0]} ", _SIGNS[name][1]), (label, "dim")]
    return line
