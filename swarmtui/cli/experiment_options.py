"""What the commands that start servers share: the request of a run, the confirmation of commands, the tune screen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from swarmtui.cli.app import is_terminal
from swarmtui.cli.options import config_defaults
from swarmtui.cli.run import run
from swarmtui.cli.run_options import build_run_request
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.processes.exits import DONE, STOPPED
from swarmtui.text import echo, sanitize

if TYPE_CHECKING:
    from swarmtui.experiments.runner import Runner
    from swarmtui.model.tuning import Objective, TuneFile

# What `tune --auto` optimises, by the names of figures.
OBJECTIVES: dict[str, Objective] = {
    "agents": "agents", "tok_s": "out_tps", "j_per_token": "j_per_token", "ttft": "ttft_s",
}  # fmt: skip


def plan_options(tune: TuneFile, session_dir: str | None) -> dict[str, Any]:
    """The options of `run` that the plan of a tune stands for."""
    plan = tune.plan
    urls = (plan.gpu_metrics_url,) if plan.gpu_metrics_url else ()
    return msgspec.structs.asdict(plan) | {"seed": tune.seed, "session_dir": session_dir, "gpu_metrics_urls": urls}


def run_tune(runner: Runner[TuneFile], directory: Path, confirm: Callable[[], None], options: dict[str, Any]) -> bool:
    """Run a tune here, or on a terminal in a process that the app shows; return whether it was stopped."""
    from swarmtui.client.session_client import StopControl
    from swarmtui.experiments.store import read_experiment
    from swarmtui.experiments.tune import TuneJob, start_tune_process

    on_screen = is_terminal() and not any(options[name] for name in ("text", "as_json", "events", "quiet"))
    found = read_experiment(directory, "tune")
    running = found is not None and not found.status.ended
    if on_screen and running:
        return show_tune(directory)
    confirm()
    if on_screen:
        tune, retry = runner.experiment.definition, options["retry_failed"]
        start_tune_process(TuneJob(tune=tune, request=runner.request, directory=str(directory), retry_failed=retry))
        return show_tune(directory)
    stop = StopControl()
    with stop.on_signals():
        runner.run(stop)
    return runner.experiment.status.ended == "stopped"


def show_tune(directory: Path) -> bool:
    """Show the tune in the app until it ends or the user closes it; return whether it ended unfinished."""
    from swarmtui.experiments.store import read_experiment
    from swarmtui.tui.launch import open_tune

    if open_tune(directory).detached:
        echo("the tune continues in the background; run the same command to show it again", err=True)
        sys.exit(DONE)
    found = read_experiment(directory, "tune")
    if found is not None and found.status.ended == "failed":
        echo(f"swarmtui: the tune failed; log: {directory / 'tune.log'}", err=True)
    return found is None or found.status.ended != "done"


def run_request(
    options: dict[str, Any], mistakes: Mistakes | None = None, endpoints: dict[str, str] | None = None
) -> Any:
    """The request that every run is made from, as `run` would build it; the endpoint is replaced for each run.

    `endpoints` are those to compare, by the option that has them.
    """
    defaults = {} if endpoints is None else config_defaults("ab")
    params = run.make_context("run", [], default_map=defaults).params | options | {"on_restart": "stop"}
    addresses, named = tuple((endpoints or {}).values()), " and ".join(endpoints or ())
    return build_run_request(addresses or ("http://127.0.0.1:1",), params, mistakes, endpoint_option=named)


def confirm_commands(text: str, yes: bool) -> None:
    """Show the commands before any of them is run, and ask for confirmation; if it was given, without secrets."""
    from swarmtui.engines.command_line import redact_flags

    if yes:
        lines = [(line[: len(line) - len(line.lstrip())], line.lstrip()) for line in text.splitlines()]
        echo("\n".join(f"{indent}{redact_flags(line)}" for indent, line in lines), err=True)
        return
    echo(text, err=True)
    if not is_terminal():
        raise BadInput("add --yes to run these commands: there is no terminal to ask for confirmation")
    if not click.confirm("Run them?", default=False, err=True):
        sys.exit(STOPPED)


def reporter(quiet: bool) -> Callable[[str], None]:
    return lambda text: None if quiet else echo(sanitize(text), err=True)
