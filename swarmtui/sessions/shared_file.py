"""Write and read shared files (`.swarm.json.gz`). Who wrote one is not trusted: neither its size nor what it says."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.files import make_private_directory, read_file, write_file
from swarmtui.model.base import BadInput, reading
from swarmtui.model.load import MAX_STREAMS, traits
from swarmtui.model.session import Summary
from swarmtui.model.shared import SHARED, SHARED_SCHEMA, SHARED_SUFFIX, SharedFile, SharedHead
from swarmtui.sessions.private import without_private
from swarmtui.text import sanitize, truncate
from swarmtui.version import __version__

_MAX_PACKED, _MAX_UNPACKED = 4 << 20, 32 << 20
_MAX_LEVELS, _MAX_ITEMS, _LARGEST = 256, 4096, 1e19
_LONGEST_PROBLEM = 200
# Smaller numbers are errors of rounding, and have no logarithm when they are multiplied.
_SMALLEST = 1e-60
# Figures that may be below zero: differences, and the lines that are fitted to levels.
_SIGNED = frozenset(
    ("contention", "gain", "seconds", "step_a_s", "step_c_s", "sigma", "knee", "ceiling_tps", "overhead_s", "seed",
     "queue_s", "prefill_s", "rest_s", "client_s")
)  # fmt: skip


def is_shared_file(name: str | Path) -> bool:
    return str(name).endswith(SHARED_SUFFIX)


def shared_bytes(summary: Summary) -> bytes:
    """Pack a summary without anything private; the same summary always gives the same bytes."""
    found = SharedFile(kind="swarmtui-session", schema=SHARED_SCHEMA, version=__version__, summary=summary)
    return gzip.compress(msgspec.json.encode(found, order="deterministic") + b"\n", mtime=0)


def read_shared(path: Path) -> Summary:
    """Read a shared file, also one of another version: unknown fields are ignored, a newer schema is refused."""
    source = str(path)
    with reading(path):
        packed = read_file(path, _MAX_PACKED)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(_MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error):
        raise BadInput("is not a shared file: it cannot be unpacked", source=source) from None
    if len(content) > _MAX_UNPACKED:
        raise BadInput(f"is larger than {_MAX_UNPACKED >> 20} MB when unpacked", source=source)
    try:
        document = msgspec.json.decode(content)
        head = msgspec.convert(document, SharedHead)
        if head.schema > SHARED_SCHEMA:
            problem = f"has schema {head.schema}, but this version reads schema {SHARED_SCHEMA}; update swarmtui"
            raise BadInput(problem, source=source)
        _drop_unknown_load_keys(document)
        summary = msgspec.convert(document, SharedFile).summary
        _check(summary)
        return without_private(summary, label=summary.session.label).summary
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = truncate(sanitize(str(error)), _LONGEST_PROBLEM)
        raise BadInput(f"is not a shared file that this version can read: {problem}", source=source) from None
    except _Implausible as error:
        raise BadInput(f"is damaged: {error}", source=source) from None
    except BadInput as error:
        problem = truncate(sanitize(str(error)), _LONGEST_PROBLEM)
        raise error if error.source else BadInput(f"is damaged: {problem}", source=source) from None


def _drop_unknown_load_keys(document: Any) -> None:
    """Remove what a newer version knows about a load: users write loads, too, and there an unknown key is a typo."""
    place = document
    for key in ("summary", "session", "plan", "load"):
        place = place.get(key) if isinstance(place, dict) else None
    if isinstance(place, dict):
        known = {"mode", *traits(str(place.get("mode"))).__struct_fields__}
        for key in place.keys() - known:
            del place[key]


def import_shared(path: Path, root: Path) -> str:
    """Store a shared file among the sessions, and return its id; a session that is there already stays as it is."""
    summary = read_shared(path)
    name = summary.session.id
    directory, content = root / name, shared_bytes(summary)
    try:
        if not directory.exists():
            make_private_directory(directory)
            write_file(directory / SHARED, content)
        elif (directory / SHARED).is_file() and read_file(directory / SHARED, _MAX_PACKED) != content:
            problem = f"another file of session {name} was imported before; `swarmtui sessions rm {name}` removes it"
            raise BadInput(problem, source=str(path))
    except OSError as error:
        raise BadInput(f"cannot be imported: {error.strerror}", source=error.filename or str(path)) from None
    return name


class _Implausible(ValueError):
    """A value that no measurement has."""


def _check(summary: Summary) -> None:
    """Refuse values that no measurement has, so that what draws and compares figures can rely on them."""
    _check_sizes(msgspec.to_builtins(summary))
    keys = [level.key for level in summary.levels]
    if len(keys) > _MAX_LEVELS or len(set(keys)) < len(keys):
        raise _Implausible("too many levels, or one of them twice")
    summary.session.plan.load.find_problem()
    for level in summary.levels:
        if not 1 <= level.c <= MAX_STREAMS or (level.rate is not None and level.rate <= 0.0) or level.runs < 1:
            raise _Implausible(f"no such level: {level.name}")
    for name, value in _figures(summary):
        if (value < 0 and name not in _SIGNED) or 0 < abs(value) < _SMALLEST:
            raise _Implausible(f"{name} is {value:g}")


def _figures(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _figures(getattr(value, field), field)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _figures(part, name)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _figures(part, name)
    elif isinstance(value, int | float):
        yield name, value


def _check_sizes(value: Any) -> None:
    match value:
        case bool() | None:
            return
        case int() | float():
            if abs(value) > _LARGEST or not isfinite(value):
                raise _Implausible("a number is too large")
        case dict() | list() | tuple():
            if len(value) > _MAX_ITEMS:
                raise _Implausible("a list is too long")
            for part in value.values() if isinstance(value, dict) else value:
                _check_sizes(part)
