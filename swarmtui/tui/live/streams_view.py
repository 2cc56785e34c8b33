"""One line for each agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from swarmtui.model.client_protocol import Frame
from swarmtui.model.session import Session
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.text import plain
from swarmtui.tui.live.header_view import Apart, server_waiting
from swarmtui.tui.live_model import SPARK, Pace
from swarmtui.tui.numbers import rate, seconds, spark

Order = Literal["agent", "tok/s", "tokens", "TTFT", "state"]
ORDERS: tuple[Order, ...] = ("agent", "tok/s", "tokens", "TTFT", "state")

_SIGNS = {
    "waiting": "◌", "prefill": "◔", "thinking": "◐", "writing": "●", "idle": "·", "connecting": "…", "backing off": "✖",
}  # fmt: skip


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


class StreamsView(NamedTuple):
    """`shown` are the lines from `top` on; `total` is how many pass the filter, `agents` how many there are."""

    shown: tuple[StreamLine, ...]
    top: int
    total: int
    agents: int
    order: Order
    filter: str
    empty: str


def chosen_rows(frame: Frame, paces: Mapping[int, Pace], order: Order, words: str) -> list[StreamRow]:
    """Those that pass the filter, in order; agents that are no longer wanted and do nothing are left out."""
    # An open loop has as many agents as may ever be needed: those that never were are no streams.
    streams = 0 if frame.load == "open" else frame.c
    rows = [_honest(row, frame) for row in frame.rows if row.agent < streams or row.state != "idle"]
    if words:
        wanted = words.lower()
        rows = [row for row in rows if wanted in f"{row.agent} {row.state} {row.task} {row.type}".lower()]
    match order:
        case "tok/s":
            rows.sort(key=lambda row: -(paces[row.agent].rate or 0.0) if row.agent in paces else 0.0)
        case "tokens":
            rows.sort(key=lambda row: -row.total)
        case "TTFT":
            rows.sort(key=lambda row: -(row.ttft_s or 0.0))
        case "state":
            rows.sort(key=lambda row: (row.state, row.agent))
        case "agent":
            pass
    return rows


def apart(session: Session | None, frame: Frame | None, paces: Mapping[int, Pace]) -> Apart | None:
    """The main task of a mixed load, and those beside it; None where there is no such difference."""
    if session is None or frame is None or frame.load != "mixed":
        return None
    primary = primary_type(session)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for row in frame.rows:
        pace = paces.get(row.agent)
        if row.state in ("writing", "thinking") and pace is not None and pace.rate is not None:
            rates[row.type == primary].append(pace.rate)
    means = [sum(found) / len(found) if found else None for found in (rates[True], rates[False])]
    return Apart(*means)


def primary_type(session: Session | None) -> str:
    """How requests of the main task of a mixed load are called; empty where there is none."""
    spec = session.workload_spec if session else {}
    main = spec.get("primary")
    return str(main.get("type") or "primary") if isinstance(main, dict) else ""


def _honest(row: StreamRow, frame: Frame) -> StreamRow:
    """Headers without a token look the same in a queue and in prefill: while the server tells of a queue, it waits."""
    if row.state == "prefill" and (server_waiting(frame) or 0.0) > 0:
        return msgspec.structs.replace(row, state="waiting")
    return row


def streams_view(
    frame: Frame | None, paces: Mapping[int, Pace], order: Order, words: str, top: int, height: int, primary: str = ""
) -> StreamsView:
    """`primary` is the type of a mixed load's main task."""
    if frame is None:
        return StreamsView((), 0, 0, 0, order, words, "nothing yet: no request has been sent")
    rows = chosen_rows(frame, paces, order, words)
    fastest = max((pace.rate or 0.0 for pace in paces.values()), default=0.0) or None
    shown = tuple(
        _line(row, paces.get(row.agent), frame, fastest, bool(primary) and row.type == primary)
        for row in rows[top : top + height]
    )
    return StreamsView(shown, top, len(rows), len(frame.rows), order, words, _why_empty(frame, words))


def _line(row: StreamRow, pace: Pace | None, frame: Frame, fastest: float | None, primary: bool) -> StreamLine:
    recent = pace.recent if pace else ()
    task = "" if row.task < 0 else f"{row.task} {plain(row.type)}".rstrip()
    ttft = seconds(row.ttft_s)
    if row.ttft_s is None and row.t_sent_ns and row.state in ("waiting", "prefill"):
        # Still counting: whole seconds, so that a long queue does not repaint at each frame.
        ttft = f"> {max(0, frame.t_ns - row.t_sent_ns) // 1_000_000_000} s"
    return StreamLine(
        agent=row.agent,
        sign=_SIGNS.get(row.state, "?"),
        state=plain(row.state),
        task=task,
        tokens=f"{row.total * frame.tokens_per_chunk:,.0f}" if row.total else "",
        rate=rate(pace.rate) if pace and pace.rate is not None and row.state in ("writing", "thinking") else "",
        spark=spark((None,) * (SPARK - len(recent)) + recent, fastest),
        ttft="" if row.state == "idle" else ttft,
        primary=primary,
    )


def _why_empty(frame: Frame, words: str) -> str:
    if words and frame.rows:
        return f"no stream fits “{words}”; Esc clears the filter"
    if frame.status == "ended":
        return "the run has ended: no stream is open"
    return "no stream yet" if frame.status != "paused" else "paused: p goes on"
