"""`tune --auto`: build the tune and its request from the options, show what it may start, and save what it found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from swarmtui.cli.experiment_options import OBJECTIVES, plan_options, run_request
from swarmtui.experiments.grid import launch_command, tune_engine
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.run_length import parse_requests
from swarmtui.model.tuning import POWER, AutoSearch, LiveKnob, TuneFile, TunePlan, Value, parse_recipe, value_text
from swarmtui.report.tuning import knob_lines
from swarmtui.text import escape

if TYPE_CHECKING:
    from swarmtui.analysis.tuning.outcome import TuneOutcome
    from swarmtui.model.run_request import RunRequest
    from swarmtui.model.tuning import Tune

_LEVELS = (1, 4, 16)
# The A/B test restarts the best of the finalists at least four times more.
_RESTARTS = 1
_NO_KNOBS = "no flags are known for this command; name its --engine, or flags with --knob"
_CANARIES, _BUDGET = "5%", "45m"
# A measurement with all its requests has this share of the budget, in seconds within these. A search for the capacity
# needs more: in half of 12 s it came to 4 agents, whatever the flags.
_PART, _PART_OF_SEARCH, _LEAST_S, _MOST_S = 1 / 36, 1 / 20, 12.0, 60.0


def auto_tune_file(options: dict[str, Any], mistakes: Mistakes) -> TuneFile:
    """Return the tune of the options; those that are wrong are added to the mistakes, and have their defaults."""
    from swarmtui.client.plan_builder import parse_levels
    from swarmtui.prompts.library import read_text

    command, url = options["command"], options["url"] or "http://127.0.0.1:{port}"
    if command is None:
        mistakes.found.append(BadInput("give FILE, or --auto COMMAND to find the flags of a server", key="FILE"))
    elif "{port}" in url and "{port}" not in command:
        problem = "put {port} into the command, or give the address of the server with --url"
        mistakes.found.append(BadInput(problem, key="--auto"))
    levels, requests, given = options["levels"], options["requests"], options["recipe"]
    plan = TunePlan(
        workload=options["workload"] or TunePlan().workload,
        levels=(mistakes.catch_as("--levels", parse_levels, levels) if levels is not None else None) or _LEVELS,
        requests=requests if requests and mistakes.catch_as("--requests", parse_requests, requests) else None,
        max_tokens=options["max_tokens"],
    )
    recipe = (
        None if given is None else mistakes.catch_as("--recipe", lambda: parse_recipe(read_text(Path(given)), given))
    )
    knobs = [knob for text in options["knobs"] if (knob := mistakes.catch(_parse_knob, text))]
    if options["power"] not in (None, "auto", "none"):
        mistakes.catch(_parse_watts, options["power"])
    tune = TuneFile(
        command=command or "",
        name="auto",
        url=url,
        ready_within=_time(options["ready_within"], "--ready-within", TuneFile(command="x").ready_within, mistakes),
        plan=plan,
        grid=dict(knobs) or (recipe.values if recipe else {}),
        restarts=_RESTARTS,
        objective=OBJECTIVES[options["objective"] or "agents"],
        auto=AutoSearch(
            budget=_time(options["budget"], "--budget", _BUDGET, mistakes), slo=options["slo"] or "",
            allow_quality=options["allow_quality"], engine=mistakes.catch(_engine_name, options["engine"]) or "",
            recipe=recipe,
        ),
    )  # fmt: skip
    can_start = command is not None and mistakes.catch(launch_command, tune, {}, "PORT", "--auto") is not None
    chosen = any(options[name] for name in ("knobs", "recipe", "engine", "power", "show"))
    if can_start and not (chosen or tune.objective == "j_per_token" or tune_engine(tune).knobs):
        mistakes.found.append(BadInput(_NO_KNOBS, key="--auto"))
    if recipe is not None and can_start and tune_engine(tune).name.lower() != recipe.engine.lower():
        problem = f"is for {recipe.engine}, the command for {tune_engine(tune).name}"
        mistakes.found.append(BadInput(problem, key="--recipe"))
    return tune


def _time(text: str | None, option: str, default: str, mistakes: Mistakes) -> str:
    """Return the time that was given, if it is one, or else the default."""
    return text if text and mistakes.catch(parse_seconds, text, option) else default


def save_recipe(path: Path, tune: TuneFile, outcome: TuneOutcome, root: Path) -> None:
    import tomli_w

    from swarmtui.sessions.store import read_summary

    if not outcome.flags:
        raise BadInput("no flags were found that a recipe could hold", key="--save-recipe")
    summary = read_summary(root, outcome.session) if outcome.session else None
    recipe = {
        "engine": tune_engine(tune).name,
        "model": summary.session.endpoints[0].model if summary else "",
        "gpu": ", ".join(sorted(set(summary.gpus))) if summary else "",
        "note": outcome.sentence,
        # The power limit is not one of the server's.
        "flags": {name: value for name, value in outcome.flags.items() if name != POWER},
    }
    path.write_text(tomli_w.dumps(recipe))


def _parse_knob(text: str) -> tuple[str, tuple[Value, ...]]:
    from swarmtui.engines.knobs import parse_value

    name, equals, values = text.partition("=")
    if not equals or not re.fullmatch(r"--?[A-Za-z][\w-]*|[A-Z][A-Z0-9_]*", name) or not values:
        raise BadInput(f"{text!r} is not a flag with values, such as --max-num-seqs=8,16,32", key="--knob")
    return name, tuple(map(parse_value, values.split(",")))


def _engine_name(text: str | None) -> str:
    from swarmtui.engines.registry import ENGINES

    if text is None:
        return ""
    names = {engine.name.lower(): engine.name for engine in ENGINES if engine.knobs}
    if text.lower() not in names:
        raise BadInput(f"no knobs are known for {text!r}; known: {', '.join(names.values())}", key="--engine")
    return names[text.lower()]


def auto_request(tune: TuneFile, session_dir: str | None, mistakes: Mistakes) -> RunRequest:
    """Return the request of a start with all its requests: a search for the capacity, or a sweep."""
    assert tune.auto is not None
    plan, objective = tune.plan, tune.objective
    options = plan_options(tune, session_dir) | {"slo": tune.auto.slo}
    options |= {"canaries": _CANARIES} if tune.auto.allow_quality else {}
    part = _PART_OF_SEARCH if objective == "agents" else _PART
    seconds = min(max(part * parse_seconds(tune.auto.budget, "--budget"), _LEAST_S), _MOST_S)
    if plan.requests is None and plan.duration is None:
        options["duration"] = f"{seconds / len(plan.levels):.0f}s"
    if objective == "agents":
        options |= dict.fromkeys(("levels", "requests", "duration", "runs")) | {"plan": "quick"}
        options["budget"] = f"{seconds:.0f}s"
    request: RunRequest = run_request(options, mistakes)
    return request


def save_outcome(tune: Tune, directory: Path, root: Path, html: str | None = None) -> TuneOutcome:
    """Write the result of a tune beside it, as JSON and as a page, and to the tuning log."""
    from swarmtui.experiments import auto_plan
    from swarmtui.files import write_file
    from swarmtui.report.html import render_blocks
    from swarmtui.report.tune_outcome import outcome_blocks

    outcome = auto_plan.save_outcome(tune, directory, auto_plan.find_space(tune, root))
    page = render_blocks(f"swarmtui tune · {outcome.given}", outcome_blocks(outcome))
    write_file(directory / "result.html", page)
    if html is not None:
        Path(html).write_bytes(page)
    auto_plan.log_outcome(root, tune, outcome)
    return outcome


def with_power(tune: TuneFile, option: str | None, stored: Tune | None) -> tuple[TuneFile, str]:
    """Add the power limits to try, and say why there are none although the objective asks for them.

    Those of a tune that runs, or is only shown, are what was decided when it began.
    """
    from swarmtui.client.held_settings import check_power, choose_watts

    given = [knob for knob in tune.knob if knob.kind == "power"]
    if stored is not None:
        decided = (knob for knob in stored.definition.knob if knob.kind == "power" and not given)
        return msgspec.structs.replace(tune, knob=(*tune.knob, *decided)), ""
    for knob in given:
        check_power(knob.watts, knob.gpus)
    wanted = option or ("auto" if tune.objective == "j_per_token" else "none")
    if given or wanted == "none":
        return tune, ""
    try:
        watts = choose_watts() if wanted == "auto" else _parse_watts(wanted)
    except BadInput as problem:
        if option is not None:
            raise
        return tune, problem.problem
    check_power(watts, key="--power")
    return msgspec.structs.replace(tune, knob=(*tune.knob, LiveKnob(kind="power", watts=watts))), ""


def _parse_watts(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", text):
        raise BadInput(f"{text!r} is not auto, none or watts, such as 280,250,220", key="--power")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def auto_commands_text(tune: TuneFile, space: Any, power_problem: str) -> str:
    """List the command, and every flag with the values that it may get, for the user to confirm."""
    shown = escape(str(launch_command(tune, {}, "PORT")), keep="")
    lines = [f"command (PORT: a free port):\n  {shown}"]
    lines += [f"flags of {tune_engine(tune).name} that it is started with instead, and their values:"]
    live = {knob.key for knob in tune.knob}
    for knob in space.knobs:
        if knob.name in live:
            continue
        values = ", ".join(map(value_text, space.ladder(knob)))
        lines.append(f"  {escape(knob.name, keep='')}: {escape(values, keep='')}")
    if not space.knobs:
        raise BadInput(_NO_KNOBS, key="--auto")
    lines += [line for knob in tune.knob for line in knob_lines(knob)]
    lines += [f"the power limit stays as it is: {power_problem}"] if power_problem else []
    assert tune.auto is not None
    lines.append(f"{space.size:,} configurations, of which a few are started, within {tune.auto.budget}")
    return "\n".join(lines)
