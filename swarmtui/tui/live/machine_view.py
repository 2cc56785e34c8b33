"""The GPUs, and what may be believed of the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from swarmtui.model.client_protocol import Frame
from swarmtui.model.telemetry import Gpu, ServerState, Telemetry
from swarmtui.text import plain
from swarmtui.tui.live.header_view import Mood
from swarmtui.tui.numbers import gib, percent, rate, spark, whole


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
    throttle_mood: Mood


class GpusView(NamedTuple):
    gpus: tuple[GpuLine, ...]
    server: str
    empty: str


class TrustLine(NamedTuple):
    sign: str
    mood: Mood
    name: str
    value: str
    sentence: str


class TrustView(NamedTuple):
    lines: tuple[TrustLine, ...]
    empty: str


def gpus_view(
    telemetry: Telemetry | None,
    power: Mapping[str, tuple[float | None, ...]],
    memory: Mapping[str, tuple[float | None, ...]],
    past: bool,
    trail: int = 12,
) -> GpusView:
    """`trail` is how many readings are drawn of each."""
    if telemetry is None:
        nothing = "no reading up to here in this session" if past else "no reading yet: about one a second will come"
        return GpusView((), "", nothing)
    gpus = tuple(_gpu(gpu, power.get(gpu.uuid, ()), memory.get(gpu.uuid, ()), trail) for gpu in telemetry.gpus)
    empty = plain(telemetry.gpu_problem) or "no GPU on this host"
    return GpusView(gpus, _server(telemetry), empty)


def trust_view(frame: Frame | None, past: bool) -> TrustView:
    if frame is None or not frame.trust:
        if past:
            return TrustView((), "a run is judged at its end: go on to the end")
        return TrustView(_own_health(frame), "nothing judged yet: that needs a few requests")
    moods: dict[str, tuple[str, Mood]] = {"ok": ("●", "good"), "doubtful": ("▲", "warn"), "wrong": ("✖", "bad")}
    return TrustView(
        tuple(
            TrustLine(*moods[line.state], plain(line.name), plain(line.value), plain(line.sentence))
            for line in frame.trust
        ),
        "",
    )


def _own_health(frame: Frame | None) -> tuple[TrustLine, ...]:
    """What the load generator says of itself, until there are verdicts."""
    if frame is None:
        return ()
    return (
        TrustLine("·", "", "client lag", f"{frame.lag_ms:.1f} ms", "how late our own loop was"),
        TrustLine("·", "", "client CPU", percent(frame.worker_cpu), "of one core, the busiest worker"),
        TrustLine("·", "", "shared reads", whole(frame.shared_reads), "chunks without a stamp of their own"),
        TrustLine("·", "", "clock steps", whole(frame.clock_steps), "jumps of the wall clock"),
    )


def _gpu(gpu: Gpu, power: tuple[float | None, ...], memory: tuple[float | None, ...], trail: int) -> GpuLine:
    used, total = gpu.memory_used, gpu.memory_total
    shown = f"{gib(used)}/{gib(total)} GiB" if total is not None else f"{gib(used)} GiB"
    limit = f"/{whole(gpu.power_limit_w)}" if gpu.power_limit_w is not None else ""
    throttle, mood = _throttle(gpu)
    facts = [
        "" if gpu.utilisation is None else f"busy {percent(gpu.utilisation)}",
        "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        "" if gpu.sm_mhz is None else f"{gpu.sm_mhz:,} MHz",
    ]
    return GpuLine(
        title=f"{gpu.index} {plain(gpu.name)}",
        simulated=gpu.simulated,
        memory=Gauge("mem", used / total if used is not None and total else None, shown, _spark(memory, total, trail)),
        power=Gauge(
            "pow",
            gpu.power_w / gpu.power_limit_w if gpu.power_w is not None and gpu.power_limit_w else None,
            f"{whole(gpu.power_w)}{limit} W",
            _spark(power, gpu.power_limit_w, trail),
        ),
        facts=" · ".join(fact for fact in facts if fact) or "no readings",
        throttle=throttle,
        throttle_mood=mood,
    )


def _throttle(gpu: Gpu) -> tuple[str, Mood]:
    if gpu.throttle is None:
        return "", ""
    if not gpu.throttle:
        return "free", "good"
    return "slowed: " + ", ".join(plain(reason) for reason in gpu.throttle), "warn"


def _spark(values: tuple[float | None, ...], top: float | None, trail: int) -> str:
    newest = values[-trail:]
    highest = max((value for value in newest if value is not None), default=None)
    return spark((None,) * (trail - len(newest)) + newest, top or highest)


def _server(telemetry: Telemetry) -> str:
    if not telemetry.servers:
        return plain(telemetry.server_problem)
    state: ServerState = telemetry.servers[0]
    parts = [
        "" if state.running is None else f"running {whole(state.running)}",
        "" if state.waiting is None else f"waiting {whole(state.waiting)}",
        "" if state.kv_use is None else f"KV {percent(state.kv_use)}",
        "" if not state.preemptions else f"preempted {whole(state.preemptions)}",
        "" if not state.cache_queries else f"cache hits {rate(100 * (state.cache_hits or 0) / state.cache_queries)} %",
    ]
    return f"{plain(state.engine)}: " + ", ".join(part for part in parts if part)
