"""The limits of a model on a GPU by the number of agents, without any measurement."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.speed_of_light.fit import predicted_step
from swarmtui.analysis.speed_of_light.step import batch_of, decode_step, kv_bytes, kv_room, tokens_per_s
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.speed_of_light import Binding, GpuFigures, LevelLimit, ModelShape, Serving, SpeedOfLight, StepFit
from swarmtui.numbers import short

# The bits of a number in the KV cache with an 8-bit cache, the narrowest that most servers have.
FP8 = 8.0


def limits(
    model: ModelShape,
    gpu: GpuFigures,
    serving: Serving,
    levels: Sequence[int],
    fit: StepFit | None = None,
    kv_tokens: float | None = None,
) -> SpeedOfLight:
    """Return what the hardware allows at each level; `kv_tokens` is the size of the KV cache that a server reports."""
    room = kv_room(model, gpu, serving) if kv_tokens is None else kv_tokens
    return SpeedOfLight(
        model=model,
        gpu=gpu,
        serving=serving,
        fit=fit,
        kv_tokens=room,
        kv_predicted=kv_tokens is None and room is not None,
        levels=tuple(level_limit(model, gpu, serving, c, fit, room) for c in levels),
        missing=missing_facts(model, gpu),
    )


def level_limit(
    model: ModelShape,
    gpu: GpuFigures,
    serving: Serving,
    c: int,
    fit: StepFit | None = None,
    kv_tokens: float | None = None,
) -> LevelLimit:
    """Return the limit with `c` agents; the KV cache binds if their contexts do not fit, else the longer part."""
    batch = batch_of(c, serving)
    step, hard = decode_step(model, gpu, serving, batch), decode_step(model, gpu, serving, batch, hard=True)
    fitted = predicted_step(step.seconds, fit.overhead_s, fit.efficiency) if fit and step.seconds else None
    binds: Binding = "not_known" if step.seconds is None else "compute" if step.computes else "bandwidth"
    because = _because(step.memory_s, step.compute_s)
    if kv_tokens is not None and serving.context and c * serving.context > kv_tokens:
        binds = "kv_capacity"
        because = f"{short(kv_tokens / serving.context)} contexts of {serving.context:,.0f} tokens fit"
    elif serving.slots is not None and c > serving.slots:
        binds, because = "slots", f"{serving.slots} of {c} agents have a slot"
    return LevelLimit(
        c=c,
        batch=batch,
        context=serving.context,
        bytes_per_step=step.bytes,
        flops_per_step=step.flops,
        limit_tps=tokens_per_s(c, hard.seconds, serving),
        expected_tps=tokens_per_s(c, step.seconds, serving),
        fitted_tps=tokens_per_s(c, fitted, serving),
        binds=binds,
        because=because,
    )


def _because(memory_s: float | None, compute_s: float | None) -> str:
    if memory_s is None:
        return ""
    computing = "" if compute_s is None else f", computes {short(1e3 * compute_s, 2)}"
    return f"reads {short(1e3 * memory_s, 2)} ms{computing}"


def fp8_kv_gain(model: ModelShape, serving: Serving) -> float | None:
    """Return how many times as many contexts fit with an 8-bit KV cache; null if it has no more than 8 bits already.

    The same memory holds more tokens; what does not grow with the context stays.
    """
    bits = model.kv_bits if serving.kv_bits is None else serving.kv_bits
    if bits <= FP8 or not serving.context:
        return None
    narrow = msgspec.structs.replace(serving, kv_bits=FP8)
    now, then = kv_bytes(model, serving, serving.context), kv_bytes(model, narrow, serving.context)
    return now / then if then else None


def missing_facts(model: ModelShape | None, gpu: GpuFigures | None, why: str = "") -> Findings:
    """Name what is not known, and what would make it known."""
    found = []
    if model is None:
        text = f"{why}; name the directory or file of the model with --model-path" if why else (
            "the model is not known: name its directory or file with --model-path"
        )  # fmt: skip
        found.append(Finding(code="no_model", text=text))
    if gpu is None:
        text = "the GPU is not known: `limits --gpu NAME` names it, or `run --tag gpu=NAME`"
        found.append(Finding(code="no_gpu", text=text))
    elif gpu.bandwidth is None:
        text = f"the memory bandwidth of {gpu.name} is not known: --gpu names a GPU of the table"
        found.append(Finding(code="no_bandwidth", text=text))
    elif model is not None and gpu.peak(model.compute_bits) is None:
        text = f"the peak rate of {gpu.name} is not known: the limit counts only what is read"
        found.append(Finding(code="no_peak", text=text))
    if model is not None and model.source == "config":
        text = "no weights were found: bytes are computed from config.json, not read from the files"
        found.append(Finding(code="computed_bytes", text=text))
    return tuple(found)
