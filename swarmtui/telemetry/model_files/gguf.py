"""Read the header of GGUF files: the settings of a model, and names, types and sizes of its tensors.

Lists of tokens are skipped. What contradicts the size of the file is refused by name.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.files import open_regular
from swarmtui.model.base import BadInput, reading
from swarmtui.telemetry.model_files.safetensors import Tensor

_MAX_FILE = 1 << 50
# Most headers are shorter than the first size: it is read at once, and more only if that was not enough.
_HEADER_SIZES = (16 << 20, 64 << 20)
_MAX_SETTINGS = 4096
_MAX_TENSORS = 1 << 18
_MAX_ITEMS = 1 << 22
_MAX_KEPT = 4096
_MAX_DIMENSIONS = 4
_MAX_SPLITS = 512
_ALIGNMENT = 32

# Weights per block and bytes of a block, by type (ggml.h).
_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip

# Formats of single values by type; 8 is a string, 9 a list.
_VALUES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _LIST = 8, 9
_length = struct.Struct("<Q").unpack_from
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class GgufModel(NamedTuple):
    """The settings of a model, and its tensors in all parts of a split file."""

    settings: dict[str, Any]
    tensors: list[Tensor]


class _Refused(Exception):
    pass


def is_gguf(path: Path) -> bool:
    """Return whether a file is a GGUF file, whatever its name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def read_gguf(path: Path) -> GgufModel:
    """Read a file, and those that it was split into."""
    first = _SPLIT.fullmatch(path.name)
    if first is None:
        return _read_file(path)
    count = int(first.group(3))
    if not 0 < count <= _MAX_SPLITS:
        raise BadInput(f"is one of {count} parts; at most {_MAX_SPLITS} are read", source=str(path))
    names = [path.with_name(f"{first.group(1)}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)]
    parts = [_read_file(name) for name in names]
    return GgufModel(parts[0].settings, [tensor for part in parts for tensor in part.tensors])


def _read_file(path: Path) -> GgufModel:
    with reading(path), os.fdopen(open_regular(path, _MAX_FILE), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for limit in _HEADER_SIZES:
            data = os.pread(file.fileno(), min(size, limit), 0)
            try:
                return _parse(data, size)
            except _Refused as error:
                raise BadInput(str(error), source=str(path)) from None
            except (struct.error, OverflowError):
                if size <= limit:
                    raise BadInput("is cut off in its header", source=str(path)) from None
    raise BadInput(f"its header is longer than {_HEADER_SIZES[-1] >> 20} MiB", source=str(path))


def _parse(data: bytes, size: int) -> GgufModel:
    """Parse a header; struct.error means that it goes on after the end of `data`."""
    magic, version, tensor_count, setting_count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version not in (2, 3):
        raise _Refused("is not a GGUF file of version 2 or 3")
    if tensor_count > _MAX_TENSORS or setting_count > _MAX_SETTINGS:
        raise _Refused(f"claims {tensor_count:,} tensors and {setting_count:,} settings: too many")
    offset, settings = 24, {}
    for _ in range(setting_count):
        name, offset = _string(data, offset)
        (kind,) = struct.unpack_from("<I", data, offset)
        value, offset = _value(data, offset + 4, kind)
        if value is not None:
            settings[name] = value
    rows = []
    for _ in range(tensor_count):
        name, offset = _string(data, offset)
        (dimensions,) = struct.unpack_from("<I", data, offset)
        if dimensions > _MAX_DIMENSIONS:
            raise _Refused(f"tensor {name[:80]!r} has {dimensions:,} dimensions")
        *shape, kind, place = struct.unpack_from(f"<{dimensions}QIQ", data, offset + 4)
        offset += 16 + 8 * dimensions
        rows.append((name, tuple(shape), kind, place))
    alignment = settings.get("general.alignment", _ALIGNMENT)
    aligned = isinstance(alignment, int) and 0 < alignment <= 1 << 20
    start = -(-offset // alignment) * alignment if aligned else offset
    return GgufModel(settings, [_tensor(*row, size - start) for row in rows])


def _tensor(name: str, shape: tuple[int, ...], kind: int, place: int, room: int) -> Tensor:
    if kind not in _TYPES:
        raise _Refused(f"tensor {name[:80]!r} has an unknown type, {kind}")
    named, weights, block_bytes = _TYPES[kind]
    elements = prod(shape)
    size, rest = divmod(elements, weights)
    size *= block_bytes
    if rest or place + size > room:
        raise _Refused(f"tensor {name[:80]!r} does not fit into the file")
    return name, named, elements, size


def _string(data: bytes, offset: int) -> tuple[str, int]:
    (length,) = _length(data, offset)
    if length > _MAX_KEPT:
        raise _Refused(f"a name of {length:,} bytes")
    end = offset + 8 + length
    if end > len(data):
        raise struct.error
    return data[offset + 8 : end].decode("utf-8", "replace"), end


def _value(data: bytes, offset: int, kind: int) -> tuple[Any, int]:
    """Return a value and where the next one begins; None for what is not kept: long texts and lists."""
    if kind in _VALUES:
        (value,) = struct.unpack_from(_VALUES[kind], data, offset)
        return value, offset + struct.calcsize(_VALUES[kind])
    if kind == _STRING:
        (length,) = _length(data, offset)
        end = offset + 8 + length
        if length > _MAX_KEPT:
            return None, end
        return _string(data, offset)
    if kind != _LIST:
        raise _Refused(f"a setting of the unknown type {kind}")
    item, count = struct.unpack_from("<IQ", data, offset)
    offset += 12
    if count > _MAX_ITEMS:
        raise _Refused(f"a list of {count:,} items")
    if item == _STRING:
        for _ in range(count):
            offset += 8 + _length(data, offset)[0]
        return None, offset
    if item not in _VALUES:
        raise _Refused(f"a list of the unknown type {item}")
    width = struct.calcsize(_VALUES[item])
    if count > _MAX_KEPT:
        return None, offset + count * width
    values = struct.unpack_from(f"<{count}{_VALUES[item][1]}", data, offset)
    return values, offset + count * width
