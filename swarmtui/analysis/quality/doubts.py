"""Say in words why a result is uncertain, from the doubtful lines of measurement quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from swarmtui.analysis.quality.host import busy_text
from swarmtui.analysis.quality.judge import RULES, judge
from swarmtui.model.findings import Finding
from swarmtui.model.session import Level
from swarmtui.model.telemetry import HostUse, QualityFacts, QualityLine
from swarmtui.text import count_noun

# It is measured which share of the CPU time these took.
_MEASURED = ("host_pressure", "host_steal")
_MAX_DOUBTS = 2
# What is counted wrongly stays wrong in every run.
_BIASED = ("token_source", "token_counts", "decode_rate", "cold_cache")
_DOUBTS = {rule.code: rule.doubt for rule in RULES if rule.doubt}
_SLOWING = {rule.code for rule in RULES if rule.slows}


def find_doubts(lines: Iterable[QualityLine], *, named: bool = True, brief: bool = False) -> tuple[str, ...]:
    """Return why figures may be wrong: a clause for each doubtful line, once.

    `named`: with the other programs; `brief`: without their process ids.
    """
    doubtful = (line for line in lines if line.state == "doubtful" and line.code in _DOUBTS)
    return tuple(dict.fromkeys(doubt_text(line, brief=brief) if named else _DOUBTS[line.code] for line in doubtful))


def find_disturbances(lines: Iterable[QualityLine]) -> tuple[str, ...]:
    """Return the doubts that can only make a server look slower: a level that is missed then proves nothing."""
    return find_doubts(line for line in lines if line.code in _SLOWING)


def find_biases(lines: Iterable[QualityLine], *, of_cache: bool = False) -> tuple[str, ...]:
    """Return the doubts that runs of two sides in turn do not even out; a test `of_cache` expects hits."""
    biased = (line for line in lines if line.code in _BIASED and not (of_cache and line.code == "cold_cache"))
    return find_doubts(biased, named=False)


def find_chances(lines: Iterable[QualityLine]) -> tuple[str, ...]:
    """Return the other doubts, which meet runs of both sides by chance."""
    return find_doubts((line for line in lines if line.code not in _BIASED), named=False)


def disturbed_runs(chances: Sequence[str]) -> str:
    """Say why a verdict on runs in turn stays what it is; empty if nothing disturbed any."""
    if not chances:
        return ""
    return f"{name_doubts(chances)} in some runs; A and B took turns, so that the interval includes it"


def has_known_share(lines: Iterable[QualityLine]) -> bool:
    """Return whether nothing but other work on the host, or on its hypervisor, disturbed a measurement."""
    slowing = (line for line in lines if line.code in _SLOWING and line.state == "doubtful")
    return all(line.code in _MEASURED for line in slowing)


def doubt_text(line: QualityLine, *, brief: bool = False) -> str:
    """Say in plain words what a line of measurement quality found, and name the programs that made the host busy."""
    return busy_text(line.programs, brief=brief) if line.programs else _DOUBTS.get(line.code, line.name)


def temper(sentence: str, doubts: Sequence[str]) -> str:
    """Say after a result why it is uncertain: `sweet spot C=4 …; not sure: the host was busy`"""
    return f"{sentence}; not sure: {name_doubts(doubts)}" if doubts and sentence else sentence


def add_doubts(sentence: str, doubts: Sequence[str]) -> str:
    """Name the doubts that leave a verdict open after it: `not sure yet: +9 %; the host was busy`"""
    return f"{sentence}; {name_doubts(doubts)}" if doubts else sentence


def name_doubts(doubts: Sequence[str]) -> str:
    """`the host was busy, chunks arrived together and 1 other doubt`"""
    if (more := len(doubts) - _MAX_DOUBTS) > 0:
        return f"{', '.join(doubts[:_MAX_DOUBTS])} and {count_noun(more, 'other doubt')}"
    return " and ".join(doubts)


def judge_host(use: HostUse | None) -> tuple[QualityLine, ...]:
    """Judge only whether other work on the host, or on its hypervisor, delayed the client or a local server."""
    return judge(QualityFacts(host=use))


def with_host_use(level: Level, use: HostUse | None) -> Level:
    """Return a level with how busy the host was meanwhile, flagged if other work on it delayed the client or server."""
    busy = (line for line in judge_host(use) if line.state == "doubtful")
    limits = {rule.code: rule.limit for rule in RULES}
    flags = (
        Finding(code=line.code, text=f"{doubt_text(line)}: {line.value} (limit: {limits[line.code]})") for line in busy
    )
    return msgspec.structs.replace(level, host=use, flags=(*level.flags, *flags))
