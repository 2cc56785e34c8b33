"""Compute the share of memory bandwidth that decoding uses, if the user gave the bytes that a token needs.

They are given as tags: `active_bytes=1.65GB gpu_bandwidth=936GB/s`, and for a mixture of experts `model_bytes=16.9GB
experts=8/128`. A step reads the dense part once, and every expert that any of its b streams is routed to.
"""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.findings import BandwidthUse, Slots
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level
from swarmtui.model.session_tags import ModelFacts


class ModelBytes(Stored, frozen=True, kw_only=True):
    """`active_bytes` are read per step for one stream; `experts` are (used per token, total)."""

    active_bytes: float
    gpu_bandwidth: float
    model_bytes: float | None = None
    experts: tuple[int, int] | None = None

    def step_bytes(self, streams: float) -> float:
        """Return the bytes read per step: b streams use E·(1 − (1 − k/E)^b) experts; a dense model reads them all."""
        if self.experts is None or self.model_bytes is None:
            return self.active_bytes
        share = self.experts[0] / self.experts[1]
        in_experts = (self.model_bytes - self.active_bytes) / (1.0 - share)
        return self.active_bytes - in_experts * share + in_experts * experts_read(share, streams)


def experts_read(share: float, streams: float) -> float:
    """Return the share of all experts that a step of these streams reads."""
    return float(1.0 - (1.0 - share) ** streams)


def model_bytes_from_facts(facts: ModelFacts | None) -> ModelBytes | None:
    """Return None if the user did not give the active bytes and the bandwidth."""
    if facts is None or not facts.active_bytes or not facts.gpu_bandwidth:
        return None
    whole, (used, count) = facts.model_bytes, facts.experts or (0, 0)
    sparse = whole is not None and 0 < used < count and whole > facts.active_bytes
    return ModelBytes(
        active_bytes=facts.active_bytes,
        gpu_bandwidth=facts.gpu_bandwidth,
        model_bytes=whole if sparse else None,
        experts=(used, count) if sparse else None,
    )


def bandwidth_use(levels: Sequence[Level], weights: ModelBytes, slots: Slots | None) -> tuple[BandwidthUse, ...]:
    """Return the bandwidth use of one replica.

    The step time is the mean time per token, which is too short with speculative decoding.
    """
    found = []
    for level in levels:
        step = level.tpot_s.mean
        if step:
            streams = max(1.0, min(level.c, slots.total) / slots.replicas if slots else level.c)
            read = weights.step_bytes(streams)
            found.append(BandwidthUse(c=level.c, step_bytes=read, share=read / step / weights.gpu_bandwidth))
    return tuple(found)
