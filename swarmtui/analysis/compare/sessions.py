"""Compare sessions with a baseline, level by level; verdicts are based on runs or sessions, never on requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import hypot
from typing import Literal

from swarmtui.analysis.answer.commands import command_again
from swarmtui.analysis.answer.learned import decide_first, find_slots_change, learned_steps
from swarmtui.analysis.answer.slots_change import SlotsChange
from swarmtui.analysis.capacity.cliff import MIN_GAIN
from swarmtui.analysis.capacity.scaling import best_level, piles_up
from swarmtui.analysis.compare.agents import AgentsChange, AgentsWord, compare_agents
from swarmtui.analysis.compare.change import left_out_flag, server_change
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
from swarmtui.analysis.compare.levels import BothLevels, ComparisonRow, level_evidence, level_rows
from swarmtui.analysis.compare.machine import MachineRow, machine_rows
from swarmtui.analysis.compare.pool import is_pooled
from swarmtui.analysis.compare.rooms import room_change
from swarmtui.analysis.compare.sides import doubts_of, left_out, level_doubts, side_doubts, since_text, turn_notes
from swarmtui.analysis.compare.verdicts import DETECT, MIN_RUNS, Claim, VerdictWord, decide, verdict_head
from swarmtui.analysis.quality.doubts import add_doubts
from swarmtui.model.answer import AnswerSentence, NextStep
from swarmtui.model.base import Stored
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.plan import LevelKey, is_open_loop
from swarmtui.model.session import Level, Summary
from swarmtui.numbers import percent, signed_percent

# One agent alone that is this much faster or slower with other slots shows that the machine was not the same.
_MACHINE_CHANGED = 0.1
# Whole answers that differ by less than this share take about as long.
_SAME_TIME = 0.15


class Pair(Stored, frozen=True, kw_only=True):
    """Session `b` compared with `a`; `only_a` and `only_b` are levels (C, or rates) that the other does not have.

    `only_a_names` and `only_b_names` have these levels with their unit: `C=2`, `2/s`. `headline` is the level whose
    throughput is compared: C, and the rate of an open loop; `throughput` is the sentence about it. `agents` compares
    two capacities; the sentence of the pair is about them, else about the headline level. `limit_a` and `limit_b` say
    why there were no more agents. `next` is what to try after the newer session of ours, by what both have shown.
    `again` is the command that measures the newer one's server again. `doubts` are those about either measurement, with
    the run they are about, and `doubtful` the ids of the sessions that have any. `searched`: one of them chose its
    levels itself. `measured_again`: the newer one repeats a plan on a server that was measured before as it is. `since`
    is the time of an earlier baseline, and `left_out` names a session after it that was not chosen, and why.
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
    limit_a: AnswerSentence | None = None
    limit_b: AnswerSentence | None = None
    next: tuple[NextStep, ...] = ()
    again: str = ""
    doubts: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    searched: bool = False
    measured_again: bool = False
    since: str = ""
    left_out: str = ""
    sentence: str

    def tells(self, row: ComparisonRow) -> bool:
        """Whether the output of a level says something: a search leaves some after a few requests."""
        return not (self.searched and row.leads and None in row.half_widths)

    @property
    def headline_text(self) -> str:
        """The sentence without the doubts, for where they have a line of their own."""
        return self.agents.headline(doubted=bool(self.doubts)) if self.agents else self.throughput

    @property
    def verdict(self) -> VerdictWord | AgentsWord | Literal["refused"] | None:
        """The verdict wherever the pair is shown in one word or sign; null if there are too few runs for one."""
        if self.refused:
            return "refused"
        if self.agents:
            return "not sure yet" if self.doubts else self.agents.word
        row = headline_row(self)
        return row.word if row else None

    @property
    def likely(self) -> Literal["faster", "slower"] | None:
        """Say what a change that is not sure most likely is; null if it may be chance, or either run is in doubt."""
        if self.refused or self.doubts:
            return None
        if self.agents:
            is_likely, has_more = self.agents.is_likely, self.agents.word == "more agents"
            return None if not is_likely else "faster" if has_more else "slower"
        row = headline_row(self)
        return row.likely if row else None


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
    both = _common_levels(a, b)
    only_a, only_b = ([level for level in side.levels if level.key not in both] for side in (a, b))
    doubts = () if refused else side_doubts(a, b)
    searched = any(summary.session.plan.goal in ("capacity", "cliff") for summary in (a, b))
    evidence = {} if refused else level_evidence(a, b, both, () if pooled else _repeats(a, b, history))
    if searched and not pooled:
        # A search visits a level once or twice, and the more often the less sure it is: these are no replicates.
        evidence = {key: found._replace(estimate=None) for key, found in evidence.items()}
    claim: Claim = "configurations" if pooled else "sessions"
    judge = partial(decide, claim=claim, detect=detect, doubted=bool(doubts), searched=searched)
    rows = level_rows(both, evidence, judge, searched=searched, doubted=bool(doubts))
    # What to do next is about a server that can be asked again: that of a shared session is somewhere else.
    newer = max(a, b, key=lambda side: (any(endpoint.url for endpoint in side.session.endpoints), side.session.id))
    headline = _headline(a, b, both)
    flags, differences = flag_differences(a, b), (*session_differences(a.session, b.session), *server_differences(a, b))
    # Flags that are not known may have changed.
    unchanged = not flags and all(found.code in CLIENT_DIFFERENCES for found in differences)
    unchanged = unchanged and known_flags(a) is not None and known_flags(b) is not None
    agents = None
    slots = None
    if not refused:
        rooms = room_change(a.search, b.search)
        agents = compare_agents(a.answer, b.answer, unchanged=unchanged, rooms=rooms)
        slots = find_slots_change(a, b) if newer is b else find_slots_change(b, a)
    throughput = _sentence(rows, refused, headline, searched=searched)
    steps = learned_steps(slots) if slots else newer.answer.next if newer.answer else ()
    older, change = a if newer is b else b, None
    if agents and not unchanged:
        change = server_change(older, newer, agents, _answer_times(rows, headline), swapped=newer is a)
    if not refused:
        # The other way round, the change that is shown takes the smaller context back.
        steps = decide_first(change, left_out_flag(older, newer) if newer is b else None, steps)
    return Pair(
        a=a.session.id,
        b=b.session.id,
        refused=refused,
        notes=(
            *_notes(a, b),
            *turn_notes(a, b),
            *(_output_note(slots, rows, headline) if slots else ()),
            *(_machine_note(rows) if slots or unchanged else ()),
            *(
                Finding(code="disturbed_level", text=said)
                for said in (level_doubts(a, b, headline.key) if headline else ())
            ),
        ),
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
        limit_a=a.answer.limit if a.answer else None,
        limit_b=b.answer.limit if b.answer else None,
        next=steps,
        again=command_again(newer),
        doubts=doubts,
        doubtful=tuple(one.session.id for one in (a, b) if doubts and doubts_of(one)),
        searched=searched,
        measured_again=newer.session.repeats
        and any(is_same_configuration(one, newer) for one in (a, b, *history) if one.session.id < newer.session.id),
        since=since_text(a, b),
        left_out=left_out(a, b, history),
        sentence=agents.sentence(doubts) if agents else add_doubts(throughput, doubts),
    )


def headline_row(pair: Pair) -> ComparisonRow | None:
    """Return the row that the sentence of the pair is about: the leading figure of its headline level."""
    return next((row for row in pair.rows if row.leads and row.key == pair.headline), None)


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


def _answer_times(rows: Sequence[ComparisonRow], headline: Level | None) -> tuple[float, float] | None:
    """Return the seconds of whole answers with the same load; null if they take about as long, or may do so."""
    whole = next((row for row in rows if headline and row.key == headline.key and row.figure == "e2e_s"), None)
    if whole is None or not whole.before or not whole.after:
        return None
    if not whole.likely and whole.word in (None, "not sure yet"):
        return None
    times = whole.before, whole.after
    return times if max(times) / min(times) - 1.0 >= _SAME_TIME else None


def _output_note(slots: SlotsChange, rows: Sequence[ComparisonRow], headline: Level | None) -> Findings:
    """Note that more slots give no more output with the same load: then they only share it."""
    row = next((row for row in rows if row.leads and headline and row.key == headline.key), None)
    if row is None or row.change is None or row.change > MIN_GAIN or None in row.half_widths or slots.now < slots.was:
        return ()
    text = f"{slots.now} slots showed no more output than {slots.was} ({row.rates} {row.where}): they share it"
    return (Finding(code="same_output", text=text),)


def _machine_note(rows: Sequence[ComparisonRow]) -> Findings:
    """Note that one agent alone was faster or slower, where at most the slots of the server are another number.

    The rates are further apart than the half-width of their difference.
    """
    row = next((row for row in rows if row.leads and row.key == (1, None)), None)
    if row is None or not row.before or not row.after or None in row.half_widths:
        return ()
    moved, slower = abs(row.after - row.before), min(row.before, row.after)
    halves = (rate * (half or 0.0) for rate, half in zip((row.before, row.after), row.half_widths, strict=True))
    if moved <= max(_MACHINE_CHANGED * slower, hypot(*halves)):
        return ()
    than = f"{percent(abs(row.after / row.before - 1.0))} {'faster' if row.after > row.before else 'slower'}"
    text = f"one agent alone is {than} now, which other slots do not explain: this machine varies"
    return (Finding(code="machine_changed", text=text),)


def _repeats(a: Summary, b: Summary, history: Sequence[Summary]) -> tuple[Summary, ...]:
    """Return `a` and the earlier sessions of its configuration, which show how much sessions differ by chance.

    None of them has more runs than `a` and `b`. Those after both do not count: a verdict stays what it was when they
    had ended.
    """
    runs, newest = min(a.session.plan.load.runs, b.session.plan.load.runs), max(a.session.id, b.session.id)
    others = (
        other
        for other in history
        if other.session.id not in (a.session.id, b.session.id)
        and other.session.id < newest
        and other.session.plan.load.runs <= runs
        and is_same_configuration(a, other)
    )
    return (a, *others)


def _common_levels(a: Summary, b: Summary) -> dict[LevelKey, tuple[Level, Level]]:
    after = {level.key: level for level in b.levels}
    return {level.key: (level, after[level.key]) for level in a.levels if level.key in after}


def _headline(a: Summary, b: Summary, both: BothLevels) -> Level | None:
    """Return the level that the sentence is about: of two capacities, the largest that met the SLO in both sessions,
    if there is one, with enough requests.

    Without one, the larger of the capacities or best levels of both sessions. So it is past the cliff of one of them at
    most, where the other one still has room. The only level of a plan is always that one, and one that both sessions
    measured completely comes before all others.
    """
    complete = [key for key, levels in both.items() if all(level.has_complete_run for level in levels)]
    keys: Collection[LevelKey] = complete or both
    sides = [[level for level in summary.levels if level.key in keys] for summary in (a, b)]
    searched = all(summary.answer and summary.answer.agents is not None for summary in (a, b))
    kept = [level for level in sides[0] if searched and all(_met_slo(summary, level) for summary in (a, b))]
    telling = [
        level for level in kept if not any(one.has_weak_output or one.half_width is None for one in both[level.key])
    ]
    if kept:
        return max(telling or kept, key=lambda level: level.c)
    own = [_own_level(*side) for side in zip((a, b), sides, strict=True)]
    chosen = [level.key for level in own if level is not None]
    shared = [level for level in sides[0] if level.key in (chosen or keys)]
    return max(shared, key=lambda level: level.offered_load, default=None)


def _met_slo(summary: Summary, level: Level) -> bool:
    """Whether a level met the SLO, also by less than runs may differ."""
    agents = summary.answer.agents if summary.answer else None
    searched = summary.search.level(level.c) if summary.search else None
    close = searched is not None and searched.state != "missed" and searched.room is not None and searched.room >= 0.0
    return level.rate is None and agents is not None and (level.c <= agents or close)


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
