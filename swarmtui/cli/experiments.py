"""Commands that start servers and set them against each other: ab and tune."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from swarmtui.cli.app import is_terminal
from swarmtui.cli.options import Whole, as_text, commands, defaults_of, session_dir_option
from swarmtui.cli.run import run
from swarmtui.cli.words import make_order


@commands.command()
@click.option("--a", "a", required=True, metavar="URL|COMMAND", help="The first; {port} in a command is a free one.")
@click.option("--b", "b", metavar="URL|COMMAND", help="The other.")
@click.option("--aa", is_flag=True, help="A against itself: the noise floor.")
@click.option("--url", metavar="URL", help="Where the started server is found.  [default: http://127.0.0.1:{port}]")
@click.option("--detect", default="2%", show_default=True, metavar="SHARE", help="The difference that matters.")
@click.option("--max-runs", default=16, show_default=True, type=Whole(4, 48), metavar="N", help="Runs of each at most.")
@click.option(
    "--figure",
    default="out_tps",
    show_default=True,
    type=click.Choice(["out_tps", "per_stream_tps", "ttft_s"]),
    help="By which they are judged.",
)
@click.option("--level", default=4, show_default=True, type=Whole(1), metavar="C", help="Concurrent streams.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--model", metavar="NAME", help="The model's name; without it the first that the endpoint lists.")
@click.option("--requests", metavar="N|4C", help="Requests a run: a number or a multiple of C.  [default: 4C]")
@click.option("--duration", metavar="TIME", help="A run lasts so long, instead of --requests.")
@click.option("--warmup", metavar="N|none", help="Discarded requests before each run.")
@click.option("--max-tokens", type=Whole(1), metavar="N", help="Cap on each answer.")
@click.option("--seed", type=int, metavar="N", help="Of the requests and of the order of runs.")
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@click.option("--ready-within", default="10m", show_default=True, metavar="TIME", help="How long a server may load.")
@click.option("--yes", is_flag=True, help="Start the commands without asking.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
@session_dir_option
def ab(a: str, b: str | None, aa: bool, yes: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Which of two is faster: interleaved runs (ABBA), until it is known or not worth more.

    \b
    The figures are looked at with 4, 6, 8, 12, 16, 24, 32 and 48 runs of each, and the chance of a
    wrong claim is shared out over these looks: it is below 5 % in all, whenever one stops.
    """
    from swarmtui.client.config_file import read_config
    from swarmtui.experiments.ab import Contest, Fight, is_command, logged, new_name, outcome_text
    from swarmtui.experiments.grid import command_launch
    from swarmtui.experiments.measure import Wish
    from swarmtui.experiments.tune_store import add_change, logs_directory
    from swarmtui.model.plan import parse_seconds
    from swarmtui.model.schema import BadInput

    if (b is None) != aa:
        raise BadInput("give --b, or --aa to run A against itself", key="--b")
    sides = {"--a": a} if b is None else {"--a": a, "--b": b}
    names = read_config().endpoints
    started = {option: text for option, text in sides.items() if is_command(text) and text not in names}
    launches = [str(command_launch(text, given["url"], "PORT", option)) for option, text in started.items()]
    order = _many(given, [text for option, text in sides.items() if option not in started], levels=str(given["level"]))
    contest = Contest(
        name=new_name(), a=_address(a, names), b=_address(b or a, names), aa=aa,
        url=given["url"], figure=given["figure"], most=given["max_runs"],
        detect=_share(given["detect"]), seed=order.plan.seed,
        ready_within_s=parse_seconds(given["ready_within"], "--ready-within"),
    )  # fmt: skip
    if launches:
        _agree("these commands are run, PORT being a free one:\n  " + "\n  ".join(launches), yes)
    say = _teller(quiet)
    logs = logs_directory(Path(order.session_root), contest.name)
    with Wish().heard() as wish:
        outcome = Fight(contest, order, logs, quiet, say).run(wish)
    if change := logged(outcome):
        add_change(Path(order.session_root), change)
    click.echo(as_text(outcome) if as_json else outcome_text(outcome), nl=as_json)
    if outcome.problem:
        click.echo(f"swarmtui: {outcome.problem}", err=True)
    sys.exit(3 if outcome.problem else 4 if outcome.stopped else 0)


@commands.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--yes", is_flag=True, help="Start the commands without asking.")
@click.option("--show", is_flag=True, help="Show what is known so far, and leave.")
@click.option("--retry-broken", is_flag=True, help="Try broken cells once more.")
@click.option("--text", is_flag=True, help="Lines instead of the screen, also in a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
@session_dir_option
def tune(
    file: str, yes: bool, show: bool, retry_broken: bool, text: bool, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Start a server with each cell of a grid of flags, measure it, stop it; ends with a leaderboard.

    In a terminal the grid is shown as it fills up, and the tune goes on if that screen dies. Called again while it
    runs, the same command shows it again; after an interruption it goes on where it was. FILE says how:

    \b
    command = "vllm serve MODEL --port {port}"    # no shell; flags are put behind it
    [grid]
    "--max-num-seqs" = [2, 4, 8]
    "--enforce-eager" = [true, false]             # a flag alone, or left out
    "VLLM_ATTENTION_BACKEND" = ["FLASH_ATTN"]     # capitals: the environment
    [plan]                                        # as for `swarmtui run`
    levels = [8]
    runs = 4
    """
    from swarmtui.cli.render.tuning import tune_text
    from swarmtui.experiments.effects import result
    from swarmtui.experiments.measure import Wish
    from swarmtui.experiments.tune import Tuning, commands_text
    from swarmtui.experiments.tune_process import Errand, start_tuner
    from swarmtui.experiments.tune_status import is_alive, rows_of
    from swarmtui.experiments.tune_store import read_present, read_state, tune_directory
    from swarmtui.model.schema import BadInput
    from swarmtui.model.tuning import read_tune

    try:
        wanted = read_tune(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}", source=file) from None
    plan = wanted.plan
    order = _many(
        {name: getattr(plan, name) for name in ("workload", "model", "runs", "max_tokens", "temperature", "duration")}
        | {"timeout": plan.timeout, "idle_timeout": plan.idle_timeout, "api_key_env": plan.api_key_env}
        | {name: None if (value := getattr(plan, name)) is None else str(value) for name in ("requests", "warmup")}
        | {"seed": wanted.seed, "session_dir": given["session_dir"]}
        | {"gpu_metrics_urls": (plan.gpu_metrics_url,) if plan.gpu_metrics_url else ()},
        levels=",".join(map(str, plan.levels)),
    )
    directory = tune_directory(Path(order.session_root), wanted)
    tuning = Tuning(wanted, order, directory, quiet, _teller(quiet))
    on_screen = is_terminal() and not (text or as_json or quiet)
    stopped = False
    if retry_broken:
        tuning.retry_broken()
    if not show and on_screen and is_alive(read_present(directory)):
        stopped = _watch(directory)
    elif not show and tuning.left():
        _agree(commands_text(wanted), yes)
        if on_screen:
            start_tuner(Errand(tune=wanted, order=order, directory=str(directory), retry_broken=retry_broken))
            stopped = _watch(directory)
        else:
            with Wish().heard() as wish:
                tuning.run(wish)
            stopped = wish()
    found = result(rows_of(wanted, read_state(directory, wanted.name).rows), wanted.objective)
    click.echo(as_text(found) if as_json else tune_text(found), nl=as_json)
    if stopped:
        click.echo("swarmtui: stopped; the same command goes on from here", err=True)
    sys.exit(4 if stopped else 0)


def _watch(directory: Path) -> bool:
    """The grid in the app, until it is over or people leave; whether the tune ended before all was done."""
    from swarmtui.experiments.tune_store import read_present
    from swarmtui.tui.launch import watch_tune

    if watch_tune(directory).detached:
        click.echo("the tune goes on; the same command shows it again", err=True)
        sys.exit(0)
    present = read_present(directory)
    if present is not None and present.ended == "failed":
        click.echo(f"swarmtui: the tune failed; its words are in {directory / 'tune.log'}", err=True)
    return present is None or present.ended != "done"


def _many(given: dict[str, Any], endpoints: list[str] | None = None, *, levels: str) -> Any:
    """The order of one run of many, as `run` would have it; the endpoint is filled in for each."""
    defaults = {} if endpoints is None else defaults_of("ab")
    whole = run.make_context("run", [], default_map=defaults).params | given | {"levels": levels, "on_restart": "stop"}
    return make_order(tuple(endpoints or ("http://127.0.0.1:1",)), whole)


def _address(side: str, names: dict[str, Any]) -> str:
    """Of an endpoint that config.toml names; anything else is as it was said."""
    return str(names[side].url) if side in names else side


def _share(text: str) -> float:
    """`3%` and `0.03`."""
    from swarmtui.model.schema import BadInput

    number, percent, _ = text.strip().partition("%")
    try:
        share = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        share = 0.0
    if not 0.001 <= share <= 1.0:
        raise BadInput(f"{text!r} is not a share such as 3%, between 0.1% and 100%", key="--detect")
    return share


def _agree(text: str, yes: bool) -> None:
    """Nobody's command is started unseen."""
    from swarmtui.model.schema import BadInput

    click.echo(text, err=True)
    if yes:
        return
    if not is_terminal():
        raise BadInput("say --yes to start these commands: there is no terminal to ask on")
    if not click.confirm("start?", default=False, err=True):
        sys.exit(4)


def _teller(quiet: bool) -> Callable[[str], None]:
    from swarmtui.text import plain

    return lambda text: None if quiet else click.echo(plain(text), err=True)
