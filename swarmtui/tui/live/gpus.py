"""The GPU panel: memory, power, clocks and throttling of each GPU, and the state of the server."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.model.telemetry import Gpu, ServerState, Telemetry
from swarmtui.numbers import count, gib, percent, rate
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Panel, bar, ljust, rjust, scale_top, sparkline, wrapped_note
from swarmtui.tui.live.live_panel import LiveData, LivePanel

_TEXT = 15
_MIN_SAMPLES, _MAX_SAMPLES = 12, 60

Samples = tuple[float | None, ...]


class GpusView(NamedTuple):
    """The newest telemetry, and the last samples of power and memory of each GPU by its uuid."""

    telemetry: Telemetry | None
    power: dict[str, Samples]
    memory: dict[str, Samples]
    is_replay: bool


class GpusPanel(LivePanel, Panel[GpusView]):
    key, title = 3, "GPUs"
    hidden_after_end = True

    def update_from(self, data: LiveData) -> None:
        live = data.shown
        telemetry = live.frame.telemetry if live.frame else None
        self.show(GpusView(telemetry, dict(live.power), dict(live.memory), data.is_replay))

    @property
    def empty(self) -> str:
        """Why there are no GPUs, and the state of the server, which does not need them."""
        if self.view is None or (self.view.telemetry is not None and self.view.telemetry.gpus):
            return ""
        telemetry = self.view.telemetry
        return " · ".join(filter(None, (_no_gpus(self.view), _server(telemetry) if telemetry else "")))

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [self.heading("", width)]
        telemetry = view.telemetry
        gpus = telemetry.gpus if telemetry else ()
        lines = [self.heading("SIMULATED" if any(gpu.simulated for gpu in gpus) else "", width)]
        if telemetry is None or not gpus:
            lines += wrapped_note(_no_gpus(view), width)
        for gpu in gpus:
            lines += _gpu_lines(gpu, view.power.get(gpu.uuid, ()), view.memory.get(gpu.uuid, ()), width)
        server = _server(telemetry) if telemetry else ""
        return [*lines, *wrapped_note(server, width)] if server else lines


def _no_gpus(view: GpusView) -> str:
    if view.telemetry is not None:
        return sanitize(view.telemetry.gpu_problem) or "no GPU on this host"
    return "no samples so far in this session" if view.is_replay else "no samples yet: about one per second follows"


def _gpu_lines(gpu: Gpu, power: Samples, memory: Samples, width: int) -> list[Line]:
    """Title, memory, power, and a line of facts."""
    title = " ".join(filter(None, (sanitize(gpu.host), str(gpu.index), sanitize(gpu.name))))
    marks = ["SIMULATED"] if gpu.simulated and "SIMULATED" not in title else []
    marks += ["unified memory"] if gpu.unified_memory else []
    used, total, watts, limit = gpu.memory_used, gpu.memory_total, gpu.power_w, gpu.power_limit_w
    memory_text = f"{gib(used)}/{gib(total)} GiB" if total is not None else f"{gib(used)} GiB"
    power_text = f"{count(watts)}/{count(limit)} W" if limit is not None else f"{count(watts)} W"
    facts = [
        "" if gpu.utilisation is None else f"busy {percent(gpu.utilisation)}",
        "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "" if gpu.sm_mhz is None else f"{gpu.sm_mhz:,} MHz",
    ]
    line: Line = [(f" {' · '.join(fact for fact in facts if fact) or 'no samples'}", "dim")]
    if gpu.throttle:
        line.append((" · throttled: " + ", ".join(sanitize(reason) for reason in gpu.throttle), "warn"))
    elif gpu.throttle is not None:
        line.append((" · not throttled", "good"))
    return [
        [(f" {title}", "bold"), ("".join(f"  {mark}" for mark in marks), "second")],
        _gauge("mem", used, total, memory, memory_text, width, "first"),
        _gauge("pow", watts, limit, power, power_text, width, "second"),
        line,
    ]


def _gauge(
    label: str, value: float | None, limit: float | None, values: Samples, text: str, width: int, style: str
) -> Line:
    """Draw a bar and a sparkline; without a limit only the sparkline."""
    room = width - 6 - _TEXT
    samples = min(_MAX_SAMPLES, max(_MIN_SAMPLES, room // 3))
    share = value / limit if value is not None and limit else None
    spark = samples + 1 if share is None or room >= samples + 10 else 0
    full, rest = bar(share, max(0, room - spark)) if share is not None else (" " * max(0, room - spark), "")
    newest = values[-samples:]
    top = limit or scale_top(max((known for known in newest if known is not None), default=0.0))
    shown = sparkline((None,) * (samples - len(newest)) + newest, top)
    return [
        (f" {label} ", "dim"),
        (full, style),
        (rest, "empty"),
        (ljust(f" {shown}", spark) if spark else "", style),
        (rjust(text, _TEXT), ""),
    ]


def _server(telemetry: Telemetry) -> str:
    if not telemetry.servers:
        return sanitize(telemetry.server_problem)
    state: ServerState = telemetry.servers[0]
    parts = [
        "" if state.running is None else f"running {count(state.running)}",
        "" if state.waiting is None else f"waiting {count(state.waiting)}",
        "" if state.kv_use is None else f"KV {percent(state.kv_use)}",
        "" if not state.preemptions else f"preempted {count(state.preemptions)}",
        "" if not state.cache_queries else f"cache hits {rate(100 * (state.cache_hits or 0) / state.cache_queries)} %",
        "" if state.vram_bytes is None else f"models {gib(state.vram_bytes)} GiB",
    ]
    return f"{sanitize(state.engine)}: " + (", ".join(part for part in parts if part) or "no metrics")
