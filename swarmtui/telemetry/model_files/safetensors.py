"""Read the headers of safetensors files: names, types and sizes of tensors.

A file begins with the length of its header and the header, as JSON. What contradicts the size of the file is refused by
name, before anything of that size is allocated.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec

from swarmtui.files import open_regular, read_file
from swarmtui.model.base import DECODE_ERRORS, BadInput, reading

INDEX = "model.safetensors.index.json"
_MAX_FILE = 1 << 50
_MAX_HEADER = 16 << 20
_MAX_INDEX = 64 << 20
_MAX_SHARDS = 2048
_MAX_DIMENSIONS = 8

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


# One tensor of a file: its name, type, elements as stored, which may each hold several packed weights, and bytes. A
# large model has tens of thousands.
Tensor = tuple[str, str, int, int]


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False):
    """One entry of a header; `__metadata__` has none of these fields."""

    dtype: str = ""
    shape: tuple[_Count, ...] = ()
    data_offsets: tuple[int, int] | None = None


_decode_header = msgspec.json.Decoder(dict[str, _Entry]).decode


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def read_tensors(directory: Path) -> list[Tensor] | None:
    """Return the tensors of all files of a model; None if the directory has no safetensors."""
    files = model_files(directory)
    return [tensor for path in files for tensor in file_tensors(path)] if files else None


def model_files(directory: Path) -> list[Path]:
    """Return the files that an index names, else those with the usual names; empty if there are none."""
    index = directory / INDEX
    if index.exists():
        found = _read_json(index, _Index, _MAX_INDEX)
        names = sorted(set(found.weight_map.values()))
        if len(names) > _MAX_SHARDS:
            raise BadInput(f"names {len(names):,} files; at most {_MAX_SHARDS:,} are read", source=str(index))
        if odd := next((name for name in names if name in ("", ".", "..") or "/" in name or "\0" in name), None):
            raise BadInput(f"names a file outside its directory: {odd[:80]!r}", source=str(index))
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    if single.exists():
        return [single]
    found_files = sorted(directory.glob("*.safetensors"))
    # Mistral publishes the same weights twice; adapters are not the model.
    parts = [path for path in found_files if path.name.startswith("model-")] or [
        path for path in found_files if not path.name.startswith("adapter")
    ]
    return parts[:_MAX_SHARDS]


def file_tensors(path: Path) -> list[Tensor]:
    """Return the tensors of one file, after checks of all their sizes."""
    header, data_bytes = _read_header(path)
    header.pop("__metadata__", None)
    found = []
    for name, entry in header.items():
        kind, shape, offsets = entry.dtype, entry.shape, entry.data_offsets
        bits = _BITS.get(kind)
        if bits is None:
            raise BadInput(f"tensor {name[:80]!r} has an unknown type, {kind[:20]!r}", source=str(path))
        if offsets is None or len(shape) > _MAX_DIMENSIONS:
            raise BadInput(f"tensor {name[:80]!r} has no valid shape and place", source=str(path))
        elements, (start, end) = prod(shape), offsets
        if not 0 <= start <= end <= data_bytes or (elements * bits + 7) // 8 != end - start:
            raise BadInput(f"tensor {name[:80]!r} does not fit into the file", source=str(path))
        found.append((name, kind, elements, end - start))
    return found


def _read_header(path: Path) -> tuple[dict[str, _Entry], int]:
    with reading(path), os.fdopen(open_regular(path, _MAX_FILE), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise BadInput("not a safetensors file, or cut off: its header is longer than the file", source=str(path))
        if length > _MAX_HEADER:
            raise BadInput(
                f"its header has {length:,} bytes; at most {_MAX_HEADER >> 20} MiB are read", source=str(path)
            )
        text = file.read(length)
    try:
        return _decode_header(text), size - 8 - length
    except DECODE_ERRORS as error:
        raise BadInput(f"its header is not that of a safetensors file: {error}", source=str(path)) from None


def _read_json(path: Path, kind: type[Any], limit: int) -> Any:
    try:
        with reading(path):
            return msgspec.json.decode(read_file(path, limit), type=kind)
    except DECODE_ERRORS as error:
        raise BadInput(str(error), source=str(path)) from None


def read_settings(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = _read_json(path, dict[str, Any], 4 << 20)
    return found
