"""What is concluded from the figures of a session, each with its reason: checks, scaling, goodput."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.level_key import Placed
from swarmtui.model.schema import Stored


class Check(Stored, frozen=True, kw_only=True):
    """One line of "fit to publish". What nobody measured is unknown, not ok."""

    name: str
    state: Literal["ok", "not ok", "unknown"]
    value: str
    limit: str
    sentence: str


class Seats(Stored, frozen=True, kw_only=True):
    """Requests that the server runs at once. `inferred`: nobody said so, it is read off the curve."""

    per_replica: int
    replicas: int = 1
    inferred: bool = False
    reason: str = ""

    @property
    def total(self) -> int:
        return self.per_replica * self.replicas

    def __str__(self) -> str:
        if self.replicas > 1:
            return f"{self.replicas} replicas × {self.per_replica} seats"
        return f"{self.per_replica} seat{'s' if self.per_replica > 1 else ''}{', inferred' if self.inferred else ''}"


class Cliff(Stored, frozen=True, kw_only=True):
    """From `c_before` to `c` streams: `gain` is the change of output tok/s, `ttft_factor` that of TTFT."""

    c_before: int
    c: int
    gain: float
    ttft_factor: float


class QueueTax(Stored, frozen=True, kw_only=True):
    """What waiting for a seat costs at `c` streams, beside the level at which all had one."""

    c: int
    seconds: float
    factor: float


class Scaling(Stored, frozen=True, kw_only=True):
    """A decode step of b streams takes a + c·b. Null is refused, and `refused` says why.

    `sigma` = c/(a+c), `ceiling_tps` = replicas/c, `knee` = replicas·a/c: where half of the ceiling is reached.
    `fit_error` is the largest distance of a measured step from the line, as a share of it.
    """

    seats: Seats | None = None
    step_a_s: float | None = None
    step_c_s: float | None = None
    fit_error: float | None = None
    sigma: float | None = None
    ceiling_tps: float | None = None
    knee: float | None = None
    sweet_spot: int | None = None
    cliff: Cliff | None = None
    queue_tax: tuple[QueueTax, ...] = ()
    anomalies: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    sentence: str = ""


class Goodput(Placed, frozen=True, kw_only=True):
    """Requests of a level that kept the SLO; a failed request did not. `per_s` and `out_tps` are of good ones only."""

    n: int
    good: int
    share: float | None
    per_s: float | None
    out_tps: float | None
    kept: bool | None


class BandwidthUse(Stored, frozen=True, kw_only=True):
    """Bytes that a decode step reads, and their part of what the GPU could have read in that time."""

    c: int
    step_bytes: float
    share: float
