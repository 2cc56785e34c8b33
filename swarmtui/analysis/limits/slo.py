"""Parse service level objectives such as `ttft=500ms,tpot=50ms`, and count the requests of a level that meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.limits.quantities import parse_amount
from swarmtui.model.findings import Goodput
from swarmtui.model.level_key import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.session import Level
from swarmtui.numbers import short_percent

_KEY = "--slo"
DEFAULT_SHARE = 0.95


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
        """Whether a request meets all limits; a failed one does not, and a figure it cannot have is ignored."""
        if not record.ok:
            return False
        values = ((FIGURES[name](record), most) for name, most in self.limits_s.items())
        return all(value is None or value <= most for value, most in values)


def validate_slo(text: str) -> str:
    """Return the text if it is valid or empty; raise BadInput otherwise."""
    if text:
        parse_slo(text)
    return text


def parse_slo(text: str, key: str = _KEY) -> Slo:
    most: dict[str, float] = {}
    share = DEFAULT_SHARE
    for part in text.split(","):
        match = re.fullmatch(r"\s*([a-z0-9]+)\s*=\s*(\d+(?:\.\d+)?)\s*([a-z%/]*)\s*", part)
        if match is None:
            raise BadInput(f"{part.strip()!r} is not in the form ttft=500ms", key=key)
        name, number, unit = match.groups()
        if name != "share" and name not in FIGURES:
            raise BadInput(f"unknown figure {name!r}; use one of {', '.join(FIGURES)}, share", key=key)
        if name in most:
            raise BadInput(f"{name} is given twice", key=key)
        value = parse_amount(number, unit, "share" if name == "share" else "time", key)
        if name == "share":
            share = value
        else:
            most[name] = value
    if not most:
        raise BadInput("sets no limit; expected something like ttft=500ms,tpot=50ms", key=key)
    if not 0.0 < share <= 1.0:
        raise BadInput("share must be between 1% and 100%", key=key)
    return Slo(limits_s=most, share=share)


def goodput(levels: Sequence[Level], finished: Mapping[LevelKey, Sequence[Record]], slo: Slo) -> tuple[Goodput, ...]:
    """Count good requests by level; `finished` ended by themselves, with or without an error."""
    found = []
    for level in levels:
        records = finished.get(level.key, ())
        good = [record for record in records if slo.met_by(record)]
        share = ratio(len(good), len(records))
        found.append(
            Goodput(
                c=level.c,
                rate=level.rate,
                n=len(records),
                good=len(good),
                share=share,
                per_s=ratio(len(good), level.wall_s),
                out_tps=ratio(sum(record.tokens_out or 0 for record in good), level.wall_s),
                kept=None if share is None else share >= slo.share,
            )
        )
    return tuple(found)


def slo_sentence(found: Sequence[Goodput], slo: Slo) -> str:
    """`SLO met up to C=4; at C=8 62 % of requests met it (95 % required)`"""
    missed = next((level for level in found if not level.kept), None)
    met = [level for level in found if level.kept and (missed is None or level.offered_load < missed.offered_load)]
    most = max(met, key=lambda level: level.offered_load, default=None)
    if missed is None:
        return f"SLO met up to {most.name}" if most else "SLO: nothing was measured"
    head = f"SLO met up to {most.name}" if most else "SLO missed"
    share = "no request was measured" if missed.share is None else f"{short_percent(missed.share)} of requests met it"
    return f"{head}; at {missed.name} {share} ({short_percent(slo.share)} required)"
