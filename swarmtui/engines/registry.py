"""List the known engines and look one up by name, model list, metrics or command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swarmtui.engines.base import Engine, flag_number
from swarmtui.engines.command_line import is_secret, parse_command_line, program_name
from swarmtui.engines.generic import Generic, LiteLlm, ReverseProxy, Transformers
from swarmtui.engines.llamacpp import LlamaCpp
from swarmtui.engines.ollama import Ollama
from swarmtui.engines.sglang import Sglang
from swarmtui.engines.simulator import Simulator
from swarmtui.engines.tgi import Tgi
from swarmtui.engines.vllm import Vllm

GENERIC = Generic()
# Not among the engines: its program, and the ports it listens on, mostly serve something else.
REVERSE_PROXY = ReverseProxy()
# In the order in which their probe paths are tried on an unknown server; Generic accepts most, so it is last.
ENGINES: tuple[Engine, ...] = (
    LiteLlm(),
    Vllm(),
    Simulator(),
    LlamaCpp(),
    Sglang(),
    Tgi(),
    Ollama(),
    Transformers(),
    GENERIC,
)

_BY_NAME = {engine.name: engine for engine in (*ENGINES, REVERSE_PROXY)}
_COMMANDS = tuple((engine, re.compile(engine.command, re.IGNORECASE)) for engine in ENGINES)
_ALL_SHORT_FLAGS = {short: name for engine in ENGINES for short, name in engine.short_flags.items()}
_ENVIRONMENT = re.compile(
    rf"({'|'.join(prefix for engine in ENGINES for prefix in engine.environment)})\w+"
    r"|(CUDA|HIP|ROCR|ZE)_VISIBLE_DEVICES|ONEAPI_DEVICE_SELECTOR"
)


def engine_named(name: str) -> Engine:
    return _BY_NAME.get(name, GENERIC)


def engine_from_models(rows: Iterable[Mapping[str, Any]], server_header: str) -> Engine | None:
    owners = [str(row.get("owned_by")) for row in rows]
    for engine in ENGINES:
        if engine.server_header and engine.server_header == server_header:
            return engine
    return next((engine for owner in owners for engine in ENGINES if owner in engine.owners), None)


def engine_from_metrics(text: str) -> Engine | None:
    lines = f"\n{text}"
    return next((e for e in ENGINES if e.metric_prefixes and f"\n{e.metric_prefixes[0]}" in lines), None)


def engine_from_command(argv: Sequence[str]) -> Engine | None:
    """Recognise an inference server by its program's name."""
    program = program_name(argv)
    return next((engine for engine, command in _COMMANDS if command.search(program)), None)


def flags_from_command(argv: Sequence[str]) -> dict[str, str]:
    engine = engine_from_command(argv)
    known = engine is not None and engine is not GENERIC
    return parse_command_line(argv, engine.short_flags if engine and known else _ALL_SHORT_FLAGS)


def flags_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that configure a server or select its devices."""
    found = sorted(environment.items())
    return {name: value for name, value in found if _ENVIRONMENT.fullmatch(name) and not is_secret(name, value)}


def tensor_parallel_size(flags: Mapping[str, str]) -> int | None:
    """Return the tensor-parallel size from flags with or without dashes; None if none is set."""
    plain = {name.lstrip("-"): value for name, value in flags.items()}
    return flag_number(plain, *(name for engine in ENGINES for name in engine.tensor_parallel_flags))
