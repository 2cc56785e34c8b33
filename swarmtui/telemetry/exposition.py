"""The Prometheus text format: the samples that are wanted, and the cost of no others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def samples(text: str, wanted: Callable[[str], bool]) -> list[Sample] | None:
    """Those whose name is wanted; None when a wanted line is not in the format. What is not a number is left out.

    A server's text has hundreds of lines that nobody asks for, and parsing is what costs: they are left out before.
    """
    from prometheus_client.parser import text_string_to_metric_families

    kept = [line for line in text.splitlines() if (name := _NAME.match(line)) and wanted(name.group())]
    if not kept:
        return []
    try:
        found = [s for family in text_string_to_metric_families("\n".join(kept) + "\n") for s in family.samples]
    except (ValueError, IndexError, KeyError):
        return None
    return [Sample(s.name, s.labels, s.value) for s in found if math.isfinite(s.value)]
