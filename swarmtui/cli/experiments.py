"""The commands `ab` and `tune`, which start servers and compare them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CollectingCommand, mistakes_of
from swarmtui.cli.experiment_options import (
    OBJECTIVES,
    confirm_commands,
    plan_options,
    reporter,
    run_request,
    run_tune,
)
from swarmtui.cli.options import OutputFile, WholeNumber, commands, parse_share, print_result
from swarmtui.cli.run_options import RunCommand
from swarmtui.model.base import BadInput
from swarmtui.processes.exits import DONE, STOPPED, UNUSABLE
from swarmtui.text import echo, escape

# A cache shows in the time to the first token, with prompts that share a long prefix.
_HEADER_DEFAULTS = {"figure": "ttft_s", "workload": "coding-agent", "requests": "1C", "max_tokens": 64, "detect": "20%"}

# Options that a tune file has its own keys for.
_ONLY_AUTO = {
    "command": "--auto", "budget": "--budget", "objective": "--objective", "slo": "--slo",
    "allow_quality": "--allow-quality", "knobs": "--knob", "power": "--power", "engine": "--engine",
    "recipe": "--recipe", "url": "--url", "levels": "--levels", "requests": "--requests", "workload": "--workload",
    "max_tokens": "--max-tokens", "ready_within": "--ready-within",
}  # fmt: skip

_yes_option = click.option("--yes", is_flag=True, help="Run the commands without asking for confirmation.")


@commands.command(cls=RunCommand)
@click.option("--a", "a", required=True, metavar="URL|COMMAND", help="A: an endpoint, or a command that starts one.")
@click.option("--b", "b", metavar="URL|COMMAND", help="B, likewise; {port} in a command is replaced by a free port.")
@click.option("--aa", is_flag=True, help="Run A against itself, to measure the noise floor.")
@shared.agent_header
@click.option("--url", metavar="URL", help="Address of a started server.  [default: http://127.0.0.1:{port}]")
@click.option(
    "--detect", default="2%", show_default=True, metavar="SHARE", help="The smallest difference that matters."
)
@click.option(
    "--max-runs", default=16, show_default=True, type=WholeNumber(4, 48), metavar="N", help="Maximum runs per side."
)
@click.option(
    "--figure",
    default="out_tps",
    show_default=True,
    type=click.Choice(["out_tps", "per_stream_tps", "ttft_s"]),
    help="The figure to compare.",
)
@click.option(
    "--level", default=4, show_default=True, type=WholeNumber(1), metavar="C", help="Number of concurrent streams."
)
@shared.workload
@shared.model
@shared.api
@shared.requests
@shared.duration
@click.option("--warmup", metavar="N|none", help="Warm-up requests before each run; they are discarded.")
@shared.max_tokens
@click.option("--seed", type=WholeNumber(), metavar="N", help="Seed of the requests and of the order of runs.")
@shared.api_key
@shared.ca_file
@shared.insecure
@click.option(
    "--pass-env", multiple=True, metavar="VAR", help="Pass a variable that holds a key on to started servers."
)
@click.option(
    "--ready-within", default="10m", show_default=True, metavar="TIME", help="Time limit for a server to become ready."
)
@_yes_option
@shared.json
@shared.quiet
@shared.session_dir
@click.pass_context
def ab(
    context: click.Context, /, a: str, b: str | None, aa: bool, yes: bool, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Find out which of two servers is faster, with interleaved runs (ABBA).

    \b
    The runs are evaluated when there are 4, 6, 8, 12, 16, 24, 32 and 48 per side. The chance
    of claiming a difference that does not exist is below 5 % over all evaluations together.

    \b
    With --agent-header, A is compared with itself: B sends the same requests with lines in front of the
    system prompt that change every time. The result says whether the server's prefix cache survives them.
    Defaults are then --figure ttft_s --workload coding-agent --requests 1C
    --max-tokens 64 --detect 20%.
    """
    from swarmtui.analysis.compare.verdicts import DETECT
    from swarmtui.cli.progress import open_progress
    from swarmtui.client.catalogue import validate_endpoint
    from swarmtui.client.config_file import read_config
    from swarmtui.client.session_client import StopControl
    from swarmtui.experiments.ab import AbRunner, ab_launch, ab_result, log_entry
    from swarmtui.experiments.store import add_change, experiment_directory
    from swarmtui.model.parsing import parse_seconds
    from swarmtui.model.tuning import AbTest, is_command
    from swarmtui.report.tuning import ab_blocks

    header, mistakes = options["agent_header"], mistakes_of(context)
    if (b is not None) + aa + (header is not None) != 1:
        mistakes.found.append(BadInput("give one of --b, --aa (A against itself) and --agent-header", key="--b"))
    if header is not None:
        unset = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
        options |= {name: v for name, v in _HEADER_DEFAULTS.items() if context.get_parameter_source(name) in unset}
    detect = mistakes.catch(parse_share, options["detect"]) or DETECT
    ready_within_s = mistakes.catch(parse_seconds, options["ready_within"], "--ready-within") or 0.0
    sides = {name: side for name, side in (("--a", a), ("--b", b)) if side is not None}
    names = read_config().endpoints
    endpoints = {option: text for option, text in sides.items() if text in names or not is_command(text)}
    if len(endpoints) < len(sides):
        mistakes.catch(_refuse_shared_key, sides, names)
    targets = {option: str(names[text].url) if text in names else text for option, text in sides.items()}
    for option in endpoints:
        mistakes.catch_as(option, validate_endpoint, targets[option])
    wrong = {error.key for error in mistakes.found}
    endpoints = {option: text for option, text in endpoints.items() if option not in wrong}
    a = targets.get("--a", "")
    b = targets.get("--b", a)
    test = AbTest(
        name=f"ab-{datetime.now(UTC):%Y%m%d-%H%M%S}", a=a, b=b, aa=aa, agent_header=header,
        url=options["url"], figure=options["figure"], max_runs=options["max_runs"],
        detect=detect, pass_env=options["pass_env"], ready_within_s=ready_within_s,
    )  # fmt: skip
    found = [mistakes.catch(ab_launch, test, side, "PORT") for side in ("A", "B") if f"--{side.lower()}" in sides]
    request = run_request(options | {"levels": (options["level"],)}, mistakes, endpoints)
    test = msgspec.structs.replace(test, seed=request.plan.seed)
    launches = dict.fromkeys(str(launch) for launch in found if launch)
    if launches:
        shown = [escape(launch, keep="") for launch in launches]
        confirm_commands("commands to run (PORT: a free port):\n  " + "\n  ".join(shown), yes)
    root = Path(request.session_root)
    runner = AbRunner(
        test, request, experiment_directory(root, test.name), reporter(quiet), open_progress(sys.stderr, quiet)
    )
    stop = StopControl()
    with stop.on_signals():
        runner.run(stop)
    result = ab_result(runner.experiment)
    if change := log_entry(result):
        add_change(root, change)
    print_result(result, ab_blocks(result), as_json=as_json)
    if result.problem:
        echo(f"swarmtui: {result.problem}", err=True)
    sys.exit(UNUSABLE if result.problem else STOPPED if result.stopped else DONE)


@commands.command(cls=CollectingCommand)
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@click.option("--auto", "command", metavar="COMMAND", help="Find the flags for this command; {port} is a free port.")
@click.option("--budget", metavar="TIME", help="With --auto: time for all starts together.  [default: 45m]")
@click.option(
    "--objective",
    type=click.Choice(list(OBJECTIVES)),
    help="With --auto: what to optimise.  [default: agents, the most that keep the SLO]",
)
@click.option("--slo", metavar="ttft_p90=2s,…", help="With --auto: what each agent needs, as for `quick`.")
@click.option(
    "--allow-quality", is_flag=True, help="With --auto: also try flags that may change answers; asks canaries."
)
@click.option(
    "--knob", "knobs", multiple=True, metavar="FLAG=V,V", help="With --auto: try only these flags, with these values."
)
@click.option(
    "--power",
    metavar="auto|none|W,…",
    help="With --auto: power limits to try last; needs root, and is restored.  "
    "[default: auto with --objective j_per_token, else none]",
)
@click.option("--engine", metavar="NAME", help="With --auto: the engine, if the command does not name it.")
@click.option(
    "--recipe", type=click.Path(dir_okay=False), metavar="FILE", help="With --auto: try the flags of a recipe first."
)
@click.option("--save-recipe", type=OutputFile(), metavar="FILE", help="With --auto: write the flags found.")
@click.option("--url", metavar="URL", help="With --auto: address of the server.  [default: http://127.0.0.1:{port}]")
@click.option("--levels", metavar="C,…", help="With --auto, for objectives but agents.  [default: 1,4,16]")
@click.option("--requests", metavar="N|4C", help="With --auto and levels: requests of each level.")
@click.option("--workload", metavar="NAME|FILE", help="With --auto: the requests.  [default: coding]")
@click.option("--max-tokens", type=WholeNumber(1), metavar="N", help="With --auto: output token limit of each request.")
@click.option("--ready-within", metavar="TIME", help="With --auto: time limit for a server to become ready.")
@click.option("--html", type=OutputFile(), metavar="FILE", help="With --auto: write the result as a page.")
@_yes_option
@click.option("--show", is_flag=True, help="Print the results so far and exit.")
@click.option("--retry-failed", is_flag=True, help="Measure failed configurations again.")
@click.option("--text", is_flag=True, help="Print lines instead of opening the app, also on a terminal.")
@shared.json
@shared.events
@shared.quiet
@shared.session_dir
@click.pass_context
def tune(context: click.Context, /, file: str | None, **options: Any) -> None:
    """Measure a server with every combination of flags in a grid, and rank them; or find the flags.

    \b
    swarmtui tune --auto 'vllm serve MODEL --port {port}' --budget 45m

    --auto begins with the command as it is, changes one flag after the other, restarts the best few, and compares the
    best with the command as `ab` does. Flags and values are those that are known for the engine; what cannot fit or
    cannot be better is not started. Closing the app does not stop it, and the same command continues it.

    For each configuration the server is started, measured and stopped. Starts of one server differ, so the best three
    are then restarted three times each and ranked by these starts; until then one only "leads so far". On a terminal
    the app shows the progress; closing it does not stop the tune, and the same command shows it again. After an
    interruption the same command continues with what is left. FILE describes the tune:

    \b
    command = "vllm serve MODEL --port {port}"    # run without a shell; flags are appended
    pass_env = ["HF_TOKEN"]                       # keys in the environment are passed on by name only
    finalists = 3                                 # how many are restarted
    restarts = 3                                  # how often; 0: nothing is ranked
    [grid]
    "--max-num-seqs" = [2, 4, 8]
    "--enforce-eager" = [true, false]             # a flag without value, present or absent
    "VLLM_ATTENTION_BACKEND" = ["FLASH_ATTN"]     # capitals: an environment variable
    [[knob]]                                      # changed while the server runs, in one start of it
    kind = "power"                                # the power limit of its GPUs; needs root, and is restored
    watts = [700, 500, 350]
    [[knob]]                                      # a command of yours; {value} and {port} are replaced
    name = "clock"
    values = [1980, 1500]
    apply = "sudo -n nvidia-smi -lgc {value}"
    restore = "sudo -n nvidia-smi -rgc"
    [plan]                                        # options of `swarmtui run`
    levels = [8]
    """
    from swarmtui.cli import auto_tune
    from swarmtui.cli.events import open_events
    from swarmtui.cli.progress import open_progress
    from swarmtui.client.held_settings import check_power
    from swarmtui.experiments.auto import AutoRunner
    from swarmtui.experiments.auto_plan import find_space
    from swarmtui.experiments.effects import summarise_tune
    from swarmtui.experiments.store import read_experiment, tune_directory
    from swarmtui.experiments.tune import TuneRunner
    from swarmtui.model.client_protocol import Ended
    from swarmtui.model.tuning import parse_tune
    from swarmtui.prompts.library import read_text
    from swarmtui.report.tune_outcome import outcome_blocks
    from swarmtui.report.tuning import commands_text, tune_blocks

    mistakes = mistakes_of(context)
    for name, option in _ONLY_AUTO.items() if file is not None else ():
        if options[name]:
            problem = "is for --auto COMMAND, without FILE; a file has it in [auto], [grid] or [plan]"
            mistakes.found.append(BadInput(problem, key=option))
    as_json, quiet, shown, session_dir = (options[name] for name in ("as_json", "quiet", "show", "session_dir"))
    writer = mistakes.catch(open_events, as_json=as_json) if options["events"] else None
    if file is None:
        tuned = auto_tune.auto_tune_file(options, mistakes)
    elif found := mistakes.catch(lambda: parse_tune(read_text(Path(file)), file)):
        tuned = found
    else:
        mistakes.raise_all()
    auto, power_problem = tuned.auto is not None, ""
    request = (
        auto_tune.auto_request(tuned, session_dir, mistakes)
        if auto
        else run_request(plan_options(tuned, session_dir), mistakes)
    )
    root = Path(request.session_root)
    directory = tune_directory(root, tuned)
    if auto:
        stored = read_experiment(directory, "tune")
        decided = stored if shown or (stored is not None and not stored.status.ended) else None
        tuned, power_problem = auto_tune.with_power(tuned, options["power"], decided)
    progress, observe = open_progress(sys.stderr, quiet), writer.observe if writer else None
    kind: type[AutoRunner | TuneRunner] = AutoRunner if auto else TuneRunner
    runner = kind(tuned, request, directory, reporter(quiet), progress, observe)
    if options["retry_failed"]:
        runner.retry_failed()

    def confirm() -> None:
        if auto:
            text = auto_tune.auto_commands_text(tuned, find_space(runner.experiment, root), power_problem)
        else:
            for knob in tuned.knob:
                if knob.kind == "power":
                    check_power(knob.watts, knob.gpus)
            text = commands_text(tuned)
        confirm_commands(text, options["yes"])

    left = not shown and (isinstance(runner, AutoRunner) or runner.remaining() > 0)
    stopped = left and run_tune(runner, directory, confirm, options)
    stored, sentence, code = read_experiment(directory, "tune"), "", STOPPED if stopped else DONE
    summary = summarise_tune(tuned, stored.starts if stored is not None else ())
    if not auto:
        print_result(summary, tune_blocks(summary), as_json=as_json, err=writer is not None)
    elif stored is None:
        raise BadInput("this tune has not been started", key="--show")
    else:
        # The command as it was typed: what is stored has no secrets, and cannot be started.
        typed = msgspec.structs.replace(stored, definition=tuned)
        outcome = auto_tune.save_outcome(typed, directory, root, options["html"])
        print_result(outcome, outcome_blocks(outcome), as_json=as_json, err=writer is not None)
        if options["save_recipe"] is not None:
            auto_tune.save_recipe(Path(options["save_recipe"]), tuned, outcome, root)
        if not as_json:
            echo(f"saved: {directory / 'result.html'}", err=True)
        sentence, code = outcome.sentence, UNUSABLE if outcome.code == "no_baseline" and not stopped else code
        if writer is not None:
            writer.tuned(outcome)
    message = "stopped; run the same command again to continue" if stopped else sentence
    if stopped:
        echo(f"swarmtui: {message}", err=True)
    if writer is not None:
        writer.end_tune(summary, Ended("stopped" if stopped else "done", message, str(directory)), code)
    sys.exit(code)


def _refuse_shared_key(sides: dict[str, str], names: dict[str, Any]) -> None:
    """Refuse an endpoint with a key or headers beside a started server, which would get them too."""

    for option, text in sides.items():
        if text in names and (names[text].api_key_env or names[text].headers):
            raise BadInput(
                f"the key and headers of {text} would be sent to the started server too; "
                "write its URL instead of its name, and --api-key-env if both need the key",
                key=option,
            )
