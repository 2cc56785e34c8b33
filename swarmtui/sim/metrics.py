"""The metrics of the engine in the Prometheus text format, under vLLM's names. Times are those of the client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal

from swarmtui.sim.batching import EngineReplica, Job, Step
from swarmtui.sim.presets import Preset

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

Labels = dict[str, str]
Sample = tuple[str, Labels, float]


class Histogram:
    """Counts by bucket; a value equal to a bound is in its bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def samples(self, labels: Labels) -> Iterable[Sample]:
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield "_bucket", {**labels, "le": bound}, total
        yield "_count", labels, total
        yield "_sum", labels, self._sum


def family(
    name: str, kind: Literal["counter", "gauge", "histogram"], meaning: str, samples: Iterable[Sample]
) -> Iterable[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        yield f"{name}{suffix}{{{inside}}} {float(value)!r}"


def page(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Finish = Literal["stop", "length", "abort", "error"]

_LONG = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
         1920.0, 7680.0)  # fmt: skip
_BOUNDS = {
    "time_to_first_token_seconds": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0,
    ),
    "inter_token_latency_seconds": (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    ),
    "e2e_request_latency_seconds": _LONG,
    "request_queue_time_seconds": _LONG,
    "request_inference_time_seconds": _LONG,
    "request_prefill_time_seconds": _LONG,
    "request_decode_time_seconds": _LONG,
}  # fmt: skip


class Meters:
    """The counters and histograms of one replica."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.drafts = 0
        self.accepted = 0
        self.finished: dict[Finish, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.histograms = {name: Histogram(bounds) for name, bounds in _BOUNDS.items()}

    def step(self, step: Step) -> None:
        self.generation_tokens += sum(count for _, count in step.tokens)
        self.drafts += step.drafts
        self.accepted += step.accepted
        # Steps follow each other without a gap, so the step time is the gap of every request that decoded in it.
        if step.decoding:
            self._observe("inter_token_latency_seconds", step.end - step.start, len(step.decoding))
        for job in step.firsts:
            self.prompt_tokens += job.prompt_tokens
            self.cached_tokens += job.cached
            self._observe("time_to_first_token_seconds", step.end - job.arrived)

    def end(self, job: Job, how: Finish) -> None:
        """Count a request that left the engine; only complete ones are in the latency histograms."""
        self.finished[how] += 1
        if how not in ("stop", "length") or job.admitted is None or job.first_token is None or job.last_token is None:
            return
        self._observe("request_queue_time_seconds", job.admitted - job.arrived)
        self._observe("request_prefill_time_seconds", job.first_token - job.admitted)
        self._observe("request_decode_time_seconds", job.last_token - job.first_token)
        self._observe("request_inference_time_seconds", job.last_token - job.admitted)
        self._observe("e2e_request_latency_seconds", job.last_token - job.arrived)

    def _observe(self, name: str, seconds: float, times: int = 1) -> None:
        self.histograms[name].observe(seconds / self._speed, times)


def kv_capacity(preset: Preset) -> int:
    """Return the capacity of a replica's KV cache in tokens; if unlimited, the most that its slots can need."""
    return preset.kv_tokens or preset.slots * preset.max_model_len


def render(preset: Preset, replicas: Sequence[EngineReplica], meters: Sequence[Meters]) -> Iterable[str]:
    engines = [{"engine": str(replica.number), "model_name": preset.model} for replica in replicas]
    for name, (meaning, values) in _values(preset, replicas, meters).items():
        samples: list[Sample] = [("", labels, value) for labels, value in zip(engines, values, strict=True)]
        yield from family(f"vllm:{name}", "counter" if name.endswith("_total") else "gauge", meaning, samples)
    waiting: list[Sample] = [
        ("", {**labels, "reason": reason}, count)
        for labels, replica in zip(engines, replicas, strict=True)
        for reason, count in (("capacity", _queued(replica)), ("deferred", 0))
    ]
    yield from family("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", waiting)
    metered = list(zip(engines, meters, strict=True))
    finished: list[Sample] = [
        ("", {**labels, "finished_reason": how}, count)
        for labels, meter in metered
        for how, count in meter.finished.items()
    ]
    yield from family("vllm:request_success_total", "counter", "Count of finished requests.", finished)
    for name in _BOUNDS:
        samples = [sample for labels, meter in metered for sample in meter.histograms[name].samples(labels)]
        yield from family(f"vllm:{name}", "histogram", f"Histogram of {name.replace('_', ' ')}.", samples)
    room = kv_capacity(preset)
    config = {
        "block_size": str(preset.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(preset.prefix_cache),
        "gpu_memory_utilization": "0.92",
        "kv_cache_size_tokens": str(room),
        "num_gpu_blocks": str(room // preset.block_size),
    }
    info: list[Sample] = [("", {**config, "engine": labels["engine"]}, 1) for labels in engines]
    yield from family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", info)


def _queued(replica: EngineReplica) -> int:
    """Return how many requests found no slot; vLLM reports the queue after it has scheduled a step."""
    return min(replica.left_waiting, len(replica.waiting))


def _values(
    preset: Preset, replicas: Sequence[EngineReplica], meters: Sequence[Meters]
) -> dict[str, tuple[str, list[float]]]:
    room, drafted = kv_capacity(preset), preset.speculative.tokens
    used = [min(r.kv_tokens_used / room, 1.0) for r in replicas]
    found: dict[str, tuple[str, list[float]]] = {
        "num_requests_running": ("Number of requests in model execution batches.", [len(r.running) for r in replicas]),
        "num_requests_waiting": ("Number of requests waiting to be processed.", [_queued(r) for r in replicas]),
        "kv_cache_usage_perc": ("KV-cache usage. 1 means 100 percent usage.", used),
        "prompt_tokens_total": ("Number of prefill tokens processed.", [m.prompt_tokens for m in meters]),
        "prompt_tokens_cached_total": ("Number of cached prompt tokens.", [m.cached_tokens for m in meters]),
        "generation_tokens_total": ("Number of generation tokens processed.", [m.generation_tokens for m in meters]),
        "prefix_cache_queries_total": ("Prefix cache queries, in tokens.", [r.prefix_queries for r in replicas]),
        "prefix_cache_hits_total": ("Prefix cache hits, in tokens.", [r.prefix_hits for r in replicas]),
        "num_preemptions_total": ("Cumulative number of preemptions.", [r.preemptions for r in replicas]),
    }
    if drafted:
        found |= {
            "spec_decode_num_drafts_total": ("Number of drafts.", [m.drafts for m in meters]),
            "spec_decode_num_draft_tokens_total": ("Number of draft tokens.", [m.drafts * drafted for m in meters]),
            "spec_decode_num_accepted_tokens_total": ("Number of accepted tokens.", [m.accepted for m in meters]),
        }
    return found
