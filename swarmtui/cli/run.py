"""Commands that measure without a screen: run, probe."""

from __future__ import annotations

import sys
from typing import Any

import click

from swarmtui.cli.app import sessions_in
from swarmtui.cli.options import (
    Number,
    Whole,
    as_text,
    commands,
    defaults_of,
    session_dir_option,
    without_contradiction,
)
from swarmtui.cli.words import known_endpoints, limits_of, make_order


def _trimmed(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Blanks around a header's value are no part of it, and are refused by HTTP libraries."""
    return tuple("=".join(part.strip() for part in text.split("=", 1)) for text in texts)


_FIGURES = """\b
Figures, of --json and for --fail-if (FIGURE or FIGURE@C; and, or, brackets):
  ttft            first content, reasoning or tool delta − sent
  ttfo            first content − sent
  tpot            (t_last − t_first) / (n − tokens of the first chunk)
  icl             gaps between chunks; the largest is longest_stall
  e2e             last token − sent
                  each as _mean _min _p50 _p90 _p95 _p99 _max: ttft_p50>1s
  per_stream_tps  1 / tpot of each stream, the mean of them
  out_tps_steady  output tokens while C requests were in flight / that time
  out_tps_wall    output tokens / makespan; also prompt_tps, total_tps
  c_achieved      Σ e2e / makespan
  contention      1 − per_stream_tps(C) / per_stream_tps(1)
  rate_speedup    out_tps_steady(C) / out_tps_steady(1)
  wall_speedup    time one by one / time together; token_ratio beside it
  counts, shares  errors error_rate cap_hits cap_rate pass_rate n ok …
Times need a unit (us ms s m). Too few samples (p50 needs 5, p90 29, p95 59,
p99 299) or nothing measured is null, and counts as missed.
"""


@commands.command(epilog=_FIGURES)
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL|NAME|sim:PRESET", help="Repeat for replicas.")
@click.option("--model", metavar="NAME", help="The model's name; without it the first that the endpoint lists.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--levels", metavar="C,C,…", help="Concurrent streams.  [default: the workload's own, else 1,2,4,8]")
@click.option("--find-cliff", is_flag=True, help="Search for the C beyond which more streams bring nothing.")
@click.option("--rate", metavar="R,R,…", help="Open loop: requests a second; several are as many levels.")
@click.option(
    "--arrival", type=click.Choice(["poisson", "constant", "gamma"]), help="How they come.  [default: poisson]"
)
@click.option(
    "--burst", type=Number(0.0, min_open=True), metavar="B",
    help="Of gamma arrivals: squared CV of the gaps, 1 is Poisson.  [default: 4]",
)  # fmt: skip
@click.option("--serial-rates", metavar="P,D", help="Prompt and output tok/s of one user, to extrapolate serial time.")
@click.option(
    "--runs", type=Whole(1, 1000), metavar="N", help="Runs of each level.  [default: the workload's own, else 1]"
)
@click.option("--requests", metavar="N|4C", help="Requests a run: a number or a multiple of C.  [default: 4C]")
@click.option("--duration", metavar="TIME", help="A run lasts so long (30s, 2m), instead of --requests.")
@click.option(
    "--warmup", metavar="N|none", help="Discarded requests before the first level.  [default: one a stream, at most 8]"
)
@click.option("--max-tokens", type=Whole(1), metavar="N", help="Cap on each answer; answers that hit it are counted.")
@click.option("--temperature", type=Number(0.0), metavar="X", help="[default: the workload's own, else the server's]")
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="The same seed gives the same requests.  [default: a new one each time, so that no cache knows them]",
)
@click.option("--label", default="", help="A name for this session.")
@click.option("--note", default="", help="A sentence, kept with it.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="A fact, kept with it; compare names what differs.")
@click.option("--server-flags", default="", metavar="TEXT", help="How the server was started, to be kept with it.")
@click.option(
    "--slo",
    default="",
    metavar="ttft=500ms,…",
    help="What 95 % of requests should keep (share=90% for fewer): ttft ttfo tpot e2e stall.",
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="EXPR",
    help="Exit 1 when so: 'ttft_p50@4>1s or errors>0'. Figures: see below.",
)
@click.option("--timeout", default="600s", show_default=True, metavar="TIME", help="The longest a request may take.")
@click.option(
    "--idle-timeout", default="30s", show_default=True, metavar="TIME", help="The longest silence in a stream."
)
@click.option(
    "--on-restart",
    default="wait",
    show_default=True,
    metavar="wait|stop|TIME",
    help="A server that goes away: wait for it (120s, or TIME) and go on, or stop.",
)
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@click.option("--header", "headers", multiple=True, callback=_trimmed, metavar="K=V", help="A header for each request.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Certificates to trust.")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option("--metrics-url", "metrics_urls", multiple=True, metavar="URL", help="The server's metrics, if elsewhere.")
@click.option("--gpu-metrics-url", "gpu_metrics_urls", multiple=True, metavar="URL", help="A DCGM exporter.")
@click.option("--no-gpu", is_flag=True, help="Do not look at GPUs.")
@click.option("--keep-text", is_flag=True, help="Keep the answers in the session.")
@click.option("--no-previews", is_flag=True, help="Keep not even the beginning of answers that are checked.")
@click.option("--baseline", metavar="SESSION|last", help="Say at the end what changed since, and what it gave.")
@click.option("--workers", type=click.IntRange(1, 64), hidden=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of the table.")
@click.option("--quiet", is_flag=True, help="No progress.")
@session_dir_option
@click.pass_context
def run(context: click.Context, /, endpoints: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """Drive an endpoint level by level, without a screen.

    Progress goes to stderr, the table (or --json) to stdout. Ctrl-C stops and saves; twice: at once.
    """
    from swarmtui.client.spawn import start_conductor

    # It imports what it needs while we look at the words; with a mistake in them it gets no order, and ends.
    conductor = start_conductor()
    from swarmtui.cli.follow import run as follow

    given = without_contradiction(context, given)
    limits = limits_of(given["fail_if"])
    sys.exit(follow(make_order(endpoints, given), conductor, as_json=as_json, quiet=quiet, limits=limits))


@commands.command()
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL|NAME|sim:PRESET", help="Repeat for replicas.")
@click.option("--model", metavar="NAME", help="The model's name; without it the first that the endpoint lists.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--runs", default=1, show_default=True, type=Whole(1, 100), metavar="N", help="Timed runs of a probe.")
@click.option("--max-tokens", type=Whole(1), metavar="N", help="Cap on each answer.")
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@click.option("--every", metavar="TIME", help="Again and again, in the foreground, for example 1h.")
@click.option("--history", "show_history", is_flag=True, help="Show the probes so far and leave.")
@click.option("--install-hint", is_flag=True, help="Print a systemd timer and a cron line, and leave.")
@click.option("--json", "as_json", is_flag=True, help="The history as one JSON document.")
@click.option("--quiet", is_flag=True, help="No progress.")
@session_dir_option
def probe(every: str | None, show_history: bool, install_hint: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Warm-up, discarded, and one timed run of one stream; builds a history and says when it drifts."""
    from swarmtui.model.plan import parse_seconds

    every_s = parse_seconds(every, "--every") if every else None
    if show_history:
        from swarmtui.analysis.compare.probe_history import history
        from swarmtui.cli.render.probe_history import history_text
        from swarmtui.sessions.probes import probes_by_target

        found = {name: history(rows) for name, rows in probes_by_target(sessions_in(given["session_dir"])).items()}
        click.echo(as_text(found) if as_json else history_text(found), nl=as_json)
        return
    from swarmtui.model.plan_options import PROBE, probe_tag

    whole = run.make_context("run", [], default_map=defaults_of("run")).params | given
    whole |= {"duration": None, "levels": PROBE.levels, "requests": PROBE.requests, "warmup": PROBE.warmup}
    urls = tuple(known.url for known in known_endpoints(given["endpoints"]))
    whole["tags"] = tuple(f"{name}={value}" for name, value in probe_tag(urls).items())
    if install_hint:
        from swarmtui.cli.probe import install_hint as hint

        click.echo(hint(_probe_words(given), every_s or 3600.0), nl=False)
        return
    from swarmtui.cli.probe import probe as measure
    from swarmtui.client.spawn import start_conductor

    make_order(given["endpoints"], whole)
    sys.exit(measure(lambda: make_order(given["endpoints"], whole), start_conductor, every_s, quiet))


def _probe_words(given: dict[str, Any]) -> list[str]:
    """The command again, as a timer would give it."""
    import shutil

    program = shutil.which("swarmtui")
    words = [program] if program else [sys.executable, "-m", "swarmtui"]
    words += ["probe", "--quiet"]
    words += [part for endpoint in given["endpoints"] for part in ("--endpoint", endpoint)]
    for name in ("model", "workload", "runs", "max_tokens", "api_key_env", "session_dir"):
        if given[name] is not None:
            words += [f"--{name.replace('_', '-')}", str(given[name])]
    return words
