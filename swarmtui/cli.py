"""The command line: one function for each sub-command. Imports are inside them, so that --help is instant."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from swarmtui import __version__

_DEMO = "sim:qwen36-27b-2x?speed=4"


def main() -> None:
    """Bad input of any kind is one line and exit code 2."""
    from swarmtui.model.schema import BadInput

    signal.signal(signal.SIGINT, _leave)
    try:
        commands()
    except BadInput as error:
        _refuse(str(error))


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C where nothing runs yet that has a better answer to it. It may come in the middle of a print."""
    os.write(2, b"swarmtui: stopped\n")
    sys.exit(4)


def _refuse(message: str) -> NoReturn:
    click.echo(f"swarmtui: {message}", err=True)
    sys.exit(2)


def _session_dir(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--session-dir", metavar="DIR", help="Where sessions are kept.")(command)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, invoke_without_command=True
)
@click.version_option(__version__, message="swarmtui %(version)s")
@click.option("--slow", is_flag=True, help="Two frames a second, for a thin line.")
@click.option("--session-dir", metavar="DIR", hidden=True)
@click.pass_context
def commands(context: click.Context, slow: bool, session_dir: str | None) -> None:
    """Live benchmarking of LLM endpoints under the load of an agent swarm; without a command, the app.

    \b
    Exit codes: 0 done; 1 a limit was missed; 2 wrong usage or a bad file;
    3 the endpoint could not be used; 4 stopped, what was measured is saved.
    """
    if context.invoked_subcommand is None:
        _need_terminal()
        from swarmtui.tui.launch import set_up

        _after(set_up(_sessions(session_dir), slow=slow))


@commands.command()
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL|sim:PRESET", help="Repeat for replicas.")
@click.option("--model", help="The model's name; without it the first that the endpoint lists.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--levels", metavar="C,C,…", help="Concurrent streams.  [default: the workload's own, else 1,2,4,8]")
@click.option("--find-cliff", is_flag=True, help="Search for the C beyond which more streams bring nothing.")
@click.option("--rate", type=click.FloatRange(0.0, min_open=True), metavar="R", help="Open loop: R requests a second.")
@click.option(
    "--arrival", type=click.Choice(["poisson", "constant", "gamma"]), help="How they come.  [default: poisson]"
)
@click.option("--serial-rates", metavar="P,D", help="Prompt and output tok/s of one user, to extrapolate serial time.")
@click.option("--runs", type=click.IntRange(1, 1000), help="Runs of each level.  [default: the workload's own, else 1]")
@click.option("--requests", metavar="N|4C", help="Requests a run: a number or a multiple of C.  [default: 4C]")
@click.option("--duration", metavar="TIME", help="A run lasts so long, instead of --requests.")
@click.option(
    "--warmup", metavar="N|none", help="Discarded requests before the first level.  [default: one a stream, at most 8]"
)
@click.option("--max-tokens", type=click.IntRange(1), help="Cap on each answer; answers that hit it are counted.")
@click.option("--temperature", type=click.FloatRange(0.0))
@click.option(
    "--seed",
    type=int,
    help="The same seed gives the same requests.  [default: a new one each time, so that no cache knows them]",
)
@click.option("--label", default="", help="A name for this session.")
@click.option("--note", default="")
@click.option("--tag", "tags", multiple=True, metavar="K=V")
@click.option("--server-flags", default="", metavar="TEXT", help="How the server was started, to be kept with it.")
@click.option("--slo", default="", metavar="ttft=500ms,…", help="What requests should keep: ttft ttfo tpot e2e stall.")
@click.option("--fail-if", "fail_if", multiple=True, metavar="EXPR", help="Exit 1 when so: 'ttft_p50>1s or errors>0'.")
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
@click.option("--header", "headers", multiple=True, metavar="K=V", help="A header for each request.")
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
@_session_dir
def run(endpoints: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """Drive an endpoint level by level, without a screen.

    Progress goes to stderr, the table (or --json) to stdout. Ctrl-C stops and saves; twice: at once.
    """
    from swarmtui.conductor.launch import start_conductor

    # It imports what it needs while we look at the words; with a mistake in them it gets no order, and ends.
    conductor = start_conductor()
    from swarmtui.headless.run import run as follow

    limits = _limits(given["fail_if"])
    sys.exit(follow(_order(endpoints, given), conductor, as_json=as_json, quiet=quiet, limits=limits))


def _limits(expressions: tuple[str, ...]) -> Any:
    if not expressions:
        return ()
    from swarmtui.analysis.limits import parse_limit

    return [parse_limit(expression) for expression in expressions]


def _slo(text: str) -> str:
    if text:
        from swarmtui.analysis.slo import parse_slo

        parse_slo(text)
    return text


def _order(endpoints: tuple[str, ...], given: dict[str, Any]) -> Any:
    """Everything that can be wrong with the words is found here, before anything is asked of the endpoint."""
    from swarmtui.model.endpoint import parse_address
    from swarmtui.model.order import SIMULATOR, Order

    endpoints = endpoints or (_only_endpoint(),)
    for endpoint in endpoints:
        if endpoint.startswith(SIMULATOR):
            from swarmtui.sim.presets import parse_spec

            parse_spec(endpoint.removeprefix(SIMULATOR))
        else:
            parse_address(endpoint)
    return Order(
        endpoints=endpoints,
        model=given["model"],
        workload=_workload(given["workload"]),
        plan=_plan(given),
        session_root=str(_sessions(given["session_dir"])),
        secrets=_secrets(given["api_key_env"], given["headers"]),
        ca_file=given["ca_file"],
        insecure=given["insecure"],
        keep_text=given["keep_text"],
        previews=not given["no_previews"],
        gpus=not given["no_gpu"],
        metrics_urls=given["metrics_urls"],
        gpu_metrics_urls=given["gpu_metrics_urls"],
        label=given["label"],
        note=given["note"],
        tags=_pairs(given["tags"], "--tag"),
        server_flags=given["server_flags"],
        previous=_previous(given["baseline"], given["session_dir"]),
        restart_s=_restart(given.get("on_restart", "wait")),
    )


def _restart(text: str) -> float:
    from swarmtui.model.order import RESTART_S
    from swarmtui.model.plan import parse_seconds

    known = {"wait": RESTART_S, "stop": 0.0}
    return known[text] if text in known else parse_seconds(text, "--on-restart")


def _previous(baseline: str | None, session_dir: str | None) -> str:
    """Its full name, found before anything is measured."""
    if baseline is None:
        return ""
    from swarmtui.sessions.store import load

    return load(_sessions(session_dir), baseline).directory.name


def _only_endpoint() -> str:
    """The one server on this host; with none or several it is the person's to say which."""
    from swarmtui.conductor.catalogue import servers_here
    from swarmtui.model.schema import BadInput

    found = [server for server in servers_here() if server.reachable and not server.problem]
    if len(found) == 1:
        click.echo(f"endpoint: {found[0].url} ({found[0].engine})", err=True)
        return found[0].url
    if found:
        named = ", ".join(f"{server.url} ({server.engine})" for server in found)
        raise BadInput(f"choose one of {named}", key="--endpoint")
    raise BadInput(
        "no server found on this host; for example --endpoint http://127.0.0.1:8000 or --endpoint sim:moe-tp1",
        key="--endpoint",
    )


def _plan(given: dict[str, Any]) -> Any:
    """The workload's own load, with what was said on the command line before it."""
    import secrets

    from swarmtui.model.load import planned
    from swarmtui.model.plan import Timeouts, parse_levels, parse_requests, parse_seconds
    from swarmtui.model.schema import BadInput
    from swarmtui.model.workload import size_of
    from swarmtui.prompts.library import find

    if given["requests"] and given["duration"]:
        raise BadInput("give one of --requests and --duration, not both", key="--duration")
    levels = parse_levels(given["levels"]) if given["levels"] is not None else None
    workload = find(given["workload"]).workload
    load = _load(given, workload)
    total = parse_seconds(given["timeout"], "--timeout")
    limits = Timeouts()
    prompt_tps, decode_tps = _serial_rates(given["serial_rates"])
    return planned(
        load,
        size=size_of(workload),
        mode="cliff" if given["find_cliff"] else None,
        levels=levels,
        runs=given["runs"],
        requests=parse_requests(given["requests"]) if given["requests"] else None,
        duration_s=parse_seconds(given["duration"], "--duration") if given["duration"] else None,
        warmup=_warmup(given["warmup"]),
        max_tokens=given["max_tokens"],
        temperature=given["temperature"],
        seed=given["seed"] if given["seed"] is not None else secrets.randbelow(1_000_000),
        workers=given["workers"],
        slo=_slo(given["slo"]),
        serial_prompt_tps=prompt_tps,
        serial_decode_tps=decode_tps,
        timeouts=Timeouts(
            connect=min(limits.connect, total),
            first_token=min(limits.first_token, total) if given["timeout"] == "600s" else total,
            idle=parse_seconds(given["idle_timeout"], "--idle-timeout"),
            total=total,
        ),
    )


def _load(given: dict[str, Any], workload: Any) -> Any:
    """A rate or a search on the command line stands for a load of its own; what does not go together is refused."""
    from swarmtui.model.load import Closed, Open, mode_of
    from swarmtui.model.schema import BadInput
    from swarmtui.model.workload import load_of

    load = load_of(workload)
    mode = mode_of(load)
    if given["find_cliff"] and (given["levels"] or given["rate"] or (given["runs"] or 1) > 1):
        raise BadInput("chooses its levels by itself; leave --levels, --runs and --rate out", key="--find-cliff")
    if given["rate"] is not None and given["levels"]:
        raise BadInput("an open loop has a rate and no levels; leave one of the two out", key="--rate")
    if (given["find_cliff"] or given["rate"] is not None) and mode in ("mixed", "dag"):
        raise BadInput(f"workload {workload.name} is {mode}, and can be asked in no other way", key="--workload")
    if given["levels"] and mode in ("dag", "ramp", "open"):
        raise BadInput(f"workload {workload.name} is {mode}, which has no levels to choose", key="--levels")
    if given["requests"] and mode not in ("closed", "open") and given["rate"] is None and not given["find_cliff"]:
        raise BadInput(f"workload {workload.name} is {mode}: the number of its requests is given", key="--requests")
    if given["duration"] and mode not in ("closed", "open") and given["rate"] is None and not given["find_cliff"]:
        raise BadInput(f"workload {workload.name} is {mode}: it ends by itself", key="--duration")
    if given["serial_rates"] and mode not in ("barrier", "swarm"):
        raise BadInput(f"workload {workload.name} is {mode}, and has no serial time", key="--serial-rates")
    if given["find_cliff"]:
        return Closed(levels=(1,))
    if given["rate"] is not None:
        return Open(rate=given["rate"], arrival=given["arrival"] or "poisson")
    if given["arrival"]:
        raise BadInput("is for open loops; give --rate with it", key="--arrival")
    return load


def _serial_rates(text: str | None) -> tuple[float | None, float | None]:
    import re

    from swarmtui.model.schema import BadInput

    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*", text)
    if not match or not float(match.group(1)) or not float(match.group(2)):
        raise BadInput(f"{text!r} is not of the form 85.4,13.4", key="--serial-rates")
    return float(match.group(1)), float(match.group(2))


def _warmup(text: str | None) -> int | None:
    from swarmtui.model.schema import BadInput

    if text is None:
        return None
    if text == "none":
        return 0
    if not text.isdigit():
        raise BadInput(f"{text!r} is neither a number nor none", key="--warmup")
    return int(text)


def _workload(name: str) -> str:
    from swarmtui.prompts.check import problems
    from swarmtui.prompts.library import find

    source = find(name).source
    for problem in problems(source):
        raise problem
    return str(Path(source).resolve())


def _secrets(variable: str | None, headers: tuple[str, ...]) -> Any:
    import os
    import re

    from swarmtui.model.endpoint import Secrets
    from swarmtui.model.schema import BadInput

    key = None
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise BadInput("this variable is not set, or empty", key=f"--api-key-env {variable}")
    pairs = _pairs(headers, "--header")
    for name, value in pairs.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or re.search(r"[\r\n\0]", value):
            raise BadInput("not a header", key=f"--header {name}")
    if key is not None and re.search(r"[\r\n\0]", key):
        raise BadInput("the key holds a line break", key=f"--api-key-env {variable}")
    return Secrets(api_key=key, headers=pairs)


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    from swarmtui.model.schema import BadInput

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"expected K=V, got {name!r}", key=option)
        pairs[name.strip()] = value
    return pairs


def _sessions(directory: str | None) -> Path:
    from swarmtui.sessions.paths import sessions_root

    return Path(directory).resolve() if directory else sessions_root()


def _slow(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--slow", is_flag=True, help="Two frames a second, for a thin line.")(command)


@commands.command()
@_slow
@_session_dir
def demo(slow: bool, session_dir: str | None) -> None:
    """The app on the embedded simulator, a sweep already running: no GPU and no server needed."""
    from swarmtui.model.order import Order
    from swarmtui.model.plan import Plan, Requests

    plan = Plan(levels=(1, 2, 4, 8), runs=2, requests=Requests(count=4), warmup=2)
    order = Order(
        endpoints=(_DEMO,),
        workload=_workload("coding"),
        plan=plan,
        session_root=str(_sessions(session_dir)),
        label="demo",
    )
    if not _is_terminal():
        context = click.get_current_context()
        context.invoke(run, endpoints=(_DEMO,), session_dir=session_dir, label="demo")
    from swarmtui.tui.launch import run_order

    _after(run_order(order, slow=slow))


@commands.command()
@click.argument("session", required=False)
@_slow
@_session_dir
def attach(session: str | None, slow: bool, session_dir: str | None) -> None:
    """Join a running session; without SESSION the only one, or a list of them."""
    from swarmtui.conductor.client import running
    from swarmtui.model.schema import BadInput

    found = [name for name in running() if session is None or name.startswith(session)]
    if not found:
        raise BadInput("no session is running" if session is None else "no such session is running", key=session or "")
    if len(found) > 1:
        from swarmtui.tui.launch import describe

        click.echo("several are running; join one with `swarmtui attach ID`:\n" + "\n".join(describe(found)))
        return
    _need_terminal()
    from swarmtui.tui.launch import join

    _after(join(found[0], slow=slow))


@commands.command()
@click.argument("session", default="last")
@_slow
@_session_dir
def replay(session: str, slow: bool, session_dir: str | None) -> None:
    """Watch a saved session again. SESSION is an id, the beginning of one, or `last`."""
    _need_terminal()
    from swarmtui.tui.launch import watch_again

    watch_again(_sessions(session_dir), session, slow=slow)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _need_terminal() -> None:
    from swarmtui.model.schema import BadInput

    if not _is_terminal():
        raise BadInput("this needs a terminal; over SSH: ssh -t HOST swarmtui. Without one there is `swarmtui run`")


def _after(outcome: Any) -> NoReturn:
    """What stays on the normal screen: the table and the path of each run that ended, or how to join again."""
    from swarmtui.headless.progress import progress_on
    from swarmtui.headless.run import report

    code = 0
    for ended in outcome.ended:
        code = report(ended, as_json=False, progress=progress_on(sys.stderr, False))
    if outcome.goes_on:
        click.echo(f"the run goes on: swarmtui attach {outcome.goes_on}", err=True)
    sys.exit(code)


@commands.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
@click.pass_context
def sessions(context: click.Context, as_json: bool, session_dir: str | None) -> None:
    """Saved sessions, newest first."""
    context.obj = session_dir
    if context.invoked_subcommand is None:
        from swarmtui.headless.table import session_table
        from swarmtui.sessions.store import list_sessions

        rows = list_sessions(_sessions(session_dir))
        click.echo(_json(rows) if as_json else session_table(rows), nl=as_json)


@sessions.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
@click.pass_context
def show(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """One session: its figures, its events. SESSION is an id, the beginning of one, or `last`."""
    from swarmtui.headless.loads import loads_text
    from swarmtui.headless.machine import machine_table
    from swarmtui.headless.table import session_text
    from swarmtui.sessions.store import load, summarise, summary_json

    summary = summarise(load(_sessions(session_dir or context.obj), session))
    tables = "\n\n".join(part.rstrip("\n") for part in (loads_text(summary), machine_table(summary.levels)) if part)
    text = summary_json(summary).decode() if as_json else session_text(summary, tables)
    click.echo(text, nl=as_json)


@sessions.command("save-to")
@click.argument("session")
@click.argument("directory", type=click.Path(file_okay=False))
def save_to(session: str, directory: str) -> None:
    """Keep a running session in another directory from now on, with all that it has so far."""
    from swarmtui.conductor.client import move, running
    from swarmtui.model.schema import BadInput

    found = [name for name in running() if name.startswith(session)]
    if len(found) != 1:
        raise BadInput("no such session is running" if not found else f"fits {', '.join(found)}", key=session)
    click.echo(f"saved from now on in {move(found[0], Path(directory).resolve())}")


@sessions.command()
@click.argument("session", nargs=-1, required=True)
@_session_dir
@click.pass_context
def rm(context: click.Context, session: tuple[str, ...], session_dir: str | None) -> None:
    """Remove sessions for good; one that runs is left alone."""
    from swarmtui.sessions.store import remove

    for name in session:
        click.echo(f"removed {remove(_sessions(session_dir or context.obj), name)}")


@sessions.command("advice")
@click.argument("session", default="last")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
@click.pass_context
def advice(context: click.Context, session: str, as_json: bool, session_dir: str | None) -> None:
    """What to try next, from the facts of a session alone, each with its evidence."""
    from swarmtui.headless.tuning_text import advice_text
    from swarmtui.sessions.store import load
    from swarmtui.tuning.advice import advice_of

    found = advice_of(load(_sessions(session_dir or context.obj), session))
    click.echo(_json(found) if as_json else advice_text(found), nl=as_json)


@sessions.command("log")
@click.argument("number", type=int, required=False)
@click.option("--kept", "mark", flag_value="kept", help="Change NUMBER stays.")
@click.option("--reverted", "mark", flag_value="reverted", help="Change NUMBER was taken back.")
@click.option("--note", metavar="TEXT", help="Why.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
@click.pass_context
def change_log(
    context: click.Context, number: int | None, mark: Any, note: str | None, as_json: bool, session_dir: str | None
) -> None:
    """The tuning log: what was changed, what it gave, and whether it was kept."""
    from swarmtui.headless.tuning_text import log_text
    from swarmtui.model.schema import BadInput
    from swarmtui.tuning.kept import mark_change, read_log

    root = _sessions(session_dir or context.obj)
    if number is not None:
        mark_change(root, number, mark, note)
    elif mark or note is not None:
        raise BadInput("say of which change: its number stands in the first column", key="sessions log")
    changes = read_log(root)
    click.echo(_json(changes) if as_json else log_text(changes), nl=as_json)


@commands.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--baseline", metavar="SESSION", help="What the others are held against.  [default: the first]")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
def compare(session: tuple[str, ...], baseline: str | None, as_json: bool, session_dir: str | None) -> None:
    """Sessions side by side, with what differs between them and a verdict from their runs.

    The replicates are runs; with A1+A2+… B1+B2+… they are sessions, and the verdict holds from one to the next.
    A SESSION may also be a result file (.json) of vllm bench serve, GuideLLM or AIPerf.
    """
    from swarmtui.analysis.compare import compare as side_by_side
    from swarmtui.headless.comparison import comparison_text
    from swarmtui.model.schema import BadInput
    from swarmtui.sessions.sources import summary_of

    names = (baseline, *(name for name in session if name != baseline)) if baseline else session
    if len(names) < 2:
        raise BadInput("two sessions at least are needed", key="compare")
    found = side_by_side([summary_of(_sessions(session_dir), name) for name in names])
    click.echo(_json(found) if as_json else comparison_text(found), nl=as_json)


@commands.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--format", "form", required=True, type=click.Choice(["md", "csv", "json", "toml", "html", "png", "svg"]))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The file; - is stdout.  [default: stdout]")
@click.option("--chart", help="One chart alone (png, svg): throughput ttft contention degradation radar …")
@_session_dir
def export(session: tuple[str, ...], form: Any, output: str | None, chart: str | None, session_dir: str | None) -> None:
    """A session as a file for others; charts of several lie over each other (html, png, svg).

    png and svg need matplotlib: pip install 'swarmtui[charts]'.
    """
    from swarmtui.model.schema import BadInput
    from swarmtui.sessions.export import BINARY
    from swarmtui.sessions.export import export as render
    from swarmtui.sessions.store import load

    if output is None and form in BINARY:
        if sys.stdout.isatty():
            raise BadInput("is not for a terminal; name a file with -o", key=f"--format {form}")
        output = "-"
    content = render([load(_sessions(session_dir), name) for name in session], form, chart)
    if output in (None, "-"):
        sys.stdout.buffer.write(content)
        return
    try:
        Path(str(output)).write_bytes(content)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(output)) from None


@commands.command()
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL|sim:PRESET", help="Repeat for replicas.")
@click.option("--model", help="The model's name; without it the first that the endpoint lists.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 100), help="Timed runs of a probe.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cap on each answer.")
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@click.option("--every", metavar="TIME", help="Again and again, in the foreground, for example 1h.")
@click.option("--history", "show_history", is_flag=True, help="Show the probes so far and leave.")
@click.option("--install-hint", is_flag=True, help="Print a systemd timer and a cron line, and leave.")
@click.option("--json", "as_json", is_flag=True, help="The history as one JSON document.")
@click.option("--quiet", is_flag=True, help="No progress.")
@_session_dir
def probe(every: str | None, show_history: bool, install_hint: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Warm-up, discarded, and one timed run of one stream; builds a history and says when it drifts."""
    from swarmtui.model.plan import parse_seconds

    every_s = parse_seconds(every, "--every") if every else None
    if show_history:
        from swarmtui.analysis.history import history
        from swarmtui.headless.history import history_text
        from swarmtui.sessions.probes import probes_by_target

        found = {name: history(rows) for name, rows in probes_by_target(_sessions(given["session_dir"])).items()}
        click.echo(_json(found) if as_json else history_text(found), nl=as_json)
        return
    whole = run.make_context("run", []).params | given
    whole |= {"levels": "1", "requests": "1", "warmup": "1", "tags": (f"probe={','.join(given['endpoints'])}",)}
    if install_hint:
        from swarmtui.headless.probe import install_hint as hint

        click.echo(hint(_probe_words(given), every_s or 3600.0), nl=False)
        return
    from swarmtui.conductor.launch import start_conductor
    from swarmtui.headless.probe import probe as measure

    _order(given["endpoints"], whole)
    sys.exit(measure(lambda: _order(given["endpoints"], whole), start_conductor, every_s, quiet))


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


@commands.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.pass_context
def workloads(context: click.Context, as_json: bool) -> None:
    """Workloads that are shipped: what agents ask."""
    if context.invoked_subcommand is None:
        from swarmtui.headless.table import workload_table
        from swarmtui.prompts.check import describe
        from swarmtui.prompts.library import shipped

        rows = [(found.workload.name, describe(found)) for found in shipped()]
        if as_json:
            click.echo(_json([{"name": name, "description": row} for name, row in rows]))
        else:
            click.echo(
                workload_table([(name, row.kind, row.prompts, row.input, row.output) for name, row in rows]), nl=False
            )


@workloads.command("show")
@click.argument("name")
def show_workload(name: str) -> None:
    """The file itself: it is commented, and a start for your own."""
    from swarmtui.prompts.library import find

    click.echo(find(name).text, nl=False)


@workloads.command("check")
@click.argument("file")
def check_workload(file: str) -> None:
    """Find what is wrong with a workload file, all of it at once."""
    from swarmtui.prompts.check import describe, problems
    from swarmtui.prompts.library import find

    path = file if Path(file).exists() else find(file).source
    found = problems(path)
    for problem in found:
        click.echo(f"swarmtui: {problem}", err=True)
    if found:
        sys.exit(2)
    told = describe(find(file))
    click.echo(f"{file}: good: {told.kind}, {told.input} in, {told.output} out")


@commands.command()
@click.argument("preset", default="moe-tp1")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--speed", type=click.FloatRange(0.0, min_open=True), help="So many times faster.")
@click.option("--seed", type=int, help="For all that is drawn by chance.")
@click.option("--seats", type=click.IntRange(1), help="Requests that one replica runs at once.")
@click.option("--replicas", type=click.IntRange(1), help="Engines behind one address.")
@click.option("--set", "knobs", multiple=True, metavar="KEY=VALUE", help="Any key of a preset.")
@click.option("--list", "listing", is_flag=True, help="Show the presets and leave.")
@click.option("--json", "as_json", is_flag=True, help="The list as one JSON document.")
def sim(preset: str, port: int, listing: bool, as_json: bool, **given: Any) -> None:
    """The embedded simulator as a server on 127.0.0.1; prints its URL when it is ready.

    PRESET may carry knobs: 'moe-tp1?seats=8&speed=10'.
    """
    if listing:
        from swarmtui.sim.presets import list_presets

        presets = list_presets()
        click.echo(_json(presets) if as_json else "\n".join(f"{p.name:20} {p.description}" for p in presets))
        return
    from swarmtui.sim.__main__ import main as simulate

    words = [preset, f"--port={port}"]
    words += [f"--{name}={value}" for name, value in given.items() if name != "knobs" and value is not None]
    words += [f"--set={knob}" for knob in given["knobs"]]
    sys.exit(simulate(words))


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
def discover(as_json: bool) -> None:
    """Servers of models found on this host: engine, models, seats, and the flags they were started with."""
    from swarmtui.telemetry.discovery import discover as look
    from swarmtui.telemetry.discovery import with_gpus
    from swarmtui.telemetry.gpu_source import open_gpus

    found = look()
    if found:
        source = open_gpus()
        found = with_gpus(found, source.read())
        source.close()
    if as_json:
        click.echo(_json(found))
    else:
        from swarmtui.headless.checks import discovered_text

        click.echo(discovered_text(found), nl=False)


@commands.command()
@click.option("--endpoint", metavar="URL", help="A server to check as well; without it those of this host are listed.")
@click.option("--streams", default=256, show_default=True, type=click.IntRange(1), help="The C to be fit for.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@_session_dir
def doctor(endpoint: str | None, streams: int, as_json: bool, session_dir: str | None) -> None:
    """Is this machine fit to measure? Each line says what to do; exit code 1 when something is wrong."""
    import os
    import shutil

    from swarmtui.conductor import doctor as checks
    from swarmtui.headless.checks import check_line, names_width

    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("terminal", lambda: checks.terminal(os.environ, size)),
        ("colours", lambda: checks.colours(os.environ)),
        ("open files", lambda: checks.files(streams)),
        ("GPU", checks.gpus),
        ("endpoint", lambda: checks.endpoint(endpoint) if endpoint else checks.endpoints_here()),
        ("disk", lambda: checks.disk(_sessions(session_dir))),
        ("client speed", lambda: checks.speed(streams)),
    )
    lines = []
    names = names_width([name for name, _ in steps])
    for _, step in steps:
        lines.append(step())
        if not as_json:
            click.echo(check_line(lines[-1], names))
    if as_json:
        click.echo(_json(lines))
    sys.exit(1 if any(line.state == "wrong" for line in lines) else 0)


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


@commands.command()
@click.option("--a", "a", required=True, metavar="URL|COMMAND", help="The first; {port} in a command is a free one.")
@click.option("--b", "b", metavar="URL|COMMAND", help="The other.")
@click.option("--aa", is_flag=True, help="A against itself: the noise floor.")
@click.option("--url", metavar="URL", help="Where the started server is found.  [default: http://127.0.0.1:{port}]")
@click.option("--detect", default="2%", show_default=True, metavar="SHARE", help="The difference that matters.")
@click.option("--max-runs", default=16, show_default=True, type=click.IntRange(4, 48), help="Runs of each at most.")
@click.option(
    "--figure", default="out_tps", show_default=True, type=click.Choice(["out_tps", "per_stream_tps", "ttft_s"])
)
@click.option("--level", default=4, show_default=True, type=click.IntRange(1), help="Concurrent streams.")
@click.option("--workload", default="coding", show_default=True, metavar="NAME|FILE", help="See `swarmtui workloads`.")
@click.option("--model", help="The model's name; without it the first that the endpoint lists.")
@click.option("--requests", metavar="N|4C", help="Requests a run: a number or a multiple of C.  [default: 4C]")
@click.option("--duration", metavar="TIME", help="A run lasts so long, instead of --requests.")
@click.option("--warmup", metavar="N|none", help="Discarded requests before each run.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cap on each answer.")
@click.option("--seed", type=int, help="Of the requests and of the order of runs.")
@click.option("--api-key-env", metavar="VAR", help="The variable that holds the API key.")
@click.option("--ready-within", default="10m", show_default=True, metavar="TIME", help="How long a server may load.")
@click.option("--yes", is_flag=True, help="Start the commands without asking.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
@_session_dir
def ab(a: str, b: str | None, aa: bool, yes: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Which of two is faster: interleaved runs (ABBA), until it is known or not worth more.

    \b
    The figures are looked at with 4, 6, 8, 12, 16, 24, 32 and 48 runs of each, and the chance of a
    wrong claim is shared out over these looks: it is below 5 % in all, whenever one stops.
    """
    from swarmtui.headless.ab import Contest, Fight, is_command, logged, new_name, outcome_text
    from swarmtui.headless.measure import Wish
    from swarmtui.model.plan import parse_seconds
    from swarmtui.model.schema import BadInput
    from swarmtui.tuning.grid import command_launch
    from swarmtui.tuning.kept import add_change, logs_directory

    if (b is None) != aa:
        raise BadInput("give --b, or --aa to run A against itself", key="--b")
    sides = {"--a": a} if b is None else {"--a": a, "--b": b}
    started = {option: text for option, text in sides.items() if is_command(text)}
    launches = [str(command_launch(text, given["url"], "PORT", option)) for option, text in started.items()]
    order = _many(given, [text for text in sides.values() if not is_command(text)], levels=str(given["level"]))
    contest = Contest(
        name=new_name(), a=a, b=b or a, aa=aa, url=given["url"], figure=given["figure"], most=given["max_runs"],
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
    click.echo(_json(outcome) if as_json else outcome_text(outcome), nl=as_json)
    if outcome.problem:
        click.echo(f"swarmtui: {outcome.problem}", err=True)
    sys.exit(3 if outcome.problem else 4 if outcome.stopped else 0)


@commands.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--yes", is_flag=True, help="Start the commands without asking.")
@click.option("--show", is_flag=True, help="Show what is known so far, and leave.")
@click.option("--retry-broken", is_flag=True, help="Try broken cells once more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--quiet", is_flag=True, help="No progress.")
@_session_dir
def tune(file: str, yes: bool, show: bool, retry_broken: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Start a server with each cell of a grid of flags, measure it, stop it; ends with a leaderboard.

    Called again after an interruption, it goes on where it was. FILE says how:

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
    from swarmtui.headless.measure import Wish
    from swarmtui.headless.tune import Tuning, commands_text
    from swarmtui.headless.tuning_text import tune_text
    from swarmtui.model.schema import BadInput
    from swarmtui.model.tuning import read_tune
    from swarmtui.tuning.effects import result
    from swarmtui.tuning.kept import tune_directory

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
    wish = Wish()
    if not show:
        if tuning.left():
            _agree(commands_text(wanted), yes)
        with wish.heard():
            tuning.run(wish, retry_broken=retry_broken)
    found = result(tuning.rows, wanted.objective)
    click.echo(_json(found) if as_json else tune_text(found), nl=as_json)
    if wish():
        click.echo("swarmtui: stopped; the same command goes on from here", err=True)
    sys.exit(4 if wish() else 0)


def _many(given: dict[str, Any], endpoints: list[str] | None = None, *, levels: str) -> Any:
    """The order of one run of many, as `run` would have it; the endpoint is filled in for each."""
    whole = run.make_context("run", []).params | given | {"levels": levels, "on_restart": "stop"}
    return _order(tuple(endpoints or ("http://127.0.0.1:1",)), whole)


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
    if not _is_terminal():
        raise BadInput("say --yes to start these commands: there is no terminal to ask on")
    if not click.confirm("start?", default=False, err=True):
        sys.exit(4)


def _teller(quiet: bool) -> Callable[[str], None]:
    from swarmtui.text import plain

    return lambda text: None if quiet else click.echo(plain(text), err=True)
