"""Names and units of the figures that conditions can use."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from operator import attrgetter
from typing import Literal, NamedTuple

from swarmtui.analysis.levels.stats import SMALLEST_N, ratio
from swarmtui.model.base import BadInput
from swarmtui.model.session import Level, Spread

Kind = Literal["time", "rate", "share", "number"]

UNITS: dict[str, tuple[Kind, float]] = {
    "us": ("time", 1e-6), "ms": ("time", 1e-3), "s": ("time", 1.0), "m": ("time", 60.0),
    "%": ("share", 0.01), "tok/s": ("rate", 1.0),
}  # fmt: skip


Interval = tuple[float, float]


class Quantity(NamedTuple):
    """A figure of a level; `interval` reads its 95 % interval, which is null if none is known."""

    kind: Kind
    value: Callable[[Level], float | None]
    interval: Callable[[Level], Interval | None] = lambda level: None


def _figure(kind: Kind, path: str) -> Quantity:
    """Return a figure of a level; percentiles of times have an interval."""
    found = Quantity(kind, attrgetter(path))
    return found._replace(interval=attrgetter(f"{path}_interval")) if kind == "time" and ".p" in path else found


def _steady_interval(level: Level) -> Interval | None:
    steady, half_width = level.out_tps_steady, level.out_tps_steady_hw
    return None if steady is None or half_width is None else (steady - half_width, steady + half_width)


_TIMES = ("ttft", "ttfo", "tpot", "icl", "e2e", "job")
_PARTS = ("mean", "min", "p50", "p90", "p95", "p99", "max")
QUANTITIES: dict[str, Quantity] = {
    **{f"{name}_{part}": _figure("time", f"{name}_s.{part}") for name in _TIMES for part in _PARTS},
    **{f"per_stream_tps_{part}": _figure("rate", f"per_stream_tps.{part}") for part in ("mean", "min", "p50", "max")},
    "per_stream_tps": _figure("rate", "per_stream_tps.mean"),
    **{name: _figure("rate", name) for name in ("out_tps_steady_hw", "out_tps_wall", "prompt_tps", "total_tps")},
    "out_tps_steady": _figure("rate", "out_tps_steady")._replace(interval=_steady_interval),
    **{name: _figure("share", name) for name in ("contention", "pass_rate", "coalesced_chunks")},
    **{
        name: _figure("number", name)
        for name in (
            "n", "ok", "errors", "unfinished", "cap_hits", "degenerate", "runs", "c_achieved", "c_held", "rate_speedup",
            "wall_speedup", "token_ratio", "straggler", "tokens_in", "tokens_out", "cached_tokens",
        )
    },
    "longest_stall": _figure("time", "longest_stall_s"),
    "wall": _figure("time", "wall_s"),
    "error_rate": Quantity("share", lambda level: ratio(level.errors, level.ok + level.errors)),
    "cap_rate": Quantity("share", lambda level: ratio(level.cap_hits, level.ok)),
}  # fmt: skip


def find_quantity(name: str) -> Quantity | None:
    """Find a figure by name; `ttft_p50` and `ttft_s_p50` are the same, as are the field names of `run --json`."""
    return QUANTITIES.get(name) or QUANTITIES.get(name.replace("_s_", "_").removesuffix("_s"))


def did_you_mean(name: str) -> str:
    """Return a suggestion to append to an error: `, did you mean …?`, or all known names."""
    lower = name.lower()
    parts = [known for part in ("_p50", "_mean") if (known := f"{lower}{part}") in QUANTITIES]
    close = [lower] if lower in QUANTITIES else parts or difflib.get_close_matches(lower, QUANTITIES, n=2, cutoff=0.5)
    return f", did you mean {' or '.join(close)}?" if close else f"; known figures: {', '.join(sorted(QUANTITIES))}"


def parse_amount(number: str, unit: str, kind: Kind, key: str) -> float:
    """Convert a number with its unit to seconds, a share, tok/s or a count; a time needs a unit."""
    if not unit:
        if kind == "time":
            raise BadInput(f"{number} has no unit; write {number}s or {number}ms", key=key)
        return float(number)
    known = UNITS.get(unit)
    if known is None:
        raise BadInput(f"{unit!r} is not a known unit; use one of {', '.join(UNITS)}", key=key)
    if known[0] != kind:
        raise BadInput(f"expected a {kind}, but {unit} is a unit of {known[0]}", key=key)
    return float(number) * known[1]


def null_reason(name: str, level: Level) -> str:
    """Explain why a level has no value for a figure."""
    part = name.rpartition("_")[2]
    least = SMALLEST_N.get(part)
    field = f"{name.rpartition('_')[0].removesuffix('_s')}_s"
    spread = getattr(level, field, None)
    if least is not None and isinstance(spread, Spread) and spread.n < least:
        return f"{part} needs {least} answers, {level.name} has {spread.n}"
    return f"not measured at {level.name}"
