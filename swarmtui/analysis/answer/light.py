"""The facts of an answer that follow from what the hardware allows."""

from __future__ import annotations

import msgspec

from swarmtui.analysis.answer.facts import KV_FULL, AnswerFacts
from swarmtui.analysis.speed_of_light.limits import fp8_kv_gain, level_limit
from swarmtui.engines.registry import engine_named
from swarmtui.model.session import Summary
from swarmtui.model.speed_of_light import SpeedOfLight

# Weights of half the bits are worth a sentence from this gain on.
_MIN_GAIN = 0.1
_PLAIN = ("BF16", "F16", "bf16", "f16")


def add_hardware(facts: AnswerFacts, summary: Summary) -> AnswerFacts:
    """Add what binds the level that is asked about: the first that misses, else the best one."""
    found = summary.speed_of_light
    c = facts.best_c if facts.c is None else facts.c
    level = found.level(c) if found is not None else None
    if found is None or level is None:
        return facts
    known = level.binds != "not_known"
    return msgspec.structs.replace(
        facts,
        binds_c=c if known else None,
        binds=level.binds if known else None,
        because=level.because if known else None,
        smaller_weights=_smaller_weights(found, c or 1) if level.binds == "bandwidth" else None,
        eager=_eager(summary) if level.binds == "launch_overhead" else None,
        **_narrow_kv(facts, summary, found),
    )


def _smaller_weights(found: SpeedOfLight, c: int) -> float | None:
    """Predict the gain of tok/s from weights of half the bits; null if they are quantised already."""
    model, gpu, level = found.model, found.gpu, found.level(c)
    if model is None or gpu is None or found.fit is None or level is None or not level.fitted_tps:
        return None
    if model.quantisation not in _PLAIN:
        return None
    half = msgspec.structs.replace(found.serving, context=level.context, weight_factor=0.5)
    then = level_limit(model, gpu, half, c, found.fit).fitted_tps
    gain = then / level.fitted_tps - 1.0 if then else 0.0
    return gain if gain >= _MIN_GAIN else None


def _narrow_kv(facts: AnswerFacts, summary: Summary, found: SpeedOfLight) -> dict[str, object]:
    """Predict how many more contexts an 8-bit KV cache holds, if the cache is full."""
    full = facts.full_kv is not None or facts.preempted is not None or facts.hits is not None
    full = full or (facts.kv_use or 0.0) >= KV_FULL
    server = summary.servers[0] if summary.servers else None
    flag = engine_named(server.engine).narrow_kv if server else ""
    if not full or not flag or found.model is None or found.kv_tokens is None or not found.levels:
        return {}
    serving = msgspec.structs.replace(found.serving, context=found.levels[-1].context)
    gain = fp8_kv_gain(found.model, serving)
    if gain is None:
        return {}
    bits = found.model.kv_bits if serving.kv_bits is None else serving.kv_bits
    size = f"KV cache of {found.kv_tokens:,.0f} tokens with {bits:g} bits"
    return {"narrow_kv": gain - 1.0, "narrow_kv_flag": flag, "kv_size": size}


def _eager(summary: Summary) -> str | None:
    """Return the flag that keeps a server from using CUDA graphs, if it has it."""
    flags = (summary.servers[0].flags if summary.servers else None) or {}
    return next((f"--{name}" for name in ("enforce-eager", "disable-cuda-graph") if name in flags), None)
