"""What inference servers tell of themselves: Prometheus text of vLLM, SGLang, llama.cpp, TGI; /api/ps of Ollama."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite

import msgspec

from swarmtui.model.telemetry import Bucket, ServerHistogram, ServerState
from swarmtui.telemetry.fetch import Fetcher
from swarmtui.telemetry.prometheus import Sample, samples

OLLAMA_PATH = "/api/ps"

_VLLM = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "kv_use",
    "gpu_cache_usage_perc": "kv_use",
    "prompt_tokens_total": "prompt_tokens",
    "generation_tokens_total": "output_tokens",
    "prompt_tokens_cached_total": "cached_tokens",
    "prefix_cache_queries_total": "cache_queries",
    "gpu_prefix_cache_queries_total": "cache_queries",
    "prefix_cache_hits_total": "cache_hits",
    "gpu_prefix_cache_hits_total": "cache_hits",
    "num_preemptions_total": "preemptions",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "draft_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "request_success_total": "finished",
}
_VLLM_TIMES = {
    "time_to_first_token_seconds": "ttft",
    "inter_token_latency_seconds": "itl",
    "time_per_output_token_seconds": "itl",
    "request_queue_time_seconds": "queue",
    "request_prefill_time_seconds": "prefill",
    "request_decode_time_seconds": "decode",
    "e2e_request_latency_seconds": "e2e",
}
_SGLANG = {
    "num_running_reqs": "running",
    "num_queue_reqs": "waiting",
    "token_usage": "kv_use",
    "prompt_tokens_total": "prompt_tokens",
    "generation_tokens_total": "output_tokens",
    "cached_tokens_total": "cached_tokens",
    "num_requests_total": "finished",
    "num_retracted_reqs_total": "preemptions",
    "spec_accept_length": "accept_length",
    "spec_accept_rate": "accept_rate",
}
_SGLANG_TIMES = {
    "time_to_first_token_seconds": "ttft",
    "inter_token_latency_seconds": "itl",
    "time_per_output_token_seconds": "itl",
    "queue_time_seconds": "queue",
    "e2e_request_latency_seconds": "e2e",
}
_LLAMA = {
    "requests_processing": "running",
    "requests_deferred": "waiting",
    "prompt_tokens_total": "prompt_tokens",
    "prompt_tokens_cached_total": "cached_tokens",
    "tokens_predicted_total": "output_tokens",
    "prompt_seconds_total": "prefill_seconds",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "draft_tokens",
    "spec_decode_num_accepted_tokens_total": "accepted_tokens",
}
_TGI = {
    "queue_size": "waiting",
    "batch_current_size": "running",
    "request_success": "finished",
    "request_success_total": "finished",
    "request_input_length_sum": "prompt_tokens",
    "request_generated_tokens_sum": "output_tokens",
}
_TGI_TIMES = {"request_queue_duration": "queue", "request_duration": "e2e"}

_PREFIXES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "tgi": "TGI"}
_NUMBERS = {"vLLM": _VLLM, "SGLang": _SGLANG, "llama.cpp": _LLAMA, "TGI": _TGI}
_TIMES = {"vLLM": _VLLM_TIMES, "SGLang": _SGLANG_TIMES, "llama.cpp": {}, "TGI": _TGI_TIMES}
_HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")
# Of engines beside each other these are no sums: the fullest cache is what makes requests wait.
_HIGHEST = ("kv_use", "accept_length", "accept_rate")
# The ranks of one SGLang engine may each tell of the same requests.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _wanted_names() -> dict[str, tuple[str, str, str]]:
    """Full name → engine, field, and which part of a histogram it is (empty for a plain number)."""
    names: dict[str, tuple[str, str, str]] = {}
    for prefix, engine in _PREFIXES.items():
        for separator in ("_",) if engine == "TGI" else (":", "_"):  # some collectors allow no colon in a name
            for name, field in _NUMBERS[engine].items():
                names[f"{prefix}{separator}{name}"] = engine, field, ""
            for name, field in _TIMES[engine].items():
                for part in _HISTOGRAM_PARTS:
                    names[f"{prefix}{separator}{name}{part}"] = engine, field, part
    return names


_NAMES = _wanted_names()


def parse(text: str, engine_hint: str = "") -> ServerState | None:
    """None when no server that we know writes so. All engines behind the address are one.

    `engine_hint` is the engine's name where it is known better: the simulator writes like vLLM.
    """
    found = samples(text, _NAMES.__contains__)
    if not found:
        return None
    engine = _NAMES[found[0].name][0]
    numbers: dict[str, float] = {}
    times: defaultdict[str, list[tuple[str, Sample]]] = defaultdict(list)
    for sample in _told_once(found) if engine == "SGLang" else found:
        of, field, part = _NAMES[sample.name]
        if of != engine:
            continue
        if part:
            times[field].append((part, sample))
        elif field in _HIGHEST:
            numbers[field] = max(numbers.get(field, 0.0), sample.value)
        else:
            numbers[field] = numbers.get(field, 0.0) + sample.value
    _complete(engine, numbers)
    histograms = {field: _histogram(parts) for field, parts in times.items()}
    return msgspec.structs.replace(ServerState(engine=engine_hint or engine), **numbers, **histograms)


def _told_once(found: list[Sample]) -> list[Sample]:
    """Without what is told again by priority, or by another rank of the same engine."""
    kept: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in found:
        if not sample.labels.get("priority"):
            series = tuple(sorted((name, value) for name, value in sample.labels.items() if name not in _RANKS))
            before = kept.get((sample.name, series))
            if before is None or sample.value > before.value:
                kept[sample.name, series] = sample
    return list(kept.values())


def _complete(engine: str, numbers: dict[str, float]) -> None:
    """What an engine counts in its own way, in the way of the others."""
    cached = numbers.get("cached_tokens")
    if engine == "llama.cpp" and cached is not None and "prompt_tokens" in numbers:
        numbers["prompt_tokens"] += cached  # it counts only those that it worked on
    if engine in ("llama.cpp", "SGLang") and cached is not None and "prompt_tokens" in numbers:
        numbers["cache_queries"], numbers["cache_hits"] = numbers["prompt_tokens"], cached


def _histogram(parts: list[tuple[str, Sample]]) -> ServerHistogram | None:
    buckets: defaultdict[float, float] = defaultdict(float)
    count = total = None
    for part, sample in parts:
        if part == "_bucket":
            buckets[_bound(sample.labels.get("le", ""))] += sample.value
        elif part == "_count":
            count = (count or 0.0) + sample.value
        else:
            total = (total or 0.0) + sample.value
    if count is None or total is None:
        return None
    # The bucket without a bound is the count, and JSON knows no infinity.
    bounds = tuple(Bucket(le=le, count=n) for le, n in sorted(buckets.items()) if isfinite(le))
    return ServerHistogram(count=count, sum=total, buckets=bounds)


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


class _Loaded(msgspec.Struct):
    size_vram: float | None = None


class _Ps(msgspec.Struct):
    models: list[_Loaded]


_ps = msgspec.json.Decoder(_Ps)


def parse_ollama(text: str) -> ServerState | None:
    """Ollama counts nothing; it says what its loaded models take."""
    try:
        models = _ps.decode(text).models
    except (msgspec.DecodeError, RecursionError):
        return None
    sizes = [model.size_vram for model in models if model.size_vram is not None]
    return ServerState(engine="Ollama", vram_bytes=sum(sizes) if sizes else None)


def metrics_url(root: str, engine: str) -> str:
    """Where a server with this address (without /v1) tells its figures."""
    return root.rstrip("/") + (OLLAMA_PATH if engine == "Ollama" else "/metrics")


class MetricsReader:
    """The servers at these URLs, about once a second. Never raises; what is slow, absent or huge is said in words."""

    def __init__(
        self,
        urls: Sequence[str],
        headers: dict[str, str] | None = None,
        *,
        engine: str = "",
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        self._engine = engine
        self._fetcher = Fetcher(urls, headers, ca_file=ca_file, insecure=insecure)

    def read(self) -> tuple[tuple[ServerState, ...], str]:
        """One state for each server that answered, with its URL in it, and what was wrong with the others."""
        states, problems = [], []
        for url, body, problem in self._fetcher.fetch():
            state = None
            if not problem:
                state = parse_ollama(body) if url.endswith(OLLAMA_PATH) else parse(body, self._engine)
            if state is None:
                problems.append(f"{url}: {problem or 'no metrics of a server that we know'}")
            else:
                states.append(msgspec.structs.replace(state, url=url))
        return tuple(states), "; ".join(problems)

    def close(self) -> None:
        self._fetcher.close()
