"""The command `limits`: what the hardware allows for a model, without any load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from swarmtui.cli import options as shared
from swarmtui.cli.checked import CollectingCommand, mistakes_of
from swarmtui.cli.options import WholeNumber, commands, print_result
from swarmtui.cli.run_options import only_endpoint
from swarmtui.client.config_file import find_endpoints
from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import SIMULATOR_PREFIX, Endpoint, check_url, show_url
from swarmtui.model.redaction import Secrets
from swarmtui.text import echo

if TYPE_CHECKING:
    from swarmtui.model.config import EndpointConfig
    from swarmtui.model.speed_of_light import GpuFigures, Serving
    from swarmtui.model.telemetry import DiscoveredServer

_LEVELS = "1,2,4,8,16,32,64"
_CONTEXT = 4000
_KV_BITS = {"auto": None, "fp16": 16.0, "bf16": 16.0, "fp8": 8.0, "q8_0": 8.5, "q4_0": 4.5}


@commands.command(cls=CollectingCommand)
@click.argument("target", metavar="[ENDPOINT|PATH]", required=False)
@click.option("--gpu", metavar="NAME", help="A GPU, such as 3090, H200 or MI300X.  [default: that of the server]")
@shared.model_path
@click.option(
    "--context", default=_CONTEXT, show_default=True, type=WholeNumber(1), metavar="N",
    help="Mean tokens in the context of an agent: prompt and half of the answer.",
)  # fmt: skip
@click.option("--levels", default=_LEVELS, show_default=True, metavar="C,…", help="Numbers of agents.")
@click.option("--tp", type=WholeNumber(1, 1024), metavar="N", help="GPUs per replica.  [default: the server's, else 1]")
@click.option("--replicas", type=WholeNumber(1, 1024), metavar="N", help="Replicas.  [default: the server's, else 1]")
@click.option("--kv-dtype", type=click.Choice(list(_KV_BITS)), default="auto", help="Numbers in the KV cache.")
@shared.json
@click.pass_context
def limits(
    ctx: click.Context, /, target: str | None, model_path: str | None, context: int, levels: str, **options: Any
) -> None:
    """Say what the hardware allows for a model: bytes per decode step, and the most tok/s by the number of agents.

    Sends no load, and reads no weights: only the headers of the model's files. ENDPOINT is a URL or a name in
    config.toml, PATH the directory or file of a model; without either, it is the server found on this host.

    \b
    swarmtui limits
    swarmtui limits ~/models/Qwen3-8B --gpu 4090 --context 8000
    swarmtui limits model-Q4_K_M.gguf --gpu 3090 --tp 2 --levels 1,8,64
    """
    from swarmtui.analysis.speed_of_light.gpus import gpu_named
    from swarmtui.analysis.speed_of_light.limits import limits as find_limits
    from swarmtui.client.plan_builder import parse_levels
    from swarmtui.report.limits import limits_blocks
    from swarmtui.telemetry.model_files.reader import read_model

    mistakes = mistakes_of(ctx)
    wanted = mistakes.catch_as("--levels", parse_levels, levels) or ()
    named = None if options["gpu"] is None else mistakes.catch(gpu_named, options["gpu"])
    path = target if target is not None and _is_path(target) else model_path
    shape = mistakes.catch(lambda: read_model(Path(path).expanduser())) if path else None
    named_server = mistakes.catch(_endpoint, target) if target is not None and target != path else None
    mistakes.raise_all()
    server = None if path and target in (None, path) else _find_server(named_server or _endpoint(only_endpoint()))
    gpu = named or _find_gpu(server)
    serving = _serving(server, context, options)
    shape = shape or _server_model(server)
    found = find_limits(shape, gpu, serving, wanted, kv_tokens=server.kv_tokens if server else None)
    fields = ("model", "gpu", "serving", "kv_tokens", "kv_predicted", "levels", "missing")
    document = {"context": context} | {name: getattr(found, name) for name in fields}
    print_result(document, limits_blocks(found), as_json=options["as_json"])


def _is_path(text: str) -> bool:
    """Whether it names a file or directory: one that exists, or that can be nothing else."""
    scheme = text.partition(":")[0] in ("http", "https", "sim")
    return not scheme and (Path(text).expanduser().exists() or "/" in text or text.endswith((".gguf", ".json")))


def _endpoint(target: str) -> EndpointConfig:
    (endpoint,) = find_endpoints((target,))
    if endpoint.url.startswith(SIMULATOR_PREFIX):
        raise BadInput("a simulator has no model; name the directory or file of one", key=endpoint.url)
    check_url(endpoint.url)
    return endpoint


def _find_server(endpoint: EndpointConfig) -> DiscoveredServer:
    """Describe the server at an endpoint; exit code 3 if it does not answer."""
    from swarmtui.client.catalogue import identify_server, inspect_server

    known = Endpoint(url=endpoint.url, model="", ca_file=endpoint.ca_file, insecure=endpoint.insecure)
    found = identify_server(known, Secrets())
    if found is None:
        problem = inspect_server(endpoint).problem or "no inference server answers"
        echo(f"swarmtui: {show_url(endpoint.url)}: {problem}", err=True)
        sys.exit(3)
    return found


def _server_model(server: DiscoveredServer | None) -> Any:
    from swarmtui.telemetry.model_files.find import find_shape

    assert server is not None
    shape, problem = find_shape(server)
    if shape is None:
        raise BadInput(f"{problem}; name its directory or file with --model-path", key=show_url(server.url))
    return shape


def _find_gpu(server: DiscoveredServer | None) -> GpuFigures:
    """Return the slowest GPU of those that the server uses, else the slowest of this host."""
    from swarmtui.analysis.speed_of_light.gpus import gpu_figures
    from swarmtui.telemetry.discovery import with_gpus
    from swarmtui.telemetry.gpu.readers import read_gpus

    gpus, problem = read_gpus()
    used = with_gpus([server], gpus)[0].gpus if server is not None else ()
    figures = [gpu_figures(gpu) for gpu in gpus if not used or gpu.uuid in used]
    if not figures:
        raise BadInput(f"no GPU of this host can be read ({problem or 'none found'}): name one", key="--gpu")
    return min(figures, key=lambda gpu: gpu.bandwidth or float("inf"))


def _serving(server: DiscoveredServer | None, context: int, options: dict[str, Any]) -> Serving:
    from swarmtui.analysis.speed_of_light.session import served_as
    from swarmtui.model.findings import Slots

    slots = Slots(per_replica=server.slots) if server is not None and server.slots else None
    found = served_as(server, slots)
    bits = _KV_BITS[options["kv_dtype"]]
    return msgspec.structs.replace(
        found,
        context=float(context),
        tensor_parallel=options["tp"] or found.tensor_parallel,
        replicas=options["replicas"] or found.replicas,
        kv_bits=found.kv_bits if bits is None else bits,
    )
