"""The GPU panel: memory, power, clocks and throttling of each GPU, and the state of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from swarmtui.model.telemetry import Gpu, ServerState, Telemetry
from swarmtui.numbers import count, gib, percent, rate
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Panel, bar, heading, ljust, rjust, sparkline, wrapped_note
from swarmtui.tui.live.header import StatusStyle

_TEXT = 15
_MIN_SAMPLES, _MAX_SAMPLES = 12, 60


class Gauge(NamedTuple):
    label: str
    share: float | None
    text: str
    spark: str


class GpuLine(NamedTuple):
    title: str
    simulated: bool
    memory: Gauge
    power: Gauge
    facts: str
    throttle: str
    throttle_style: StatusStyle


class GpusView(NamedTuple):
    gpus: tuple[GpuLine, ...]
    server: str
    empty: str


# views


def gpus_view(
    telemetry: Telemetry | None,
    power: Mapping[str, tuple[float | None, ...]],
    memory: Mapping[str, tuple[float | None, ...]],
    is_replay: bool,
    samples: int = _MIN_SAMPLES,
) -> GpusView:
    """`samples` is the width of the sparklines."""
    if telemetry is None:
        empty = "no samples so far in this session" if is_replay else "no samples yet: about one per second follows"
        return GpusView((), "", empty)
    gpus = tuple(_gpu(gpu, power.get(gpu.uuid, ()), memory.get(gpu.uuid, ()), samples) for gpu in telemetry.gpus)
    empty = sanitize(telemetry.gpu_problem) or "no GPU on this host"
    return GpusView(gpus, _server(telemetry), empty)


def _gpu(gpu: Gpu, power: tuple[float | None, ...], memory: tuple[float | None, ...], samples: int) -> GpuLine:
    used, total = gpu.memory_used, gpu.memory_total
    memory_text = f"{gib(used)}/{gib(total)} GiB" if total is not None else f"{gib(used)} GiB"
    limit = f"/{count(gpu.power_limit_w)}" if gpu.power_limit_w is not None else ""
    throttle, style = _throttle(gpu)
    facts = [
        "" if gpu.utilisation is None else f"busy {percent(gpu.utilisation)}",
        "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "" if gpu.sm_mhz is None else f"{gpu.sm_mhz:,} MHz",
    ]
    return GpuLine(
        title=f"{gpu.index} {sanitize(gpu.name)}",
        simulated=gpu.simulated,
        memory=Gauge(
            "mem", used / total if used is not None and total else None, memory_text, _spark(memory, total, samples)
        ),
        power=Gauge(
            "pow",
            gpu.power_w / gpu.power_limit_w if gpu.power_w is not None and gpu.power_limit_w else None,
            f"{count(gpu.power_w)}{limit} W",
            _spark(power, gpu.power_limit_w, samples),
        ),
        facts=" · ".join(fact for fact in facts if fact) or "no samples",
        throttle=throttle,
        throttle_style=style,
    )


def _throttle(gpu: Gpu) -> tuple[str, StatusStyle]:
    if gpu.throttle is None:
        return "", ""
    if not gpu.throttle:
        return "not throttled", "good"
    return "throttled: " + ", ".join(sanitize(reason) for reason in gpu.throttle), "warn"


def _spark(values: tuple[float | None, ...], top: float | None, samples: int) -> str:
    newest = values[-samples:]
    highest = max((value for value in newest if value is not None), default=None)
    return sparkline((None,) * (samples - len(newest)) + newest, top or highest)


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


# widget


class GpusPanel(Panel[GpusView]):
    @property
    def samples(self) -> int:
        """How many samples fit beside the bar."""
        return min(_MAX_SAMPLES, max(_MIN_SAMPLES, (self.size.width - 6 - _TEXT) // 3))

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [heading("3", "GPUs", "", width)]
        lines = [heading("3", "GPUs", "SIMULATED" if any(gpu.simulated for gpu in view.gpus) else "", width)]
        if not view.gpus:
            lines += wrapped_note(view.empty, width)
        for gpu in view.gpus:
            mark = "  SIMULATED" if gpu.simulated and "SIMULATED" not in gpu.title else ""
            lines.append([(f" {gpu.title}", "bold"), (mark, "second")])
            lines += [_gauge(gauge, width, style) for gauge, style in ((gpu.memory, "first"), (gpu.power, "second"))]
            lines.append([(f" {gpu.facts}", "dim"), (f" · {gpu.throttle}" if gpu.throttle else "", gpu.throttle_style)])
        if view.server:
            lines += wrapped_note(view.server, width)
        return lines


def _gauge(gauge: Gauge, width: int, style: str) -> Line:
    """Draw a bar and a sparkline; without a limit only the sparkline."""
    room = width - 6 - _TEXT
    wide = len(gauge.spark) + 1
    spark = wide if gauge.share is None or room >= wide + 9 else 0
    full, rest = bar(gauge.share, max(0, room - spark)) if gauge.share is not None else (" " * max(0, room - spark), "")
    return [
        (f" {gauge.label} ", "dim"),
        (full, style),
        (rest, "empty"),
        (ljust(f" {gauge.spark}", spark) if spark else "", style),
        (rjust(gauge.text, _TEXT), ""),
    ]
