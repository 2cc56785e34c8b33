"""The Prometheus text format: the samples that are wanted, and the cost of no others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})?")


class Sample(NamedTuple):
    """Labels are shared between readings: they are to be read only."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str, wanted: Callable[[str], bool]) -> list[Sample] | None:
    """Those whose name is wanted; None when a wanted line is not in the format. What is not a number is left out.

    A page has hundreds of lines that nobody asks for, and is read again every second with other numbers in it: lines
    that are not wanted are never parsed, and names and labels of the others once.
    """
    found = []
    try:
        for line in text.splitlines():
            name = _NAME.match(line)
            if name and wanted(name.group()):
                series, _, value = line.rstrip().rpartition(" ")
                sample = _series(series.rstrip(), float(value)) if _PLAIN.fullmatch(series) else _parse(line)
                if math.isfinite(sample.value):
                    found.append(sample)
    except (ValueError, IndexError, KeyError):
        return None
    return found


def _series(series: str, value: float) -> Sample:
    name, labels = _names(series)
    return Sample(name, labels, value)


@lru_cache(maxsize=8192)
def _names(series: str) -> tuple[str, dict[str, str]]:
    sample = _parse(f"{series} 0")
    return sample.name, sample.labels


def _parse(line: str) -> Sample:
    """One line by the library: also with a time behind its value."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(f"{line}\n"):
        for sample in family.samples:
            return Sample(sample.name, sample.labels, sample.value)
    raise ValueError("no sample in it")
