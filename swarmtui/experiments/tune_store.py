"""Store tunes, with their logs, and the tuning log next to the sessions."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from swarmtui.engines.command_line import redact_flags
from swarmtui.experiments.grid import tune_digest
from swarmtui.files import MAX_DATA, make_private_directory, read_file, write_file
from swarmtui.model.base import BadInput, Versioned, check_schema
from swarmtui.model.endpoint import show_url
from swarmtui.model.parsing import parse_json
from swarmtui.model.tuning import ChangeLog, LoggedChange, TuneFile, TuneResult, TuneState, TuneStatus

T = TypeVar("T")

# Hidden, so that it is not listed as a session.
_FOLDER = ".tuning"


def tune_directory(root: Path, tune: TuneFile) -> Path:
    """The directory of a tune; it does not depend on the flags in the file."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", tune.name).strip("-").lower()[:40] or "tune"
    return root / _FOLDER / f"{name}-{tune_digest(tune)}"


def tune_directories(root: Path) -> list[Path]:
    """The directories of all tunes, the most recently changed first."""
    found = []
    for path in (root / _FOLDER).glob("*/tune.json"):
        try:
            found.append((max(file.stat().st_mtime for file in path.parent.glob("*.json")), path.parent))
        except (OSError, ValueError):
            continue  # deleted in the meantime
    return [directory for _, directory in sorted(found, reverse=True)]


def logs_directory(root: Path, name: str) -> Path:
    return root / _FOLDER / name


@contextmanager
def exclusive_lock(directory: Path) -> Iterator[None]:
    """Allow one process per tune; the kernel releases the lock when that process ends."""
    try:
        make_private_directory(directory)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput("this tune is already running", source=str(directory)) from None
    finally:
        os.close(fd)


def read_state(directory: Path, name: str) -> TuneState:
    return _read(directory / "state.json", TuneState) or TuneState(name=name)


def add_row(directory: Path, state: TuneState, row: TuneResult) -> TuneState:
    """Append a row; it is on disk when this returns."""
    state = msgspec.structs.replace(state, rows=(*state.rows, row))
    _write(directory / "state.json", state)
    return state


def write_tune(directory: Path, tune: TuneFile) -> None:
    """Store the tune for UIs that show it, without anything that may be secret."""
    shown = {"command": redact_flags(tune.command), "url": show_url(tune.url)}
    _write(directory / "tune.json", msgspec.structs.replace(tune, **shown, stop="", env={}))


def read_saved_tune(directory: Path) -> TuneFile:
    path = directory / "tune.json"
    found = _read(path, TuneFile)
    if found is None:
        raise BadInput("cannot be read: No such file or directory", source=str(path))
    return found


def write_status(directory: Path, status: TuneStatus) -> None:
    _write(directory / "present.json", status)


def read_status(directory: Path) -> TuneStatus | None:
    return _read(directory / "present.json", TuneStatus)


def read_log(root: Path) -> tuple[LoggedChange, ...]:
    found = _read(root / _FOLDER / "log.json", ChangeLog)
    return found.changes if found else ()


def add_change(root: Path, change: LoggedChange) -> LoggedChange:
    """Number a change and append it to the log, unless another client has already done so."""
    changes = read_log(root)
    for known in changes:
        if (known.before, known.after) == (change.before, change.after):
            return known
    numbered = msgspec.structs.replace(change, number=max((known.number for known in changes), default=0) + 1)
    _write(root / _FOLDER / "log.json", ChangeLog(changes=(*changes, numbered)))
    return numbered


def mark_change(root: Path, number: int, kept: Literal["kept", "reverted"] | None, note: str | None) -> LoggedChange:
    """Mark a change as kept or reverted, or add a note to it."""
    changes = read_log(root)
    found = next((change for change in changes if change.number == number), None)
    if found is None:
        raise BadInput("no change has this number; see `swarmtui sessions log`", key=str(number))
    marked = msgspec.structs.replace(
        found, kept=found.kept if kept is None else kept, note=found.note if note is None else note
    )
    rows = tuple(marked if change.number == number else change for change in changes)
    _write(root / _FOLDER / "log.json", ChangeLog(changes=rows))
    return marked


def _read(path: Path, kind: type[T]) -> T | None:
    """Return the struct that a file holds; None if there is no file."""
    try:
        data = read_file(path, MAX_DATA)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None
    check_schema(parse_json(data, Versioned, str(path)).schema, str(path))
    return parse_json(data, kind, str(path))


def _write(path: Path, value: msgspec.Struct) -> None:
    try:
        make_private_directory(path.parent)
        write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(path)) from None
