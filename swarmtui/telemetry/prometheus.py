"""Parse selected samples of a Prometheus page; all other lines are skipped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?")


class MetricSample(NamedTuple):
    """One sample. `labels` are cached and shared between pages: do not modify them."""

    name: str
    labels: dict[str, str]
    value: float


def parse_samples(text: str, keep: Callable[[str], bool]) -> list[MetricSample] | None:
    """Return the finite samples whose names are to `keep`; None if such a line is malformed.

    A page has hundreds of lines and is read every second: other lines are not parsed, and names and labels are
    parsed only once.
    """
    found = []
    try:
        for line in text.splitlines():
            name = _NAME.match(line)
            if name and keep(name.group()):
                series, _, value = line.rstrip().rpartition(" ")
                sample = _series(series.rstrip(), float(value)) if _PLAIN.fullmatch(series) else _parse(line)
                if math.isfinite(sample.value):
                    found.append(sample)
    except (ValueError, IndexError, KeyError):
        return None
    return found


def _series(series: str, value: float) -> MetricSample:
    name, labels = _parse_series(series)
    return MetricSample(name, labels, value)


@lru_cache(maxsize=8192)
def _parse_series(series: str) -> tuple[str, dict[str, str]]:
    sample = _parse(f"{series} 0")
    return sample.name, sample.labels


def _parse(line: str) -> MetricSample:
    """Parse one line with the library, which also accepts a timestamp after the value."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(f"{line}\n"):
        for sample in family.samples:
            return MetricSample(sample.name, sample.labels, sample.value)
    raise ValueError("no sample in the line")
