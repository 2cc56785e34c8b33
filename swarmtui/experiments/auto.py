"""Run an automatic tune: the planner decides what is started next, the runner starts and measures it.

What a start shows about the machine, and not about its flags, is not held against them: a port that was taken, or a
guardian or session that somebody killed. Such a start is repeated.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from swarmtui.analysis.capacity.words import range_text
from swarmtui.analysis.quality.doubts import find_doubts
from swarmtui.analysis.tuning.space import SearchSpace
from swarmtui.analysis.tuning.steps import Ask, TuneProgress
from swarmtui.client.session_client import StopControl
from swarmtui.experiments.auto_plan import (
    SCREEN_SHARE,
    configuration_text,
    find_outcome,
    find_space,
    first_result,
    tune_budget,
    tune_progress,
    write_outcome,
)
from swarmtui.experiments.grid import launch_command, scale_load
from swarmtui.experiments.managed_server import free_port
from swarmtui.experiments.runner import Runner, Trial
from swarmtui.experiments.store import read_steering, write_steering
from swarmtui.model.findings import ALARMS
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Level, Summary
from swarmtui.model.tuning import POWER, LiveKnob, Start, TuneFile, configuration_key
from swarmtui.numbers import percent, significant
from swarmtui.text import count_noun

# A server has this many times as long as the command as it is took to become ready, and at least so many seconds.
_READY_FACTOR, _READY_S = 5.0, 60.0
# A start that takes this many times as long as the first has no chance.
_MEASURE_FACTOR, _MEASURE_S = 6.0, 120.0
# The command itself has this share of the budget to become ready.
_BASELINE_SHARE = 1 / 3
# More failed requests than this, or so many more degenerate answers than with the command, are a failure.
_MAX_ERRORS, _MAX_DEGENERATE = 0.1, 0.25
# An answer that is worse by chance: canaries are few.
_MAX_CANARY_DROP = 0.2
# A power limit changes the clocks.
_CAPPED = ("throttling", "gpu_clocks")
_REPEATS = 2
_NOT_ITS_FAULT = re.compile(
    r"address already in use|EADDRINUSE|guardian process died|was killed by signal (9|15)\b|the session process|"
    r"another server is already listening",
    re.IGNORECASE,
)


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

    def progress(self) -> TuneProgress:
        return tune_progress(self.experiment, self._directory, Path(self.request.session_root), self.space())

    def space(self) -> SearchSpace:
        """Return the search space; before the first session it does not know the model."""
        measured = first_result(self.experiment) is not None
        if self._space is None or measured != self._space_measured:
            self._space = find_space(self.experiment, Path(self.request.session_root), self._space)
            self._space_measured = measured
        return self._space

    def next_trial(self) -> Trial | None:
        progress, steering = self.progress(), read_steering(self._directory)
        if progress.ask is None:
            return None
        if steering.stop_after is not None and len(self.experiment.starts) >= steering.stop_after:
            self.halt()
            return None
        budget_s = tune_budget(self.experiment.definition, steering)
        self._show(why=progress.ask.why, limit_tps=progress.ask.ceiling, budget_s=budget_s)
        return self._trial(progress.ask)

    def _trial(self, ask: Ask) -> Trial:
        tune, index = self.experiment.definition, len(self.experiment.starts)
        base = first_result(self.experiment)
        budget_s = tune_budget(tune, read_steering(self._directory))
        launch = launch_command(tune, ask.flags, free_port())
        ready_s = launch.ready_within_s
        if base is None:
            ready_s = min(ready_s, max(_READY_S, _BASELINE_SHARE * budget_s))
        elif base.start_s is not None:
            ready_s = min(ready_s, max(_READY_S, _READY_FACTOR * base.start_s))
        launch = msgspec.structs.replace(launch, ready_within_s=ready_s)
        limit_s = max(_MEASURE_S, _MEASURE_FACTOR * (base.took_s or 0.0)) if base else budget_s
        name = f"{index + 1}-{hashlib.sha256(configuration_key(ask.flags).encode()).hexdigest()[:8]}.log"
        return Trial(
            start=Start(
                flags=ask.flags,
                step=ask.step,
                side=ask.side,
                round=0 if ask.step == "screen" else 1,
                limit_tps=ask.ceiling,
            ),
            title=f"start {index + 1}: {ask.why}",
            log=name,
            request=self._step_request(ask, launch.url),
            launch=launch,
            time_limit=f"{ready_s + limit_s:.0f}s",
            knobs=self._changed_live(ask),
        )

    def _changed_live(self, ask: Ask) -> tuple[LiveKnob, ...]:
        """Return the knobs that are changed while the server runs."""
        return tuple(knob for knob in self.experiment.definition.knob if knob.key in ask.flags)

    def _step_request(self, ask: Ask, url: str) -> RunRequest:
        confirmed = sum(start.step == "confirm" for start in self.experiment.starts)
        plan, port = self.request.plan, url.rpartition(":")[2].partition("/")[0]
        share = SCREEN_SHARE if ask.step == "screen" else 1.0
        plan = msgspec.structs.replace(
            plan,
            load=plan.load if plan.budget_s is not None else scale_load(plan.load, share),
            budget_s=None if plan.budget_s is None else plan.budget_s * share,
            # The same requests for all that are compared by one start; other ones for each pair of an A/B test.
            seed=plan.seed + (1 + confirmed // 2 if ask.step == "confirm" else 0),
        )
        return msgspec.structs.replace(
            self.request,
            endpoints=(url,),
            plan=plan,
            label=self.request.label or configuration_text(ask.flags),
            tags=self.request.tags | {knob.key: str(ask.flags[knob.key]) for knob in self._changed_live(ask)},
            gpu_metrics_urls=tuple(address.replace("{port}", port) for address in self.request.gpu_metrics_urls),
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
        self.report(auto_result_line(start))
        root = Path(self.request.session_root)
        write_outcome(self._directory, find_outcome(self.experiment, self._directory, root, self.space()))


def _not_its_fault(start: Start) -> bool:
    return any(_NOT_ITS_FAULT.search(text) for text in (start.reason, *start.log))


def with_answers(start: Start, summary: Summary, level: Level | None) -> Start:
    """Add the capacity of a session, what its canaries say, and alarms about the answers of the level that counts.

    Clocks that follow a power limit of the tune are no doubt about what it measures.
    """
    answer, canaries = summary.answer, [level.canaries for level in summary.levels if level.canaries is not None]
    passed = sum(each.passed for each in canaries) + (canaries[0].alone_passed if canaries else 0)
    asked = sum(each.n for each in canaries) + (canaries[0].alone_n if canaries else 0)
    return msgspec.structs.replace(
        start,
        agents=answer.agents if answer else None,
        agents_low=answer.shown_range[0] if answer else None,
        agents_high=answer.shown_range[1] if answer else None,
        degenerate=_degenerate(summary),
        canaries=(passed, asked) if asked else None,
        doubts=find_doubts(line for line in summary.quality if POWER not in start.flags or line.code not in _CAPPED),
        alarms=tuple(flag.text for flag in level.flags if flag.code in ALARMS) if level else (),
    )


def _degenerate(summary: Summary) -> float | None:
    """Return the share of answers of all levels that are empty, or repeat one token."""
    ok = sum(level.ok for level in summary.levels)
    return sum(level.degenerate for level in summary.levels) / ok if ok else None


def answer_problem(start: Start, level: Level, base: Start | None) -> str:
    """Say why the answers of a start are not those of a server that works; empty if they are."""
    if level.errors > _MAX_ERRORS * (level.n + level.errors):
        named = ", ".join(f"{name} {count}" for name, count in level.error_counts.items())
        return f"{level.errors} of {level.n} requests failed at C={level.c}: {named}"
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


def auto_result_line(start: Start) -> str:
    """`--parallel 8: 12 agents (11–13), 123 tok/s at C=12`"""
    text = configuration_text(start.flags)
    if start.state == "broken":
        return f"{text}: failed: {start.reason}"
    parts = []
    if start.agents is not None:
        known = range_text(start.agents, start.agents_low, start.agents_high)
        parts.append(f"{count_noun(start.agents, 'agent')}{known}")
    parts.append(f"{significant(start.out_tps)} tok/s at C={start.c}")
    if start.ttft_s is not None:
        parts.append(f"TTFT {significant(start.ttft_s, 3)} s")
    if start.j_per_token is not None:
        parts.append(f"{significant(start.j_per_token, 3)} J/token")
    return f"{text}: {', '.join(parts)}"
