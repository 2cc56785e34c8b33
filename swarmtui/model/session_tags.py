"""The series of a session, and the facts about its model that the user gives as tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from swarmtui.model.base import Stored

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


class Series(Stored, frozen=True, kw_only=True):
    """A series of sessions: the probes of an endpoint, a tune, or an A/B test.

    `name` is the endpoint of a probe as the user wrote it, because an embedded simulator has a new address each time;
    else the name of the tune or test. `side` is A or B.
    """

    kind: Literal["probe", "tune", "ab"]
    name: str
    side: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.side}".rstrip()


class ModelFacts(Stored, frozen=True, kw_only=True):
    """Facts that the user gave about the model and its GPU; null is not given.

    `active_bytes` is what a decode step of one stream reads, `experts` are (used per token, total), and `gpu`
    is a name of the table in analysis/speed_of_light/gpus.
    """

    active_bytes: float | None = None
    gpu_bandwidth: float | None = None
    model_bytes: float | None = None
    experts: tuple[int, int] | None = None
    heads: int | None = None
    gpu: str = ""


def model_facts_from_tags(tags: Mapping[str, str]) -> ModelFacts | None:
    """Read `active_bytes=1.65GB`, `gpu_bandwidth=936GB/s`, `model_bytes=16.9GB`, `experts=8/128` and `heads=40`.

    `gpu=H200` names the GPU of a server on another host. A value that cannot be read counts as not given.
    """
    experts = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", tags.get("experts", ""))
    facts = ModelFacts(
        active_bytes=_parse_bytes(tags.get("active_bytes", "")),
        gpu_bandwidth=_parse_bytes(tags.get("gpu_bandwidth", "")),
        model_bytes=_parse_bytes(tags.get("model_bytes", "")),
        experts=(int(experts.group(1)), int(experts.group(2))) if experts else None,
        gpu=tags.get("gpu", ""),
        heads=int(tags["heads"]) if re.fullmatch(r"[1-9]\d*", tags.get("heads", "")) else None,
    )
    return facts if facts != ModelFacts() else None


def _parse_bytes(text: str) -> float | None:
    """`1.65GB`, `936GB/s`, `1.65e9`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([kMGT]i?)?B?(?:/s)?\s*", text)
    return float(match.group(1)) * _UNITS[match.group(2) or ""] if match else None
