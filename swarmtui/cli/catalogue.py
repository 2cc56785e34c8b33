"""The commands `workloads`, `schema`, `sim`, `discover`, `doctor`, `skill` and `completion`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CollectingCommand, check_each, mistakes_of
from swarmtui.cli.options import COMPLETE_VARIABLE, Number, WholeNumber, commands, print_blocks, print_result, to_json
from swarmtui.model.base import Mistakes
from swarmtui.text import echo, write_document


@commands.group(invoke_without_command=True)
@shared.json
@click.pass_context
def workloads(context: click.Context, as_json: bool) -> None:
    """List the built-in workloads: the prompts that agents send."""
    if context.invoked_subcommand is None:
        from swarmtui.prompts.library import builtin_workloads
        from swarmtui.prompts.validate import describe_workload
        from swarmtui.report.lists import workload_table

        rows = [describe_workload(found) for found in builtin_workloads()]
        print_result([{"name": row.name, "description": row} for row in rows], [workload_table(rows)], as_json=as_json)


@workloads.command("show", cls=CollectingCommand)
@click.argument("name")
def show_workload(name: str) -> None:
    """Print a workload file with its comments, as a template for your own."""
    from swarmtui.prompts.library import find_workload

    (found,) = check_each(find_workload, name)
    write_document(sys.stdout, found.text.encode())


@workloads.command("check", cls=CollectingCommand)
@click.argument("file")
def check_workload(file: str) -> None:
    """Check a workload file and list everything that is wrong with it."""
    from swarmtui.prompts.library import find_workload
    from swarmtui.prompts.validate import describe_workload, validate_workload

    def check(name: str) -> None:
        Mistakes(validate_workload(name if Path(name).exists() else find_workload(name).source)).raise_all()

    check_each(check, file)
    description = describe_workload(find_workload(file))
    echo(f"{file}: valid: {description.kind}; input {description.input}, output {description.output}")


@commands.command(cls=CollectingCommand)
@click.argument("preset", default="moe-tp1", shell_complete=shared.complete)
@click.option(
    "--port", default=0, type=WholeNumber(0, 65535), metavar="PORT", help="Port to listen on; 0 picks a free one."
)
@click.option("--speed", type=Number(0.0, min_open=True), metavar="X", help="Speed-up over real time.")
@click.option("--slots", type=WholeNumber(1), metavar="N", help="Concurrent requests per replica.")
@click.option("--replicas", type=WholeNumber(1), metavar="N", help="Replicas behind one address.")
@click.option("--list", "listing", is_flag=True, help="List the presets and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print one JSON document.")
def sim(preset: str, port: int, listing: bool, as_json: bool, **options: Any) -> None:
    """Run the embedded simulator as a server on 127.0.0.1; prints its URL when ready.

    PRESET may set any key, as in 'moe-tp1?prefill_tps=8000&seed=7'.
    """
    from swarmtui.sim.presets import list_presets, parse_spec

    check_each(parse_spec, preset)
    if listing:
        presets = list_presets()
        echo(to_json(presets) if as_json else "\n".join(f"{p.name:20} {p.description}" for p in presets))
        return
    from swarmtui.sim.__main__ import main as simulate

    arguments = [preset, f"--port={port}"]
    sys.exit(simulate(arguments + [f"--{name}={value}" for name, value in options.items() if value is not None]))


def _inspect_configured(found: set[str]) -> Any:
    """Inspect the servers of config.toml that were not found on this host, all at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    from swarmtui.client.catalogue import inspect_server
    from swarmtui.client.config_file import read_config
    from swarmtui.model.endpoint import SIMULATOR_PREFIX, parse_address

    servers = [known for known in read_config().endpoints.values() if not known.url.startswith(SIMULATOR_PREFIX)]
    others = [known for known in servers if parse_address(known.url).root not in found]
    if not others:
        return ()
    with ThreadPoolExecutor(len(others)) as pool:
        return tuple(pool.map(inspect_server, others))


@commands.command()
@click.option(
    "--timeout", default=1.0, show_default=True, type=Number(0.1, 60.0), metavar="SECONDS",
    help="How long servers may take to answer; increase it on a busy host.",
)  # fmt: skip
@shared.json
def discover(timeout: float, as_json: bool) -> None:
    """List the inference servers on this host and in config.toml: engine, models, slots, flags."""
    from swarmtui.report.lists import discovery_blocks
    from swarmtui.telemetry.discovery import discover as discover_servers
    from swarmtui.telemetry.discovery import with_gpus
    from swarmtui.telemetry.gpu.readers import read_gpus

    found = discover_servers(timeout)
    found += _inspect_configured({server.url for server in found})
    if found:
        found = with_gpus(found, read_gpus()[0])
    print_result(found, discovery_blocks(found), as_json=as_json)


@commands.command(cls=CollectingCommand)
@click.option("--endpoint", metavar="URL|NAME", help="Server to check.  [default: those found on this host]")
@click.option(
    "--streams", default=256, show_default=True, type=WholeNumber(1), metavar="C", help="Concurrency to check for."
)
@click.option(
    "--hosts",
    default="",
    metavar="auto|ray://…|ADDRESS|local:N",
    help="Also check how many streams each node of this Ray cluster can follow.",
)
@shared.gpu_metrics
@shared.ca_file
@shared.insecure
@shared.json
@shared.root
@click.pass_context
def doctor(
    context: click.Context,
    endpoint: str | None,
    streams: int,
    hosts: str,
    gpu_metrics_urls: tuple[str, ...],
    ca_file: str | None,
    insecure: bool,
    as_json: bool,
    root: Path,
) -> None:
    """Check whether this machine is ready to measure. Exits with code 1 if a check fails."""

    from swarmtui.client.catalogue import validate_endpoint
    from swarmtui.client.config_file import check_ca_file, find_endpoints
    from swarmtui.client.doctor import run_checks
    from swarmtui.client.request_builder import check_hosts
    from swarmtui.report.lists import check_blocks

    mistakes = mistakes_of(context)
    mistakes.catch(check_hosts, hosts)
    named = mistakes.catch(find_endpoints, (endpoint,)) if endpoint else None
    server = named[0] if named else None
    if ca_file is not None:
        mistakes.catch_as("--ca-file", check_ca_file, ca_file)
    if server is not None:
        mistakes.catch_as("--endpoint", validate_endpoint, server.url)
    mistakes.raise_all()
    if server is not None:
        server = msgspec.structs.replace(
            server, ca_file=ca_file or server.ca_file, insecure=insecure or server.insecure
        )
    lines = []
    exporters = gpu_metrics_urls or (server.gpu_metrics_urls if server is not None else ())
    checks = run_checks(server, streams, root, exporters)
    if hosts:
        from swarmtui.hosts.speed import check_host_speeds

        checks = chain(checks, check_host_speeds(hosts, streams))
    for line in checks:
        lines.append(line)
        if not as_json:
            print_blocks(check_blocks(line))
    if as_json:
        echo(to_json(lines))
    sys.exit(1 if any(line.state == "wrong" for line in lines) else 0)


@commands.command(cls=CollectingCommand)
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema of a document: journal, detail, summary, workload, config, events or shared."""
    from swarmtui.model.json_schema import DOCUMENTS, json_schema

    found = check_each(json_schema, name)
    if name is None:
        from swarmtui.report.table import Facts

        print_blocks([Facts(tuple(DOCUMENTS.items()))])
    else:
        echo(to_json(found[0]))


@commands.command()
def skill() -> None:
    """Print the page that tells a coding agent how to use swarmtui, as a SKILL.md.

    \b
    mkdir -p .claude/skills/swarmtui && swarmtui skill > .claude/skills/swarmtui/SKILL.md
    """
    from importlib.resources import files

    write_document(sys.stdout, files("swarmtui").joinpath("SKILL.md").read_bytes())


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    bash: swarmtui completion bash > ~/.local/share/bash-completion/completions/swarmtui
    zsh:  swarmtui completion zsh > DIRECTORY/_swarmtui     (a directory of $fpath)
    fish: swarmtui completion fish > ~/.config/fish/completions/swarmtui.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    template = found(commands, {}, "swarmtui", COMPLETE_VARIABLE)
    write_document(sys.stdout, (template.source_template % template.source_vars()).encode() + b"\n")
