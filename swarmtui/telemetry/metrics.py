"""Read the metrics of inference servers into ServerState, with the maps of their engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import NamedTuple

import msgspec

from swarmtui.engines.base import PROMETHEUS_PATH, Engine
from swarmtui.engines.registry import ENGINES, engine_named
from swarmtui.http_client import HttpClient
from swarmtui.model.telemetry import Bucket, ServerHistogram, ServerState
from swarmtui.telemetry.prometheus import Fetcher, MetricSample, parse_samples

_HISTOGRAM_PARTS = ("_bucket", "_count", "_sum")
# A counter with a label for each position, which becomes a histogram.
_POSITION = "position"


class _Meaning(NamedTuple):
    """The meaning of a metric name; `part` is empty for a plain value."""

    engine: Engine
    field: str
    part: str = ""


def _meanings() -> dict[str, _Meaning]:
    """Map full metric names; where two engines share a name, the first one registered has it."""
    names: dict[str, _Meaning] = {}
    for engine in ENGINES:
        for prefix in engine.metric_prefixes:
            for name, field in engine.metric_values.items():
                names.setdefault(prefix + name, _Meaning(engine, field))
            for name, field in engine.metric_positions.items():
                names.setdefault(prefix + name, _Meaning(engine, field, _POSITION))
            for name, field in engine.metric_histograms.items():
                for part in _HISTOGRAM_PARTS:
                    names.setdefault(prefix + name + part, _Meaning(engine, field, part))
    return names


_MEANINGS = _meanings()


def metrics_url(root: str, engine: str) -> str | None:
    """Return where the server at `root` (without /v1) reports metrics; None if its engine reports none."""
    path = engine_named(engine).metrics_path
    return None if path is None else root.rstrip("/") + path


def parse_page(url: str, text: str, engine: str = "") -> ServerState | None:
    """Parse what was read from a metrics URL; None if it is not the page of a known engine.

    `engine` is the server's name where it is known: the simulator writes the same metrics as vLLM.
    """
    own_path = (e for e in ENGINES if e.metrics_path not in (None, PROMETHEUS_PATH))
    own_format = next((e for e in own_path if e.metrics_path and url.endswith(e.metrics_path)), None)
    return own_format.parse_metrics(text) if own_format else parse_prometheus(text, engine)


def parse_prometheus(text: str, engine: str = "") -> ServerState | None:
    """Add up all engines that report on the page; None if it has no known metric."""
    found = parse_samples(text, _MEANINGS.__contains__)
    if not found:
        return None
    writer = _MEANINGS[found[0].name].engine
    known = engine_named(engine)
    values: dict[str, float] = {}
    histograms: defaultdict[str, list[tuple[str, MetricSample]]] = defaultdict(list)
    for sample in _without_repeats(found, writer):
        owner, field, part = _MEANINGS[sample.name]
        if owner is not writer:
            continue
        if part:
            histograms[field].append((part, sample))
        elif field == "kv_use":
            # Not summed over several engines behind one address: the fullest cache makes requests wait.
            values[field] = max(values.get(field, 0.0), sample.value)
        else:
            values[field] = values.get(field, 0.0) + sample.value
    writer.complete(values)
    state = ServerState(engine=(known if known.metric_prefixes == writer.metric_prefixes else writer).name)
    return msgspec.structs.replace(state, **values, **{f: _histogram(parts) for f, parts in histograms.items()})


def _without_repeats(found: list[MetricSample], engine: Engine) -> list[MetricSample]:
    """Drop series that are part of a total, and those that another rank of the same engine repeats."""
    if not engine.rank_labels and not engine.breakdown_label:
        return found
    kept: dict[tuple[str, tuple[tuple[str, str], ...]], MetricSample] = {}
    for sample in found:
        if not sample.labels.get(engine.breakdown_label):
            labels = tuple(sorted(item for item in sample.labels.items() if item[0] not in engine.rank_labels))
            previous = kept.get((sample.name, labels))
            if previous is None or sample.value > previous.value:
                kept[sample.name, labels] = sample
    return list(kept.values())


def _histogram(parts: list[tuple[str, MetricSample]]) -> ServerHistogram | None:
    buckets: defaultdict[float, float] = defaultdict(float)
    count = total = None
    for part, sample in parts:
        if part == _POSITION:
            with suppress(ValueError):
                buckets[float(sample.labels.get("position", ""))] += sample.value
            count, total = (count or 0.0) + sample.value, 0.0
        elif part == "_bucket":
            with suppress(ValueError):
                buckets[float(sample.labels.get("le", ""))] += sample.value
        elif part == "_count":
            count = (count or 0.0) + sample.value
        else:
            total = (total or 0.0) + sample.value
    if count is None or total is None:
        return None
    # The unbounded bucket equals the count, and JSON has no infinity.
    bounds = tuple(Bucket(le=le, count=n) for le, n in sorted(buckets.items()) if isfinite(le))
    return ServerHistogram(count=count, sum=total, buckets=bounds)


class MetricsReader(Fetcher):
    """Read the metrics of several servers at once. Never raises: problems are returned as text."""

    def __init__(self, urls: Sequence[str], client: HttpClient | None = None, *, engine: str = "") -> None:
        super().__init__(urls, client)
        self._engine = engine

    def read(self) -> tuple[tuple[ServerState, ...], str]:
        """Return one state per server that answered, and the problems of the others."""
        states, problems = [], []
        for url, body, problem in self.fetch():
            state = None if problem else parse_page(url, body, self._engine)
            if state is None:
                problems.append(f"{url}: {problem or 'no metrics of a known engine'}")
            else:
                states.append(msgspec.structs.replace(state, url=url))
        missing = "" if self.urls else f"{self._engine or 'the server'} reports no metrics"
        return tuple(states), "; ".join(problems) or missing
