"""The command `capacity`: how many agents a server carries within an SLO."""

from __future__ import annotations

import sys
from typing import Any

import click

from swarmtui.cli.options import WholeNumber, commands, config_defaults
from swarmtui.cli.run import run
from swarmtui.cli.run_options import build_run_request

# Options of `run` about levels and comparisons, which a search decides by itself.
_NOT_OPTIONS = (
    "levels", "find_cliff", "rate", "arrival", "burst", "serial_rates", "runs", "canaries", "slo", "fail_if",
    "baseline", "detect",
)  # fmt: skip


@commands.command(params=[option for option in run.params if option.name not in _NOT_OPTIONS])
@click.option(
    "--slo",
    required=True,
    metavar="ttft_p95=2s,stream_p5=20",
    help="What each agent needs: percentiles of ttft ttfo tpot e2e stall (times) and stream (tok/s), or limits without "
    "a percentile that 95 % of requests must meet together.",
)
@click.option(
    "--max-agents", "max_c", type=WholeNumber(1, 20_000), metavar="N", help="The highest C to try.  [default: 1024]"
)
@click.pass_context
def capacity(context: click.Context, /, endpoints: tuple[str, ...], as_json: bool, quiet: bool, **options: Any) -> None:
    """Find the most agents that a server carries within an SLO.

    Doubles the number of agents until one level misses the SLO, then bisects and repeats the levels at the border until
    the bounds of Clopper and Pearson decide. Also says where prompts are evicted from the KV cache. Exit code 1: not
    even one agent keeps the SLO.
    """
    from swarmtui.client.spawn import start_session_process

    process = start_session_process()
    from swarmtui.cli.follow import follow_run

    defaults = run.make_context("run", [], default_map=config_defaults("capacity")).params
    request = build_run_request(endpoints, defaults | options | {"mode": "capacity"})
    sys.exit(follow_run(request, process, as_json=as_json, quiet=quiet))
