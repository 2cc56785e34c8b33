"""The streams: one line per agent, of which only the visible ones are made, or a heat map of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from textual.events import Click

from swarmtui.model.client_protocol import RECENT_RATES, Frame, StreamRate
from swarmtui.model.load import traits
from swarmtui.model.session import Session
from swarmtui.model.worker_protocol import StreamRow, TextTail
from swarmtui.numbers import rate, seconds
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Movable, ljust, rjust, scale_top, sparkline
from swarmtui.tui.live.header import MixedRates
from swarmtui.tui.live.heat_map import HeatCell, MapLayout, heat_cells, legend, map_layout, map_lines
from swarmtui.tui.live.live_panel import LiveData, LivePanel, StreamOrder

STREAM_ORDERS: tuple[StreamOrder, ...] = ("agent", "tok/s", "tokens", "TTFT", "state")

_SIGNS = {
    "waiting": "◌", "prefill": "◔", "thinking": "◐", "writing": "●", "idle": "·", "connecting": "…", "backing off": "✖",
}  # fmt: skip
_STYLES = {"writing": "first", "thinking": "second", "prefill": "second", "backing off": "bad"}
# The states of a stream that has a rate now.
RECEIVING = ("writing", "thinking")
# The columns of a line that do not depend on the width, of the sparkline, and of the task beside text.
_FIXED, _SPARK, _TASK = 40, 9, 12
# The least columns of text, and those from which the sparkline is shown beside it.
_MIN_TEXT, _ENOUGH_TEXT = 12, 24
_LONG_WORD = 12
# More streams than this are shown as a heat map.
_MANY_STREAMS = 40
# The heading, the titles, the selected stream and the legend.
_AROUND_MAP = 4


class StreamLine(NamedTuple):
    agent: int
    sign: str
    state: str
    task: str
    tokens: str
    rate: str
    spark: str
    ttft: str
    primary: bool = False
    tail: TextTail | None = None


class StreamsView(NamedTuple):
    """`shown` are the lines from `top` on; `total` is the number of streams that pass the filter, of `streams`.

    A heat map has `cells`, and shows the line of the selected stream. `has_text`: there is text to show. `varies`: the
    number of streams is not C, and changes with every frame.
    """

    shown: tuple[StreamLine, ...]
    top: int
    total: int
    order: StreamOrder
    filter: str
    empty: str
    has_text: bool = False
    cells: tuple[HeatCell, ...] = ()
    median_tps: float | None = None
    streams: int = 0
    varies: bool = False


# views


def streams_view(
    frame: Frame | None,
    rates: Mapping[int, StreamRate],
    order: StreamOrder,
    filter_text: str,
    top: int,
    height: int,
    primary: str = "",
    *,
    as_map: bool = False,
    with_text: bool = True,
) -> StreamsView:
    """`primary` is the type of the primary task of a mixed load; `as_map` makes a heat map, `top` is its selection."""
    if frame is None:
        return StreamsView((), 0, 0, order, filter_text, "no request has been sent yet")
    streams = _streams(frame)
    rows = _sorted_rows(streams, rates, order, filter_text)
    fastest = scale_top(max((tps or 0.0 for known in rates.values() for tps in known.recent), default=0.0)) or None
    tails = {tail.agent: tail for tail in frame.tails} if with_text else {}
    shown = tuple(
        _line(row, rates.get(row.agent), frame, fastest, bool(primary) and row.type == primary, tails.get(row.agent))
        for row in rows[top : top + (1 if as_map else height)]
    )
    cells, median_tps = heat_cells(rows, rates) if as_map else ((), None)
    empty = _empty_reason(frame, filter_text)
    found = shown, top, len(rows), order, filter_text, empty, bool(tails), cells, median_tps
    return StreamsView(*found, streams=len(streams), varies=traits(frame.load).scheduled)


def is_heat_map(frame: Frame | None, chosen: bool | None) -> bool:
    """Whether the streams are shown as a heat map: as `chosen` by the user, else if there are many."""
    if chosen is not None or frame is None:
        return bool(chosen)
    return (frame.in_flight if traits(frame.load).by_rate else frame.c) > _MANY_STREAMS


def text_window(tail: TextTail, width: int) -> str:
    """Return as much of the end of an answer as fits in `width` cells.

    It starts at a multiple of a third of the width: what arrives is appended to text that stays where it is, which is
    easier to read than text that moves with each token, and fewer cells are painted.
    """
    step = max(1, width // 3)
    first = tail.length - len(tail.text)
    start = max(0, -(-max(first, tail.length - width) // step) * step)
    while True:
        shown = sanitize(_from_word(tail.text, max(0, start - first)))
        if cell_len(shown) <= width:
            return shown
        start += step


def _from_word(text: str, start: int) -> str:
    """Omit the rest of a word that begins before `start`; in scripts without spaces, and in long words, nothing."""
    if not start or text[start - 1 : start].isspace():
        return text[start:]
    blank = next((at for at in range(start, min(len(text), start + _LONG_WORD)) if text[at].isspace()), start)
    return text[blank:]


def mixed_rates(session: Session | None, frame: Frame | None, rates: Mapping[int, StreamRate]) -> MixedRates | None:
    """Return the mean rates of the primary and the side tasks of a mixed load; None for other loads."""
    if session is None or frame is None or not traits(frame.load).primary:
        return None
    primary = primary_type(session)
    found: dict[bool, list[float]] = {True: [], False: []}
    for row in frame.rows:
        known = rates.get(row.agent)
        if row.state in RECEIVING and known is not None and known.rate is not None:
            found[row.type == primary].append(known.rate)
    means = [sum(values) / len(values) if values else None for values in (found[True], found[False])]
    return MixedRates(*means)


def primary_type(session: Session | None) -> str:
    """The request type of the primary task of a mixed load; empty for other loads."""
    spec = session.workload_spec if session else {}
    primary = spec.get("primary")
    return str(primary.get("type") or "primary") if isinstance(primary, dict) else ""


def _streams(frame: Frame) -> list[StreamRow]:
    """Return the streams without idle agents above C; those that an open loop has in reserve are no streams."""
    c = 0 if traits(frame.load).scheduled else frame.c
    return [with_queue_state(row, frame) for row in frame.rows if row.agent < c or row.state != "idle"]


def _sorted_rows(
    streams: list[StreamRow], rates: Mapping[int, StreamRate], order: StreamOrder, filter_text: str
) -> list[StreamRow]:
    """Return the streams that pass the filter."""
    wanted = filter_text.lower()
    rows = [row for row in streams if not wanted or wanted in f"{row.agent} {row.state} {row.task} {row.type}".lower()]
    match order:
        case "tok/s":
            rows.sort(key=lambda row: -(rates[row.agent].rate or 0.0) if row.agent in rates else 0.0)
        case "tokens":
            rows.sort(key=lambda row: -row.total)
        case "TTFT":
            rows.sort(key=lambda row: -(row.ttft_s or 0.0))
        case "state":
            rows.sort(key=lambda row: (row.state, row.agent))
        case "agent":
            pass
    return rows


def with_queue_state(row: StreamRow, frame: Frame) -> StreamRow:
    """Show `waiting` rather than `prefill` while the server reports a queue: the client cannot tell them apart."""
    if row.state == "prefill" and (frame.server_waiting or 0.0) > 0:
        return msgspec.structs.replace(row, state="waiting")
    return row


def _line(
    row: StreamRow, known: StreamRate | None, frame: Frame, fastest: float | None, primary: bool, tail: TextTail | None
) -> StreamLine:
    recent = known.recent if known else ()
    task = "" if row.task < 0 else f"{row.task} {sanitize(row.type)}".rstrip()
    ttft = seconds(row.ttft_s)
    if row.ttft_s is None and row.t_sent_ns and row.state in ("waiting", "prefill"):
        # Whole seconds, so that a long queue is not repainted with every frame.
        ttft = f"> {max(0, frame.t_ns - row.t_sent_ns) // 1_000_000_000} s"
    return StreamLine(
        agent=row.agent,
        sign=_SIGNS.get(row.state, "?"),
        state=sanitize(row.state),
        task=task,
        tokens=f"{row.total * frame.tokens_per_chunk:,.0f}" if row.total else "",
        rate=rate(known.rate) if known and known.rate is not None and row.state in RECEIVING else "",
        spark=sparkline((None,) * (RECENT_RATES - len(recent)) + recent, fastest),
        ttft="" if row.state == "idle" else ttft,
        primary=primary,
        tail=tail,
    )


def _empty_reason(frame: Frame, filter_text: str) -> str:
    if filter_text and frame.rows:
        return f"no stream matches “{filter_text}”; Esc clears the filter"
    if frame.status == "ended":
        return "the run has ended: no open streams"
    if frame.status == "paused":
        return "paused: no open streams"
    return "no open streams: all agents pause" if frame.finished else "no streams yet"


# widget


class StreamsPanel(LivePanel, Movable):
    """Holds the cursor and the scroll position; its view has the visible rows."""

    key, title, row = 1, "streams", "upper"
    hidden_after_end = True

    view: StreamsView | None = None
    cursor = 0
    top = 0
    as_map = False
    _room = 0

    @property
    def rows(self) -> int:
        """The number of streams that fit below the heading and the titles."""
        return max(0, self.size.height - 2)

    @property
    def wheel_lines(self) -> int:
        return 1 if self.as_map else super().wheel_lines

    @property
    def first(self) -> int:
        """The first stream whose line is shown; above a heat map only the selected one is."""
        return self.cursor if self.as_map else self.top

    @property
    def selected(self) -> int | None:
        """The agent under the cursor."""
        row = self.cursor - self.first
        return self.view.shown[row].agent if self.view and 0 <= row < len(self.view.shown) else None

    @property
    def layout_of_map(self) -> MapLayout:
        return map_layout(self.view.total if self.view else 0, self.size.width, self.size.height - _AROUND_MAP)

    def lines_needed(self, width: int, most: int) -> int:
        """The lines that show all streams, also those that do not pass the filter, but not more than `most`.

        If their number varies, the panel gets smaller only when half of it is unused: each change of its height moves
        the panels below it.
        """
        view = self.view
        streams = view.streams if view else 0
        if not (view and view.varies and self._room // 2 <= streams <= self._room):
            self._room = streams
        if not self.as_map:
            return min(most, max(1, self._room) + 2)
        return min(most, map_layout(self._room, width, most - _AROUND_MAP).lines(self._room) + _AROUND_MAP)

    def show(self, view: StreamsView) -> None:
        self.view = view
        self.cursor = min(self.cursor, max(0, view.total - 1))
        self.redraw()

    def update_from(self, data: LiveData) -> None:
        live = data.shown
        self.as_map = data.is_map
        self._scroll_to_cursor()
        self.show(
            streams_view(
                live.frame,
                live.stream_rates,
                data.order,
                data.filter_text,
                self.first,
                self.rows,
                primary_type(live.session),
                as_map=self.as_map,
                with_text=self.app.stream_text,
            )
        )

    def _scroll_to_cursor(self) -> None:
        total = self.view.total if self.view else 0
        self.cursor = min(max(0, self.cursor), max(0, total - 1))
        if self.cursor < self.top:
            self.top = self.cursor
        elif self.cursor >= self.top + self.rows:
            self.top = self.cursor - self.rows + 1
        self.top = min(self.top, max(0, total - self.rows))

    def move(self, by: int) -> None:
        """Move by lines; a line of a heat map has several streams."""
        self.move_by_streams(by * self.layout_of_map.per_line if self.as_map else by)

    def move_by_streams(self, by: int) -> None:
        self.cursor += by
        self.fit_view()

    def on_click(self, event: Click) -> None:
        """Choose the clicked stream, and open it with a double click; other clicks are for the whole panel."""
        row = event.y - 2
        if self.view is None or self.as_map or not 0 <= row < len(self.view.shown):
            return
        event.stop()
        if event.chain == 1:
            self.move_by_streams(self.top + row - self.cursor)
        else:
            self.app.simulate_key("enter")

    def move_page(self, by: int) -> None:
        self.move_by_streams(by if self.as_map else by * max(1, self.rows))

    def move_to_edge(self, last: bool) -> None:
        total = self.view.total if self.view else 0
        self.move_by_streams(total if last else -total)

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [self.heading("", width)]
        lines = [self.heading(_note(view, self.rows), width)]
        if not view.shown:
            return [*lines, [(f" {view.empty}", "dim")]]
        columns = _columns(width, view.has_text)
        titles: Line = [(_titles(columns), "dim")]
        if not view.cells:
            streams = enumerate(view.shown, view.top)
            return [*lines, titles, *(_spans(line, columns, here=at == self.cursor) for at, line in streams)]
        labelled = view.order == "agent" and not view.filter
        lines += map_lines(view.cells, self.layout_of_map, height - _AROUND_MAP, self.cursor, labelled)
        return [*lines, titles, _spans(view.shown[0], columns, here=True), legend(view.median_tps, width)]


class StreamColumns(NamedTuple):
    """The widths of the columns that depend on the width of the panel; 0: not shown."""

    task: int
    spark: int
    text: int


def _columns(width: int, has_text: bool) -> StreamColumns:
    """Show text instead of the sparkline if there is no room for both."""
    room = width - _FIXED
    text = room - _TASK - 1 if has_text else 0
    if text < _MIN_TEXT:
        return StreamColumns(max(4, room - _SPARK), _SPARK, 0)
    return (
        StreamColumns(_TASK, _SPARK, text - _SPARK) if text >= _SPARK + _ENOUGH_TEXT else StreamColumns(_TASK, 0, text)
    )


def _spans(line: StreamLine, columns: StreamColumns, here: bool) -> Line:
    quiet = line.state in ("idle", "waiting")
    spans: Line = [
        ("›" if here else " ", "cursor" if here else ""),
        (rjust(str(line.agent), 4) + " ", "bold" if here else ""),
        (ljust(f"{line.sign} {line.state}", 12), _STYLES.get(line.state, "dim")),
        (ljust(f"★ {line.task}" if line.primary else line.task, columns.task) + " ", "dim" if quiet else ""),
        (rjust(line.tokens, 6), ""),
        (rjust(line.rate, 7), "bold"),
        (f" {line.spark} " if columns.spark else " ", "first"),
        (rjust(line.ttft, 7), "dim" if quiet else ""),
    ]
    if columns.text and line.tail is not None:
        spans.append((" " + text_window(line.tail, columns.text), "dim"))
    return spans


def _titles(columns: StreamColumns) -> str:
    head = f"agent {'state':<12}{ljust('task', columns.task)} {'tokens':>6}{'tok/s':>7}"
    spark = f" {'last 8 s':<8}" if columns.spark else ""
    return f"{head}{spark} {'TTFT':>7}{' text' if columns.text else ''}"


def _note(view: StreamsView, rows: int) -> str:
    parts = [f"by {view.order}"]
    if view.filter:
        parts.insert(0, f"/{view.filter}")
    if view.total > rows and not view.cells:
        parts.append(f"{view.top + 1}–{min(view.total, view.top + rows)} of {view.total}")
    else:
        parts.append(str(view.total))
    if view.cells:
        parts.append("m shows rows")
    return " · ".join(parts)
