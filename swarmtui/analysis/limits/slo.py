"""Parse service level objectives such as `ttft=500ms,tpot=50ms`, and count the requests of a level that meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil, log

from swarmtui.analysis.compare.distributions import incomplete_beta
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.quantities import parse_amount
from swarmtui.model.findings import Goodput
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.session import Level
from swarmtui.numbers import short_percent

_KEY = "--slo"
DEFAULT_SHARE = 0.95
_ALPHA = 0.05
# An answer of one token has no time per token and no gap; every other figure is missing only if the answer is.
_MAY_BE_MISSING = ("tpot", "stall")


def _stall(record: Record) -> float | None:
    longest = record.longest_gap_us
    return None if longest is None else longest / 1e6


FIGURES: dict[str, Callable[[Record], float | None]] = {
    "ttft": lambda record: record.ttft_s,
    "ttfo": lambda record: record.ttfo_s,
    "tpot": lambda record: record.tpot_s,
    "e2e": lambda record: record.e2e_s,
    "stall": _stall,
}


class Slo(Stored, frozen=True, kw_only=True):
    """Limits in seconds by figure, and the share of requests that must meet all of them."""

    limits_s: dict[str, float]
    share: float = DEFAULT_SHARE

    def met_by(self, record: Record) -> bool:
        """Whether a request meets all limits: a failed one does not, nor one without the output that a limit is for."""
        return record.ok and all(self._meets(record, name) for name in self.limits_s)

    def _meets(self, record: Record, name: str) -> bool:
        value = FIGURES[name](record)
        return name in _MAY_BE_MISSING if value is None else value <= self.limits_s[name]


def validate_slo(text: str) -> str:
    """Return the text if it is valid or empty; raise BadInput otherwise."""
    if text:
        parse_slo(text)
    return text


def parse_slo(text: str) -> Slo:
    most: dict[str, float] = {}
    share = DEFAULT_SHARE
    for part in text.split(","):
        match = re.fullmatch(r"\s*([a-z0-9]+)\s*=\s*(\d+(?:\.\d+)?)\s*([a-z%/]*)\s*", part)
        if match is None:
            raise BadInput(f"{part.strip()!r} is not in the form ttft=500ms", key=_KEY)
        name, number, unit = match.groups()
        if name != "share" and name not in FIGURES:
            raise BadInput(f"unknown figure {name!r}; use one of {', '.join(FIGURES)}, share", key=_KEY)
        if name in most:
            raise BadInput(f"{name} is given twice", key=_KEY)
        value = parse_amount(number, unit, "share" if name == "share" else "time", _KEY)
        if name == "share":
            share = value
        else:
            most[name] = value
    if not most:
        raise BadInput("sets no limit; expected something like ttft=500ms,tpot=50ms", key=_KEY)
    if not 0.0 < share <= 1.0:
        raise BadInput("share must be between 1% and 100%", key=_KEY)
    return Slo(limits_s=most, share=share)


def goodput(levels: Sequence[Level], finished: Mapping[LevelKey, Sequence[Record]], slo: Slo) -> tuple[Goodput, ...]:
    """Count good requests by level; `finished` ended by themselves, with or without an error."""
    found = []
    for level in levels:
        records = finished.get(level.key, ())
        good = [record for record in records if slo.met_by(record)]
        low, high = share_bounds(len(good), len(records))
        found.append(
            Goodput(
                c=level.c,
                rate=level.rate,
                n=len(records),
                good=len(good),
                share=ratio(len(good), len(records)),
                share_low=low,
                share_high=high,
                per_s=ratio(len(good), level.wall_s),
                out_tps=ratio(sum(record.tokens_out or 0 for record in good), level.wall_s),
                kept=_kept(len(good), len(records), slo.share),
            )
        )
    return tuple(found)


def share_bounds(good: int, n: int) -> tuple[float | None, float | None]:
    """Return the one-sided 95 % bounds of a share by Clopper and Pearson, from below and from above."""
    if not n:
        return None, None
    low = 0.0 if not good else _bisect(lambda p: incomplete_beta(good, n - good + 1, p) - _ALPHA)
    high = 1.0 if good == n else _bisect(lambda p: incomplete_beta(good + 1, n - good, p) - (1 - _ALPHA))
    return low, high


def _bisect(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _kept(good: int, n: int, share: float) -> bool | None:
    """Decide by the bounds; None is undecided. A share of 100 % is about the measured requests alone."""
    low, high = share_bounds(good, n)
    if low is None or high is None:
        return None
    if share == 1.0:
        return good == n
    return True if low >= share else False if high < share else None


def slo_sentence(found: Sequence[Goodput], slo: Slo) -> str:
    """`SLO met up to C=4; missed at C=8: 62 of 100 requests met it, 95 % required`"""
    if not found:
        return "SLO: nothing was measured"
    open_level = next((level for level in found if not level.kept), None)
    met = [level for level in found if level.kept and (not open_level or level.offered_load < open_level.offered_load)]
    parts = [f"met up to {max(met, key=lambda level: level.offered_load).name}"] if met else []
    if open_level is not None:
        share = f"{open_level.good} of {open_level.n} requests met it, {short_percent(slo.share)} required"
        word = "undecided" if open_level.kept is None else "missed"
        least = f"; at least {_least_n(slo.share)} requests are needed to decide" if word == "undecided" else ""
        parts.append(f"{word} at {open_level.name}: {share}{least}")
    return f"SLO {'; '.join(parts)}"


def _least_n(share: float) -> int:
    """Return how many requests show that a share is kept if all of them meet the limits."""
    return ceil(log(_ALPHA) / log(share))
