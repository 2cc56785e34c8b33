"""The commands `quick` and `capacity`, which search for the most agents that keep an SLO."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from swarmtui.cli.app import is_terminal
from swarmtui.cli.checked import mistakes_of
from swarmtui.cli.options import WholeNumber, commands, config_defaults
from swarmtui.cli.run import run
from swarmtui.cli.run_options import NoServerFound, RunCommand, build_run_request, chosen_endpoints, only_endpoint
from swarmtui.text import echo, fold

if TYPE_CHECKING:
    from swarmtui.model.run_request import RunRequest

# Options of `run` about levels and comparisons, which a search decides by itself; those of a trace are not quick.
_NOT_FOR_CAPACITY = (
    "levels", "find_cliff", "rate", "arrival", "burst", "serial_rates", "runs", "canaries", "precision", "slo",
    "fail_if", "fail_unsure", "baseline", "detect",
)  # fmt: skip
_NOT_FOR_QUICK = (
    "requests", "duration", "complete", "max_gap", "time_scale", "too_long", "rules", "hosts", "price_per_hour",
    "agent_header", "keep_text", "max_tokens",
)  # fmt: skip

_SIMULATOR = "sim:moe-tp1"

_slo = click.option(
    "--slo",
    default="",
    metavar="ttft_p90=2s,…",
    help="What each agent needs: percentiles of ttft ttfo tpot e2e stall (times), stream (tok/s) and job (the time of "
    "a conversation or recorded session), or limits without a percentile that 95 % of requests must meet together.  "
    "[default: that of the workload, else a first token within 2 s and 20 tok/s each, for 90 % of requests: "
    "ttft_p90=2s,stream_p10=20]",
)


def _options(*excluded: str) -> list[click.Parameter]:
    return [option for option in run.params if option.name not in excluded]


@commands.command(cls=RunCommand, params=_options(*_NOT_FOR_CAPACITY, *_NOT_FOR_QUICK))
@_slo
@click.option(
    "--budget", default="60s", show_default=True, metavar="TIME", help="Time to search; then it answers as it can."
)
@click.option(
    "--max-tokens",
    type=WholeNumber(1),
    metavar="N",
    help="Output token limit of each request.  [default: that of the workload, else 128: a minute is short]",
)
@click.pass_context
def quick(context: click.Context, /, as_json: bool, quiet: bool, **options: Any) -> None:
    """Say in about a minute how many agents a server carries, why no more, and what to try next.

    Runs one agent, doubles the number until the SLO is missed, then bisects, with an error of 20 % for each end of the
    answer. ENDPOINT is a URL, a name in config.toml, or sim:PRESET; without one, it is the server found on this host.
    Exit code 1: not even one agent keeps the SLO.

    \b
    swarmtui quick
    swarmtui quick http://127.0.0.1:8000 --slo ttft_p90=1s,stream_p10=30
    """
    _search(context, options | {"plan": "quick"}, as_json=as_json, quiet=quiet, brief=True)


@commands.command(cls=RunCommand, params=_options(*_NOT_FOR_CAPACITY, "requests"))
@_slo
@click.option(
    "--requests",
    metavar="N|4C",
    help="Least requests of a run: a number or a multiple of C; a search adds those that it needs to decide.  "
    "[default: that of the workload, else 1C]",
)
@click.option(
    "--max-agents", "max_c", type=WholeNumber(1, 20_000), metavar="N", help="The highest C to try.  [default: 1024]"
)
@click.pass_context
def capacity(context: click.Context, /, as_json: bool, quiet: bool, **options: Any) -> None:
    """Find the most agents that a server carries within an SLO.

    Doubles the number of agents until a level misses the SLO, then bisects, decides the levels at the border with an
    error of 1 % for each look, and runs them again at the end; at least two levels have to miss it. Also says where
    prompts are evicted from the KV cache. ENDPOINT is a URL, a name in config.toml, or sim:PRESET; without one, it is
    the server found on this host. Exit code 1: not even one agent keeps the SLO.
    """
    _search(context, options | {"plan": "capacity"}, as_json=as_json, quiet=quiet)


def _search(
    context: click.Context, options: dict[str, Any], *, as_json: bool, quiet: bool, brief: bool = False
) -> None:
    from swarmtui.processes.spawn import start_session_process

    # Started first: it imports its modules while the options are checked, and exits if they are wrong.
    process = start_session_process()
    from swarmtui.cli.follow import follow_run, make_outputs

    defaults = run.make_context("run", [], default_map=config_defaults(str(context.info_name))).params
    unset = dict.fromkeys(_NOT_FOR_QUICK, None) if brief else {}
    mistakes = mistakes_of(context)
    outputs = make_outputs(options, mistakes, as_json=as_json, quiet=quiet)
    # Questions are for people who read the answer on the screen.
    ask = brief and not mistakes.found and not as_json and outputs.events is None and is_terminal()
    request: RunRequest = build_run_request(
        chosen_endpoints(context),
        defaults | unset | options,
        mistakes,
        find_endpoint=partial(_found_endpoint, ask=ask) if brief else only_endpoint,
    )
    if not quiet:
        from swarmtui.analysis.limits.slo import parse_slo

        echo(fold(f"SLO: {parse_slo(request.plan.slo).words()}", sys.stderr), err=True)
    sys.exit(follow_run(request, process, outputs, brief=brief))


def _found_endpoint(*, ask: bool) -> str:
    """Return the one server on this host; with none, name the simulator or, with `ask`, offer to use it."""
    try:
        return only_endpoint()
    except NoServerFound as error:
        if not ask or not click.confirm(f"no server found on this host; try the simulator {_SIMULATOR}?"):
            raise NoServerFound(f"no server found on this host; try `swarmtui quick {_SIMULATOR}`") from error
        return _SIMULATOR
