"""The header of a live screen: what is measured, progress, measurement quality, and tiles with the main figures."""

from __future__ import annotations

from typing import Literal, NamedTuple

from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.model.client_protocol import Ended, Frame
from swarmtui.model.endpoint import api_text
from swarmtui.model.load import traits
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS
from swarmtui.model.session import Session
from swarmtui.model.telemetry import QualityLine, TtftSplit
from swarmtui.numbers import clock, count, percent, rate, seconds
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.lines import Line, Panel, bar, ljust, longest_fit, rjust, shorten, wrap
from swarmtui.tui.live.plan_line import PlanView, plan_line, plan_view, step_texts
from swarmtui.tui.tall_digits import tall

StatusStyle = Literal["", "good", "warn", "bad", "dim"]

QUALITY_SIGNS: dict[str, tuple[str, StatusStyle]] = {
    "ok": ("●", "good"),
    "note": ("·", "dim"),
    "doubtful": ("▲", "warn"),
    "wrong": ("✖", "bad"),
}
_BAR = 16
# The height of the header; a notice after the end may have more lines.
_HEIGHT = 4
_MAX_NOTICE = 3
# The height of the header of a tune, which has no plan.
_WITHOUT_PLAN = 3
# Below this width the bar is shorter.
_NARROW = 100


class HeaderView(NamedTuple):
    """`share` is the completed part of this run, or of the plan after its end; None if it has no fixed length.

    `title`, `detail` and `clock` come in several versions, from long to short. `detail` is the step of a search, or the
    parts of the TTFT.
    """

    title: tuple[str, ...]
    phase: str
    progress: str
    share: float | None
    clock: tuple[str, ...]
    quality: str
    quality_style: StatusStyle
    notice: str
    notice_style: StatusStyle
    detail: tuple[str, ...] = ()
    plan: PlanView = PlanView()
    frozen: bool = False


class ReplayClock(NamedTuple):
    at_s: float
    length_s: float
    speed: int
    playing: bool


class Tile(NamedTuple):
    """A label, a figure and a note below it; `width` is its minimum; tiles share the spare width."""

    label: str
    value: str
    note: str
    style: StatusStyle = ""
    width: int = 11


class MixedRates(NamedTuple):
    """The current tok/s per stream of the primary task of a mixed load, and of its side tasks."""

    primary_tps: float | None
    side_tps: float | None


# views


def header_view(
    session: Session | None,
    frame: Frame | None,
    ended: Ended | None,
    replay: ReplayClock | None,
    comparison: str = "",
    server: str = "",
) -> HeaderView:
    """`comparison` is what the app found about the baseline; `server` is the state of the server after the end."""
    title = _title(session)
    quality, style = _quality(frame.quality if frame else ())
    notice, notice_style = _notice(frame, ended, "" if server else comparison)
    if frame is None:
        phase_text = "starting" if ended is None else "ended"
        return HeaderView(title, phase_text, "", None, (), quality, style, notice, notice_style)
    if server:
        notice, notice_style = server, "warn"
    progress, share = _progress(session, frame)
    return HeaderView(
        title=title,
        phase=phase(frame),
        progress=progress,
        share=share,
        clock=_clock(frame, replay),
        quality=quality,
        quality_style=style,
        notice=notice,
        notice_style=notice_style,
        detail=_detail(frame) if frame.status == "running" else (),
        plan=plan_view(session, frame),
    )


def server_notice(down_s: float | None, changes: str) -> str:
    """Describe a server that went down or was restarted after the run."""
    if down_s is not None:
        return f"server down for {clock(down_s)}, waiting"
    return f"the server is back: {sanitize(changes)}; R runs the same plan again" if changes else ""


def phase(frame: Frame) -> str:
    if frame.outage_s is not None:
        return f"server down for {clock(frame.outage_s)}, waiting"
    load = f"C={frame.c}" if frame.rate is None else f"{frame.rate:g} requests/s"
    if frame.status == "running":
        return load + (f" run {frame.run}/{frame.runs}" if frame.runs > 1 else "")
    if frame.status in ("draining", "paused", "stopping") and frame.c:
        return f"{frame.status}, {load}"
    return "warm-up, discarded" if frame.status == "warming up" else frame.status


def tiles(frame: Frame | None, requested_c: int | None, mixed: MixedRates | None = None) -> tuple[Tile, ...]:
    """`requested_c` is shown until a frame reports it. After the end, the result takes the place of the tiles."""
    if frame is None:
        return ()
    level = next((level for level in frame.levels if level.key == (frame.c, frame.rate)), None)
    steady = level.headline_is_steady if level else traits(frame.load).holds_c
    headline = f"{rate(level.headline_tps if level else None)} {'steady' if steady else 'wall'}"
    trace = _trace_tiles(frame)
    delay = (Tile("send delay", seconds(frame.send_delay_s), "max"),) if traits(frame.load).by_rate else ()
    per_stream = Tile("per stream", rate(frame.per_stream_tps), "tok/s")
    if mixed is not None:
        per_stream = Tile("primary", rate(mixed.primary_tps), f"side {rate(mixed.side_tps)}")
    worst = max(frame.error_counts, key=lambda name: frame.error_counts[name]) if frame.error_counts else ""
    return (
        _load_tile(frame, requested_c),
        Tile("out tok/s", rate(frame.out_tps), headline, width=14),
        per_stream,
        Tile("TTFT", seconds(frame.ttft_s), _ttft_note(frame.ttft_split)),
        *delay,
        *trace,
        Tile("queue", str(frame.waiting), f"server {count(frame.server_waiting)}", "warn" if frame.waiting else ""),
        Tile("errors", str(frame.errors), sanitize(worst) or f"of {frame.measured:,}", "bad" if frame.errors else ""),
        Tile("tokens/J", rate(_tokens_per_joule(frame)), "GPU only", width=9),
    )


def _trace_tiles(frame: Frame) -> tuple[Tile, ...]:
    """The prefix cache of a replayed trace, and the contexts of the sessions that are live."""
    found = frame.trace
    if found is None:
        return ()
    tokens = f"{rate(found.context / 1000)}k"
    return (
        Tile("cache hit", percent(found.hit_rate), f"of {percent(found.max_hit_rate)}"),
        Tile("context", tokens, f"{count_noun(found.jobs, 'job', 'jobs')} done"),
    )


def _title(session: Session | None) -> tuple[str, ...]:
    """Shorter versions drop the engine, then the address; model and workload stay."""
    if session is None:
        return ()
    endpoint = session.endpoints[0] if session.endpoints else None
    more = f" +{len(session.endpoints) - 1}" if len(session.endpoints) > 1 else ""
    address = endpoint.url.removeprefix("http://") + more if endpoint else ""
    engine = endpoint.engine if endpoint and not session.simulated else ""
    api = api_text(endpoint) if endpoint else ""
    first = (session.label, "SIMULATED" if session.simulated else "")
    hosts = f"{len(session.hosts)} hosts" if len(session.hosts) > 1 else ""
    last = (endpoint.model if endpoint else "", session.workload, hosts)
    versions = ((*first, address, engine, api, *last), (*first, address, api, *last), (*first, *last))
    return tuple(" · ".join(sanitize(part) for part in parts if part) for parts in versions)


def _quality(lines: tuple[QualityLine, ...]) -> tuple[str, StatusStyle]:
    """Summarise the measurement quality by its worst line; notes leave it ok."""
    if not lines:
        return "", ""
    bad = sorted((line for line in lines if line.state in ("doubtful", "wrong")), key=lambda line: line.state)
    if not bad:
        sign, style = QUALITY_SIGNS["ok"]
        return f"{sign} quality ok", style
    sign, style = QUALITY_SIGNS[bad[-1].state]
    more = f" +{len(bad) - 1}" if len(bad) > 1 else ""
    return f"{sign} {bad[-1].state}: {sanitize(bad[-1].name)}{more}", style


def _progress(session: Session | None, frame: Frame) -> tuple[str, float | None]:
    """Return the completed part of this stage, or of the plan after the end, as text and as a share.

    A steered stage has no end, but a number of requests from which it counts as a level.
    """
    if frame.status == "ended":
        plan = session.plan if session else None
        planned = (plan.load.rates or plan.load.levels) if plan and plan.goal == "sweep" else ()
        complete = sum(level.complete and level.offered_load in planned for level in frame.levels)
        if planned:
            return f"{complete} of {count_noun(len(planned), 'level', 'levels')}", complete / len(planned)
        return count_noun(frame.measured, "request", "requests"), None
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
    left = ""
    if frame.left_s is not None and frame.status not in ("stopping", "saving", "ended"):
        about = "about " if frame.search is not None else "at least " if frame.left_at_least else ""
        left = f", {about}{clock(frame.left_s)} left"
    elapsed = clock(frame.elapsed_s)
    return (f"{elapsed} elapsed{left}", f"{elapsed}{left}")


def _detail(frame: Frame) -> tuple[str, ...]:
    return step_texts(frame.search) if frame.search is not None else _split(frame.ttft_split)


def _notice(frame: Frame | None, ended: Ended | None, comparison: str) -> tuple[str, StatusStyle]:
    """Return the most urgent message."""
    if ended is not None:
        bad = ended.ending in ("unusable", "failed", "interrupted", "unsaved")
        return ending_text(ended), "bad" if bad else "good"
    if frame is None:
        return "", ""
    if frame.warnings:
        return sanitize(frame.warnings[-1].text), "bad"
    if frame.note:
        return sanitize(frame.note), ""
    if frame.search_result:
        return sanitize(frame.search_result), "good"
    return comparison, "warn" if comparison else ""


def ending_text(ended: Ended) -> str:
    """The message may begin with the ending: `stopped before the first request`."""
    message = sanitize(ended.message)
    return message if message.startswith(ended.ending) else f"{ended.ending}: {message}" if message else ended.ending


def saved_text(ended: Ended) -> str:
    return f"saved: {sanitize(ended.directory)}" if ended.directory else "nothing is saved"


def _split(parts: TtftSplit | None) -> tuple[str, ...]:
    """Show which part of the TTFT is queueing and which is prefill."""
    if parts is None:
        return ()
    known = [f"{name} {seconds(value)}" for name, value in parts.known_parts]
    estimated = "est. " if parts.estimated else ""
    return (
        f"mean TTFT {seconds(parts.ttft_s)} = {estimated}{' + '.join(known)}",
        f"{estimated}{' + '.join(known)}",
        f"TTFT: {estimated}{known[0]}",
    )


def _load_tile(frame: Frame, requested_c: int | None) -> Tile:
    active = f"{frame.in_flight} active" if frame.status != "ended" else "ended"
    if frame.rate is not None and requested_c is None:
        return Tile("requests/s", f"{frame.rate:g}", active)
    target = frame.c if requested_c is None else requested_c
    return Tile("C", str(target), active, "warn" if requested_c not in (None, frame.c) else "")


def _ttft_note(parts: TtftSplit | None) -> str:
    """The share of queueing in the TTFT; ~ marks an estimate."""
    if parts is None or parts.queue_s is None or not parts.ttft_s:
        return "last 10 s"
    return f"queue {'~' if parts.estimated else ''}{100 * parts.queue_s / parts.ttft_s:.0f}%"


def _tokens_per_joule(frame: Frame) -> float | None:
    """Current tok/s / current power; a level has a more exact value from the energy counter."""
    gpus = used_gpus(frame.telemetry, frame.servers) if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    return frame.out_tps / sum(watts) if frame.out_tps is not None and watts and sum(watts) > 0 else None


# widgets


class HeaderPanel(Panel[HeaderView]):
    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [[(" swarmtui", "title"), ("  starting …", "dim")]]
        quality = f"{view.quality} "
        room = max(0, width - len(" swarmtui  ") - len(quality) - 1)
        title = ljust(longest_fit(view.title, room), room)
        first: Line = [(" swarmtui  ", "title"), (title, ""), (" ", ""), (quality, view.quality_style)]
        second: Line = [(f" {view.phase} ", "bold")]
        narrow = width < _NARROW
        if view.share is not None:
            full, rest = bar(view.share, _BAR // 2 if narrow else _BAR)
            second += [(full, "first"), (rest, "empty"), (" ", "")]
        elif view.progress:
            second.append(("· ", "dim"))
        second += [(view.progress, ""), ("   ", "")]
        if view.frozen:
            second += [("DISPLAY FROZEN, space resumes", "warn"), ("   ", "")]
        used = sum(len(text) for text, _ in second)
        clock_text = view.clock[-1 if narrow and view.detail else 0] if view.clock else ""
        room = width - used - len(clock_text) - 4
        detail = next((text for text in view.detail if len(text) <= room), "")
        if detail:
            second += [(detail, ""), ("   ", "")]
            used += len(detail) + 3
        second.append((rjust(f"{clock_text} ", max(0, width - used)), "dim"))
        plan = [plan_line(view.plan, width)] if height > _WITHOUT_PLAN else []
        notice = wrap(view.notice, width - 2) if height > _HEIGHT else [shorten(view.notice, width - 2)]
        lines: list[Line] = [[(f" {line}", view.notice_style or "dim")] for line in notice]
        return [first, second, *plan, *lines]

    def fit(self, ended: bool) -> None:
        """Make room for a long notice after the end; during a run nothing moves."""
        lines = len(wrap(self.view.notice, self.size.width - 2)) if ended and self.view and self.size.width > 2 else 1
        height = _HEIGHT + min(lines, _MAX_NOTICE) - 1
        if height != _HEIGHT or self.styles.inline.has_rule("height"):
            self.styles.height = height


class TilesPanel(Panel[tuple[Tile, ...]]):
    """Tiles side by side, as many as fit."""

    def draw(self, width: int, height: int) -> list[Line]:
        shown = _tile_widths(self.view or (), width - 1)
        if not shown:
            return []
        labels: Line = [(" ", "")]
        notes: Line = [(" ", "")]
        for tile, room in shown:
            labels.append((ljust(tile.label, room), "dim"))
            notes.append((ljust(tile.note, room - 1) + " ", "dim"))
        return [labels, *_figure_lines(shown, height), notes]


def _tile_widths(available: tuple[Tile, ...], width: int) -> list[tuple[Tile, int]]:
    """Return the tiles that fit, each with its share of the width."""
    shown: list[Tile] = []
    for tile in available:
        if sum(other.width for other in shown) + tile.width > width:
            break
        shown.append(tile)
    more = (width - sum(tile.width for tile in shown)) // max(1, len(shown))
    return [(tile, tile.width + more) for tile in shown]


def _figure_lines(shown: list[tuple[Tile, int]], height: int) -> list[Line]:
    """Draw the figures, three lines high if there is room."""
    if height < 5:
        return [[(" ", ""), *((ljust(tile.value, room), tile.style or "bold") for tile, room in shown)]]
    lines: list[Line] = [[(" ", "")] for _ in range(3)]
    for tile, room in shown:
        for line, text in zip(lines, tall(tile.value), strict=True):
            line.append((ljust(text, room), tile.style or "bold"))
    return lines
