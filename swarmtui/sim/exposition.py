"""The part of the Prometheus text format that the simulator writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal

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
        """Yield suffix, labels and value of each line."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield "_bucket", {**labels, "le": bound}, total
        yield "_count", labels, total
        yield "_sum", labels, self._sum


def family(
    name: str, kind: Literal["counter", "gauge", "histogram"], meaning: str, samples: Iterable[Sample]
) -> Iterable[str]:
    """Yield the lines of one metric."""
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        yield f"{name}{suffix}{{{inside}}} {float(value)!r}"


def page(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
