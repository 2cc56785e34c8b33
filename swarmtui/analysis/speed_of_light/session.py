"""The limits of a session beside what was measured: how much of them a step reached, and what binds each level."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from swarmtui.analysis.capacity.cliff import QUEUED
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.speed_of_light.fit import LOWEST, fit_steps
from swarmtui.analysis.speed_of_light.gpus import gpu_figures, gpu_named
from swarmtui.analysis.speed_of_light.limits import level_limit, missing_facts
from swarmtui.analysis.speed_of_light.step import DecodeStep, decode_step
from swarmtui.engines.base import flag_number
from swarmtui.engines.registry import tensor_parallel_size
from swarmtui.model.base import BadInput
from swarmtui.model.findings import Finding, Slots
from swarmtui.model.session import Level
from swarmtui.model.session_tags import ModelFacts
from swarmtui.model.speed_of_light import Binding, GpuFigures, LevelLimit, ModelShape, Serving, SpeedOfLight, StepFit
from swarmtui.model.telemetry import DiscoveredServer, Gpu, ServerState
from swarmtui.numbers import percent, rate, seconds, short
from swarmtui.text import count_noun

KV_FULL = 0.95
# While streams write, a GPU that computes for less of the time waits for the server's process.
BUSY = 0.7
# More than half of the time, or of a step.
MOST = 0.5
# A level in which prompts take more of the time says little about the mean of its decode steps.
_MAX_PREFILL = 0.3
# How far the tokens of a chunk may be from those of a step, for the time between chunks to be that of a step.
_ONE_STEP = 0.1
# What delays less of an answer than this does not bind.
_DELAYS = 0.2
# A fit that is further off predicts nothing: so it is where other kernels serve other batches, as in llama.cpp.
_MAX_FIT_ERROR = 0.15
# Clocks and bandwidths are not exact; a step that is faster than this contradicts the limit.
_MOST_SHARE = 1.02
# The TTFT of shorter prompts says nothing about the speed at which prompts are read.
_MIN_PROMPT = 256
# Nor do fewer answers, or fewer tokens of all answers together, say which share of the time prompts take.
_MIN_ANSWERS, _MIN_OUTPUT = 3, 64
_MODEL_BITS = 16.0
# Bits of a number in the KV cache by the start of the name that flags give them.
_KV_BITS = (("fp8", 8.0), ("q8_0", 8.5), ("int8", 8.0), ("q5", 5.5), ("q4", 4.5), ("iq4", 4.5), ("f32", 32.0))


class MeasuredLevel(NamedTuple):
    """What a level says about its decode steps: their streams, the mean context of these, and the time of a step.

    `typical` says that `step_s` is the median, else it is the mean, in which the prompts of others are. `prefill` is
    the share of time that goes into reading prompts, and `prompt_tps` their rate beside that of one agent alone.
    """

    level: Level
    batch: float
    context: float
    step_s: float | None
    typical: bool
    prefill: float | None
    prompt_tps: tuple[float, float] | None
    seen: ServerState


def session_limits(
    levels: Sequence[Level],
    servers: Sequence[DiscoveredServer],
    gpus: Sequence[Gpu],
    slots: Slots | None,
    counters: Mapping[int, ServerState],
    facts: ModelFacts | None,
) -> SpeedOfLight:
    """Return the limits of all closed levels; `gpus` are those of the servers, `facts` what the user gave as tags."""
    server = servers[0] if servers else None
    model = server.shape if server and server.shape else _model_of_tags(facts)
    gpu = _gpu(gpus, facts)
    why = server.shape_problem if server else ""
    serving = served_as(server, slots, len(servers))
    found = SpeedOfLight(
        model=model, gpu=gpu, serving=serving, kv_tokens=server.kv_tokens if server else None,
        missing=missing_facts(model, gpu, why),
    )  # fmt: skip
    closed = sorted((level for level in levels if level.rate is None and level.ok), key=lambda level: level.c)
    single = next((level for level in closed if level.c == 1), None)
    measured = [_measure(level, single, serving, counters.get(level.c)) for level in closed]
    if model is None or gpu is None or not gpu.bandwidth:
        return msgspec.structs.replace(found, levels=tuple(_unlimited(one, slots) for one in measured))
    steps = [
        decode_step(model, gpu, msgspec.structs.replace(serving, context=one.context), one.batch) for one in measured
    ]
    fit = fit_steps([point for one, step in zip(measured, steps, strict=True) if (point := _point(one, step))])
    if fit is not None and fit.error > _MAX_FIT_ERROR:
        fit = None
    limited = [_limit(one, step, fit, model, gpu, serving, slots) for one, step in zip(measured, steps, strict=True)]
    above = max((level.share or 0.0 for level in limited), default=0.0)
    wrong = Finding(
        code="above_limit",
        text=f"steps reach {percent(above)} of the limit: the model or the GPU is another than these facts say, or a "
        "step yields several tokens (speculative decoding)",
    )
    missing = (*found.missing, wrong) if above > _MOST_SHARE else found.missing
    return msgspec.structs.replace(found, fit=fit, levels=tuple(limited), missing=missing)


def served_as(server: DiscoveredServer | None, slots: Slots | None, servers: int = 1) -> Serving:
    """Read from the flags of a server how it serves: GPUs per replica, replicas, KV cache, speculative decoding."""
    flags = {name.lstrip("-"): value for name, value in ((server.flags if server else None) or {}).items()}
    dp = flag_number(flags, "data-parallel-size", "dp-size", "dp") or 1
    kv_bits, reported = _kv_bits(flags), server.kv_token_bytes if server else None
    return Serving(
        tensor_parallel=tensor_parallel_size(flags) or 1,
        replicas=slots.replicas if slots else max(1, servers) * dp,
        slots=slots.total if slots else None,
        kv_bits=kv_bits,
        # As it would be with the bits of a model, which `kv_bits` replaces.
        kv_token_bytes=reported * _MODEL_BITS / kv_bits if reported and kv_bits else reported,
        draft_tokens=_draft_tokens(flags),
    )


def _kv_bits(flags: Mapping[str, str]) -> float | None:
    named = [flags[name] for name in ("kv-cache-dtype", "cache-dtype", "cache-type-k", "cache-type-v") if name in flags]
    found = [bits for text in named for start, bits in _KV_BITS if text.lower().startswith(start)]
    return sum(found) / len(found) if found else None


def _draft_tokens(flags: Mapping[str, str]) -> int:
    config = re.search(r"num_speculative_tokens\D{1,4}(\d{1,3})", flags.get("speculative-config", ""))
    named = ("num-speculative-tokens", "speculative-num-draft-tokens", "draft-max", "spec-draft-n-max")
    found = int(config.group(1)) if config else flag_number(flags, *named)
    drafts = config or any(name in flags for name in ("speculative-algorithm", "model-draft", "speculative-model"))
    return min(found or 0, 64) if drafts else 0


def _model_of_tags(facts: ModelFacts | None) -> ModelShape | None:
    """`active_bytes`, with `model_bytes` and `experts` of a MoE, give the weights; the KV cache is left out."""
    if facts is None or not facts.active_bytes:
        return None
    used, count = facts.experts or (0, 0)
    each = 0.0
    if facts.model_bytes and 0 < used < count and facts.model_bytes > facts.active_bytes:
        each = (facts.model_bytes - facts.active_bytes) / (count - used)
    return ModelShape(
        architecture="", source="tags", dense_bytes=facts.active_bytes - used * each, dense_parameters=0.0,
        expert_bytes=each, experts=count if each else 0, experts_used=used if each else 0,
    )  # fmt: skip


def _gpu(gpus: Sequence[Gpu], facts: ModelFacts | None) -> GpuFigures | None:
    """Return the slowest of the GPUs; what the user says counts more than what is read."""
    figures = [gpu_figures(gpu) for gpu in gpus if not gpu.simulated]
    found = min(figures, key=lambda gpu: gpu.bandwidth or float("inf"), default=None)
    if facts and facts.gpu:
        try:
            found = gpu_named(facts.gpu)
        except BadInput:
            found = GpuFigures(name=facts.gpu)
    if facts and facts.gpu_bandwidth:
        found = msgspec.structs.replace(
            found or GpuFigures(name="GPU"), bandwidth=facts.gpu_bandwidth, bandwidth_from="tag gpu_bandwidth"
        )
    return found


def _measure(level: Level, single: Level | None, serving: Serving, seen: ServerState | None) -> MeasuredLevel:
    seen = seen or ServerState(engine="")
    tpot, prompt, output = level.tpot_s.mean, ratio(level.tokens_in, level.ok), ratio(level.tokens_out, level.ok)
    accepted = ratio(seen.accepted_tokens, seen.drafts) if serving.draft_tokens else None
    per_step = None if serving.draft_tokens and accepted is None else 1.0 + (accepted or 0.0)
    typical_s = _typical_step(level, per_step, output)
    mean_s = None if tpot is None or per_step is None else tpot * per_step
    most = level.c if serving.slots is None else min(level.c, serving.slots)
    # Little's law: the streams that are between their first and last token.
    decoding = most if tpot is None or not level.headline_tps else min(float(most), level.headline_tps * tpot)
    context = level.replay.live_context if level.replay and level.replay.live_context else None
    share, rates = _prefill(level, single)
    return MeasuredLevel(
        level=level,
        batch=max(1.0, decoding / serving.replicas),
        context=(prompt or 0.0) + 0.5 * (output or 0.0) if context is None else context,
        step_s=mean_s if typical_s is None else typical_s,
        typical=typical_s is not None,
        prefill=share,
        prompt_tps=rates,
        seen=seen,
    )


def _typical_step(level: Level, tokens: float | None, output: float | None) -> float | None:
    """Return the median time between chunks where each of them holds the tokens of one step, else None.

    A step that also reads the prompt of another agent is longer: with 64 agents of 128 + 256 tokens on a vLLM without
    graphs for such steps, the mean was 9.6 ms and the median 5.7 ms, as that of a step that only decodes.
    """
    gaps = level.icl_s
    if tokens is None or not output or not gaps.n or not gaps.p50:
        return None
    in_chunk = (output - 1.0) * level.tpot_s.n / gaps.n
    return gaps.p50 if abs(in_chunk / tokens - 1.0) <= _ONE_STEP else None


def _prefill(level: Level, single: Level | None) -> tuple[float | None, tuple[float, float] | None]:
    """Return the share of time that prompts take: their rate over that of one agent that waits for its first token."""
    if single is None or level.tokens_in is None or single.ttft_s.mean is None or not level.output_s:
        return None, None
    if any(one.ok < _MIN_ANSWERS or (one.tokens_out or 0) < _MIN_OUTPUT for one in (level, single)):
        return None, None
    fresh = ratio((single.tokens_in or 0) - (single.cached_tokens or 0), single.ok) or 0.0
    alone_s = single.ttft_s.mean - (single.tpot_s.mean or 0.0)
    if fresh < _MIN_PROMPT or alone_s <= 0.0:
        return None, None
    now, alone = (level.tokens_in - (level.cached_tokens or 0)) / level.output_s, fresh / alone_s
    return min(1.0, now / alone), (now, alone)


def _point(one: MeasuredLevel, step: DecodeStep) -> tuple[float, float] | None:
    if one.step_s is None or step.seconds is None or (one.prefill or 0.0) > (MOST if one.typical else _MAX_PREFILL):
        return None
    return (step.seconds, one.step_s) if one.level.has_complete_run else None


def _limit(
    one: MeasuredLevel,
    step: DecodeStep,
    fit: StepFit | None,
    model: ModelShape,
    gpu: GpuFigures,
    serving: Serving,
    slots: Slots | None,
) -> LevelLimit:
    accepted = ratio(one.seen.accepted_tokens, one.seen.drafts) if serving.draft_tokens else None
    here = msgspec.structs.replace(serving, context=one.context, tokens_per_step=1.0 + (accepted or 0.0))
    hard = decode_step(model, gpu, here, one.batch, hard=True)
    share = hard.seconds / one.step_s if hard.seconds and one.step_s else None
    # What contradicts the limit says nothing about what binds.
    possible = share is None or share <= _MOST_SHARE
    binds, because = binding(one, step if possible else None, fit, slots)
    return msgspec.structs.replace(
        level_limit(model, gpu, here, one.level.c, fit), step_s=one.step_s, share=share, binds=binds, because=because
    )


def _unlimited(one: MeasuredLevel, slots: Slots | None) -> LevelLimit:
    """Say what binds a level as far as that is known without the model or the GPU."""
    binds, because = binding(one, None, None, slots)
    return LevelLimit(
        c=one.level.c, batch=one.batch, context=one.context, bytes_per_step=None, flops_per_step=None,
        limit_tps=None, expected_tps=None, step_s=one.step_s, binds=binds, because=because,
    )  # fmt: skip


# what binds


def binding(
    one: MeasuredLevel, step: DecodeStep | None, fit: StepFit | None, slots: Slots | None
) -> tuple[Binding, str]:
    """Return what binds a level, and the numbers that say so; the first that applies."""
    level, seen = one.level, one.seen
    waiting = level.queued
    if slots is not None and level.c > slots.total and (waiting is None or waiting > QUEUED):
        wait = "" if waiting is None else f", {short(waiting, 2)} requests wait"
        return "slots", f"all {slots.total} slots are taken{wait}"
    if seen.preemptions:
        return "kv_capacity", count_noun(round(seen.preemptions), "preemption")
    if (seen.kv_use or 0.0) >= KV_FULL:
        return "kv_capacity", f"the KV cache is {percent(seen.kv_use)} full"
    if (one.prefill or 0.0) > MOST and one.prompt_tps is not None:
        now, alone = one.prompt_tps
        return "prefill", (
            f"prompts take {percent(one.prefill)} of the time: {rate(now)} prompt tok/s, one agent alone {rate(alone)}"
        )
    split = level.ttft_split
    # The mean is not known where the level ended before the last answers did.
    answer_s = level.e2e_s.mean or level.e2e_s.p50 or 0.0
    outside_s = None if split is None or split.estimated else split.rest_s
    if split is not None and outside_s is not None and outside_s > max(MOST * split.ttft_s, _DELAYS * answer_s):
        return "client", f"{seconds(outside_s, 2)} of {seconds(split.ttft_s, 2)} TTFT are outside the server"
    energy = level.energy
    busy = None if energy is None or energy.all_gpus or energy.simulated else energy.utilisation
    waits = busy is not None and busy < BUSY
    lowered = ""
    if energy is not None and (energy.throttled or 0.0) > MOST:
        lowered = f"clocks lowered {percent(energy.throttled)} of the time ({', '.join(energy.throttle)})"
    used = _used(one, step)
    # Also where a power cap lowers the clocks: 27 B parameters on an H200 with 512 agents computed at 40 to 44 % of the
    # peak rate, with clocks lowered all the time.
    if used is not None and used.share >= LOWEST and not waits:
        return used.binds, f"{used.because}; {lowered}" if lowered else used.because
    if lowered:
        return "power", lowered
    if waits:
        return "server_cpu", f"they are busy {percent(busy)} of the time"
    if fit is not None and one.step_s is not None and used is not None and fit.overhead_s > MOST * one.step_s:
        return "launch_overhead", (
            f"{seconds(fit.overhead_s, 2)} of {seconds(one.step_s, 2)} per step go into neither reading nor computing"
        )
    return (used.binds, used.because) if used is not None and used.share >= LOWEST else ("not_known", "")


class _Used(NamedTuple):
    """Name what a step uses most of the GPU, as a share of its peak, with the numbers that say so."""

    share: float
    binds: Binding
    because: str


def _used(one: MeasuredLevel, step: DecodeStep | None) -> _Used | None:
    if step is None or step.seconds is None or not one.step_s:
        return None
    share = step.seconds / one.step_s
    if step.computes:
        return _Used(share, "compute", f"{short(step.flops / 1e12)} TFLOP per step, {percent(share)} of the peak rate")
    because = f"{short(step.bytes / 1e9)} GB per step, {percent(share)} of the memory bandwidth"
    return _Used(share, "bandwidth", because)
