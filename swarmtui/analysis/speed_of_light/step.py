"""The least time of a decode step: the bytes it reads and the operations it needs, over what a GPU can do.

A step with batch b reads the dense weights once, every expert that one of its tokens is routed to, and the KV cache of
each stream. Independent routing to k of E experts uses E·(1 − (1 − k/E)^tokens) of them: the expected limit. At best
all tokens use the same k: the hard limit, which no measurement exceeds.
"""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.model.speed_of_light import GpuFigures, ModelShape, Serving

# The share of the memory that a server takes, vLLM's default.
_USED = 0.9


class DecodeStep(NamedTuple):
    """A decode step of one replica: its work, and how long a GPU takes at least for its part; null is not known."""

    batch: float
    bytes: float
    flops: float
    memory_s: float | None
    compute_s: float | None

    @property
    def seconds(self) -> float | None:
        """The limit: a step can overlap reading and computing, so that the longer of both counts."""
        if self.memory_s is None:
            return None
        return max(self.memory_s, self.compute_s or 0.0)

    @property
    def computes(self) -> bool:
        """Whether computing takes longer than reading."""
        return self.memory_s is not None and self.compute_s is not None and self.compute_s > self.memory_s


def decode_step(
    model: ModelShape, gpu: GpuFigures, serving: Serving, batch: float, *, hard: bool = False
) -> DecodeStep:
    """Return the step of a replica that decodes `batch` streams; with the fewest possible experts if `hard`."""
    tokens = batch * (serving.draft_tokens + 1)
    weights = serving.weight_factor * _weight_bytes(model, serving, tokens, hard=hard)
    kv = batch * kv_bytes(model, serving, serving.context)
    attention = sum(group.layers * group.flops * group.tokens(serving.context) for group in model.attention)
    flops = tokens * (2.0 * model.active_parameters + attention)
    tp = max(1, serving.tensor_parallel)
    kv_parts = 1 if model.latent_kv else max(1, min(tp, model.kv_heads or tp))
    peak = gpu.peak(model.compute_bits)
    return DecodeStep(
        batch=batch,
        bytes=weights + kv,
        flops=flops,
        memory_s=(weights / tp + kv / kv_parts) / gpu.bandwidth if gpu.bandwidth else None,
        compute_s=flops / tp / peak if peak else None,
    )


def batch_of(c: float, serving: Serving) -> float:
    """Return how many of `c` streams one replica decodes at once: at most its slots, and at least one."""
    streams = c if serving.slots is None else min(c, serving.slots)
    return max(1.0, streams / max(1, serving.replicas))


def tokens_per_s(c: float, seconds: float | None, serving: Serving) -> float | None:
    """Return the tok/s of all replicas together if a step takes this long."""
    streams = c if serving.slots is None else min(c, serving.slots)
    return streams * serving.tokens_per_step / seconds if seconds else None


def experts_read(model: ModelShape, tokens: float) -> float:
    """Return the expected number of experts that some of these tokens are routed to."""
    if not model.experts:
        return 0.0
    share = min(1.0, model.experts_used / model.experts)
    return float(model.experts * (1.0 - (1.0 - share) ** tokens))


def kv_bytes(model: ModelShape, serving: Serving, context: float) -> float:
    """Return what a step reads of the KV cache of one stream, and of its state."""
    bits = model.kv_bits if serving.kv_bits is None else serving.kv_bits
    if serving.kv_token_bytes is not None and all(group.window is None for group in model.attention):
        changed = 1.0 if serving.kv_bits is None else serving.kv_bits / model.kv_bits
        return serving.kv_token_bytes * changed * context + model.state_bytes
    read = sum(group.layers * group.elements * group.tokens(context) for group in model.attention)
    return read * bits / 8.0 + model.state_bytes


def kv_room(model: ModelShape, gpu: GpuFigures, serving: Serving) -> float | None:
    """Predict how many tokens of the KV cache fit beside the weights, in all replicas; null if that is not known."""
    if gpu.memory is None or not serving.context or not (each := kv_bytes(model, serving, serving.context)):
        return None
    free = _USED * gpu.memory * serving.tensor_parallel - serving.weight_factor * model.total_bytes
    if not model.latent_kv and model.kv_heads:
        each *= max(1.0, serving.tensor_parallel / model.kv_heads)
    elif model.latent_kv:
        each *= serving.tensor_parallel
    return max(0.0, free / each) * serving.context * serving.replicas


def _weight_bytes(model: ModelShape, serving: Serving, tokens: float, *, hard: bool) -> float:
    experts = min(float(model.experts_used), float(model.experts)) if hard else experts_read(model, tokens)
    drafts = serving.draft_tokens if serving.draft_tokens and not hard else min(1, serving.draft_tokens)
    return model.dense_bytes + experts * model.expert_bytes + drafts * model.draft_bytes
