"""Read the shape of a model from its directory or file.

read_model(Path("/models/Qwen3-8B"))              config.json and safetensors
read_model(Path("/models/qwen3-8b-q4_k_m.gguf"))  GGUF
read_model(Path("shape/config.json"))             no weights: bytes are computed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from swarmtui.model.base import BadInput, copy_fields, reading
from swarmtui.model.speed_of_light import ModelShape
from swarmtui.telemetry.model_files.gguf import is_gguf, read_gguf
from swarmtui.telemetry.model_files.safetensors import read_settings, read_tensors
from swarmtui.telemetry.model_files.settings import ModelSettings, from_config, from_gguf
from swarmtui.telemetry.model_files.weights import Weights, computed_weights, sort_tensors

CONFIG = "config.json"
_PLAIN_TYPES = ("F32", "F16", "BF16", "F64")


def read_model(path: Path) -> ModelShape:
    """Read a model; BadInput names the file that cannot be read, and why."""
    with reading(path):
        if path.suffix == ".gguf" or is_gguf(path):
            return _gguf_shape(path)
        directory = path if path.is_dir() else path.parent
        if (directory / CONFIG).exists():
            return _config_shape(directory)
        if not path.exists():
            raise BadInput("no such file or directory", source=str(path))
        files = sorted(directory.glob("*.gguf")) if path.is_dir() else []
        models = [file for file in files if not file.name.startswith("mmproj")]
        if models:
            return _gguf_shape(_only_model(models, directory))
    raise BadInput("has neither config.json nor a GGUF file: not the directory of a model", source=str(path))


def _only_model(files: Sequence[Path], directory: Path) -> Path:
    """Return the file of a directory, or the first part of it; several models need a choice."""
    first = [file for file in files if "-of-" not in file.name or "-00001-of-" in file.name]
    if len(first) != 1:
        raise BadInput(f"has {len(files)} GGUF files: name one of them", source=str(directory))
    return first[0]


def _gguf_shape(path: Path) -> ModelShape:
    found = read_gguf(path)
    settings = from_gguf(found.settings, str(path))
    weights = sort_tensors(found.tensors, settings)
    kinds = {kind: size for kind, size in weights.by_type.items() if kind not in _PLAIN_TYPES}
    most = max(kinds or weights.by_type, key=lambda kind: weights.by_type[kind], default="")
    return _shape(path, settings, weights, "gguf", most, 8 if kinds else 16)


def _config_shape(directory: Path) -> ModelShape:
    config = read_settings(directory / CONFIG)
    settings = from_config(config, str(directory / CONFIG))
    tensors = read_tensors(directory)
    if tensors is None:
        weights, source = computed_weights(config, settings), "config"
    else:
        weights, source = sort_tensors(tensors, settings), "safetensors"
    name = settings.quantisation.name or max(weights.by_type, key=lambda kind: weights.by_type[kind], default="")
    return _shape(directory, settings, weights, source, name, settings.quantisation.compute_bits)


def _shape(
    path: Path,
    settings: ModelSettings,
    weights: Weights,
    source: Any,
    quantisation: str,
    compute_bits: Literal[4, 8, 16],
) -> ModelShape:
    """Put together a shape; without a head of its own, the embedding table is read as the head."""
    head, table, experts = weights.sums("head"), weights.sums("embedding"), weights.sums("expert")
    tied = not head.bytes
    dense = weights.sums("dense", "embedding" if tied else "head")
    if not dense.bytes:
        raise BadInput("has no weights that a decode step reads", source=str(path))
    if tied:
        parameters = weights.sums("dense").parameters + (table.parameters or settings.vocabulary * settings.hidden)
    else:
        parameters = dense.parameters
    count = settings.experts
    if experts.bytes and not count:
        raise BadInput("has experts, but its settings do not say how many of them answer a token", source=str(path))
    return copy_fields(
        ModelShape,
        settings,
        source=source,
        path=str(path),
        quantisation=quantisation,
        dense_bytes=dense.bytes,
        dense_parameters=parameters,
        expert_bytes=experts.bytes / count if count else 0.0,
        expert_parameters=experts.parameters / count if count else 0.0,
        experts=count if experts.bytes else 0,
        experts_used=settings.experts_used if experts.bytes else 0,
        embedding_bytes=0.0 if tied else table.bytes,
        draft_bytes=weights.sums("draft").bytes,
        other_bytes=weights.sums("other").bytes,
        latent_kv=settings.latent,
        compute_bits=compute_bits,
    )
