"""How much of the memory's bandwidth decoding uses, when somebody says how many bytes a token needs.

Said with tags: `active_bytes=1.65GB gpu_bandwidth=936GB/s`, and for a mixture of experts `model_bytes=16.9GB
experts=8/128`. A step reads the dense part once, and every expert that any of its b streams is routed to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from swarmtui.model.findings import BandwidthUse, Slots
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


class ModelBytes(Stored, frozen=True, kw_only=True):
    """`active_bytes` are what one stream reads in a step; `experts` are (used for a token, in all)."""

    active_bytes: float
    gpu_bandwidth: float
    model_bytes: float | None = None
    experts: tuple[int, int] | None = None

    def step_bytes(self, streams: float) -> float:
        """E·(1 − (1 − k/E)^b) experts are touched by b streams; without experts every step reads the same."""
        if self.experts is None or self.model_bytes is None:
            return self.active_bytes
        share = self.experts[0] / self.experts[1]
        in_experts = (self.model_bytes - self.active_bytes) / (1.0 - share)
        return self.active_bytes - in_experts * share + in_experts * experts_read(share, streams)


def experts_read(share: float, streams: float) -> float:
    """The part of all experts that a step of so many streams reads."""
    return float(1.0 - (1.0 - share) ** streams)


def model_bytes_from_tags(tags: Mapping[str, str]) -> ModelBytes | None:
    """None where they are not given, or say nothing that makes sense."""
    active, speed, whole = (_bytes(tags.get(name, "")) for name in ("active_bytes", "gpu_bandwidth", "model_bytes"))
    if not active or not speed:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", tags.get("experts", ""))
    used, count = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    sparse = whole is not None and 0 < used < count and whole > active
    return ModelBytes(
        active_bytes=active,
        gpu_bandwidth=speed,
        model_bytes=whole if sparse else None,
        experts=(used, count) if sparse else None,
    )


def bandwidth_use(levels: Sequence[Level], weights: ModelBytes, seats: Slots | None) -> tuple[BandwidthUse, ...]:
    """Of one replica; of its step time by the mean time per token, which speculative decoding makes too short."""
    found = []
    for level in levels:
        step = level.tpot_s.mean
        if step:
            streams = max(1.0, min(level.c, seats.total) / seats.replicas if seats else level.c)
            read = weights.step_bytes(streams)
            found.append(BandwidthUse(c=level.c, step_bytes=read, share=read / step / weights.gpu_bandwidth))
    return tuple(found)


def _bytes(text: str) -> float | None:
    """`1.65GB`, `936GB/s`, `1.65e9`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([kMGT]i?)?B?(?:/s)?\s*", text)
    return float(match.group(1)) * _UNITS[match.group(2) or ""] if match else None
