"""Run an automatic tune: the planner decides what is started next, the runner starts and measures it.

What a start shows about the machine, and not about its flags, is not held against them: a port that was taken, or a
guardian or session that somebody killed. Such a start is repeated.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from swarmtui.analysis.quality.doubts import find_biases, find_chances
from swarmtui.analysis.tuning.space import SearchSpace
from swarmtui.analysis.tuning.steps import Ask
from swarmtui.client.session_client import StopControl
from swarmtui.experiments.auto_plan import (
    SCREEN_SHARE,
    find_space,
    first_result,
    save_outcome,
    steered_space,
    tune_budget,
    tune_progress,
)
from swarmtui.experiments.grid import launch_command, scale_load, short_digest
from swarmtui.experiments.managed_server import free_port
from swarmtui.experiments.runner import Runner, Trial, result_line
from swarmtui.experiments.store import read_steering, write_steering
from swarmtui.model.findings import ALARMS
from swarmtui.model.plan import Plan
from swarmtui.model.session import Level, Summary
from swarmtui.model.tuning import POWER, Start, TuneFile, configuration_key, configuration_text
from swarmtui.numbers import percent
from swarmtui.text import name_errors

# A server has this many times as long to become ready as the unchanged command took, and at least these seconds.
_READY_FACTOR, _READY_S = 5.0, 60.0
# A start that takes this many times as long as the first has no chance.
_MEASURE_FACTOR, _MEASURE_S = 6.0, 120.0
# The command itself has this share of the budget to become ready.
_BASELINE_SHARE = 1 / 3
# A larger share of failed requests, or of degenerate answers beyond those of the command, is a failure.
_MAX_ERRORS, _MAX_DEGENERATE = 0.1, 0.25
# An answer that is worse by chance: canaries are few.
_MAX_CANARY_DROP = 0.2
# A power limit changes the clocks.
_CAPPED = ("throttling", "gpu_clocks")
_REPEATS = 2
# Why a start failed by no fault of its flags, and what servers print if another one has their address.
_NOT_ITS_FAULT = ("address_taken", "guardian_died", "killed", "process_gone")
_ADDRESS_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)


class AutoRunner(Runner[TuneFile]):
    """Run one automatic tune; the endpoint, label and server flags of `request` are replaced for each start."""

    kind = "tune"

    _space: SearchSpace | None = None
    _space_measured = False
    _repeats = 0
    _lost_s = 0.0

    def run(self, stop: StopControl) -> None:
        """Continue also if the user had asked to stop after a start."""
        steering = read_steering(self._directory)
        if steering.stop_after is not None:
            write_steering(self._directory, msgspec.structs.replace(steering, stop_after=None))
        super().run(stop)

    def space(self) -> SearchSpace:
        """Return the search space; before the first session it does not know the model."""
        measured = first_result(self.experiment) is not None
        if self._space is None or measured != self._space_measured:
            self._space = find_space(self.experiment, Path(self.request.session_root), self._space)
            self._space_measured = measured
        return self._space

    def next_trial(self) -> Trial | None:
        tune, index, base = self.experiment.definition, len(self.experiment.starts), first_result(self.experiment)
        steering = read_steering(self._directory)
        ask = tune_progress(self.experiment, steering, steered_space(self.space(), steering)).ask
        if ask is None:
            return None
        if steering.stop_after is not None and index >= steering.stop_after:
            self._halted = True
            return None
        budget_s = tune_budget(tune, steering)
        self._show(why=ask.why, limit_tps=ask.ceiling, budget_s=budget_s)
        launch = launch_command(tune, ask.flags, free_port())
        ready_s = launch.ready_within_s
        if base is None:
            ready_s = min(ready_s, max(_READY_S, _BASELINE_SHARE * budget_s))
        elif base.start_s is not None:
            ready_s = min(ready_s, max(_READY_S, _READY_FACTOR * base.start_s))
        launch = msgspec.structs.replace(launch, ready_within_s=ready_s)
        limit_s = max(_MEASURE_S, _MEASURE_FACTOR * (base.took_s or 0.0)) if base else budget_s
        knobs = tuple(knob for knob in tune.knob if knob.key in ask.flags)
        screens = ask.step == "screen"
        return Trial(
            start=Start(
                flags=ask.flags, step=ask.step, side=ask.side, round=0 if screens else 1, limit_tps=ask.ceiling
            ),
            title=f"start {index + 1}: {ask.why}",
            log=f"{index + 1}-{short_digest(configuration_key(ask.flags))}.log",
            request=self.request_for(launch, ask.flags, knobs, self._step_plan(ask), configuration_text(ask.flags)),
            launch=launch,
            time_limit=f"{ready_s + limit_s:.0f}s",
            knobs=knobs,
        )

    def _step_plan(self, ask: Ask) -> Plan:
        confirmed = sum(start.step == "confirm" for start in self.experiment.starts)
        plan, share = self.request.plan, SCREEN_SHARE if ask.step == "screen" else 1.0
        return msgspec.structs.replace(
            plan,
            load=plan.load if plan.budget_s is not None else scale_load(plan.load, share),
            budget_s=None if plan.budget_s is None else plan.budget_s * share,
            # The same requests for all that are compared by one start; other ones for each pair of an A/B test.
            seed=plan.seed + (1 + confirmed // 2 if ask.step == "confirm" else 0),
        )

    def headline_level(self, summary: Summary) -> Level | None:
        """Return the level of the capacity, or for other objectives the one that they are about."""
        agents = summary.answer.agents if summary.answer else None
        if self.experiment.definition.objective == "agents":
            at = max(agents or 1, 1)
            return next((level for level in summary.levels if level.c == at), None) or super().headline_level(summary)
        if self.experiment.definition.objective == "out_tps":
            return max(summary.levels, key=lambda level: level.headline_tps or 0.0, default=None)
        return super().headline_level(summary)

    def finished(self, start: Start, summary: Summary | None) -> None:
        start = msgspec.structs.replace(start, took_s=(start.took_s or 0.0) + self._lost_s)
        if start.state == "broken" and self._repeats < _REPEATS and _not_its_fault(start):
            self._repeats, self._lost_s = self._repeats + 1, start.took_s or 0.0
            self.report(f"{configuration_text(start.flags)}: {start.reason}; started again")
            return
        self._repeats, self._lost_s = 0, 0.0
        if summary is not None and start.state == "done":
            level = self.headline_level(summary)
            start = with_answers(start, summary, level)
            if level is not None and (why := answer_problem(start, level, first_result(self.experiment))):
                start = msgspec.structs.replace(start, state="broken", reason=why)
        self.add(start)
        self.report(result_line(start))
        save_outcome(self.experiment, self._directory, self.space())


def _not_its_fault(start: Start) -> bool:
    return start.reason_code in _NOT_ITS_FAULT or any(map(_ADDRESS_TAKEN.search, start.log))


def with_answers(start: Start, summary: Summary, level: Level | None) -> Start:
    """Add the capacity of a session, what its canaries say, and alarms about the answers of the level that counts.

    Clocks that follow a power limit of the tune are no doubt about what it measures.
    """
    answer, canaries = summary.answer, [level.canaries for level in summary.levels if level.canaries is not None]
    passed = sum(each.passed for each in canaries) + (canaries[0].alone_passed if canaries else 0)
    asked = sum(each.n for each in canaries) + (canaries[0].alone_n if canaries else 0)
    ok = sum(level.ok for level in summary.levels)
    quality = [line for line in summary.quality if POWER not in start.flags or line.code not in _CAPPED]
    return msgspec.structs.replace(
        start,
        agents=answer.agents if answer else None,
        agents_low=answer.low if answer else None,
        agents_high=answer.high if answer else None,
        degenerate=sum(level.degenerate for level in summary.levels) / ok if ok else None,
        canaries=(passed, asked) if asked else None,
        doubts=find_biases(quality),
        disturbances=find_chances(quality),
        alarms=tuple(flag.text for flag in level.flags if flag.code in ALARMS) if level else (),
    )


def answer_problem(start: Start, level: Level, base: Start | None) -> str:
    """Say why the answers of a start are not those of a server that works; empty if they are."""
    if level.errors > _MAX_ERRORS * level.attempts:
        kinds = name_errors(level.error_counts)
        return f"{level.errors} of {level.attempts} requests failed at C={level.c}: {kinds}"
    if base is None:
        return ""
    if start.alarms and not base.alarms:
        return f"answers got worse: {start.alarms[0]}"
    before, after = base.degenerate or 0.0, start.degenerate or 0.0
    if after > before + _MAX_DEGENERATE:
        return f"{percent(after)} of the answers are empty or repeat themselves; with the command {percent(before)}"
    if base.canaries and start.canaries:
        shares = [passed / asked for passed, asked in (base.canaries, start.canaries)]
        if shares[1] < shares[0] - _MAX_CANARY_DROP:
            return f"{percent(shares[1])} of the canaries passed; with the command {percent(shares[0])}"
    return ""
