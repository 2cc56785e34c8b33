"""Compare sessions with a baseline, level by level; verdicts are based on runs or sessions, never on requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from swarmtui.analysis.answer.commands import command_again
from swarmtui.analysis.answer.learned import find_slots_change, learned_steps, prediction_text, unproved_steps
from swarmtui.analysis.capacity.scaling import best_level, piles_up
from swarmtui.analysis.compare.agents import AgentsChange, AgentsWord, compare_agents
from swarmtui.analysis.compare.correlation import assumed_correlation, correlation, positions, variance_factor
from swarmtui.analysis.compare.differences import (
    CLIENT_DIFFERENCES,
    Difference,
    comparison_refusals,
    flag_differences,
    is_same_configuration,
    known_flags,
    model_names,
    server_differences,
    session_differences,
)
from swarmtui.analysis.compare.leaderboard import LeaderboardRow, leaderboard
from swarmtui.analysis.compare.machine import MachineRow, machine_rows
from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.compare.repeats import find_repeats, find_searches, pool_earlier_searches
from swarmtui.analysis.compare.sides import doubts_of, left_out, side_doubts, since_text
from swarmtui.analysis.compare.verdicts import (
    ALPHA,
    DETECT,
    MIN_RUNS,
    Claim,
    Evidence,
    Interval,
    Verdict,
    VerdictWord,
    compare_replicates,
    decide,
    holm_alphas,
    likely_change,
    verdict_head,
    with_session_spread,
)
from swarmtui.analysis.quality.doubts import temper
from swarmtui.model.answer import AnswerPoint, AnswerSentence, NextStep, PooledSentence
from swarmtui.model.base import Stored
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.plan import LevelKey, PerLevel, is_open_loop
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import rate, signed_percent

Figure = Literal["out_tps_steady", "out_tps_wall", "per_stream_tps", "ttft_s"]
# The levels that both sessions have, before and after.
_Levels = Mapping[LevelKey, tuple[Level, Level]]

FIGURES: dict[Figure, str] = {
    "out_tps_steady": "output tok/s, steady",
    "out_tps_wall": "output tok/s, wall",
    "per_stream_tps": "stream tok/s",
    "ttft_s": "TTFT",
}
# A change of a level of a search needs this many requests to be called likely, more than one visit of a quick search
# has: the same server was 26 % faster at one visit, and 7 % at another.
_LIKELY_REQUESTS = 30
_OUTPUT: tuple[Figure, ...] = ("out_tps_steady", "out_tps_wall")


class ComparisonRow(PerLevel, frozen=True, kw_only=True):
    """One figure of one level in two sessions; `change` and `interval` are null if ratios are refused.

    `leads` marks the throughput by which this load is judged: only its row has a verdict, one per level. `half_width`
    is that of the less exact of both steady rates, as a share, and `half_widths` are both; null for times. `likely`:
    there are too few runs for a verdict, but repeats of one server do not differ by as much; null if it may be chance.
    """

    figure: Figure
    before: float | None
    after: float | None
    change: float | None = None
    interval: Interval | None = None
    verdict: Verdict | None = None
    leads: bool = False
    half_width: float | None = None
    half_widths: tuple[float | None, float | None] = (None, None)
    likely: Literal["faster", "slower"] | None = None

    @property
    def word(self) -> VerdictWord | None:
        """The word of the verdict; null without one, and with too few runs for one."""
        return self.verdict.word if self.verdict else None

    @property
    def rates(self) -> str:
        """`286 → 359 tok/s`, each with the digits that its half-width leaves."""
        before, after = (rate(*of) for of in zip((self.before, self.after), self.half_widths, strict=True))
        return f"{before} → {after} tok/s"


class Pair(Stored, frozen=True, kw_only=True):
    """Session `b` compared with `a`; `only_a` and `only_b` are levels (C, or rates) that the other does not have.

    `only_a_names` and `only_b_names` have these levels with their unit: `C=2`, `2/s`. `headline` is the level whose
    throughput is compared: C, and the rate of an open loop; `throughput` is the sentence about it. `agents` compares
    two capacities; the sentence of the pair is about them, else about the headline level. `at_a` and `at_b` are the
    levels of these capacities. `limit_a` and `limit_b` say why there were no more agents. `next` is what to try after
    the newer session of ours, by what both have shown; `predicted` holds the prediction of the older one against it.
    `searches` says what the search of `b` and the earlier ones of its configuration give together. `again` is the
    command that measures the newer one's server again; `takes` says how long, if that is known. `doubts` are those
    about either measurement, with the run they are about, and `doubtful` the ids of the sessions that have any.
    `searched`: one of them chose its levels itself. `measured_again`: the newer one repeats a plan on a server that was
    measured before as it is. `since` is the time of an earlier baseline, and `left_out` names a session after it that
    was not chosen, and why.
    """

    a: str
    b: str
    refused: Findings
    notes: Findings
    flags: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[ComparisonRow, ...]
    machine: tuple[MachineRow, ...]
    only_a: tuple[float, ...]
    only_b: tuple[float, ...]
    only_a_names: tuple[str, ...] = ()
    only_b_names: tuple[str, ...] = ()
    headline: LevelKey | None = None
    agents: AgentsChange | None = None
    throughput: str = ""
    at_a: AnswerPoint | None = None
    at_b: AnswerPoint | None = None
    limit_a: AnswerSentence | None = None
    limit_b: AnswerSentence | None = None
    next: tuple[NextStep, ...] = ()
    predicted: str = ""
    searches: PooledSentence | None = None
    again: str = ""
    takes: str = ""
    doubts: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    searched: bool = False
    measured_again: bool = False
    since: str = ""
    left_out: str = ""
    sentence: str

    @property
    def headline_text(self) -> str:
        """The sentence without the doubts, for where they have a line of their own."""
        return self.agents.headline(doubted=bool(self.doubts)) if self.agents else self.throughput

    @property
    def verdict(self) -> VerdictWord | AgentsWord | Literal["refused"] | None:
        """The verdict wherever the pair is shown in one word or sign; null if there are too few runs for one."""
        if self.refused:
            return "refused"
        if self.doubts:
            return "not sure yet"
        row = headline_row(self)
        return self.agents.word if self.agents else row.word if row else None

    @property
    def likely(self) -> Literal["faster", "slower", "more agents", "fewer agents"] | None:
        """Say what a change that is not sure most likely is; null if it may be chance, or either run is in doubt."""
        if self.refused or self.doubts:
            return None
        row = headline_row(self)
        return self.agents.likely if self.agents else row.likely if row else None


class Comparison(Stored, frozen=True, kw_only=True):
    sessions: tuple[str, ...]
    pairs: tuple[Pair, ...]
    leaderboard: tuple[LeaderboardRow, ...]


def compare(
    summaries: Sequence[Summary], baseline: int = 0, *, history: Sequence[Summary] = (), detect: float = DETECT
) -> Comparison:
    """Compare all others with the baseline; the leaderboard keeps the given order."""
    first = summaries[baseline]
    others = [summary for index, summary in enumerate(summaries) if index != baseline]
    return Comparison(
        sessions=tuple(summary.session.id for summary in summaries),
        pairs=tuple(compare_pair(first, other, history=history, detect=detect) for other in others),
        leaderboard=leaderboard(summaries),
    )


def compare_pair(a: Summary, b: Summary, *, history: Sequence[Summary] = (), detect: float = DETECT) -> Pair:
    """Compare `b` with `a`. Runs of one session share its conditions: two sessions can only be said to differ.

    The earlier sessions with the configuration of `a` in `history` show how much sessions differ by chance.
    """
    refused, pooled = comparison_refusals(a, b), is_pooled(a)
    if pooled != is_pooled(b):
        refused += (Finding(code="replicates", text="one side has runs as replicates, the other has sessions"),)
    after = {level.key: level for level in b.levels}
    both = {level.key: (level, after[level.key]) for level in a.levels if level.key in after}
    only_a, only_b = ([level for level in side.levels if level.key not in both] for side in (a, b))
    doubts = () if refused else side_doubts(a, b)
    searched = any(summary.session.plan.goal in ("capacity", "cliff") for summary in (a, b))
    evidence = {} if refused else _evidence(a, b, both, () if pooled else find_repeats(a, b, history))
    if searched and not pooled:
        # A search visits a level once or twice, and the more often the less sure it is: these are no replicates.
        evidence = {key: found._replace(estimate=None) for key, found in evidence.items()}
    claim: Claim = "configurations" if pooled else "sessions"
    judge = partial(decide, claim=claim, detect=detect, doubted=bool(doubts), searched=searched)
    rough = {key for key, levels in both.items() if searched and not all(map(_is_exact, levels))}
    rows = _rows(both, evidence, judge, rough, doubted=bool(doubts))
    # What to do next is about a server that can be asked again: that of a shared session is somewhere else.
    newer = max(a, b, key=lambda side: (any(endpoint.url for endpoint in side.session.endpoints), side.session.id))
    # The sentence is about a level that both sessions measured completely, if there is one.
    complete = [key for key, levels in both.items() if all(level.has_complete_run for level in levels)]
    headline = _headline(a, b, complete or both)
    flags, differences = flag_differences(a, b), (*session_differences(a.session, b.session), *server_differences(a, b))
    # Flags that are not known may have changed.
    unchanged = not flags and all(found.code in CLIENT_DIFFERENCES for found in differences)
    unchanged = unchanged and known_flags(a) is not None and known_flags(b) is not None
    agents = None
    slots = None
    if not refused:
        earlier: Sequence[Summary] = () if unchanged else history
        agents = compare_agents(find_searches(a, b, earlier), find_searches(b, a, earlier), unchanged=unchanged)
        shown = (agents.before, agents.after) if agents else None
        slots = find_slots_change(a, b, shown) if newer is b else find_slots_change(b, a, shown and shown[::-1])
    throughput = _sentence(rows, refused, headline, searched=searched)
    steps = learned_steps(slots) if slots else newer.answer.next if newer.answer else ()
    if agents and not unchanged and (doubts or agents.word == "not sure yet"):
        older = a if newer is b else b
        at_capacity = (one.answer.at_capacity if one.answer else None for one in (older, newer))
        steps = unproved_steps(steps, flag_differences(older, newer), *at_capacity)
    return Pair(
        a=a.session.id,
        b=b.session.id,
        refused=refused,
        notes=_notes(a, b),
        flags=flags,
        differences=differences,
        rows=rows,
        machine=tuple(row for levels in both.values() for row in machine_rows(a, b, *levels, refused=bool(refused))),
        only_a=tuple(level.offered_load for level in only_a),
        only_b=tuple(level.offered_load for level in only_b),
        only_a_names=tuple(level.name for level in only_a),
        only_b_names=tuple(level.name for level in only_b),
        headline=headline.key if headline else None,
        agents=agents,
        throughput=throughput,
        at_a=a.answer.at_capacity if a.answer and agents else None,
        at_b=b.answer.at_capacity if b.answer and agents else None,
        limit_a=a.answer.limit if a.answer else None,
        limit_b=b.answer.limit if b.answer else None,
        next=steps,
        predicted=prediction_text(slots, agents.searches[newer is b] if agents else 1) if slots else "",
        searches=pool_earlier_searches(b, (a, *history)),
        again=command_again(newer),
        takes=f"about {newer.session.plan.budget_s:.0f} s" if newer.session.plan.budget_s else "",
        doubts=doubts,
        doubtful=tuple(one.session.id for one in (a, b) if doubts and doubts_of(one)),
        searched=searched,
        measured_again=newer.session.repeats
        and any(is_same_configuration(one, newer) for one in (a, b, *history) if one.session.id < newer.session.id),
        since=since_text(a, b),
        left_out=left_out(a, b, history),
        sentence=agents.sentence(doubts) if agents else temper(throughput, doubts),
    )


def _evidence(
    a: Summary, b: Summary, both: _Levels, repeats: Sequence[Summary]
) -> dict[tuple[LevelKey, Figure], Evidence]:
    """Compare each figure of each level; how much runs correlate is estimated from all levels of both sides."""
    pooled = is_pooled(a)
    same_requests = not pooled and a.session.plan.seed == b.session.plan.seed
    earlier = [{level.key: level for level in summary.levels} for summary in repeats]
    found = {}
    for figure in FIGURES:
        sides = [_runs_in_time(figure, summary) for summary in (a, b)]
        estimate = correlation([list(side.values()) for side in sides])
        fewest = min((len(side[key][1]) for side in sides for key in both), default=0)
        rho = 0.0 if pooled else assumed_correlation(len(both), fewest, estimate)
        for key, levels in both.items():
            before, after = _values(figure, *levels)
            (at_a, x), (at_b, y) = (side[key] for side in sides)
            known = [_value(figure, of[key]) for of in earlier if key in of]
            evidence = compare_replicates(
                x,
                y,
                change=after / before - 1.0 if before and after else None,
                unit="sessions" if pooled else "runs",
                same_requests=same_requests,
                factors=(variance_factor(at_a, rho), variance_factor(at_b, rho)),
                correlation=estimate if rho == estimate else 0.0,
            )
            found[key, figure] = with_session_spread(
                evidence, [value for value in known if value is not None], _half_width(figure, *levels)
            )
    return found


def _runs_in_time(figure: Figure, summary: Summary) -> dict[LevelKey, tuple[list[int], list[float]]]:
    """Return the runs of each level that have the figure: when they took place, and their values."""
    levels, rotates = summary.levels, summary.session.plan.load.rotates
    found = {}
    for number, level in enumerate(levels):
        known = [(run.run, value) for run in level.by_run if (value := getattr(run, figure)) is not None]
        at = positions(number, len(levels), [run for run, _ in known], rotates)
        found[level.key] = at, [value for _, value in known]
    return found


def _rows(
    both: _Levels,
    evidence: Mapping[tuple[LevelKey, Figure], Evidence],
    judge: Callable[..., Verdict],
    rough: Collection[LevelKey],
    *,
    doubted: bool,
) -> tuple[ComparisonRow, ...]:
    """Compare each figure of each level, and judge it by its leading one; all that can be judged are one family.

    The throughput of all agents at a level that is `rough` says nothing about a change of it.
    """
    every = [_row(figure, *levels, evidence.get((key, figure))) for key, levels in both.items() for figure in FIGURES]
    rows = [row for row in every if row.before is not None or row.after is not None]
    leading = {row.key: found for row in rows if row.leads and (found := evidence.get((row.key, row.figure)))}
    p_values = {key: found.estimate.p for key, found in leading.items() if found.estimate and found.decides}
    alphas = dict(zip(p_values, holm_alphas(list(p_values.values())), strict=True))
    judged = {key: judge(found, alpha=alphas.get(key, ALPHA)) for key, found in leading.items()}
    return tuple(
        _judged(row, judged[row.key], doubted=doubted or (row.key in rough and row.figure in _OUTPUT))
        if row.key in judged
        else row
        for row in rows
    )


def _judged(row: ComparisonRow, verdict: Verdict, *, doubted: bool) -> ComparisonRow:
    """Add the verdict on its level to the leading row, or what a large change likely is, with too few runs for one."""
    if row.leads:
        row = msgspec.structs.replace(row, verdict=verdict, interval=verdict.interval)
    if doubted or row.interval is not None or verdict.word not in (None, "not sure yet"):
        return row
    return msgspec.structs.replace(row, likely=likely_change(row.change, row.half_width, time=row.figure == "ttft_s"))


def _is_exact(level: Level) -> bool:
    """Whether the throughput of a level of a search is known well enough to say what a change of it likely is."""
    return level.half_width is not None and level.n >= _LIKELY_REQUESTS


def headline_row(pair: Pair) -> ComparisonRow | None:
    """Return the row that the sentence of the pair is about: the leading figure of its headline level."""
    return next((row for row in pair.rows if row.leads and row.key == pair.headline), None)


def _row(figure: Figure, a: Level, b: Level, evidence: Evidence | None) -> ComparisonRow:
    leads: Figure = "out_tps_steady" if a.headline_is_steady and b.headline_is_steady else "out_tps_wall"
    before, after = _values(figure, a, b)
    return ComparisonRow(
        c=a.c,
        rate=a.rate,
        figure=figure,
        before=before,
        after=after,
        change=evidence.change if evidence else None,
        interval=evidence.estimate.interval() if evidence and evidence.estimate else None,
        leads=figure == leads,
        half_width=_half_width(figure, a, b),
        half_widths=(a.half_width, b.half_width) if figure != "ttft_s" else (None, None),
    )


def _half_width(figure: Figure, a: Level, b: Level) -> float | None:
    """Return that of the less exact level, as a share of its rate; null for times."""
    return None if figure == "ttft_s" else max(filter(None, (a.half_width, b.half_width)), default=None)


def _values(figure: Figure, a: Level, b: Level) -> tuple[float | None, float | None]:
    """Return the figure of both levels: the median of TTFT if both have one, otherwise both means."""
    if figure != "ttft_s" or (a.shown_ttft_s.median is not None and b.shown_ttft_s.median is not None):
        return _value(figure, a), _value(figure, b)
    medians = a.ttft_s.median, b.ttft_s.median
    return medians if None not in medians else (a.ttft_s.mean, b.ttft_s.mean)


def _value(figure: Figure, level: Level) -> float | None:
    if figure == "per_stream_tps":
        return level.per_stream_tps.mean
    if figure == "ttft_s":
        return level.shown_ttft_s.median
    value: float | None = getattr(level, figure)
    return value


def _notes(a: Summary, b: Summary) -> Findings:
    """Return what weakens a comparison without ruling it out."""
    found: list[tuple[str, str]] = []
    if model_names(a) != model_names(b):
        found.append(("models", "different models: tokens of two tokenizers are not the same amount of text"))
    for summary in (a, b):
        name = summary.session.id
        found += [("imported", f"{name}: {event.detail}") for event in summary.events if event.name == "imported"]
        if any(level.tokens_estimated for level in summary.levels):
            found.append(("token_source", f"{name}: tokens are estimates (~)"))
        if incomplete := [level.name for level in summary.levels if not level.complete]:
            are = "is" if len(incomplete) == 1 else "are"
            found.append(("incomplete", f"{name}: {', '.join(incomplete)} {are} incomplete"))
        if any(level.errors for level in summary.levels):
            found.append(("errors", f"{name}: requests failed"))
    return tuple(Finding(code=code, text=text) for code, text in found)


def _headline(a: Summary, b: Summary, keys: Collection[LevelKey]) -> Level | None:
    """Return the level that the sentence is about: of two capacities, the largest level that both sessions kept.

    Without one, the larger of the capacities or best levels of both sessions. So it is past the cliff of one of them at
    most, where the other one still has room. The only level of a plan is always that one.
    """
    sides = [[level for level in summary.levels if level.key in keys] for summary in (a, b)]
    agents = [summary.answer.agents for summary in (a, b) if summary.answer and summary.answer.agents is not None]
    kept = [level for level in sides[0] if len(agents) == 2 and level.rate is None and level.c <= min(agents)]
    if kept:
        return max(kept, key=lambda level: level.c)
    own = [_own_level(*side) for side in zip((a, b), sides, strict=True)]
    chosen = [level.key for level in own if level is not None]
    shared = [level for level in sides[0] if level.key in (chosen or keys)]
    return max(shared, key=lambda level: level.offered_load, default=None)


def _own_level(summary: Summary, levels: Sequence[Level]) -> Level | None:
    """Return the level of the capacity, else the best one; of an open loop, the highest rate that is kept up with."""
    if summary.capacity is not None and summary.capacity.agents:
        found = next((level for level in levels if level.c == summary.capacity.agents), None)
        if found is not None:
            return found
    if is_open_loop(levels):
        kept = [level for level in levels if not piles_up(level)]
        return max(kept, key=lambda level: level.offered_load, default=None)
    return best_level(levels, summary.scaling.reported_slots if summary.scaling else None)


def _sentence(rows: Sequence[ComparisonRow], refused: Findings, headline: Level | None, *, searched: bool) -> str:
    """`faster with 4 agents: 286 → 359 tok/s, +25.6 % (95 % sure: +24 % to +27 %; 4 v 4 sessions)`"""
    if refused:
        return f"not comparable: {'; '.join(map(str, refused))}"
    if headline is None:
        return "no level in common"
    row = next((row for row in rows if row.leads and row.key == headline.key), None)
    if row is None or row.verdict is None or row.change is None:
        return f"not measured {headline.where}"
    if row.likely is not None:
        verdict = row.verdict
        runs = "one run each" if verdict.n_a == verdict.n_b == 1 else f"{verdict.n_a} v {verdict.n_b} runs"
        sure = "" if searched else f" ({runs}; {MIN_RUNS} of each are needed to be sure)"
        return f"likely {row.likely} {row.where}: {row.rates}, {signed_percent(row.change)}{sure}"
    return f"{verdict_head(row.verdict.word)} {row.where}: {row.rates}, {row.verdict.detail}"
