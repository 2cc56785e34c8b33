"""One agent looked at closely: its stamps, the gaps between its chunks, its text, and what it answered before."""

from __future__ import annotations

from swarmtui.model.answer_check import PASSES
from swarmtui.model.client_protocol import Answered, Frame, Watched
from swarmtui.model.worker_protocol import StreamRow
from swarmtui.text import plain, plain_lines
from swarmtui.tui.lines import Line, wrapped
from swarmtui.tui.numbers import NOTHING, rate, seconds, spark

_LABEL = 8
_KEEP = "\N{NO-BREAK SPACE}"
_PREVIEW_LINES = 12


def facts(agent: int, watched: Watched | None, frame: Frame, now_tps: float | None, width: int) -> list[Line]:
    """Seven lines: who, how much, when, and how evenly."""
    row = next((row for row in frame.rows if row.agent == agent), None)
    lines: list[Line] = [_title(agent, watched, row)]
    if watched is None or watched.task < 0:
        return [*lines, [(" has had no request since somebody looks", "dim")]]
    tokens = f"{watched.chunks * frame.tokens_per_chunk:,.0f} in {watched.chunks:,} chunks"
    lines.append(_fact("tokens", f"{tokens}, {rate(now_tps)} tok/s now" if now_tps is not None else tokens))
    lines += _stamps(watched, frame.t_ns, width)
    lines += _gaps(watched, width)
    return lines


def answer(watched: Watched | None, kept: bool, width: int) -> list[Line]:
    """Reasoning first, told apart from the answer by its sign and not by its colour alone."""
    if watched is None or not (watched.text or watched.reasoning):
        why = "no text yet" if kept else "texts are not kept in this session (run with --keep-text)"
        return [[(f" {why}", "dim")]]
    lines: list[Line] = []
    if watched.reasoning:
        lines += [
            [(f" ┊ {part}", "dim")] for line in plain_lines(watched.reasoning) for part in wrapped(line, width - 2)
        ]
    if watched.text:
        lines += [[(f" {part}", "")] for line in plain_lines(watched.text) for part in wrapped(line, width)]
    return lines


def before(watched: Watched | None, width: int) -> list[Line]:
    """The answers before this one, newest first: verdict, figures, and as much of each as is kept."""
    if watched is None or not watched.before:
        return [[(" none yet", "dim")]]
    lines: list[Line] = []
    for one in watched.before:
        words, mood = _verdict(one)
        figures = ", ".join(
            part
            for part in (
                _task(one.task, one.type, one.turn),
                f"{one.tokens_out:,} tokens" if one.tokens_out is not None else "",
                f"{rate(one.decode_tps)} tok/s" if one.decode_tps is not None else "",
                f"TTFT {seconds(one.ttft_s)}" if one.ttft_s is not None else "",
                f"{seconds(one.e2e_s)} in all" if one.e2e_s is not None else "",
            )
            if part
        )
        first, *rest = wrapped(f"{words}  {figures}", width)
        lines.append([(f" {first[: len(words)]}", mood), (first[len(words) :], "dim")])
        lines += [[(f"   {part}", "dim")] for part in rest]
        texts = [part for line in plain_lines(one.preview) if line.strip() for part in wrapped(line, width - 2)]
        lines += [[(f"   {part}", "")] for part in texts[:_PREVIEW_LINES]]
    return lines


def _title(agent: int, watched: Watched | None, row: StreamRow | None) -> Line:
    state = plain(row.state) if row is not None else "no stream at this moment"
    line: Line = [(f" agent {agent}", "title"), (f"  {state}", "bold")]
    if watched is not None and watched.task >= 0:
        line.append((f"  {_task(watched.task, watched.type, watched.turn)}", ""))
    return line


def _task(task: int, kind: str, turn: int) -> str:
    words = f"task {task} {plain(kind)}".rstrip()
    return f"{words}, turn {turn + 1}" if turn else words


def _stamps(watched: Watched, now_ns: int, width: int) -> list[Line]:
    """Offsets from the time at which the request was to be sent."""
    zero = watched.t_sched_ns if watched.t_sched_ns is not None else watched.t_sent_ns
    if zero is None:
        return [_fact("stamps", "not sent yet"), []]
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
    # A number and its unit, a name and its time are not parted at the end of a line.
    known = [f"{name} {_offset(t_ns, zero)}".replace(" ", _KEEP) for name, t_ns in named if t_ns is not None]
    waited = f"waiting for {seconds((now_ns - zero) / 1e9)}" if watched.t_first_ns is None else ""
    texts = wrapped(" · ".join(["scheduled 0", *known, *filter(None, [waited])]), max(20, width - _LABEL - 1))
    lines = [_fact("stamps" if not place else "", text.replace(_KEEP, " ")) for place, text in enumerate(texts[:2])]
    lines += [_fact("", "")] * (2 - len(lines))
    return [*lines, _fact("TTFT", f"{_exact(ttft)}  first token − sent")]


def _gaps(watched: Watched, width: int) -> list[Line]:
    gaps = watched.gaps_s
    if not gaps.n:
        return [_fact("gaps", "two chunks make the first"), []]
    p99 = _exact(gaps.p99) if gaps.p99 is not None else f"{NOTHING} (needs 299)"
    words = f"between {gaps.n + 1:,} chunks: p50 {_exact(gaps.p50)} · p99 {p99} · longest {_exact(gaps.max)}"
    top = max(watched.recent_gaps_s)
    beside = f" max {_exact(top)}"
    room = max(10, width - _LABEL - 1 - len(beside))
    return [
        _fact("gaps", words),
        [(" " * (_LABEL + 1), ""), (spark(watched.recent_gaps_s[-room:], top), "first"), (beside, "dim")],
    ]


def _verdict(one: Answered) -> tuple[str, str]:
    if one.error is not None:
        return f"✖ {plain(one.error)}", "bad"
    if one.verdict is None:
        return "· done", ""
    return (f"✔ {one.verdict}", "good") if one.verdict in PASSES else (f"✖ {one.verdict}", "bad")


def _fact(name: str, value: str) -> Line:
    return [(f" {name:<{_LABEL}}", "dim"), (value, "")]


def _offset(t_ns: int, zero_ns: int) -> str:
    return f"+{_exact((t_ns - zero_ns) / 1e9)}"


def _exact(value: float | None) -> str:
    """Stamps are exact to microseconds: tenths of a millisecond are worth showing."""
    return f"{value * 1e3:.1f} ms" if value is not None and value < 0.1 else seconds(value)
