"""Plan a tune: from the starts so far to the next one, or to its end. No I/O, no clock.

The search is written as one generator that asks for the starts that it needs. Those that are in the history are
answered from there, so that it stops at the first that is not: a tune continues after a kill without repeating any, and
what the user pins, vetoes or adds takes effect with the next start.

1. The command as it is. 2. One knob at a time from the best so far, with few requests: first those that move what binds
the command, then stage by stage. A value above and one below are tried of an ordered knob, of others all; those that a
running server follows, such as the power limit, come last. 3. What all starts together promise most of (`estimate`),
again or for the first time, until the search has had its starts. Between equal numbers of agents the throughput
decides. 4. The best few are restarted with all requests, and ranked. 5. The first of them and the command alternate, as
in `ab`, whose verdict is the claim.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import fsum, inf, log
from random import Random
from statistics import median
from typing import Literal

from swarmtui.analysis.compare.sequential import CHECKPOINTS, Decision, evaluate, interleaved_sides
from swarmtui.analysis.compare.verdicts import EQUIVALENT
from swarmtui.analysis.tuning.estimate import Scored, ScoreModel
from swarmtui.analysis.tuning.figures import (
    UNKNOWN_FLAG,
    bounded_decision,
    compared_values,
    error_line,
    higher_is_better,
    search_score,
)
from swarmtui.analysis.tuning.space import Crash, SearchSpace
from swarmtui.analysis.tuning.steps import Ask, SearchRules, Skipped, Tried, TuneProgress, WhyCode
from swarmtui.engines.knobs import Knob
from swarmtui.model.tuning import Flags, Start, TuneStep, Value, configuration_key, format_flags

# A smaller gain does not count, and a configuration that promises less than the second is not started.
_GAIN, _PROMISE = 0.02, 0.001
# A value of an ordered knob that is tried is this many steps away: one step often changes too little to be seen.
_STEPS = 2
# Once each knob was tried, the screening ends at this number of starts, or where all starts are this part of a grid.
_LEAST_SCREENS, _PART_OF_GRID = 13, 0.15
# The finalists are at most this far behind the best of the screening.
_FINALIST_WITHIN = 0.15
# This share of the budget is kept for the starts that rank and confirm, at most.
_RESERVED = 0.6
# An A/B test may take this many times as long as expected. With fewer starts before it, it has nothing to confirm.
_SPARE, _LEAST_BEFORE_AB = 1.15, 4
# Starts for which the stages leave time if there are knobs that come last.
_LAST_STARTS = 3
_MAX_BROKEN_BASELINES = 3


def plan_tune(
    space: SearchSpace,
    rules: SearchRules,
    starts: Sequence[Start],
    added: Sequence[Flags] = (),
    recipe: Flags | None = None,
) -> TuneProgress:
    """Return the next start, or the end, and what is known by then; the recipe and what the user added come first."""
    search = _Search(space, rules, starts, {"the recipe": [recipe] if recipe else [], "added by you": added})
    ask = search.advance()
    return TuneProgress(
        ask=ask, leader=search.best_so_far, winner=search.winner, decision=search.decision,
        crashes=tuple(search.crashes), skipped=tuple(search.skipped.values()), tried=tuple(search.tried),
        finalists=tuple(search.finalists), out_of_time=frozenset(search.out_of_time),
        ended="" if ask else search.ended, spent_s=search.spent_s, confirm_s=search.confirm_s(),
    )  # fmt: skip


Asking = Generator[Ask, Start, None]


class _Search:
    """One pass over the history; `advance` returns the first start that is not in it."""

    def __init__(
        self, space: SearchSpace, rules: SearchRules, starts: Sequence[Start], given: Mapping[str, Sequence[Flags]]
    ) -> None:
        self._space, self._rules = space, rules
        self._given = [(why, space.pinned(space.normalised(flags))) for why, found in given.items() for flags in found]
        self._known: dict[tuple[TuneStep, str], list[Start]] = {}
        for start in starts:
            if start.step in ("screen", "restart"):
                self._known.setdefault((start.step, configuration_key(start.flags)), []).append(start)
        self._starts = list(starts)
        self._used: dict[tuple[TuneStep, str], int] = {}
        self._screened: dict[str, tuple[Flags, list[Start]]] = {}
        self._floor = Flags()
        self._free = [knob for knob in space.knobs if knob.name not in space.pins]
        self._flags, self._last = (
            [knob for knob in self._free if (knob.stage == "power") == last] for last in (False, True)
        )
        self.spent_s = fsum(start.took_s or 0.0 for start in starts)
        self.leader: Flags | None = None
        self.winner: Flags | None = None
        self.decision: Decision | None = None
        self.crashes: list[Crash] = []
        self.skipped: dict[str, Skipped] = {}
        self.tried: list[Tried] = []
        self.finalists: list[Flags] = []
        self.out_of_time: set[str] = set()
        self.ended: Literal["done", "budget", "no_baseline", "unreliable"] = "done"

    def advance(self) -> Ask | None:
        asking = self._search()
        try:
            ask = next(asking)
            while (found := self._answer(ask)) is not None:
                ask = asking.send(found)
        except StopIteration:
            return None
        return ask._replace(ceiling=self._space.ceiling(ask.flags))

    def _answer(self, ask: Ask) -> Start | None:
        """Return the start that was asked for, if it is in the history: each start answers once."""
        if ask.step == "confirm":
            return None  # its starts are evaluated together
        key = (ask.step, configuration_key(ask.flags))
        number = self._used.get(key, 0)
        known = self._known.get(key, [])
        if number == len(known):
            return None
        self._used[key] = number + 1
        return known[number]

    # the search

    def _search(self) -> Asking:
        base = yield from self._screen({}, "baseline", "the command as it is")
        if self._value(base) == -inf:
            self.ended = "no_baseline"
            return
        self.leader = self._floor = {}
        if pinned := self._space.pinned({}):
            yield from self._consider(pinned, "added", f"pinned: {format_flags(pinned)}")
            if self._score(pinned) > -inf:
                self.leader = self._floor = pinned
        for why, flags in self._given:
            if self._space.refuse(flags, self.crashes) is None:
                yield from self._consider(flags, "added", why)
        yield from self._stages()
        yield from self._refine()
        yield from self._restart()
        yield from self._confirm()

    @property
    def best_so_far(self) -> Flags | None:
        """The best by the whole screening, also by what the search did before the user pinned or added something."""
        if self.leader is None:
            return None
        self._take_known()
        return self._likely_best(self._model())

    def _take_known(self) -> None:
        """Add the starts of the history that no step asked for: those that `_refine` asked for when it had the rest."""
        for key, starts in self._known.items():
            if key[0] == "screen" and (left := starts[self._used.get(key, 0) :]):
                self._used[key] = len(starts)
                self._screened.setdefault(key[1], (left[0].flags, []))[1].extend(left)
                if starts[-1].state == "broken":
                    self._find_crash(starts[-1])

    def _find_crash(self, start: Start) -> None:
        """Find the change of one knob by which a start failed, if another that works differs from it by one only."""
        for works in self._working():
            changed = [knob for knob in self._free if start.flags.get(knob.name) != works.get(knob.name)]
            value = self._space.value(start.flags, changed[0].name) if len(changed) == 1 else None
            if value is not None:
                self._add_crash(start, changed[0], self._space.value(works, changed[0].name), value, works)
                return

    def _screen(self, flags: Flags, code: WhyCode, why: str) -> Generator[Ask, Start, list[Start]]:
        """Start a configuration unless it was already; return its starts of the screening."""
        key = configuration_key(flags)
        if key not in self._screened:
            start = yield Ask(flags, "screen", code, why)
            self._screened[key] = (flags, [start])
        return self._screened[key][1]

    def _value(self, starts: Sequence[Start]) -> float:
        return search_score(starts, self._rules.objective, self._starts[0] if self._starts else None)

    def _score(self, flags: Flags) -> float:
        found = self._screened.get(configuration_key(flags))
        return self._value(found[1]) if found else -inf

    def _consider(self, flags: Flags, code: WhyCode, why: str) -> Generator[Ask, Start, bool]:
        """Start a configuration, and make it the leader if it gains; return whether it did."""
        starts = yield from self._screen(flags, code, why)
        if self._value(starts) <= self._score(self.leader or {}) + log(1 + _GAIN):
            return False
        self.leader = flags
        return True

    def _stages(self) -> Asking:
        for knob in self._space.in_order(self._flags):
            yield from self._knob(knob)
        base = self._screened[configuration_key({})][1]
        if len(base) < 2 and self._has_time({}):
            base.append((yield Ask({}, "screen", "again", "the command again: how much do two starts differ?")))
        last, self._last = self._last, []
        for knob in last:
            yield from self._knob(knob)

    def _knob(self, knob: Knob) -> Asking:
        ladder, leader = self._space.ladder(knob), self.leader or {}
        current = self._space.value(leader, knob.name)
        if not knob.ordered:
            for value in ladder:
                if value != current:
                    yield from self._try(knob, value)
            return
        if current is None:  # the server chooses by itself: begin in the middle
            current = ladder[len(ladder) // 2]
            yield from self._try(knob, current)
        at = ladder.index(current)
        for there in (min(at + _STEPS, len(ladder) - 1), max(at - _STEPS, 0)):
            if there != at and (yield from self._try(knob, ladder[there])):
                return

    def _refine(self) -> Asking:
        """Start what promises most by all starts together, again or for the first time."""
        self._take_known()
        model = self._model()
        self.leader = self._likely_best(model)
        screens = sum(len(starts) for _, starts in self._screened.values())
        # With those that follow, all starts are a small part of a grid.
        if screens >= max(_LEAST_SCREENS, int(_PART_OF_GRID * self._space.size) - self._later_starts()):
            return
        best = model.estimate(self.leader).score
        promises = {key: (model.promise(flags, best), flags) for key, flags in self._near(self.leader).items()}
        for promise, flags in sorted(promises.values(), key=lambda each: -each[0]):
            if promise < _PROMISE or not self._has_time(flags):
                return
            if self._space.refuse(flags, self.crashes, self._needed_tps()) is None:
                if configuration_key(flags) in self._screened:
                    yield Ask(flags, "screen", "again", "close to the best: is it better?")
                else:
                    yield Ask(flags, "screen", "knob", f"likely better by all starts so far: {format_flags(flags)}")

    def _near(self, leader: Flags) -> dict[str, Flags]:
        """Return what was started and works, and what differs from the leader by one or two flags."""
        values = [(knob.name, value) for knob in self._free for value in self._space.ladder(knob)]
        one = [self._space.changed(leader, *each) for each in values]
        two = [self._space.changed(flags, *each) for flags in one for each in values]
        broken = self._screened.keys() - set(map(configuration_key, self._working()))
        near = {configuration_key(flags): flags for flags in (*self._working(), *one, *two)}
        return {key: flags for key, flags in near.items() if key not in broken}

    def _working(self) -> list[Flags]:
        """Return what was screened without a failure."""
        return [flags for flags, starts in self._screened.values() if self._value(starts) > -inf]

    def _model(self, finalists: Sequence[Flags] = ()) -> ScoreModel:
        """Estimate by the screening, and by the restarts of finalists."""
        screened = [(start, 1.0) for _, starts in self._screened.values() for start in starts]
        restarts = [(start, 1.0 / self._rules.share) for flags in finalists for start in self._restarts(flags)]
        scored = [Scored(start.flags, self._value([start]), weight) for start, weight in (*screened, *restarts)]
        return ScoreModel(self._space, [each for each in scored if each.score > -inf])

    def _likely_best(self, model: ScoreModel) -> Flags:
        """Return the best of what was started; the command, or what was pinned, if nothing gains."""
        usable = [flags for flags in self._working() if self._space.refuse(flags, self.crashes) is None]
        best = model.simplest_best(usable or [self._floor])
        gain = model.estimate(best).score - model.estimate(self._floor).score
        return best if gain > log(1 + _GAIN) else self._floor

    def _later_starts(self) -> int:
        return self._rules.finalists * self._rules.restarts + 2 * CHECKPOINTS[0]

    def _try(self, knob: Knob, value: Value) -> Generator[Ask, Start, bool]:
        """Change one knob of the leader; return whether that gains. What is ruled out is not started."""
        leader, space = self.leader or {}, self._space
        flags = space.changed(leader, knob.name, value)
        refusal = space.refuse(flags, self.crashes, self._needed_tps())
        key = configuration_key(flags)
        if refusal is not None and key not in self._screened:
            self.skipped.setdefault(key, Skipped(knob.name, value, flags, refusal))
            return False
        if key not in self._screened and not self._has_time(flags):
            self.ended = "budget"
            self.out_of_time.add(knob.name)
            return False
        before = space.value(leader, knob.name)
        shown = "" if before is None else f"{before} → "
        gained = yield from self._consider(flags, "knob", f"{knob.stage}: {knob.name} {shown}{value}")
        starts = self._screened[key][1]
        if all(start.state == "broken" for start in starts):
            self._add_crash(starts[-1], knob, before, value, leader)
        else:
            self.tried.append(Tried(knob.name, leader, flags))
        return gained

    def _add_crash(self, start: Start, knob: Knob, before: Value | None, value: Value, leader: Flags) -> None:
        line = error_line(start)
        unknown = bool(UNKNOWN_FLAG.search(line)) and any(name in line for name in knob.names)
        crash = Crash(
            flags=start.flags, knob=knob.name, before=before, value=value, line=line,
            unknown_flag=unknown and knob.name not in leader,
        )  # fmt: skip
        if crash not in self.crashes:
            self.crashes.append(crash)

    def _needed_tps(self) -> float | None:
        """Return the tok/s that a configuration must be able to exceed to be better than the leader."""
        best = self._screened[configuration_key(self.leader or {})][1][0]
        if self._rules.objective == "out_tps":
            return best.out_tps
        if self._rules.objective == "agents" and self._space.stream_tps and best.agents:
            return best.agents * self._space.stream_tps
        return None

    # time

    def _seconds(self, step: TuneStep) -> float:
        """Return how long a start takes: the mean of those of its step, else scaled from the others.

        The first start of a model is slow, as it reads it from the disk: the median tells how long others take.
        """
        done = [start for start in self._starts if start.took_s is not None and start.state == "done"]
        same = [start.took_s or 0.0 for start in done if (start.step == "screen") == (step == "screen")]
        if same:
            return fsum(same) / len(same)
        factor = self._rules.share if step == "screen" else 1.0 / self._rules.share
        starting = [min(start.start_s or 0.0, start.took_s or 0.0) for start in done]
        loads = [(start.took_s or 0.0) - lead for start, lead in zip(done, starting, strict=True)]
        return median(starting) + factor * fsum(loads) / len(done) if done else 0.0

    def confirm_s(self) -> float:
        """Return how long the shortest A/B test takes."""
        return 2 * CHECKPOINTS[0] * self._seconds("restart")

    def _has_time(self, flags: Flags) -> bool:
        """Whether there is time for another start of the screening, and then for those that rank and confirm.

        What was started had the time: the search takes the same way again, however much was spent since. It does not
        go back once the A/B test has begun, also not with a larger budget.
        """
        rules = self._rules
        key: tuple[TuneStep, str] = ("screen", configuration_key(flags))
        if self._used.get(key, 0) < len(self._known.get(key, [])):
            return True
        if self._starts and self._starts[-1].step == "confirm":
            return False
        later_s, confirm_s = self._later_starts() * self._seconds("restart"), self.confirm_s()
        # What is left of a short budget must suffice for the A/B test; one that never would is all for screening.
        reserved_s = min(later_s, max(_RESERVED * rules.budget_s, _SPARE * confirm_s))
        too_short = _SPARE * confirm_s + _LEAST_BEFORE_AB * self._seconds("screen") > rules.budget_s
        if too_short or self.leader == self._floor:  # nothing to confirm so far
            reserved_s = 0.0
        starts = 1 + _LAST_STARTS * bool(self._last)
        return self.spent_s + starts * self._seconds("screen") + reserved_s <= rules.budget_s

    # the end

    def _candidates(self) -> list[Flags]:
        """The best of the screening, without the command itself and those of which a start failed."""
        broken = {configuration_key(start.flags) for start in self._starts if start.state == "broken" and start.flags}
        model = self._model()
        usable = [
            (model.estimate(flags).score, flags)
            for flags in self._working()
            if flags and configuration_key(flags) not in broken and self._space.refuse(flags, self.crashes) is None
        ]
        usable.sort(key=lambda each: (-each[0], len(each[1])))
        if not usable:
            return []
        leader = [flags for _, flags in usable if flags == self.leader]
        best = usable[0][0]
        # What is behind the command as it is need not be ranked.
        near = [flags for value, flags in usable if value > max(best - _FINALIST_WITHIN, model.estimate({}).score)]
        return [*leader, *(flags for flags in near if flags not in leader)]

    def _restart(self) -> Asking:
        rules = self._rules
        if not self.leader:
            return  # nothing gains
        self.finalists = self._candidates()[: rules.finalists]
        if len(self.finalists) < 2:
            return
        confirm_s = self.confirm_s()
        for number in range(rules.restarts):
            order = list(self.finalists)
            Random(f"{rules.seed}/{number}").shuffle(order)
            for flags in order:
                done = self._known.get(("restart", configuration_key(flags)), [])
                needed = self._seconds("restart") + confirm_s
                if len(done) <= number and self.spent_s + needed > rules.budget_s:
                    self.ended = "budget"
                    return
                title = f"restart {number + 1} of {rules.restarts}, to rank the best {len(self.finalists)}"
                yield Ask(flags, "restart", "restart", title)

    def _best_finalist(self) -> Flags | None:
        """Return the best by the screening and the restarts; the leader while not all finalists were restarted."""
        usable = [flags for flags in self._candidates() if flags in self.finalists]
        if not usable or not all(map(self._restarts, self.finalists)):
            return next(iter(usable), None)
        return self._model(self.finalists).simplest_best(usable)

    def _restarts(self, flags: Flags) -> list[Start]:
        return self._known.get(("restart", configuration_key(flags)), [])

    def _confirm(self) -> Asking:
        self.winner = self._best_finalist() if self.leader else None
        if self.winner is None:
            return
        rules, mine = self._rules, self._confirming()
        sides = {side: [s for s in mine if s.side == side and s.state == "done"] for side in ("A", "B")}
        n = min(len(side) for side in sides.values())
        if checkpoint := max((point for point in CHECKPOINTS if point <= n), default=0):
            a, b = (compared_values(sides[side][:checkpoint], rules.objective) for side in "AB")
            doubted = any(start.doubts for side in sides.values() for start in side[:checkpoint])
            better: Literal["higher", "lower"] = "higher" if higher_is_better(rules.objective) else "lower"
            # Less than one agent is no change.
            detect = max(EQUIVALENT, 1.0 / median(a)) if rules.objective == "agents" else EQUIVALENT
            decision = evaluate(a, b, detect=detect, max_runs=rules.max_runs, better=better, doubted=doubted)
            self.decision = bounded_decision(decision, sides["A"][:checkpoint], rules.objective)
            if self.decision.done and len(sides["A"]) == len(sides["B"]) == checkpoint:
                self.ended = "done"
                return
        done = len(sides["A"]) + len(sides["B"])
        following = next((point for point in CHECKPOINTS if 2 * point > done), CHECKPOINTS[-1])
        if sum(start.state == "broken" for start in mine) >= _MAX_BROKEN_BASELINES:
            self.ended = "unreliable"
        elif self.spent_s + (2 * following - done) * self._seconds("confirm") > rules.budget_s:
            self.ended = "budget"
        else:
            side = interleaved_sides(done + 1, rules.seed)[done]
            title = f"A/B test, start {done + 1}: {'the command' if side == 'A' else format_flags(self.winner)}"
            yield Ask({} if side == "A" else self.winner, "confirm", "confirm", title, side)

    def _confirming(self) -> list[Start]:
        """The starts of the A/B test with this winner: those at the end of the history."""
        found: list[Start] = []
        for start in reversed(self._starts):
            if start.step != "confirm" or (start.side == "B" and start.flags != self.winner):
                break
            found.insert(0, start)
        return found
