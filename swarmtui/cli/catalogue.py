"""Commands on what can be chosen: workloads, sim, discover, doctor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from swarmtui.cli.app import sessions_in
from swarmtui.cli.options import Number, Whole, as_text, commands, session_dir_option
from swarmtui.cli.words import known_endpoints


@commands.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.pass_context
def workloads(context: click.Context, as_json: bool) -> None:
    """Workloads that are shipped: what agents ask."""
    if context.invoked_subcommand is None:
        from swarmtui.cli.render.table import workload_table
        from swarmtui.prompts.library import shipped
        from swarmtui.prompts.validate import describe

        rows = [(found.workload.name, describe(found)) for found in shipped()]
        if as_json:
            click.echo(as_text([{"name": name, "description": row} for name, row in rows]))
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
    from swarmtui.prompts.library import find
    from swarmtui.prompts.validate import describe, problems

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
@click.option("--port", default=0, type=Whole(0, 65535), metavar="PORT", help="0 takes a free one.")
@click.option("--speed", type=Number(0.0, min_open=True), metavar="X", help="So many times faster.")
@click.option("--seed", type=int, metavar="N", help="For all that is drawn by chance.")
@click.option("--seats", type=Whole(1), metavar="N", help="Requests that one replica runs at once.")
@click.option("--replicas", type=Whole(1), metavar="N", help="Engines behind one address.")
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
        click.echo(as_text(presets) if as_json else "\n".join(f"{p.name:20} {p.description}" for p in presets))
        return
    from swarmtui.sim.__main__ import main as simulate

    words = [preset, f"--port={port}"]
    words += [f"--{name}={value}" for name, value in given.items() if name != "knobs" and value is not None]
    words += [f"--set={knob}" for knob in given["knobs"]]
    sys.exit(simulate(words))


def _configured(found: set[str]) -> Any:
    """Those of config.toml that were not found on this host anyway; all are asked at once."""
    from concurrent.futures import ThreadPoolExecutor

    from swarmtui.client.catalogue import look_at
    from swarmtui.client.config_file import read_config
    from swarmtui.model.endpoint import parse_address
    from swarmtui.model.run_request import SIMULATOR

    urls = [known.url for known in read_config().endpoints.values() if not known.url.startswith(SIMULATOR)]
    left = [url for url in urls if parse_address(url).root not in found]
    if not left:
        return ()
    with ThreadPoolExecutor(len(left)) as pool:
        return tuple(pool.map(look_at, left))


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
def discover(as_json: bool) -> None:
    """Servers of models found on this host, and those of config.toml: engine, models, seats, flags."""
    from swarmtui.telemetry.discovery import discover as look
    from swarmtui.telemetry.discovery import with_gpus
    from swarmtui.telemetry.gpu.source import open_gpus

    found = look()
    found += _configured({server.url for server in found})
    if found:
        source = open_gpus()
        found = with_gpus(found, source.read())
        source.close()
    if as_json:
        click.echo(as_text(found))
    else:
        from swarmtui.cli.render.checks import discovered_text

        click.echo(discovered_text(found), nl=False)


@commands.command()
@click.option("--endpoint", metavar="URL|NAME", help="A server to check as well; else those of this host are listed.")
@click.option("--streams", default=256, show_default=True, type=Whole(1), metavar="C", help="The C to be fit for.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@session_dir_option
def doctor(endpoint: str | None, streams: int, as_json: bool, session_dir: str | None) -> None:
    """Is this machine fit to measure? Each line says what to do; exit code 1 when something is wrong."""
    import os
    import shutil

    from swarmtui.cli.render.checks import check_line, names_width
    from swarmtui.client import doctor as checks

    endpoint = known_endpoints((endpoint,))[0].url if endpoint else None
    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("terminal", lambda: checks.terminal(os.environ, size)),
        ("colours", lambda: checks.colours(os.environ)),
        ("open files", lambda: checks.files(streams)),
        ("GPU", checks.gpus),
        ("endpoint", lambda: checks.endpoint(endpoint) if endpoint else checks.endpoints_here()),
        ("disk", lambda: checks.disk(sessions_in(session_dir))),
        ("client speed", lambda: checks.speed(streams)),
    )
    lines = []
    names = names_width([name for name, _ in steps])
    for _, step in steps:
        lines.append(step())
        if not as_json:
            click.echo(check_line(lines[-1], names))
    if as_json:
        click.echo(as_text(lines))
    sys.exit(1 if any(line.state == "wrong" for line in lines) else 0)
