"""Parse service level objectives such as `ttft_p95=2s,stream_p5=20`, and count the requests and jobs that meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Literal

import msgspec

from swarmtui.analysis.levels.jobs import JobEnd, Jobs
from swarmtui.analysis.levels.stats import SMALLEST_N, late_spread, percentile, ratio
from swarmtui.analysis.limits.quantities import parse_amount
from swarmtui.analysis.limits.shares import all_kept, dispersion, is_kept, least_n, share_bounds
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.findings import Goodput, KeptShare
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Spread
from swarmtui.numbers import seconds, short, short_percent

_KEY = "--slo"
DEFAULT_SHARE = 0.95
# The SLO of a search for the capacity, if neither the user nor the workload gives one.
DEFAULT_SLO = "ttft_p90=2s,stream_p10=20"
# An answer of one token has no gap, and one of a few no rate, which is no miss; every other figure is missing only if
# the answer is.
_MAY_BE_MISSING = ("tpot", "stall", "stream")
# A limit on this figure is the least that a user gets; limits on the others are times, the most that a user waits.
RATE = "stream"
# A limit on the time of a whole conversation, or recorded session.
JOB = "job"
# A queue makes these longer.
WAITS = ("ttft", "ttfo", "e2e", JOB)
# How long an unfinished request is in flight is the least that these can be.
_AGES = {"ttft", "ttfo", "e2e"}
# The phases of requests that are judged by themselves; a job may have others.
_JUDGED = ("level", "unfinished")


def _stall(record: Record) -> float | None:
    longest = record.longest_gap_us
    return None if longest is None else longest / 1e6


_FIGURES: dict[str, Callable[[Record], float | None]] = {
    "ttft": lambda record: record.ttft_s,
    "ttfo": lambda record: record.ttfo_s,
    "tpot": lambda record: record.tpot_s,
    "e2e": lambda record: record.e2e_s,
    "stall": _stall,
    RATE: lambda record: record.decode_tps,
}
SLO_FIGURES = (*_FIGURES, JOB)
_FORMS = "ttft=500ms, ttft_p95=2s or stream_p5=20"
_TITLES = {"stall": "longest stall", JOB: "time per job"}
# Limits in plain words, and short: the figure of a time, or its sign.
_WORDS = {
    "ttft": ("a first token within {}", "first token ≤ {}"),
    "ttfo": ("a first token of the answer within {}", "first output ≤ {}"),
    "tpot": ("{} per token", "per token ≤ {}"),
    "e2e": ("an answer within {}", "answer ≤ {}"),
    "stall": ("no stall above {}", "stall ≤ {}"),
    RATE: ("{} each", "≥ {}"),
    JOB: ("a job within {}", "job ≤ {}"),
}


class SloCondition(Stored, frozen=True, kw_only=True):
    """Limits by figure, in seconds or tok/s, and the share of requests that must meet all of them."""

    limits: dict[str, float]
    share: float
    percentile: int | None = None

    def met(self, record: Record, job: JobEnd | None) -> bool | None:
        """Whether a request, and the job that ends with it, meets the limits; None if that is open, or none applies."""
        found = []
        if record.phase in _JUDGED and self.limits.keys() != {JOB}:
            judge: Callable[[Record], bool | None] = self.met_by
            if record.phase == "unfinished":
                judge = self.met_unfinished
            elif record.ended_at_once:
                judge = self.met_at_once
            found.append(judge(record))
        if job is not None and JOB in self.limits:
            late = job.seconds > self.limits[JOB]
            found.append(job.ok and not late if job.ok is not None else False if late else None)
        return False if False in found else True if True in found else None

    def met_by(self, record: Record) -> bool:
        """Whether a request meets all limits: a failed one does not, nor one without the output that a limit is for."""
        values = ((name, _FIGURES[name](record)) for name in self.limits if name != JOB)
        return record.ok and all(
            name in _MAY_BE_MISSING if value is None else self._is_within(name, value) for name, value in values
        )

    def met_unfinished(self, record: Record) -> bool | None:
        """Whether a request that was cancelled meets the limits, as far as it got; None if that is still open.

        If only those past a limit counted, and not those that have kept it, the share would be too low.
        """
        known = {"ttft": record.ttft_s, "ttfo": record.ttfo_s}
        passed = {name: record.age_s if value is None else value for name, value in known.items()}
        passed |= {"e2e": record.age_s, "stall": _stall(record) or 0.0}
        if any(passed[name] > limit for name, limit in self.limits.items() if name in passed):
            return False
        return True if all(known.get(name) is not None for name in self.limits) else None

    def met_at_once(self, record: Record) -> bool | None:
        """Whether an answer that the model ended at once came too late; None if not: it has no output to judge."""
        return False if any(record.age_s > self.limits.get(name, inf) for name in _AGES) else None

    def _is_within(self, name: str, value: float) -> bool:
        return value >= self.limits[name] if name == RATE else value <= self.limits[name]

    def counted_value(self, record: Record, job: JobEnd | None, met: bool) -> float:
        """Return the figure of the only limit, on the side of it that was counted: infinite where it is not known."""
        (name,) = self.limits
        value = _FIGURES[name](record) if name != JOB else job.seconds if job is not None else None
        if value is not None and self._is_within(name, value) is met:
            return value
        return inf if met is (name == RATE) else -inf

    def words(self, *, brief: bool = False) -> str:
        """`a first token within 2 s`, or short `first token ≤ 2 s`; without the share."""
        amounts = {name: f"{short(x)} tok/s" if name == RATE else time_text(x) for name, x in self.limits.items()}
        return " and ".join(_WORDS[name][brief].format(amount) for name, amount in amounts.items())

    def __str__(self) -> str:
        """`TTFT p95 ≤ 2 s`, `≥ 20 tok/s per user (p5)`, `TTFT ≤ 500 ms and TPOT ≤ 50 ms for 95 %`"""
        part = "" if self.percentile is None else f"p{self.percentile}"
        texts = [
            f"≥ {short(limit)} tok/s per user{f' ({part})' if part else ''}"
            if name == RATE
            else f"{_TITLES.get(name, name.upper())}{f' {part}' if part else ''} ≤ {time_text(limit)}"
            for name, limit in self.limits.items()
        ]
        return " and ".join(texts) + ("" if part else f" for {short_percent(self.share)} of {self.counted}")

    @property
    def counted(self) -> Literal["requests", "jobs", "requests and jobs"]:
        return "jobs" if self.limits.keys() == {JOB} else "requests and jobs" if JOB in self.limits else "requests"


def time_text(value: float) -> str:
    """`2 s`, `1.5 s` or `500 ms`"""
    text, unit = seconds(value).split(" ")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


class Slo(Stored, frozen=True, kw_only=True):
    """Conditions that must all be kept: one for the limits without a percentile, and one for each percentile."""

    conditions: tuple[SloCondition, ...]

    def met_by(self, record: Record) -> bool:
        return all(condition.met_by(record) for condition in self.conditions)

    def words(self) -> str:
        """`a first token within 2 s and 20 tok/s each, for 90 % of requests`"""
        of_share: dict[tuple[float, str], list[str]] = {}
        for condition in self.conditions:
            of_share.setdefault((condition.share, condition.counted), []).append(condition.words())
        return "; ".join(
            f"{' and '.join(texts)}, for {short_percent(share)} of {counted}"
            for (share, counted), texts in of_share.items()
        )

    @property
    def figures(self) -> frozenset[str]:
        return frozenset(name for condition in self.conditions for name in condition.limits)

    def strictest(self, figure: str) -> float | None:
        """Return the shortest of the limits on a time, or the highest on a rate; None without one."""
        limits = (condition.limits[figure] for condition in self.conditions if figure in condition.limits)
        return (max if figure == RATE else min)(limits, default=None)

    @property
    def has_jobs(self) -> bool:
        return JOB in self.figures

    def stricter(self, factor: float) -> Slo:
        """Return the same conditions with limits that leave room: shorter times, and higher rates."""
        conditions = (
            msgspec.structs.replace(
                condition,
                limits={name: x * factor if name == RATE else x / factor for name, x in condition.limits.items()},
            )
            for condition in self.conditions
        )
        return Slo(conditions=tuple(conditions))

    def short_words(self) -> str:
        """`first token ≤ 2 s · ≥ 20 tok/s`"""
        return " · ".join(condition.words(brief=True) for condition in self.conditions)

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))


def validate_slo(text: str, *, has_jobs: bool = True) -> str:
    """Return the text if it is valid or empty; raise BadInput otherwise. Not every workload has jobs."""
    if text and parse_slo(text).has_jobs and not has_jobs:
        raise BadInput("job is the time of a conversation or a recorded session, which this workload has not", key=_KEY)
    return text


def read_slo(text: str) -> Slo | None:
    """Return the SLO of a saved session; None if there is none, or another version wrote it and it cannot be parsed."""
    try:
        return parse_slo(text)
    except BadInput:
        return None


def usable_slo(text: str) -> str:
    """Return the text of an SLO, or nothing if it cannot be read."""
    return text if read_slo(text) else ""


def parse_slo(text: str) -> Slo:
    """Parse limits that a share of all requests must meet together, and limits of percentiles."""
    together: dict[str, float] = {}
    percentiles: dict[str, SloCondition] = {}
    share = DEFAULT_SHARE
    seen: set[str] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([a-z0-9]+)(?:_p(\d{1,2}))?\s*=\s*(\d+(?:\.\d+)?)\s*([a-z%/]*)\s*", part)
        if match is None:
            raise BadInput(f"{part.strip()!r} is not in the form {_FORMS}", key=_KEY)
        name, percentile, number, unit = match.groups()
        if name not in SLO_FIGURES and (name != "share" or percentile):
            known = ", ".join(SLO_FIGURES)
            raise BadInput(f"unknown figure {name!r}; use one of {known}, share, in the form {_FORMS}", key=_KEY)
        limited = f"{name}_p{percentile}" if percentile else name
        if limited in seen:
            raise BadInput(f"{limited} is given twice", key=_KEY)
        seen.add(limited)
        value = parse_amount(number, unit, "share" if name == "share" else "rate" if name == RATE else "time", _KEY)
        if name == "share":
            share = value
        elif percentile is None:
            together[name] = value
        else:
            percentiles[limited] = _percentile_limit(name, int(percentile), value)
    if not together and not percentiles:
        raise BadInput(f"sets no limit; expected something like {_FORMS}", key=_KEY)
    if not 0.0 < share <= 1.0:
        raise BadInput("share must be between 1% and 100%", key=_KEY)
    if "share" in seen and not together:
        raise BadInput("share does not apply to percentiles: ttft_p95 has a share of 95%", key=_KEY)
    joint = (SloCondition(limits=together, share=share),) if together else ()
    return Slo(conditions=(*joint, *percentiles.values()))


def _percentile_limit(name: str, percentile: int, value: float) -> SloCondition:
    """Return the condition; a percentile on the good side would be met by a server that fails half of its users."""
    slow_end = percentile <= 50 if name == RATE else percentile >= 50
    if not slow_end or not percentile:
        hint = "p1 to p50, such as stream_p5" if name == RATE else f"p50 to p99, such as {name}_p95"
        raise BadInput(f"{name}_p{percentile} is not the slow end of {name}; use {hint}", key=_KEY)
    share = (100 - percentile if name == RATE else percentile) / 100
    return SloCondition(limits={name: value}, share=share, percentile=percentile)


class SloTally:
    """Counts the requests and jobs that meet an SLO, and each of its conditions, by run.

    `n` are all that finished, and the unfinished ones that had already met or missed it. A job may begin or end with
    requests that are not measured, which are added, too. `counted_values` are the figure of each counted request by
    condition, infinite if it missed it without one; `least_values` the same, with how long one that did not get so far
    had waited.
    """

    def __init__(self, slo: Slo, records: Iterable[Record] = ()) -> None:
        self.slo = slo
        self.n = self.good = 0
        self._jobs = Jobs() if slo.has_jobs else None
        self._by_run: dict[tuple[int, int], list[tuple[int, int]]] = {}
        # Of each condition with one limit.
        self.counted_values: list[list[float]] = [[] for _ in slo.conditions]
        self.least_values: list[list[float]] = [[] for _ in slo.conditions]
        self._first_tokens: list[float] = []
        # Tokens and seconds of the answers, after their first chunk.
        self.decoded: list[tuple[float, float]] = []
        for record in sorted(records, key=lambda record: record.left_ns) if self._jobs else records:
            self.add(record)

    def add(self, record: Record) -> None:
        job = self._jobs.add(record) if self._jobs else None
        met = [condition.met(record, job) for condition in self.slo.conditions]
        if met.count(None) == len(met):
            return
        if False in met or None not in met or record.phase != "unfinished":
            self.n += 1
            self.good += False not in met
        self._count((record.c, record.run), [(bool(one), one is not None) for one in met])
        for number, (condition, one) in enumerate(zip(self.slo.conditions, met, strict=True)):
            if one is not None and len(condition.limits) == 1:
                value = condition.counted_value(record, job, one)
                awaited = value == inf and (record.phase == "unfinished" or record.ended_at_once)
                awaited = awaited and condition.limits.keys() <= _AGES
                self.counted_values[number].append(value)
                self.least_values[number].append(record.age_s if awaited else value)
        if record.decoded is not None and not record.failed:
            self.decoded.append(record.decoded)
        counted = (condition for condition, one in zip(self.slo.conditions, met, strict=True) if one is not None)
        if record.phase in _JUDGED and any("ttft" in condition.limits for condition in counted):
            # Failed requests are in no latency, and a first token that was still awaited was already late.
            if record.ttft_s is not None and not record.failed:
                self._first_tokens.append(record.ttft_s)
            elif record.cancelled or record.ended_at_once:
                self._first_tokens.append(inf)

    def first_tokens(self, in_flight: Iterable[float] = ()) -> Spread:
        """Return the times to the first token of the requests that a limit on it counted, and of some `in_flight`.

        One that was still awaited, and late, is longer than the limit: a percentile that depends on it is null.
        """
        return late_spread((*self._first_tokens, *in_flight))

    def _count(self, run: tuple[int, int], counts: Sequence[tuple[int, int]]) -> None:
        known = self._by_run.get(run, [(0, 0)] * len(counts))
        self._by_run[run] = [(a + c, b + d) for (a, b), (c, d) in zip(known, counts, strict=True)]

    def add_counts(self, c: int, counts: Sequence[tuple[int, int]]) -> None:
        """Add a run of which only the good requests and all are known, for each condition."""
        self.n += max(n for _, n in counts)
        self.good += min(good for good, _ in counts)
        self._count((c, 1), counts)

    def runs(self, condition: int) -> list[tuple[int, int]]:
        """Return the requests of each run that meet a condition, and all that do or do not."""
        return [counts[condition] for counts in self._by_run.values()]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Return the requests that meet each condition, and all that do or do not."""
        runs = (self.runs(number) for number in range(len(self.slo.conditions)))
        return [(sum(good for good, _ in of), sum(n for _, n in of)) for of in runs]

    def values(self, number: int) -> tuple[float | None, float | None]:
        """Return the median of a condition's figure, and the percentile that its limit is on, of what was counted."""
        ordered, named = sorted(self.counted_values[number]), self.slo.conditions[number].percentile
        median = percentile(ordered, 0.5) if ordered else inf
        enough = len(ordered) >= SMALLEST_N.get(f"p{named}", inf)
        value = percentile(ordered, named / 100) if named is not None and enough else inf
        return median if isfinite(median) else None, value if isfinite(value) else None

    def conditions(self, late: Sequence[int] = ()) -> tuple[KeptShare, ...]:
        """`late` are requests in flight that have already missed each condition."""
        found = []
        for number, condition in enumerate(self.slo.conditions):
            size = dispersion(self.runs(number))
            good, n = self.counts[number]
            n += late[number] if late else 0
            low, high = share_bounds(good / size, n / size)
            found.append(
                KeptShare(
                    limit=str(condition),
                    counted=condition.counted,
                    required=condition.share,
                    good=good,
                    n=n,
                    share=ratio(good, n),
                    share_low=low,
                    share_high=high,
                    kept=is_kept(good / size, n / size, condition.share),
                )
            )
        return tuple(found)


def is_awaited(first_tokens: Spread) -> bool:
    """Return whether the median is that of first tokens that were late and still awaited."""
    return first_tokens.median is None and (first_tokens.n > 4 or (first_tokens.min is None and first_tokens.n > 0))


def goodput(levels: Sequence[Level], finished: Mapping[LevelKey, Sequence[Record]], slo: Slo) -> tuple[Goodput, ...]:
    """Count good requests and jobs by level; `finished` are all requests of its runs, also unmeasured ones."""
    found = []
    for level in levels:
        tally = SloTally(slo, finished.get(level.key, ()))
        records = [record for record in finished.get(level.key, ()) if record.phase in _JUDGED]
        conditions = tuple(
            msgspec.structs.replace(condition, median=median, value=value)
            for number, condition in enumerate(tally.conditions())
            for median, value in [tally.values(number)]
        )
        low, high = share_bounds(tally.good, tally.n)
        seconds = _output_s(level, records)
        good_tokens = sum(record.tokens_out or 0 for record in records if slo.met_by(record))
        found.append(
            Goodput(
                c=level.c,
                rate=level.rate,
                n=tally.n,
                good=tally.good,
                share=ratio(tally.good, tally.n),
                share_low=low,
                share_high=high,
                per_s=ratio(tally.good, seconds),
                out_tps=None if slo.has_jobs else ratio(good_tokens, seconds),
                kept=all_kept([condition.kept for condition in conditions]),
                conditions=conditions,
            )
        )
    return tuple(found)


def _output_s(level: Level, records: Sequence[Record]) -> float | None:
    """Return the time of the output of these requests; what failed ones wrote is part of the steady rate."""
    answered, failed = (sum(record.chunks for record in records if record.ok is ok) for ok in (True, False))
    if level.output_s is None or not answered or not level.headline_is_steady:
        return level.output_s
    return level.output_s * (1.0 + failed / answered)


def slo_sentence(found: Sequence[Goodput]) -> str:
    """`SLO met up to C=4; missed at C=8: 62 of 100 requests met it, 95 % required`"""
    if not found:
        return "SLO: nothing was measured"
    open_level = next((level for level in found if not level.kept), None)
    met = [level for level in found if level.kept and (not open_level or level.offered_load < open_level.offered_load)]
    parts = [f"met up to {max(met, key=lambda level: level.offered_load).name}"] if met else []
    if open_level is not None:
        word = "not sure yet" if open_level.kept is None else "missed"
        least_met = min(open_level.conditions, key=lambda condition: condition.share or 0.0)
        worst = next((one for one in open_level.conditions if one.kept is open_level.kept), least_met)
        which = "it" if len(open_level.conditions) == 1 else worst.limit
        share = f"{worst.good} of {worst.n} {worst.counted} met {which}, {short_percent(worst.required)} required"
        needed = f"; at least {least_n(worst.required)} {worst.counted} are needed to decide"
        least = needed if open_level.kept is None and worst.n < least_n(worst.required) else ""
        parts.append(f"{word} at {open_level.name}: {share}{least}")
    return f"SLO {'; '.join(parts)}"
