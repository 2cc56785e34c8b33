"""Read the result file of a tool, as the table of its format says where each figure is.

A path such as `metrics.request_latency.mean` leads through the tables of a document; a list of tables or texts stands
for its first item. Several paths are separated by spaces: the first one with a value counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.analysis.levels.stats import SMALLEST_N
from swarmtui.model.session import Spread, Summary
from swarmtui.sessions.importers.summary import ImportedBenchmark, build_summary

_MAX_FLOAT = 1e300
_MAX_TIMESTAMP = 4e9
_TOKEN_TOLERANCE = 0.02
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# What tools call the parts of a distribution.
_PARTS = {part: part for part in ("min", "p90", "p95", "p99", "max")} | {"mean": "mean avg", "p50": "p50 median"}


class Document(dict[str, Any]):
    """One benchmark as its tool wrote it, with any value in any place."""

    def values_at(self, paths: str) -> Iterator[Any]:
        for path in paths.split():
            value: Any = self
            for step in path.split("."):
                table = _first(value)
                value = table.get(step) if isinstance(table, dict) else None
            yield value

    def number(self, paths: str) -> float | None:
        return next((number for value in self.values_at(paths) if (number := _as_float(value)) is not None), None)

    def count(self, paths: str) -> int | None:
        number = self.number(paths)
        return None if number is None or number < 0 else round(number)

    def text(self, paths: str) -> str:
        """Return the first text that is not empty."""
        values = map(_first, self.values_at(paths))
        return next((value for value in values if isinstance(value, str) and value), "")

    def table(self, paths: str) -> Document:
        """Return the first table that is not empty."""
        return Document(next((value for value in self.values_at(paths) if isinstance(value, dict) and value), {}))

    def seconds(self, path: str, parts: str, unit: float) -> float | None:
        """Return the figure of the first part, for which {} in the path stands; a `unit` beside it has precedence."""
        number = self.number(" ".join(path.replace("{}", part) for part in parts.split()))
        return None if number is None else number * _SECONDS.get(self.text(path.replace("{}", "unit")), unit)


class Format(NamedTuple):
    """The format in which a tool writes its results.

    `benchmarks` returns a document for each benchmark of a file, or None if another tool wrote it. `paths` has where
    the figures are: `tokens_in` and `tokens_out` in total or `mean_in` and `mean_out` per request, `server_tokens` as
    the server reported them, and `in_flight` for tools that do not always set a concurrency. `times` has where
    distributions are, with {} for a part such as p99; they are in ms if they do not name their unit.
    """

    tool: str
    benchmarks: Callable[[list[Any]], list[Document] | None]
    paths: Mapping[str, str]
    times: Mapping[str, str]


def read_format(format: Format, contents: list[Any], path: Path) -> Summary | None:
    """Read a file, given as its JSON documents; None if another tool wrote it."""
    documents = format.benchmarks(contents)
    if documents is None:
        return None
    notes: list[str] = []
    found = [_benchmark(format, document, notes) for document in documents]
    model = next(filter(None, (document.text(format.paths["model"]) for document in documents)), "")
    created = next(filter(None, (_date(document.get(format.paths["created"])) for document in documents)), "")
    return build_summary(path, format.tool, model, created, [one for one in found if one is not None], notes)


def _benchmark(format: Format, document: Document, notes: list[str]) -> ImportedBenchmark | None:
    def count(name: str) -> int | None:
        return document.count(format.paths.get(name, ""))

    def total(name: str) -> int | None:
        known, each = count(f"tokens_{name}"), document.number(format.paths.get(f"mean_{name}", ""))
        return known if known is not None or not each else round((ok or 0) * each)

    ok, failed, rate = count("ok"), count("failed"), document.number(format.paths["rate"])
    if ok is None:
        notes.append("a benchmark without a request count was skipped")
        return None
    if failed is None:
        failed = max(0, (count("planned") or ok) - ok)
    c = count("c")
    if not c:
        c = max(1, count("in_flight") or ok + failed)
        load = "all requests at once" if rate is None else f"an open loop at {rate:g} requests/s"
        notes.append(f"no concurrency given: {load}, taken as C={c}")
    tokens_out, unfinished, reported = total("out"), count("unfinished") or 0, count("server_tokens")
    if unfinished:
        notes.append(f"C={c}: {unfinished} requests were cancelled at the end; their tokens are not counted")
    if reported and tokens_out and abs(tokens_out / reported - 1.0) > _TOKEN_TOLERANCE:
        notes.append(f"{format.tool}'s tokenizer counted {tokens_out:,} output tokens, the server {reported:,}")
    complete = document.get("was_cancelled") is not True and document.get("is_complete") is not False
    if not complete:
        notes.append(": ".join(filter(None, ("stopped early", document.text("incomplete_reason")))))
    return ImportedBenchmark(
        c=c,
        ok=ok,
        failed=failed,
        unfinished=unfinished,
        wall_s=document.seconds(format.paths["wall_s"], "avg", 1.0) or _between(document),
        tokens_in=total("in"),
        tokens_out=tokens_out,
        out_tps=document.number(format.paths["out_tps"]),
        rate=rate,
        complete=complete,
        **{name: _spread(document, path, ok) for name, path in format.times.items()},
    )


def _spread(document: Document, path: str, ok: int) -> Spread:
    """Read a distribution without the percentiles for which n is too small. All zero means not measured."""
    n = document.count(path.replace("{}", "count")) or ok
    parts: dict[str, Any] = {
        part: document.seconds(path, names, 1e-3) for part, names in _PARTS.items() if n >= SMALLEST_N.get(part, 0)
    }
    return Spread(n=n, **parts) if any(parts.values()) else Spread(n=0)


def _between(document: Document) -> float | None:
    start, end = document.number("start_time"), document.number("end_time")
    return None if start is None or end is None or end <= start else end - start


def _date(found: Any) -> str:
    """Convert Unix times, and `20260501-101500`, which is in the local time of the machine."""
    if isinstance(found, str):
        return re.sub(r"^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$", r"\1-\2-\3T\4:\5:\6", found)
    seconds = _as_float(found)
    if seconds is None or not 0 < seconds < _MAX_TIMESTAMP:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _MAX_FLOAT:
        return None
    return float(value) if isfinite(value) else None
