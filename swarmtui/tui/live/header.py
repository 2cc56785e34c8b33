"""The header of a live screen: what is measured, the plan, progress, errors and measurement quality."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from swarmtui.analysis.capacity.words import (
    end_text,
    first_token_texts,
    is_finishing,
    left_text,
    outlook_texts,
    step_texts,
)
from swarmtui.analysis.quality.doubts import doubt_text
from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.endpoint import api_text
from swarmtui.model.load import traits
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS
from swarmtui.model.session import Session
from swarmtui.numbers import clock, percent, rate, seconds
from swarmtui.text import count_noun, name_errors, sanitize
from swarmtui.tui.lines import Line, Panel, bar, cell_width, ljust, longest_fit, shorten
from swarmtui.tui.live.layout import Place
from swarmtui.tui.live.plan_line import (
    PlanView,
    is_visited,
    level_text,
    plan_line,
    plan_view,
)

StatusStyle = Literal["", "good", "warn", "bad", "dim"]

QUALITY_SIGNS: dict[str, tuple[str, StatusStyle]] = {
    "ok": ("●", "good"),
    "note": ("·", "dim"),
    "doubtful": ("?", "warn"),
    "wrong": ("✖", "bad"),
}
_BAR = 16
# Below this width the clock and the title are shorter.
_NARROW = 100


class HeaderView(NamedTuple):
    """`share` is the completed part of this run, or of the plan after its end; None if it has no fixed length.

    `title`, `detail`, `clock`, `quality`, `errors` and `notice` come in several versions, from long to short. `detail`
    is the step of a search, what only some loads have, or where an ended session is saved; a notice takes its place,
    never that of the phase.
    """

    title: tuple[str, ...]
    phase: str
    progress: str
    share: float | None
    clock: tuple[str, ...]
    quality: tuple[str, ...]
    quality_style: StatusStyle
    notice: tuple[str, ...]
    notice_style: StatusStyle
    detail: tuple[str, ...] = ()
    plan: PlanView = PlanView()
    frozen: bool = False
    errors: tuple[str, ...] = ()


class ReplayClock(NamedTuple):
    at_s: float
    length_s: float
    speed: int
    playing: bool


# views


def header_view(
    session: Session | None,
    frame: Frame | None,
    ended: Ended | None,
    replay: ReplayClock | None,
    comparison: str = "",
    server: tuple[str, ...] = (),
    requested_c: int | None = None,
) -> HeaderView:
    """`comparison` is what the app found about the baseline; `server` is the state of the server after the end.

    `requested_c` is a C that no frame has reported yet.
    """
    title = session_titles(session)
    # An answer says it itself.
    quality, style = _quality(frame) if frame and frame.answer is None else ((), "")
    if frame is None:
        phase_text, why = ("starting", "") if ended is None else ("ended", ending_text(ended))
        return HeaderView(title, phase_text, "", None, (), quality, style, (why,) if why else (), "bad")
    notice, notice_style = _notice(frame, ended, server)
    progress, share = _progress(frame)
    chips = plan_view(session, frame, requested_c)
    running = frame.status == "running" and frame.outage_s is None
    return HeaderView(
        title=title,
        phase=ended.ending if ended is not None else _stage(frame) if running else phase(frame),
        progress="" if chips.chips and frame.of and running else progress,
        share=share,
        clock=_clock(frame, replay),
        quality=quality,
        quality_style=style,
        notice=notice,
        notice_style=notice_style,
        detail=_end_texts(ended, frame) if ended is not None else _detail(frame if running else None, comparison),
        plan=chips,
        errors=_errors(frame),
    )


def server_notice(down_s: float | None, changes: tuple[str, ...]) -> tuple[str, ...]:
    """Describe a server that went down or was restarted after the run; `changes` come from long to short."""
    if down_s is not None:
        return (f"the server went down {clock(down_s)} ago",)
    return tuple(
        version
        for text in map(sanitize, changes)
        for version in (
            f"the server is back, R runs it again: {text}",
            f"restarted: {text} · R runs it again",
            f"{text} · R repeats",
        )
    )


def _stage(frame: Frame) -> str:
    if is_finishing(frame):
        return "finishing: the last figures are computed and saved"
    return level_text(frame) or (f"run {frame.run} of {frame.runs}" if frame.runs > 1 else "measuring")


def phase(frame: Frame) -> str:
    if frame.outage_s is not None:
        return f"server down for {clock(frame.outage_s)}, waiting"
    load = f"C={frame.c}" if frame.rate is None else f"{frame.rate:g} requests/s"
    if frame.status == "running":
        return load + (f" run {frame.run}/{frame.runs}" if frame.runs > 1 else "")
    if frame.status in ("draining", "pausing"):
        first = "pausing, " if frame.status == "pausing" else ""
        return f"{first}{count_noun(frame.in_flight, 'request')} in flight: the answers are awaited"
    if frame.status == "paused" and frame.c and not frame.steered:
        return f"paused, {load}: p starts this level again"
    if frame.status in ("paused", "stopping") and frame.c:
        return f"{frame.status}, {load}"
    return "warm-up, discarded" if frame.status == "warming up" else frame.status


def session_titles(session: Session | None, *, labelled: bool = True) -> tuple[str, ...]:
    """Say what is measured: shorter versions drop the engine, then the address; model and workload stay."""
    if session is None:
        return ()
    endpoint = session.endpoints[0] if session.endpoints else None
    more = f" +{len(session.endpoints) - 1}" if len(session.endpoints) > 1 else ""
    address = endpoint.url.removeprefix("http://") + more if endpoint else ""
    engine = endpoint.engine if endpoint and not session.simulated else ""
    api = api_text(endpoint) if endpoint else ""
    first = (session.label if labelled else "", "SIMULATED" if session.simulated else "")
    hosts = f"{len(session.hosts)} hosts" if len(session.hosts) > 1 else ""
    last = (endpoint.model if endpoint else "", session.workload, hosts)
    versions = ((*first, address, engine, api, *last), (*first, address, api, *last), (*first, *last))
    return tuple(" · ".join(sanitize(part) for part in parts if part) for parts in versions)


def _quality(frame: Frame) -> tuple[tuple[str, ...], StatusStyle]:
    """Summarise the measurement quality by its worst line, from long to short; notes leave it ok.

    It is not judged before a line is known, nor while one is early: what it finds then may be a doubt a second later.
    """
    lines = frame.quality
    if not lines and frame.status == "ended":
        return (), ""
    # Causes come before what follows from them.
    bad = sorted((line for line in lines if line.state in ("doubtful", "wrong")), key=lambda x: x.state != "wrong")
    if not bad and (not lines or any(line.early for line in lines)):
        return ("· quality not judged yet", "· not judged yet", "· not judged"), "dim"
    if not bad:
        sign, style = QUALITY_SIGNS["ok"]
        return (f"{sign} quality ok",), style
    sign, style = QUALITY_SIGNS[bad[0].state]
    states = ("quality not sure", "not sure") if bad[0].state == "doubtful" else (bad[0].state,)
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    said = f"{sanitize(doubt_text(bad[0]))}{more}"
    return (f"{sign} {states[0]}: {said}", f"{sign} {said}", *(f"{sign} {state}" for state in states)), style


def _progress(frame: Frame) -> tuple[str, float | None]:
    """Return the completed part of this stage, or of the plan after the end, as text and as a share.

    A steered stage has no end, but a number of requests from which it counts as a level.
    """
    if frame.status == "ended":
        complete = sum(level.complete and level.offered_load in frame.planned for level in frame.levels)
        if frame.planned:
            return f"{complete} of {count_noun(len(frame.planned), 'level')}", complete / len(frame.planned)
        return "", None
    if frame.of:
        return f"{frame.done}/{frame.of}", frame.done / frame.of
    if not frame.steered or frame.status != "running":
        return f"{frame.done} done" if frame.done else "", None
    enough = MIN_STEERED_COMPLETIONS * frame.c
    if frame.done >= enough:
        return f"{frame.done} done, enough for a level", None
    return f"{frame.done} done of {enough} for a level", None


def _clock(frame: Frame, replay: ReplayClock | None) -> tuple[str, ...]:
    if replay is not None:
        at_end = replay.at_s >= replay.length_s
        state = f"×{replay.speed}" if replay.playing else "at the end" if at_end else "paused"
        return (f"replay {state}  {clock(replay.at_s)} of {clock(replay.length_s)}",)
    elapsed, left = clock(frame.elapsed_s), left_text(frame)
    return tuple(", ".join(filter(None, (said, left))) for said in (f"{elapsed} elapsed", elapsed))


def _detail(frame: Frame | None, comparison: str) -> tuple[str, ...]:
    """Say what the stage is for, and with room what changed since the baseline."""
    texts = _stage_texts(frame) if frame is not None else ()
    return tuple(filter(None, (" · ".join(filter(None, (*texts[:1], comparison))), *texts)))


def _stage_texts(frame: Frame) -> tuple[str, ...]:
    """How a level of a search will end, or what decides it, and its step.

    Other loads have the send delay of an open loop, or the prefix cache and contexts of a trace.
    """
    if frame.silent_s is not None:
        return (f"nothing received for {frame.silent_s:.0f} s",)
    if frame.search is not None:
        steps = step_texts(frame.search)
        if outlook := outlook_texts(frame):
            return (*outlook, *steps)
        known = first_token_texts(frame) if is_visited(frame) else ()
        both = (f"{known[0]} · {step}" for step in steps if known)
        # The levels show what a step between them is for.
        return (*both, *steps, *known) if frame.search.step in ("check", "beside") else (*both, *known, *steps)
    parts = [f"sent {seconds(frame.send_delay_s)} late at most"] if traits(frame.load).by_rate else []
    if (trace := frame.trace) is not None:
        parts += [
            f"cache hits {percent(trace.hit_rate)} of at most {percent(trace.max_hit_rate)}",
            f"{rate(trace.context / 1000)}k tokens of context",
            f"{count_noun(trace.jobs, 'job')} done",
        ]
    parts = parts or [f"{count_noun(frame.measured, 'request')} measured" if frame.measured else ""]
    return (" · ".join(parts), *parts[:1])


def _errors(frame: Frame) -> tuple[str, ...]:
    """Count the requests that failed, with the kinds of errors, or the commonest one, where there is room."""
    if not frame.errors:
        return ()
    failed = f"✖ {frame.errors} failed"
    kinds = sanitize(name_errors(frame.error_counts))
    commonest, _, others = kinds.partition(", ")
    return (*(f"{failed}: {text}" for text in (kinds, f"{commonest} …" if others else "") if text), failed)


def _notice(frame: Frame, ended: Ended | None, server: tuple[str, ...]) -> tuple[tuple[str, ...], StatusStyle]:
    """Return the most urgent message; after the end, the result says all but what the server does."""
    if server or ended is not None or frame.status == "ended":
        return server, "warn"
    if frame.warnings:
        return (sanitize(frame.warnings[-1].text),), "bad"
    if frame.note:
        return (sanitize(frame.note),), ""
    return ((sanitize(frame.search_result),), "good") if frame.search_result else ((), "")


def ending_text(ended: Ended) -> str:
    """The message may begin with the ending: `stopped before the first request`."""
    message = sanitize(ended.message)
    return message if message.startswith(ended.ending) else f"{ended.ending}: {message}" if message else ended.ending


def saved_texts(ended: Ended) -> tuple[str, ...]:
    """The directory, with ~ for that of the user, or the name of the session, by which all commands find it."""
    if not ended.directory:
        return ("nothing is saved",)
    directory, home = Path(ended.directory), Path.home()
    short = f"~/{directory.relative_to(home)}" if directory.is_relative_to(home) else ended.directory
    return tuple(f"saved: {sanitize(text)}" for text in (ended.directory, short, directory.name))


def _end_texts(ended: Ended, frame: Frame) -> tuple[str, ...]:
    """Say why a search ended, and where the session is saved."""
    saved, why = saved_texts(ended), end_text(frame.search)
    return (*(f"{why} · {text}" for text in saved if why), *saved)


# widgets


class HeaderPanel(Panel[HeaderView]):
    """Three lines: what is measured, the plan, and what happens now; without a plan, a notice has its own line."""

    place: ClassVar[Place] = "header"

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [[(" swarmtui", "title"), ("  starting …", "dim")]]
        status = status_line(view, width)
        if view.plan.name:
            return [_first_line(view, width), plan_line(view.plan, width), status]
        notice = shorten(longest_fit(view.notice, width - 2), width - 2)
        return [_first_line(view, width), status, [(f" {notice}", view.notice_style or "dim")]]


def _first_line(view: HeaderView, width: int) -> Line:
    clock_text = view.clock[-1 if width < _NARROW else 0] if view.clock else ""
    middle = " · " if view.quality and clock_text else ""
    room = max(0, width - len(" swarmtui  ") - len(middle) - len(clock_text) - 3)
    # The words of a doubt give way to what is measured.
    quality = longest_fit(view.quality, room - cell_width(next(iter(view.title[-2:]), "")))
    room = max(0, room - len(quality))
    return [
        (" swarmtui  ", "title"),
        (ljust(longest_fit(view.title, room), room) + "  ", ""),
        (quality, view.quality_style),
        (f"{middle}{clock_text} ", "dim"),
    ]


def status_line(view: HeaderView, width: int) -> Line:
    """The phase and the progress, errors, and the notice or else what the stage is for."""
    line: Line = [(f" {view.phase}", "bold")]
    if not view.plan.name and view.share is not None:
        full, rest = bar(view.share, _BAR)
        line += [(" ", ""), (full, "throughput"), (rest, "frame")]
    if view.progress:
        line += [(" · " if view.phase else "", "dim"), (view.progress, "")]
    if view.frozen:
        line += [("   DISPLAY FROZEN, space resumes", "warn")]
    if view.errors:
        used = sum(cell_width(text) for text, _ in line) + 3
        # What is said beside them keeps half of the room.
        line += [(f"   {longest_fit(view.errors, (width - used) // 2)}", "bad")]
    if view.plan.name:
        room = width - sum(cell_width(text) for text, _ in line) - 4
        # What a stage is for is not cut: a shorter text says it, or none.
        detail = next((text for text in view.detail if cell_width(text) <= room), "")
        notice = shorten(longest_fit(view.notice, room), room)
        line += [("   ", ""), (notice or detail, view.notice_style if notice else "dim")]
    return line
