"""The lines above everything: what is measured, how far it is, and the figures that matter most."""

from __future__ import annotations

from typing import Literal, NamedTuple

from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.plan import STEERED_ENOUGH
from swarmtui.model.session import Session
from swarmtui.model.telemetry import Trust, TtftSplit
from swarmtui.text import plain
from swarmtui.tui.numbers import clock, rate, seconds, whole

Mood = Literal["", "good", "warn", "bad"]

_MOODS: dict[str, Mood] = {"ok": "good", "doubtful": "warn", "wrong": "bad"}
_SIGNS = {"ok": "●", "doubtful": "▲", "wrong": "✖"}


class HeadView(NamedTuple):
    """`share` is how much of this run is done; None where it has no end.

    `title` says what is measured, and `split` where the time to the first token goes: in several lengths, the longest
    first.
    """

    title: tuple[str, ...]
    phase: str
    progress: str
    share: float | None
    clock: str
    trust: str
    trust_mood: Mood
    notice: str
    notice_mood: Mood
    split: tuple[str, ...] = ()


class Figure(NamedTuple):
    """`room` is what it needs to be whole; what is left over is shared."""

    label: str
    value: str
    beside: str
    mood: Mood = ""
    room: int = 11


class Clock(NamedTuple):
    """A replay's own time."""

    at_s: float
    length_s: float
    speed: int
    playing: bool


def head_view(
    session: Session | None,
    frame: Frame | None,
    ended: Ended | None,
    replay: Clock | None,
    told: str = "",
    server: str = "",
) -> HeadView:
    """`told` is what the face itself has to say, beside what the frame tells; `server` is news of it, after the end."""
    title = _title(session)
    trust, mood = _trust(frame.trust if frame else ())
    notice, notice_mood = _notice(frame, ended, "" if server else told)
    if frame is None:
        return HeadView(title, "starting" if ended is None else "ended", "", None, "", trust, mood, notice, notice_mood)
    if server:
        notice, notice_mood = f"{server} · {notice}" if notice else server, "warn"
    return HeadView(
        title=title,
        phase=phase(frame),
        progress=_progress(session, frame),
        share=frame.done / frame.of if frame.of else None,
        clock=_clock(frame, replay),
        trust=trust,
        trust_mood=mood,
        notice=notice,
        notice_mood=notice_mood,
        split=_split(frame.ttft_split) if frame.status == "running" else (),
    )


def server_words(down_s: float | None, back: str) -> str:
    """Of a server that went away after the run, or came back."""
    if down_s is not None:
        return f"server down for {clock(down_s)}, waiting"
    return f"the server is back: {plain(back)}; R runs the same plan again" if back else ""


def phase(frame: Frame) -> str:
    if frame.down_s is not None:
        return f"server down for {clock(frame.down_s)}, waiting"
    where = f"C={frame.c}" if frame.rate is None else f"{frame.rate:g} requests/s"
    if frame.status == "running":
        return where + (f" run {frame.run}/{frame.runs}" if frame.runs > 1 else "")
    if frame.status in ("draining", "paused", "stopping") and frame.c:
        return f"{frame.status}, {where}"
    return "warm-up, discarded" if frame.status == "warming up" else frame.status


def _progress(session: Session | None, frame: Frame) -> str:
    """A stretch that people steer has no end, but a length from which on it counts."""
    if frame.of:
        return f"{frame.done}/{frame.of}"
    if not frame.steered or frame.status != "running":
        return f"{frame.done} done" if frame.done else ""
    enough = STEERED_ENOUGH * frame.c
    return (
        f"{frame.done} done, enough for a level"
        if frame.done >= enough
        else f"{frame.done} done of {enough} for a level"
    )


class Apart(NamedTuple):
    """Of a mixed load: tok/s now of the main task, and of one of those beside it."""

    primary_tps: float | None
    side_tps: float | None


def figures(frame: Frame | None, asked_c: int | None, apart: Apart | None = None) -> tuple[Figure, ...]:
    """`asked_c` is what was just asked for, and shown until frames say it themselves."""
    if frame is None:
        return ()
    here = next((level for level in frame.levels if level.key == (frame.c, frame.rate)), None)
    lead = f"{rate(here.lead_tps if here else None)} {'steady' if frame.load in ('closed', 'ramp') else 'wall'}"
    late = (Figure("late", seconds(frame.late_s), "the worst"),) if frame.load == "open" else ()
    each = Figure("per stream", rate(frame.per_stream_tps), "tok/s")
    if apart is not None:
        each = Figure("primary", rate(apart.primary_tps), f"side {rate(apart.side_tps)}")
    worst = max(frame.error_counts, key=lambda name: frame.error_counts[name]) if frame.error_counts else ""
    return (
        _laid_on(frame, asked_c),
        Figure("out tok/s", rate(frame.out_tps), lead, room=14),
        each,
        Figure("TTFT", seconds(frame.ttft_s), _beside_ttft(frame.ttft_split)),
        *late,
        Figure("queue", str(frame.waiting), f"server {whole(server_waiting(frame))}", "warn" if frame.waiting else ""),
        Figure("errors", str(frame.errors), plain(worst) or f"of {frame.finished:,}", "bad" if frame.errors else ""),
        Figure("tokens/J", rate(_tokens_per_joule(frame)), "GPU only", room=9),
    )


def _laid_on(frame: Frame, asked_c: int | None) -> Figure:
    """What is asked of the server: so many streams, or so many requests a second."""
    active = f"{frame.in_flight} active" if frame.status != "ended" else "ended"
    if frame.rate is not None and asked_c is None:
        return Figure("requests/s", f"{frame.rate:g}", active)
    target = frame.c if asked_c is None else asked_c
    return Figure("C", str(target), active, "warn" if asked_c not in (None, frame.c) else "")


def _split(parts: TtftSplit | None) -> tuple[str, ...]:
    if parts is None:
        return ()
    named = (("queue", parts.queue_s), ("prefill", parts.prefill_s), ("rest", parts.rest_s))
    known = [f"{name} {seconds(value)}" for name, value in named if value is not None]
    est = "est. " if parts.estimated else ""
    return (
        f"TTFT {seconds(parts.ttft_s)} = {est}{' + '.join(known)}",
        f"{est}{' + '.join(known)}",
        f"TTFT: {est}{known[0]}",
    )


def _beside_ttft(parts: TtftSplit | None) -> str:
    """What most of the waiting is for, as short as a tile; ~ is estimated."""
    if parts is None or parts.queue_s is None or not parts.ttft_s:
        return "median"
    return f"queue {'~' if parts.estimated else ''}{100 * parts.queue_s / parts.ttft_s:.0f}%"


def _title(session: Session | None) -> tuple[str, ...]:
    """With less room the engine gives way, then the address: a model and its workload are what people look for."""
    if session is None:
        return ()
    known = session.endpoints[0] if session.endpoints else None
    more = f" +{len(session.endpoints) - 1}" if len(session.endpoints) > 1 else ""
    address = known.url.removeprefix("http://") + more if known else ""
    engine = known.engine if known and not session.simulated else ""
    first = (session.label, "SIMULATED" if session.simulated else "")
    last = (known.model if known else "", session.workload)
    lengths = ((*first, address, engine, *last), (*first, address, *last), (*first, *last))
    return tuple(" · ".join(plain(part) for part in parts if part) for parts in lengths)


def _clock(frame: Frame, replay: Clock | None) -> str:
    if replay is not None:
        over = replay.at_s >= replay.length_s
        state = f"×{replay.speed}" if replay.playing else "at its end" if over else "paused"
        return f"replay {state}  {clock(replay.at_s)} of {clock(replay.length_s)}"
    left = "" if frame.left_s is None or frame.status == "ended" else f", {clock(frame.left_s)} left"
    return f"{clock(frame.elapsed_s)} elapsed{left}"


def _trust(lines: tuple[Trust, ...]) -> tuple[str, Mood]:
    if not lines:
        return "", ""
    order = ("wrong", "doubtful", "ok")
    worst = min(lines, key=lambda line: order.index(line.state))
    others = sum(line.state != "ok" for line in lines) - 1
    more = f" +{others}" if others > 0 else ""
    words = "trust ok" if worst.state == "ok" else f"{worst.state}: {plain(worst.name)}{more}"
    return f"{_SIGNS[worst.state]} {words}", _MOODS[worst.state]


def _notice(frame: Frame | None, ended: Ended | None, told: str) -> tuple[str, Mood]:
    """One line of what must be known now; the most pressing first."""
    if ended is not None:
        bad = ended.ending in ("unusable", "failed", "interrupted")
        where = f"saved: {ended.directory}" if ended.directory else "nothing was measured"
        words = f"{ended.ending}: {plain(ended.message)}" if ended.message else ended.ending
        return " · ".join(
            part for part in ((plain(frame.answer) if frame else "") or told, words, where) if part
        ), "bad" if bad else "good"
    if frame is None:
        return "", ""
    if frame.warnings:
        return plain(frame.warnings[-1]), "bad"
    if frame.answer:
        return plain(frame.answer), "good"
    return plain(frame.note) or told, "" if frame.note else "warn" if told else ""


def server_waiting(frame: Frame) -> float | None:
    states = frame.telemetry.servers if frame.telemetry else ()
    known = [state.waiting for state in states if state.waiting is not None]
    return sum(known) if known else None


def _tokens_per_joule(frame: Frame) -> float | None:
    """Present tok/s over present watts; the level's own figure, from the energy counter, is the one to publish."""
    gpus = frame.telemetry.gpus if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    return frame.out_tps / sum(watts) if frame.out_tps is not None and watts and sum(watts) > 0 else None
