"""The streams: one line per agent, of which only the visible ones are made, or a heat map of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
from textual.events import Click

from swarmtui.model.client_protocol import RECENT_RATES, Frame, StreamRate
from swarmtui.model.load import traits
from swarmtui.model.session import Session
from swarmtui.model.worker_protocol import StreamRow, TextTail
from swarmtui.numbers import rate, seconds, wait_s
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Movable, longest_fit, part_text, scale_top, shaded_bars, wrapped_note
from swarmtui.tui.live.agent_lines import StreamLine, agent_columns, agent_lines, column_titles, has_times
from swarmtui.tui.live.heat_map import STATE_SIGNS, HeatCell, MapLayout, heat_cells, legend, map_layout, map_lines
from swarmtui.tui.live.live_panel import HasLiveData, LiveData, LivePanel, StreamOrder
from swarmtui.tui.live.plan_line import is_visited

STREAM_ORDERS: tuple[StreamOrder, ...] = ("state", "agent", "tok/s", "tokens", "TTFT")

# The states of a stream that has a rate now.
RECEIVING = ("writing", "thinking")
_RANKS = {state: rank for rank, state in enumerate(STATE_SIGNS)}
# More streams than this are shown as a heat map.
_MANY_STREAMS = 40
# Around a heat map: the heading, the selected stream, its text and the legend.
_AROUND_MAP = 4


class MixedRates(NamedTuple):
    """The current tok/s per stream of the primary task of a mixed load, and of its side tasks."""

    primary_tps: float | None
    side_tps: float | None


class FirstRows(NamedTuple):
    """The agents in the first rows by state, and how many of all agents write."""

    agents: tuple[int, ...]
    writing: int


NO_ROWS = FirstRows((), 0)


class StreamsView(NamedTuple):
    """`shown` are the streams from `top` on; `total` are those that pass the filter, `states` counts them by state.

    A heat map has `cells`, and shows the selected stream. `first` are the agents in the first rows.
    """

    shown: tuple[StreamLine, ...]
    top: int
    total: int
    order: StreamOrder
    filter: str
    empty: str
    cells: tuple[HeatCell, ...] = ()
    median_tps: float | None = None
    states: tuple[tuple[str, int], ...] = ()
    first: FirstRows = NO_ROWS

    @property
    def titles(self) -> tuple[str, ...]:
        """Count the agents by what they do, as those that write may be out of view; a short title has no states."""
        if not self.total:
            return ("agents",)
        counts = ", ".join(f"{count} {state}" for state, count in self.states)
        return f"agents · {self.total}: {counts}", f"agents · {self.total}"


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
    before: FirstRows = NO_ROWS,
) -> StreamsView:
    """`primary` is the type of the primary task of a mixed load; `as_map` makes a heat map, `top` is its selection.

    `before` are the rows of the view before.
    """
    if frame is None:
        return StreamsView((), 0, 0, order, filter_text, "no request has been sent yet")
    rows = _sorted_rows(_streams(frame), rates, order, filter_text, before)
    fastest = scale_top(max((tps or 0.0 for known in rates.values() for tps in known.recent), default=0.0)) or None
    tails = {tail.agent: tail for tail in frame.tails} if with_text else {}
    shown = tuple(
        _line(row, rates.get(row.agent), frame, fastest, bool(primary) and row.type == primary, tails.get(row.agent))
        for row in rows[top : top + (1 if as_map else height)]
    )
    cells, median_tps = heat_cells(rows, rates) if as_map else ((), None)
    empty = _empty_reason(frame, filter_text)
    counts = Counter(row.state for row in rows)
    states = tuple((sanitize(state), counts[state]) for state in sorted(counts, key=_rank))
    writing = sum(row.state in RECEIVING for row in rows)
    first = FirstRows(tuple(row.agent for row in rows[: max(writing, before.writing)]), writing)
    return StreamsView(shown, top, len(rows), order, filter_text, empty, cells, median_tps, states, first)


def is_heat_map(frame: Frame | None, chosen: bool | None) -> bool:
    """Whether the streams are shown as a heat map: as `chosen` by the user, else if there are many."""
    if chosen is not None or frame is None:
        return bool(chosen)
    return (frame.in_flight if traits(frame.load).by_rate else frame.c) > _MANY_STREAMS


def default_order(*, as_map: bool) -> StreamOrder:
    """Return the order that the user has not changed: in a map each agent has its place."""
    return "agent" if as_map else "state"


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
    streams: list[StreamRow],
    rates: Mapping[int, StreamRate],
    order: StreamOrder,
    filter_text: str,
    before: FirstRows,
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
            rows.sort(key=lambda row: (_rank(row.state), row.t_sent_ns, row.agent))
            return _in_their_rows(rows, before)
        case "agent":
            pass
    return rows


def _in_their_rows(rows: Sequence[StreamRow], before: FirstRows) -> list[StreamRow]:
    """Leave each agent that still writes in its row: one that begins, or is the next to begin, takes a free row.

    Text that moves cannot be read. If fewer agents write than in the view before that, only those in the last rows
    move. `rows` are sorted by state.
    """
    writing = {row.agent: row for row in rows if row.state in RECEIVING}
    leading = min(len(rows), max(len(writing), before.writing))
    stay = {at: writing[agent] for at, agent in enumerate(before.agents[:leading]) if agent in writing}
    agents = {row.agent for row in stay.values()}
    others = iter([row for row in rows if row.agent not in agents])
    return [*(stay.get(at) or next(others) for at in range(leading)), *others]


def _rank(state: str) -> int:
    return _RANKS.get(state, len(_RANKS))


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
    ttft, waited_s, counts = seconds(row.ttft_s), row.ttft_s or 0.0, True
    if row.ttft_s is None and row.t_sent_ns and row.state in ("waiting", "prefill"):
        waited_s = wait_s(max(0, frame.t_ns - row.t_sent_ns) / 1e9)
        # A search judges none of the requests before those of its level.
        counts = row.measured or not is_visited(frame)
        ttft = (f"> {waited_s:g} s" if counts else f"({waited_s:g} s)") if waited_s else ""
    return StreamLine(
        agent=row.agent,
        sign=STATE_SIGNS.get(row.state, "?"),
        state=sanitize(row.state),
        task=task,
        tokens=f"{row.total * frame.tokens_per_chunk:,.0f}" if row.total else "",
        rate=rate(known.rate) if known and known.rate is not None and row.state in RECEIVING else "",
        spark=tuple(shaded_bars((None,) * (RECENT_RATES - len(recent)) + recent, fastest, 1, "throughput")[0]),
        ttft="" if row.state == "idle" else ttft,
        wait_s=0.0 if row.state == "idle" else waited_s,
        write_s=0.0 if row.state == "idle" else row.span_s,
        primary=primary,
        counts=counts,
        # Before the first token, that is the text of the last answer.
        tail=tail if row.total else None,
    )


def _empty_reason(frame: Frame, filter_text: str) -> str:
    if filter_text and frame.rows:
        return f"no agent matches “{filter_text}”; Esc clears the filter"
    if frame.status == "ended":
        return (
            "the run has ended, and its agents are gone. A replay shows them again: r on the saved result, or in the "
            "list of sessions (L)"
        )
    if frame.status == "paused":
        return "paused: no agent is at work"
    return "all agents pause" if frame.finished else "no agent has begun yet"


# widget


class StreamsPanel(LivePanel, Movable):
    """Holds the cursor and the scroll position; its view has the visible agents."""

    key, title, place = 2, "agents", "agents"
    actions = ("open_stream", "filter", "heat_map", "sort")

    view: StreamsView | None = None
    cursor = 0
    top = 0
    as_map = False

    @property
    def _room(self) -> int:
        """The lines below the heading and the titles of the columns."""
        return max(0, self.inner_size.height - 2)

    @property
    def each(self) -> int:
        """The lines of each agent: few agents have several, with more of their text."""
        total = self.view.total if self.view else 0
        return max(1, self._room // max(1, total))

    @property
    def rows(self) -> int:
        """The number of agents that fit."""
        return self._room // self.each

    @property
    def wheel_lines(self) -> int:
        return 1 if self.as_map else super().wheel_lines

    @property
    def first(self) -> int:
        """The first stream whose line is shown; below a heat map only the selected one is."""
        return self.cursor if self.as_map else self.top

    @property
    def agents_shown(self) -> tuple[int, ...]:
        """The agents that are in view."""
        return tuple(sorted(line.agent for line in self.view.shown)) if self.display and self.view else ()

    @property
    def selected(self) -> int | None:
        """The agent under the cursor."""
        row = self.cursor - self.first
        return self.view.shown[row].agent if self.view and 0 <= row < len(self.view.shown) else None

    @property
    def layout_of_map(self) -> MapLayout:
        width, height = self.inner_size
        return map_layout(self.view.total if self.view else 0, width, height - _AROUND_MAP)

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
                self._room,
                primary_type(live.session),
                as_map=self.as_map,
                with_text=self.app.stream_text,
                before=self.view.first if self.view else NO_ROWS,
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
        # Of the whole screen, which asks for the text of those that are visible now: a paused replay sends no frame.
        cast(HasLiveData, self.screen).update_panels()

    def on_click(self, event: Click) -> None:
        """Choose the clicked agent, and open it with a double click; other clicks are for the whole panel."""
        position = self._position_at(event.x - 1, event.y)
        if position is None:
            return
        # The screen moves the focus here.
        if event.chain == 1:
            self.move_by_streams(position - self.cursor)
        else:
            event.stop()
            self.app.simulate_key("enter")

    def _position_at(self, x: int, y: int) -> int | None:
        view = self.view
        if view is None:
            return None
        if self.as_map:
            height = self.inner_size.height - _AROUND_MAP
            layout = self.layout_of_map
            first = layout.first_line(view.total, height, self.cursor)
            lines = min(height, layout.lines(view.total))
            return layout.position_at(x, y - 1, first, view.total) if 0 <= y - 1 < lines else None
        row = (y - 2) // self.each
        return self.top + row if y >= 2 and row < len(view.shown) else None

    def move_page(self, by: int) -> None:
        self.move_by_streams(by if self.as_map else by * max(1, self.rows))

    def move_to_edge(self, last: bool) -> None:
        total = self.view.total if self.view else 0
        self.move_by_streams(total if last else -total)

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        note = _note(view, self.rows) if view else ""
        # Where the lines are comes before the counts.
        self.title = longest_fit(view.titles, width - len(note) - 14) if view else "agents"
        if view is None:
            return [self.heading("", width)]
        lines = [self.heading(note, width)]
        if not view.shown:
            return [*lines, *wrapped_note(view.empty, width)]
        longest = max(line.wait_s + line.write_s for line in view.shown)
        columns = agent_columns(width)
        if not view.cells:
            lines.append(column_titles(columns, has_times=has_times(view.shown, self.each)))
            for at, line in enumerate(view.shown, view.top):
                lines += agent_lines(line, columns, self.each, width, longest, here=at == self.cursor)
            return lines
        labelled = view.order == "agent" and not view.filter
        cells = map_lines(view.cells, self.layout_of_map, height - _AROUND_MAP, self.cursor, labelled)
        # What the map leaves is for the text of the selected agent.
        room = height - 2 - len(cells)
        selected = agent_lines(view.shown[0], columns, room, width, longest, here=True)
        return [*lines, *cells, *selected, legend(view.median_tps, width)]


def _note(view: StreamsView, rows: int) -> str:
    """Say which agents are shown, and in which order."""
    parts = [f"/{view.filter}"] if view.filter else []
    parts += [f"by {view.order}"] if view.order != default_order(as_map=bool(view.cells)) else []
    if view.cells:
        parts.append("m shows rows")
    else:
        parts.append(part_text(range(view.top, min(view.total, view.top + rows)), view.total))
    return " · ".join(filter(None, parts))
