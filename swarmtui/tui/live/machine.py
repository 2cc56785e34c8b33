"""The machine: memory, power, clocks and throttling of each GPU, and the state of the server."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.agents import room_text
from swarmtui.analysis.compare.differences import flags_text
from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.model.client_protocol import Frame
from swarmtui.model.findings import KvCliff, Slots
from swarmtui.model.telemetry import DiscoveredServer, Gpu, ServerState, Telemetry
from swarmtui.numbers import count, fixed, gib, percent, rate, wait_s
from swarmtui.report.colours import Hue
from swarmtui.report.table import Table
from swarmtui.text import sanitize
from swarmtui.tui.lines import (
    Line,
    Panel,
    bar,
    cell_width,
    ljust,
    longest_fit,
    per_column,
    rjust,
    scale_top,
    shaded_bars,
    shorten,
    wrap,
    wrapped_note,
)
from swarmtui.tui.live.levels import GAPS
from swarmtui.tui.live.live_panel import LiveData, ScrollingPanel
from swarmtui.tui.tables import table_lines

_LABEL, _TEXT = 8, 15
# A GPU without a process on it has less of its memory in use than this share.
_EMPTY = 0.01
# Columns of the levels that a narrow panel leaves out, the first one first.
_DROP = ("ttft_rest", "ttft_prefill", "ttft_mean", "ttft_queue", "throttled", "tokens_j")
_MEAN = "TTFT: of all requests, with warm-up"
# Codes of answers whose limit is the KV cache.
_KV_LIMITS = ("evictions", "preemptions", "kv_cache")
# From this age on, the readings of a server have one: it is read about once a second.
_OLD_S = 5.0
# The cells of a heading besides its title and its note.
_AROUND_TITLE = 12
# The most lines of a course of power.
_MAX_BARS = 4

Samples = tuple[float | None, ...]


class MachineView(NamedTuple):
    """The newest telemetry, the last samples of power of each GPU by its uuid, and the server.

    `joules` are those of a token at present; `client` says how busy the load generator is, `kv_room` for how many
    contexts the KV cache has room.
    """

    telemetry: Telemetry | None
    power: dict[str, Samples]
    server: DiscoveredServer | None
    slots: Slots | None
    joules: float | None
    client: str
    kv_room: tuple[str, ...]
    is_replay: bool
    # How long ago the server was read; empty after the end.
    read: str = ""
    # After the end: the figures of the levels.
    levels: Table | None = None


def machine_view(data: LiveData) -> MachineView:
    live, frame = data.shown, data.shown.frame
    answer = frame.answer if frame else None
    missed_c = answer.missed_c if answer and answer.limit.code not in _KV_LIMITS else None
    return MachineView(
        telemetry=frame.telemetry if frame else None,
        power=dict(live.power),
        server=frame.servers[-1] if frame and frame.servers else None,
        slots=frame.slots if frame else None,
        joules=_joules_per_token(frame) if frame else None,
        client=_client(frame) if frame else "",
        kv_room=_kv_room(frame.kv_cliff, missed_c) if frame and frame.kv_cliff else (),
        is_replay=data.is_replay,
        read=_read_ago(frame) if frame and not data.has_ended else "",
        levels=_levels(frame) if frame and data.has_ended else None,
    )


def _read_ago(frame: Frame) -> str:
    """Agents that wait are counted now, those in the queue of the server when it was read: the counts may differ.

    The words stay the same from one reading to the next, so that they are not painted at each frame.
    """
    age_s = (frame.t_ns - frame.telemetry.servers_read_ns) / 1e9 if frame.telemetry is not None else 0.0
    return "a moment ago" if age_s < _OLD_S else f"{wait_s(age_s):g} s ago"


def _kv_room(kv: KvCliff, missed_c: int | None) -> tuple[str, ...]:
    """Say for how many contexts the KV cache has room, from long to short; empty if that is not known."""
    without_slots = msgspec.structs.replace(kv, slots=None)
    known = kv.predicted is not None
    brief = f"KV: room for {floor(kv.predicted or 0)} × {count(kv.context_tokens)} tokens" if known else ""
    return tuple(filter(None, (room_text(kv, missed_c), room_text(kv), room_text(without_slots), brief)))


def _levels(frame: Frame) -> Table:
    # Not needed for the first paint.
    from swarmtui.report.figure_tables import machine_table

    table = machine_table([level for level in frame.levels if level.n])
    has_mean = any(column.id == "ttft_mean" for column in table.columns)
    return table._replace(title="", note=_MEAN if has_mean else "", drop=_DROP)


def _joules_per_token(frame: Frame) -> float | None:
    """Current power / current tok/s; a level has a more exact value from the energy counter."""
    gpus = used_gpus(frame.telemetry, frame.servers) if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    return sum(watts) / frame.out_tps if frame.out_tps and watts else None


def _client(frame: Frame) -> str:
    parts = [
        "" if frame.worker_cpu is None else f"CPU {percent(frame.worker_cpu)} of a core",
        "" if frame.lag_ms is None else f"lag {fixed(frame.lag_ms, 1)} ms",
    ]
    known = ", ".join(part for part in parts if part)
    return f"client: {known}" if known else ""


class MachinePanel(ScrollingPanel, Panel[MachineView]):
    key, title, place = 3, "GPU, server", "machine"

    def update_from(self, data: LiveData) -> None:
        self.alone = data.only_panel == self.key
        self.show(machine_view(data))

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [self.heading("", width)]
        gpus = view.telemetry.gpus if view.telemetry else ()
        self.title = _gpu_title(gpus[0]) if len(gpus) == 1 else f"{len(gpus)} GPUs" if gpus else "GPU, server"
        # The name of a single one says so.
        simulated = len(gpus) > 1 and any(gpu.simulated for gpu in gpus)
        read = f"read {view.read}" if view.read and view.telemetry and view.telemetry.servers else ""
        room = width - cell_width(self.title) - _AROUND_TITLE
        note = "SIMULATED" if simulated else longest_fit((read and f"server {read}", read, ""), room)
        # Sentences are whole where they have room, else in few words on a line each.
        versions = [_server_lines(view, width, whole=whole) for whole in (True, False)]
        room = height - 1
        pages = [[*self._machine_lines(view, gpus, width, room, len(below)), *below] for below in versions]
        lines = pages[0] if self.alone else next((page for page in pages if len(page) <= room), pages[-1])
        return self.scrolled(note, lines, width, height)

    def _machine_lines(self, view: MachineView, gpus: tuple[Gpu, ...], width: int, room: int, below: int) -> list[Line]:
        """The figures of the levels, or those of the GPUs, above the other lines, `below`."""
        if view.levels is not None and view.levels.rows:
            return table_lines(view.levels, width - 1, GAPS)
        if not gpus:
            return wrapped_note(_no_gpus(view), width)
        lines = _detailed(view, gpus, width, room - below)
        if self.alone or len(lines) + min(2, below) <= room:
            return lines
        return [line for gpu in gpus for line in _one_line(gpu, width)]


def _no_gpus(view: MachineView) -> str:
    if view.levels is not None and view.telemetry is None:
        return "no readings of the machine are saved with the levels"
    if view.telemetry is not None:
        return sanitize(view.telemetry.gpu_problem) or "no GPU on this host"
    return "no samples so far in this session" if view.is_replay else "no samples yet: about one per second follows"


def _gpu_title(gpu: Gpu) -> str:
    where = f"{sanitize(gpu.host)} " if gpu.host else ""
    return f"{where}GPU {gpu.index} · {sanitize(gpu.name)}"


def _detailed(view: MachineView, gpus: tuple[Gpu, ...], width: int, room: int) -> list[Line]:
    """Memory, power and facts of each GPU; the course of power has the lines that are left."""
    each = 3 + (len(gpus) > 1)
    bars = min(_MAX_BARS, max(1, 1 + (room - each * len(gpus)) // len(gpus)))
    lines: list[Line] = []
    for gpu in gpus:
        title: list[Line] = [[(f" {shorten(_gpu_title(gpu), width - 2)}", "bold")]] if len(gpus) > 1 else []
        joules = view.joules if len(gpus) == 1 else None
        lines += [*title, _memory(gpu, width), *_power(gpu, view.power.get(gpu.uuid, ()), width, bars)]
        lines.append(_facts(gpu, joules, width))
    return lines


def _one_line(gpu: Gpu, width: int) -> list[Line]:
    """A GPU of many: its memory and its power."""
    watts = "" if gpu.power_w is None else f"{count(gpu.power_w)} W"
    name = f" {gpu.index} {sanitize(gpu.host)}".rstrip()
    throttled: Line = [(" throttled", "warn")] if gpu.throttle else []
    used = 8 + sum(len(text) for text, _ in throttled)
    memory = _gauge(name, gpu.memory_used, gpu.memory_total, _memory_text(gpu), width - used)
    return [[*memory, (rjust(watts, 8), ""), *throttled]]


def _memory_text(gpu: Gpu) -> str:
    total = f"/{gib(gpu.memory_total)}" if gpu.memory_total is not None else ""
    return f"{gib(gpu.memory_used)}{total} GiB"


def _memory(gpu: Gpu, width: int) -> Line:
    return _gauge(" memory", gpu.memory_used, gpu.memory_total, _memory_text(gpu), width)


def _power(gpu: Gpu, samples: Samples, width: int, height: int) -> list[Line]:
    watts, limit = gpu.power_w, gpu.power_limit_w
    text = f"{count(watts)}/{count(limit)} W" if limit is not None else f"{count(watts)} W"
    room = max(1, width - _LABEL - _TEXT - 1)
    shown = per_column(samples, room)
    top = limit or scale_top(max((known for known in shown if known is not None), default=0.0)) or None
    bars = shaded_bars(shown, top, height, "energy")
    lines: list[Line] = []
    for number, line in enumerate(bars):
        label, value = (" power", text) if number == height - 1 else ("", "")
        lines.append([(ljust(label, _LABEL), "dim"), *line, (rjust(value, _TEXT), "")])
    return lines


def _facts(gpu: Gpu, joules: float | None, width: int) -> Line:
    facts = [
        _load(gpu),
        "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "" if gpu.sm_mhz is None else f"{gpu.sm_mhz:,} MHz",
        "" if joules is None else f"{rate(joules)} J/token",
        "unified memory" if gpu.unified_memory else "",
    ]
    throttled = f"throttled: {', '.join(sanitize(reason) for reason in gpu.throttle)}" if gpu.throttle else ""
    room = width - 2 - (cell_width(throttled) + 3 if throttled else 0)
    known = longest_fit(_shorter([fact for fact in facts if fact] or ["no samples"]), room)
    line: Line = [(f" {known}", "dim")]
    return [*line, (shorten(f" · {throttled}", width - 2 - cell_width(known)), "warn")] if throttled else line


def _load(gpu: Gpu) -> str:
    """Say how busy a GPU is; one without a process has no part in what is measured."""
    if gpu.utilisation is None:
        return ""
    loaded = gpu.memory_used is None or gpu.memory_total is None or gpu.memory_used > _EMPTY * gpu.memory_total
    return f"busy {percent(gpu.utilisation)}" if loaded or gpu.utilisation else "not used: nothing is loaded on it"


def _shorter(parts: Sequence[str]) -> tuple[str, ...]:
    """Return a text of all parts, and shorter ones that end where a part is left out."""
    return *(" · ".join(parts[:end]) + " …" * (end < len(parts)) for end in range(len(parts), 0, -1)), "…"


def _gauge(
    label: str, value: float | None, limit: float | None, text: str, width: int, hue: Hue = "throughput"
) -> Line:
    """A bar of the share of the limit, with the figures behind it; without a limit only the figures."""
    room = max(0, width - _LABEL - _TEXT - 1)
    full, rest = bar(value / limit if value is not None and limit else None, room)
    bars: Line = [(full, hue), (rest, "frame")] if limit else [(" " * room, "")]
    return [(ljust(label, _LABEL), "dim"), *bars, (rjust(text, _TEXT), "")]


def _server_lines(view: MachineView, width: int, *, whole: bool) -> list[Line]:
    """What the server reports, its flags, and how busy the load generator is."""
    telemetry = view.telemetry
    lines: list[Line] = []
    if telemetry is not None and telemetry.servers:
        state = telemetry.servers[0]
        lines += _sentence(_server(state, view.slots), width, "", whole=whole)
        if state.kv_use is not None:
            lines.append(_gauge(" KV", state.kv_use, 1.0, percent(state.kv_use), width, "queue"))
    elif telemetry is not None and telemetry.server_problem:
        lines += wrapped_note(sanitize(telemetry.server_problem), width)
    lines += _sentence(view.kv_room, width, "dim", whole=whole) if view.kv_room else []
    flags = flags_text(view.server.flags) if view.server is not None and view.server.flags else ""
    lines += wrapped_note(f"flags: {sanitize(flags)}", width) if flags else []
    return [*lines, *([[(f" {shorten(view.client, width - 2)}", "dim")]] if view.client else [])]


def _sentence(versions: Sequence[str], width: int, style: str, *, whole: bool) -> list[Line]:
    """The longest version in as many lines as it needs, or the longest one that fits in one line."""
    one = shorten(longest_fit(versions, width - 2), width - 2)
    return [[(f" {line}", style)] for line in (wrap(versions[0], width - 2) if whole else [one])]


def _server(state: ServerState, slots: Slots | None) -> tuple[str, ...]:
    """Say what the server does, from long to short."""
    of, of_slots = ("", "") if slots is None else (f" of {count(slots.total)}", f" of {count(slots.total)} slots")
    long, short = (_server_parts(state, text) for text in (of_slots, of))
    ends = range(len(long), 0, -1)
    return tuple(
        version
        for text, brief in ((" · ".join(parts[:end]) for parts in (long, short)) for end in ends)
        for version in (f"server: {text}", f"server: {brief}", text)
    )


def _server_parts(state: ServerState, of: str) -> list[str]:
    parts = [
        "" if state.running is None else f"{count(state.running)}{of} running",
        "" if state.waiting is None else f"{count(state.waiting)} waiting",
        "" if not state.preemptions else f"{count(state.preemptions)} preempted",
        "" if not state.cache_queries else f"{rate(100 * (state.cache_hits or 0) / state.cache_queries)} % cache hits",
        "" if not state.external_tokens else f"{count(state.external_tokens)} tokens from host",
        "" if not state.evicted_tokens else f"{count(state.evicted_tokens)} evicted",
        "" if state.vram_bytes is None else f"models {gib(state.vram_bytes)} GiB",
    ]
    return [part for part in parts if part] or ["no metrics"]
