"""The commands `run` and `probe`, which measure without a UI."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from swarmtui.cli import options as shared
from swarmtui.cli.app import session_root
from swarmtui.cli.checked import mistakes_of
from swarmtui.cli.options import (
    Number,
    WholeNumber,
    commands,
    config_defaults,
    drop_overridden_defaults,
    parse_share,
    print_result,
)
from swarmtui.cli.run_options import RunCommand, build_run_request, chosen_endpoints
from swarmtui.processes.exits import DONE, STOPPED, UNUSABLE, exit_if_stuck, ignore_signals_unless_stuck
from swarmtui.text import echo

if TYPE_CHECKING:
    from types import FrameType

    from swarmtui.model.run_request import RunRequest


# How often the wait for the next probe looks for an interrupt that was dropped.
_CHECK_S = 1.0


def _strip_headers(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Strip spaces around header names and values: HTTP libraries reject them."""
    return tuple("=".join(part.strip() for part in text.split("=", 1)) for text in texts)


_FIGURES = """\b
Figures in --json and for --fail-if (FIGURE or FIGURE@C; and, or, parentheses):
  ttft            first content, reasoning or tool delta − sent
  ttfo            first content − sent
  tpot            (t_end − t_first) / (n − tokens up to the first chunk)
  icl             gaps between chunks; the largest is longest_stall
  e2e             last token − sent
                  each as _mean _min _p50 _p90 _p95 _p99 _max: ttft_p50>1s
  per_stream_tps  Σ (n − first) / Σ (t_end − t_first), the inverse of tpot_mean;
                  of answers with at least 3 tokens after the first
  out_tps_steady  output tokens from the first measured send to the send after
                  the last one / that time; C requests are in flight all the
                  time. out_tps_steady_hw: half-width of its 95 % interval
  out_tps_wall    output tokens / makespan
  prompt_tps      prompt tokens per output token × the main throughput (steady
                  of closed loops, else wall); total_tps is the sum of both
  c_achieved      Σ (last token − sent) / makespan; "in flight" in the table
  c_held          the same while the client had work for C streams
  contention      1 − per_stream_tps(C) / per_stream_tps(1); "slowdown"
  rate_speedup    out_tps_steady(C) / out_tps_steady(1); "scaling"
  wall_speedup    serial time / concurrent time; also token_ratio
  counts, shares  errors error_rate cap_hits cap_rate pass_rate n ok …
Times need a unit (us ms s m). Too few samples (p50 needs 5, p90 29, p95 59,
p99 299) or nothing measured is null. Null at any level counts as missed; FIGURE@C
applies to one level only. out_tps_steady and percentiles are compared with their
95 % interval, where it is known: if the limit is within it, --fail-if is not sure,
which is a warning and no failure, unless --fail-unsure. An SLO is met, missed, or not
sure yet, which counts as missed: to show 95 % takes at least 59 requests.
"""


@commands.command(cls=RunCommand, epilog=_FIGURES)
@shared.addresses
@shared.endpoint
@shared.model
@shared.api
@shared.workload
@click.option("--levels", metavar="C,C,…", help="Concurrency levels.  [default: those of the workload, else 1,2,4,8]")
@click.option(
    "--find-cliff", is_flag=True, help="Search for the C from which requests queue and throughput hardly grows."
)
@click.option(
    "--rate", metavar="R,R,…", help="Open loop: requests per second; each rate is a level, of 100 requests by default."
)
@click.option(
    "--arrival",
    type=click.Choice(["poisson", "constant", "gamma"]),
    help="Distribution of arrivals with --rate.  [default: poisson]",
)
@click.option(
    "--burst",
    type=Number(0.0, min_open=True),
    metavar="B",
    help="Burstiness of gamma arrivals: squared CV of the gaps; 1 is Poisson.  [default: 4]",
)
@click.option(
    "--max-gap",
    metavar="TIME",
    help="Traces: longest pause of an agent between an answer and its next request.  "
    "[default: that of the workload, else 10s]",
)
@click.option(
    "--time-scale",
    type=Number(0.0, min_open=True),
    metavar="X",
    help="Traces: divide the recorded pauses, or multiply the recorded rate, by X.  "
    "[default: that of the workload, else 1]",
)
@click.option(
    "--too-long",
    type=click.Choice(["skip", "truncate"]),
    help="Traces: leave out requests that do not fit into the server's context, or cut off the ends of their prompts.  "
    "[default: refuse such a trace]",
)
@click.option("--rules", type=click.Choice(["agentx"]), help="Traces: play by the rules of this benchmark.")
@click.option(
    "--serial-rates", metavar="P,D", help="Prompt and output tok/s of a single stream, to extrapolate the serial time."
)
@click.option(
    "--runs",
    type=WholeNumber(1, 1000),
    metavar="N",
    help="Runs per level; the levels rotate over them.  [default: that of the workload, else 1]",
)
@click.option(
    "--canaries",
    metavar="SHARE",
    help="Ask this share (1% to 20%) of additional questions with known answers, to see whether answers get worse.",
)
@shared.agent_header
@shared.requests
@shared.duration
@click.option(
    "--precision",
    metavar="SHARE",
    help="Instead of --requests: run each level until the half-width of steady is this share of it (2%), at most 16C.",
)
@click.option(
    "--complete",
    is_flag=True,
    help="Wait for all answers of a level, instead of cancelling those still in flight when its steady window is over.",
)
@click.option(
    "--warmup",
    metavar="N|none",
    help="Warm-up requests before the first level; they are discarded.  "
    "[default: that of the workload, else one per stream, at most 8]",
)
@shared.max_tokens
@click.option(
    "--temperature", type=Number(0.0), metavar="X", help="[default: that of the workload, else of the server]"
)
@click.option(
    "--seed",
    type=WholeNumber(),
    metavar="N",
    help="The same seed gives the same requests.  [default: random, so that no prefix cache has seen them]",
)
@click.option("--label", default="", help="Name of the session.")
@click.option("--note", default="", help="Note to store with the session.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Tag to store; `compare` lists tags that differ.")
@click.option("--server-flags", default="", metavar="TEXT", help="Flags the server was started with, to store.")
@click.option(
    "--slo",
    default="",
    metavar="ttft=500ms,…",
    help="Limits that 95 % of requests must meet (change with share=90%): ttft ttfo tpot e2e stall stream, and job "
    "(conversations, recorded sessions); or limits of percentiles: ttft_p95=2s,stream_p5=20,job_p90=120s.",
)
@click.option(
    "--price-per-hour", type=Number(0.0), metavar="X", help="What the server costs, to show the cost of tokens."
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="EXPR",
    help="Exit with code 1 if true: 'ttft_p50@4>1s or errors>0'. Figures: see below.",
)
@click.option("--fail-unsure", is_flag=True, help="Also exit with code 1 where --fail-if is not sure.")
@click.option(
    "--timeout",
    default="600s",
    show_default=True,
    metavar="TIME",
    help="Time limit of a request. By default its first token must come within 120s; another TIME limits both.",
)
@click.option("--idle-timeout", default="30s", show_default=True, metavar="TIME", help="Time limit between two chunks.")
@click.option(
    "--on-restart",
    default="wait",
    show_default=True,
    metavar="wait|stop|TIME",
    help="If the server goes away: wait for it (120s, or TIME) and continue, or stop.",
)
@shared.api_key
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_strip_headers,
    metavar="K=V",
    help="Header to send; repeatable. Quoted, K=$VAR takes it from a variable, which `ps` does not show.",
)
@shared.ca_file
@shared.insecure
@click.option(
    "--metrics-url", "metrics_urls", multiple=True, metavar="URL", help="Metrics of the server, if not at /metrics."
)
@shared.gpu_metrics
@shared.model_path
@click.option("--no-gpu", is_flag=True, help="Do not read the GPUs of this host.")
@click.option("--keep-text", is_flag=True, help="Store the text of all responses.")
@click.option("--no-previews", is_flag=True, help="Store no text at all, not even the start of checked responses.")
@click.option(
    "--baseline",
    metavar="SESSION|last|marked|FILE",
    help="Compare with this session, or a file that somebody shared, at the end, and log the change; its seed is used "
    "again. marked: the one that b marks in the app.",
)
@shared.detect
@click.option(
    "--hosts",
    default="",
    metavar="auto|ray://…|ADDRESS|local:N",
    help="Send the requests from the nodes of this Ray cluster; local:N: from a private test cluster of N nodes.",
)
@click.option("--workers", type=click.IntRange(1, 64), hidden=True)
@click.option(
    "--metrics-port",
    metavar="[HOST:]PORT",
    help="Serve the live figures to Prometheus at http://HOST:PORT/metrics; 0 is a free port.  [HOST: 127.0.0.1]",
)
@shared.json
@shared.events
@shared.quiet
@shared.session_dir
@click.pass_context
def run(context: click.Context, /, as_json: bool, quiet: bool, **options: Any) -> None:
    """Benchmark an endpoint level by level, without the app.

    ENDPOINT is a URL, a name in config.toml, or sim:PRESET; without one, it is the server found on this host.
    Progress goes to stderr, the table (or --json) to stdout. Ctrl-C stops and saves; a second Ctrl-C stops at once.
    """
    from swarmtui.processes.spawn import start_session_process

    # Started first: it imports its modules while the options are checked, and exits if they are wrong.
    process = start_session_process()
    from swarmtui.analysis.compare.verdicts import DETECT
    from swarmtui.analysis.limits.fail_if import parse_fail_if
    from swarmtui.cli.follow import follow_run, make_outputs

    options = drop_overridden_defaults(context, options)
    mistakes = mistakes_of(context)
    limits = [limit for text in options["fail_if"] if (limit := mistakes.catch(parse_fail_if, text))]
    detect = mistakes.catch(parse_share, options["detect"]) or DETECT
    outputs, fail_unsure = make_outputs(options, mistakes, as_json=as_json, quiet=quiet), options["fail_unsure"]
    request = build_run_request(chosen_endpoints(context), options, mistakes)
    sys.exit(follow_run(request, process, outputs, limits=limits, fail_unsure=fail_unsure, detect=detect))


@commands.command(cls=RunCommand)
@shared.addresses
@shared.endpoint
@shared.model
@shared.api
@shared.workload
@click.option("--runs", default=1, show_default=True, type=WholeNumber(1, 100), metavar="N", help="Timed runs.")
@shared.max_tokens
@shared.api_key
@shared.ca_file
@shared.insecure
@click.option("--every", metavar="TIME", help="Repeat at this interval, in the foreground: 30m, 1h.")
@click.option("--history", "show_history", is_flag=True, help="Print the history of probes and exit.")
@click.option("--install-hint", is_flag=True, help="Print a systemd timer and a cron line for this probe, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --history: print one JSON document.")
@shared.quiet
@shared.session_dir
@click.pass_context
def probe(
    context: click.Context,
    /,
    every: str | None,
    show_history: bool,
    install_hint: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Time one stream after a warm-up, and compare it with earlier probes of the same endpoint.

    ENDPOINT is a URL, a name in config.toml, or sim:PRESET; without one, it is the server found on this host. Prints
    one line: the rate, TTFT, the median of the last 7 days, and whether the rate has drifted.
    """
    from swarmtui.model.parsing import parse_seconds

    mistakes = mistakes_of(context)
    every_s = mistakes.catch(parse_seconds, every, "--every") if every else None
    options |= {"endpoints": chosen_endpoints(context)}
    if show_history or install_hint:
        mistakes.raise_all()
    if show_history:
        from swarmtui.analysis.compare.probe_history import probe_history
        from swarmtui.report.probes import history_blocks
        from swarmtui.sessions.probes import probes_by_target

        probes = probes_by_target(session_root(options["session_dir"]))
        found = {target: probe_history(results) for target, results in probes.items()}
        print_result(found, history_blocks(found), as_json=as_json)
        return
    if install_hint:
        echo(install_hint_text(_probe_command(options), every_s or 3600.0), nl=False)
        return
    params = run.make_context("run", [], default_map=config_defaults("run")).params | options | {"plan": "probe"}
    build_run_request(options["endpoints"], params, mistakes)

    def probe_once(interrupt: _Interrupt) -> int:
        return _probe_once(build_run_request(options["endpoints"], params), quiet, interrupt)

    sys.exit(_probe_repeatedly(probe_once, every_s))


def _probe_command(options: dict[str, Any]) -> list[str]:
    import zipfile

    program = shutil.which("swarmtui")
    if zipfile.is_zipfile(sys.argv[0]):  # swarmtui.pyz
        command = [sys.executable, str(Path(sys.argv[0]).resolve())]
    else:
        command = [program] if program else [sys.executable, "-m", "swarmtui"]
    command += ["probe", "--quiet"]
    command += [part for endpoint in options["endpoints"] for part in ("--endpoint", endpoint)]
    for name in ("model", "api", "workload", "runs", "max_tokens", "api_key_env", "ca_file", "session_dir"):
        if options[name] is not None:
            command += [f"--{name.replace('_', '-')}", str(options[name])]
    return [*command, "--insecure"] if options["insecure"] else command


def _probe_repeatedly(probe_once: Callable[[_Interrupt], int], every_s: float | None) -> int:
    """Probe once, or start a probe every `every_s` seconds until stopped; an unreachable server is tried again."""

    interrupt = _Interrupt()
    interrupt.install()
    due = time.monotonic()
    try:
        while True:
            code = probe_once(interrupt)
            if every_s is None or code not in (DONE, UNUSABLE):
                return code
            due = max(due + every_s, time.monotonic())
            while not interrupt.came and (left := due - time.monotonic()) > 0:
                time.sleep(min(left, _CHECK_S))
            if interrupt.came:
                return STOPPED
    except KeyboardInterrupt:
        return STOPPED


def _probe_once(request: RunRequest, quiet: bool, interrupt: _Interrupt) -> int:

    from swarmtui.cli.follow import follow_without_report
    from swarmtui.client.session_client import StopControl
    from swarmtui.processes.spawn import start_session_process

    control = StopControl()
    ended, code = follow_without_report(request, start_session_process(), quiet, control)
    # Between two probes there is no session to stop: a signal just ends the loop.
    interrupt.install()
    # A stop that was requested after the session had ended.
    interrupt.came |= control.requested
    if code == DONE:
        from swarmtui.report.probes import probe_line

        echo(probe_line(Path(request.session_root), Path(ended.directory).name))
    return code


class _Interrupt:
    """Handle SIGINT and SIGTERM: raise KeyboardInterrupt, and remember it.

    Python drops what is raised in a finaliser, in a callback of a weak reference, or in one after a fork. A loop that
    also looks at `came` ends nevertheless.
    """

    def __init__(self) -> None:
        self.came = False

    def install(self) -> None:

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        self.came = True
        exit_if_stuck()
        ignore_signals_unless_stuck()  # further signals must not interrupt the exit
        raise KeyboardInterrupt


def install_hint_text(command: Sequence[str], every_s: float) -> str:
    """Return a systemd timer and a cron line that run a probe at an interval."""

    line = shlex.join(command)
    minutes = max(1, round(every_s / 60))
    when = f"*/{minutes} * * * *" if minutes < 60 else f"0 */{max(1, round(minutes / 60))} * * *"
    return f"""\
# As a systemd user timer: create these two files, then `systemctl --user enable --now swarmtui-probe.timer`
# ~/.config/systemd/user/swarmtui-probe.service
[Unit]
Description=swarmtui probe

[Service]
Type=oneshot
ExecStart={line.replace("%", "%%")}

# ~/.config/systemd/user/swarmtui-probe.timer
[Unit]
Description=swarmtui probe at an interval

[Timer]
OnBootSec=2min
OnUnitActiveSec={minutes}min

[Install]
WantedBy=timers.target

# Or a line for `crontab -e`:
{when} {line.replace("%", chr(92) + "%")}
"""
