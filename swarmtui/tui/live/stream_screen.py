"""The screen of one stream: timestamps, gaps between chunks, the answer as it arrives, and earlier answers."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container

from swarmtui.model.answer_check import PASSES
from swarmtui.model.client_protocol import EarlierRequest, Frame, WatchedStream, WatchStream
from swarmtui.model.record import Waterfall
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.numbers import MISSING, percent, rate, seconds
from swarmtui.text import count_noun, sanitize, sanitize_lines
from swarmtui.tui.base_screens import KeyFooter, Page, Pager
from swarmtui.tui.frame_source import FrameSource, ReplaySource
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.lines import Line, Panel, scale_top, sparkline, wrap
from swarmtui.tui.live.now import parts_line
from swarmtui.tui.live.streams import RECEIVING, with_queue_state

_LABEL = 8
_NO_BREAK = "\N{NO-BREAK SPACE}"
_PREVIEW_LINES = 12
_UPDATE_S = 0.25


# views


def fact_lines(
    agent: int, watched: WatchedStream | None, frame: Frame, current_tps: float | None, width: int
) -> list[Line]:
    """Return nine lines: state, tokens, timestamps, TTFT, gaps, and where the time of the agent went."""
    row = next((with_queue_state(row, frame) for row in frame.rows if row.agent == agent), None)
    lines: list[Line] = [_title(agent, watched, row)]
    if watched is None or watched.task < 0:
        spent = _time_spent(watched.waterfall, width) if watched else []
        return [*lines, [(" no request since this stream was opened", "dim")], *spent]
    tokens = f"{watched.chunks * frame.tokens_per_chunk:,.0f} in {watched.chunks:,} chunks"
    has_rate = current_tps is not None and row is not None and row.state in RECEIVING
    lines.append(_fact("tokens", f"{tokens}, {rate(current_tps)} tok/s now" if has_rate else tokens))
    lines += _timestamps(watched, frame.t_ns, width)
    lines += _gaps(watched, width)
    return lines + _time_spent(watched.waterfall, width)


def answer_lines(watched: WatchedStream | None, kept: bool, width: int) -> list[Line]:
    """Return the reasoning, marked with a sign, and the answer."""
    if watched is None or not (watched.text or watched.reasoning):
        empty = "no text yet" if kept else "text was not saved in this session (run with --keep-text)"
        return [[(f" {empty}", "dim")]]
    lines: list[Line] = []
    if watched.reasoning:
        lines += [
            [(f" ┊ {part}", "dim")] for line in sanitize_lines(watched.reasoning) for part in wrap(line, width - 2)
        ]
    if watched.text:
        lines += [[(f" {part}", "")] for line in sanitize_lines(watched.text) for part in wrap(line, width)]
    return lines


def earlier_lines(watched: WatchedStream | None, width: int) -> list[Line]:
    """Return the earlier answers, newest first, each with its verdict, figures and the start of its text."""
    if watched is None or not watched.before:
        return [[(" none yet", "dim")]]
    lines: list[Line] = []
    for request in watched.before:
        verdict, style = _verdict(request)
        figures = ", ".join(
            part
            for part in (
                _task(request.task, request.type, request.turn),
                f"{request.tokens_out:,} tokens" if request.tokens_out is not None else "",
                f"{rate(request.decode_tps)} tok/s" if request.decode_tps is not None else "",
                f"TTFT {seconds(request.ttft_s)}" if request.ttft_s is not None else "",
                f"e2e {seconds(request.e2e_s)}" if request.e2e_s is not None else "",
            )
            if part
        )
        first, *rest = wrap(f"{verdict}  {figures}", width)
        lines.append([(f" {first[: len(verdict)]}", style), (first[len(verdict) :], "dim")])
        lines += [[(f"   {part}", "dim")] for part in rest]
        if request.waterfall is not None and len(request.waterfall.known_parts) > 2:
            lines.append([("  ", ""), *parts_line(request.waterfall.known_parts, seconds, width - 2)])
        texts = [part for line in sanitize_lines(request.preview) if line.strip() for part in wrap(line, width - 2)]
        lines += [[(f"   {part}", "")] for part in texts[:_PREVIEW_LINES]]
    return lines


def _title(agent: int, watched: WatchedStream | None, row: StreamRow | None) -> Line:
    state = sanitize(row.state) if row is not None else "no open stream"
    line: Line = [(f" agent {agent}", "title"), (f"  {state}", "bold")]
    if watched is not None and watched.task >= 0:
        line.append((f"  {_task(watched.task, watched.type, watched.turn)}", ""))
    return line


def _task(task: int, type_name: str, turn: int) -> str:
    text = f"task {task} {sanitize(type_name)}".rstrip()
    return f"{text}, turn {turn + 1}" if turn else text


def _timestamps(watched: WatchedStream, now_ns: int, width: int) -> list[Line]:
    """Return offsets from the time at which the request was scheduled."""
    zero = watched.t_sched_ns if watched.t_sched_ns is not None else watched.t_sent_ns
    if zero is None:
        return [_fact("times", "not sent yet"), []]
    ttft = None
    if watched.t_sent_ns is not None and watched.t_first_ns is not None:
        ttft = (watched.t_first_ns - watched.t_sent_ns) / 1e9
    named = (
        ("sent", watched.t_sent_ns),
        ("headers", watched.t_headers_ns),
        ("first token", watched.t_first_ns),
        ("first content", watched.t_first_content_ns if watched.reasoning else None),
        ("last token", watched.t_last_ns),
    )
    # Keep each name, number and unit on one line.
    known = [f"{name} {_offset(t_ns, zero)}".replace(" ", _NO_BREAK) for name, t_ns in named if t_ns is not None]
    waiting = f"waiting for {seconds((now_ns - zero) / 1e9)}" if watched.t_first_ns is None else ""
    texts = wrap(" · ".join(["scheduled 0", *known, *filter(None, [waiting])]), max(20, width - _LABEL - 1))
    lines = [
        _fact("times" if not number else "", text.replace(_NO_BREAK, " ")) for number, text in enumerate(texts[:2])
    ]
    lines += [_fact("", "")] * (2 - len(lines))
    return [*lines, _fact("TTFT", f"{seconds(ttft)}  first token − sent")]


def _gaps(watched: WatchedStream, width: int) -> list[Line]:
    gaps = watched.gaps_s
    if not gaps.n:
        return [_fact("gaps", "none yet: they need two chunks"), []]
    p99 = seconds(gaps.p99) if gaps.p99 is not None else f"{MISSING} (needs 299)"
    text = f"between {gaps.n + 1:,} chunks: p50 {seconds(gaps.p50)} · p99 {p99} · max {seconds(gaps.max)}"
    top = scale_top(max(watched.recent_gaps_s))
    scale = f" max {seconds(top)}"
    room = max(10, width - _LABEL - 1 - len(scale))
    return [
        _fact("gaps", text),
        [(" " * (_LABEL + 1), ""), (sparkline(watched.recent_gaps_s[-room:], top), "latency"), (scale, "dim")],
    ]


def _time_spent(found: Waterfall | None, width: int) -> list[Line]:
    """`prefill is 94 % of this agent's time`, and all parts as a bar."""
    if found is None or not found.total_s:
        return [_fact("time", "where it went is known after the first answer"), []]
    name, most = max(found.known_parts, key=lambda part: part[1])
    of = f"{seconds(found.total_s)}, {count_noun(found.n, 'answer')}"
    text = f"{name} {'are' if name == 'tools' else 'is'} {percent(most / found.total_s)} of this agent's time ({of})"
    bar = parts_line(found.known_parts, lambda value: percent(value / found.total_s), width - _LABEL)
    return [_fact("time", text), [(" " * _LABEL, ""), *bar]]


def _verdict(request: EarlierRequest) -> tuple[str, str]:
    if request.error is not None:
        return f"✖ {sanitize(request.error)}", "bad"
    if request.verdict is None:
        return "· done", ""
    return (f"✔ {request.verdict}", "good") if request.verdict in PASSES else (f"✖ {request.verdict}", "bad")


def _fact(name: str, value: str) -> Line:
    return [(f" {name:<{_LABEL}}", "dim"), (value, "")]


def _offset(t_ns: int, zero_ns: int) -> str:
    return f"+{seconds((t_ns - zero_ns) / 1e9)}"


# screen


class StreamFacts(Panel[list[Line]]):
    def draw(self, width: int, height: int) -> list[Line]:
        return self.view or []


class StreamScreen(Pager):
    key_context = "stream"

    def __init__(self, source: FrameSource, agent: int) -> None:
        super().__init__()
        self._source, self._agent = source, agent

    def compose(self) -> ComposeResult:
        yield StreamFacts()
        with Container(id="texts"):
            yield Page("answer", follow=True, id="answer")
            yield Page("earlier answers", id="earlier")
        yield KeyFooter()

    def movable(self) -> Page:
        return self.query_one("#answer", Page)

    def actions(self) -> list[Action]:
        return in_footer(super().actions(), "neighbour(1)", "neighbour(-1)")

    def on_mount(self) -> None:
        self._source.send(WatchStream(self._agent))
        self.set_interval(_UPDATE_S, self.update_in_front)
        self.call_after_refresh(self.update_panels)

    def on_unmount(self) -> None:
        self._source.send(WatchStream(None))

    def action_neighbour(self, by: int) -> None:
        """Show the next or previous open stream."""
        frame = self._source.live.frame
        agents = sorted(row.agent for row in frame.rows) if frame else []
        if self._agent in agents:
            self._agent = agents[(agents.index(self._agent) + by) % len(agents)]
            self._source.send(WatchStream(self._agent))
            self.movable().follow = True
            self.update_panels()

    def update_panels(self) -> None:
        live = self._source.live
        frame = live.frame
        if frame is None or self.app.output_pending:
            return
        watched = frame.watched if frame.watched is not None and frame.watched.agent == self._agent else None
        known = live.stream_rates.get(self._agent)
        current_tps = known.rate if known else None
        self.query_one(StreamFacts).show(fact_lines(self._agent, watched, frame, current_tps, self.size.width))
        answer, earlier = self.query_one("#answer", Page), self.query_one("#earlier", Page)
        kept = not isinstance(self._source, ReplaySource)
        answer.show(answer_lines(watched, kept, max(20, answer.size.width - 2)))
        earlier.show(earlier_lines(watched, max(20, earlier.size.width - 2)))
