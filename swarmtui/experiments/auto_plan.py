"""Plan an automatic tune from what is stored of it, and say what it has found; for its process, and for UIs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from swarmtui.analysis.compare.differences import describe_command_changes, parse_flags
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.analysis.tuning.outcome import TuneOutcome, tune_outcome
from swarmtui.analysis.tuning.planner import plan_tune
from swarmtui.analysis.tuning.space import Machine, SearchSpace, make_space
from swarmtui.analysis.tuning.steps import SearchRules, TuneProgress
from swarmtui.client.catalogue import count_gpus
from swarmtui.engines.knobs import Knob, find_knob, parse_value
from swarmtui.experiments.grid import split_command, tune_engine
from swarmtui.experiments.store import add_change, read_document, read_steering, shown_command, write_document
from swarmtui.model.base import BadInput
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.tuning import Flags, LoggedChange, Start, Tune, TuneFile, TuneSteering
from swarmtui.sessions.store import read_summary

# While configurations are screened, a start has this share of the requests.
SCREEN_SHARE = 0.5
_OUTCOME = "result.json"


def tune_progress(experiment: Tune, steering: TuneSteering, space: SearchSpace) -> TuneProgress:
    """Plan from what is stored, in a steered space."""
    tune = experiment.definition
    rules = SearchRules(
        objective=tune.objective, budget_s=tune_budget(tune, steering), share=SCREEN_SHARE, finalists=tune.finalists,
        restarts=tune.restarts, seed=tune.seed,
    )  # fmt: skip
    return plan_tune(space, rules, experiment.starts, (*tune.configurations, *steering.added), _recipe_flags(tune))


def steered_space(space: SearchSpace, steering: TuneSteering) -> SearchSpace:
    return msgspec.structs.replace(space, pins=steering.pins, vetoes=steering.vetoes)


def find_space(experiment: Tune, root: Path, known: SearchSpace | None = None) -> SearchSpace:
    """Return the search space of a tune: from its command, this machine, and its first session, if there is one."""
    tune, base = experiment.definition, first_result(experiment)
    assert tune.auto is not None
    summary = None
    if base is not None and base.session:
        try:
            summary = read_summary(root, base.session)
        except BadInput:
            summary = None  # deleted since
    if known is not None and summary is None:
        return known
    limits = summary.speed_of_light if summary else None
    model = limits.model if limits else None
    machine = known.machine if known else Machine(gpus=count_gpus(), cores=len(os.sched_getaffinity(0)))
    space = make_space(
        tune_engine(tune),
        split_command(tune.command, "command"),
        machine=machine,
        grid=tune.grid or None,
        allow_quality=tune.auto.allow_quality,
        moe=None if model is None else bool(model.experts),
        more=_live_knobs(tune),
    )
    return msgspec.structs.replace(
        space, limits=limits, server=summary.servers[0] if summary and summary.servers else None,
        stream_tps=_stream_tps(summary.session.plan.slo if summary else ""),
    )  # fmt: skip


def _live_knobs(tune: TuneFile) -> list[Knob]:
    """Return the knobs that need no restart; of power limits the highest first: what matters is how low they may be."""
    return [
        Knob(
            name=live.key, stage="power", moves=("power",),
            values=tuple(sorted(live.watts, reverse=True)) if live.kind == "power" else live.values,
        )
        for live in tune.knob
    ]  # fmt: skip


def _stream_tps(slo: str) -> float | None:
    """Return the tok/s that each agent needs at least."""
    limits = [condition.limits.get("stream") for condition in parse_slo(slo).conditions] if slo else []
    return max((limit for limit in limits if limit), default=None)


def first_result(experiment: Tune) -> Start | None:
    return next((start for start in experiment.starts if not start.flags and start.state == "done"), None)


def tune_budget(tune: TuneFile, steering: TuneSteering) -> float:
    """Return the seconds that all starts together may take."""
    assert tune.auto is not None
    return max(steering.budget_s or 0.0, parse_seconds(tune.auto.budget, "budget"))


def save_outcome(tune: Tune, directory: Path, space: SearchSpace) -> TuneOutcome:
    steering = read_steering(directory)
    space = steered_space(space, steering)
    progress = tune_progress(tune, steering, space)
    best = progress.winner if progress.winner is not None else progress.leader or {}
    outcome = tune_outcome(
        space, progress, tune.starts, tune.definition.objective,
        budget_s=tune_budget(tune.definition, steering),
        command=shown_command(tune.definition, best), given=shown_command(tune.definition, {}),
        recipe=_recipe_flags(tune.definition),
    )  # fmt: skip
    write_document(directory / _OUTCOME, outcome)
    return outcome


def _recipe_flags(tune: TuneFile) -> Flags | None:
    """Return the flags of the recipe by the names of knobs."""
    recipe = tune.auto.recipe if tune.auto is not None else None
    return None if recipe is None else {_knob_name(tune, name): value for name, value in recipe.flags.items()}


def _knob_name(tune: TuneFile, name: str) -> str:
    knob = find_knob(tune_engine(tune).knobs, name)
    return knob.name if knob else name


def parse_configuration(tune: TuneFile, text: str) -> Flags:
    """Read the flags that the user types, `--parallel 8 -ub 256`, by the names of the knobs."""
    given = parse_flags(text)
    if not given or "" in given:
        raise BadInput("enter flags with their values, such as --max-num-seqs 8", key="flags")
    return {_knob_name(tune, name): parse_value(value) if value else True for name, value in given.items()}


def read_outcome(directory: Path) -> TuneOutcome | None:
    return read_document(directory / _OUTCOME, TuneOutcome)


def log_outcome(root: Path, tune: Tune, outcome: TuneOutcome) -> LoggedChange | None:
    """Add the verdict of the A/B test to the tuning log; None without one."""
    sides = {
        side: "+".join(
            start.session for start in tune.starts if start.step == "confirm" and start.side == side and start.session
        )
        for side in ("A", "B")
    }
    decision = outcome.decision
    if decision is None or not decision.done or not all(sides.values()):
        return None
    agents = (round(outcome.before), round(outcome.after)) if outcome.before and outcome.after else None
    return add_change(
        root,
        LoggedChange(
            before=sides["A"], after=sides["B"], what=describe_command_changes(outcome.given, outcome.command),
            effect=outcome.sentence, verdict=decision.word, change=decision.change,
            agents=agents if outcome.objective == "agents" else None,
        ),
    )  # fmt: skip
