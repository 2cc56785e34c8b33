"""What is kept of tuning, beside the sessions: the state of each tune with its logs, and the log of changes."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.experiments.grid import digest_of
from swarmtui.model.schema import BadInput, read_json
from swarmtui.model.tuning import CellRow, Change, ChangeLog, Present, TuneFile, TuneState
from swarmtui.sessions.files import write_whole

# Hidden, so that it is not taken for a session.
_FOLDER = ".tuning"
_SECRET = frozenset(("key", "keys", "token", "secret", "password", "passwd", "auth", "authorization", "header"))


def tune_directory(root: Path, tune: TuneFile) -> Path:
    """The same for the same file, whatever flags were added to it."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", tune.name).strip("-").lower()[:40] or "tune"
    return root / _FOLDER / f"{name}-{digest_of(tune)}"


def tune_directories(root: Path) -> list[Path]:
    """Of all tunes that are kept, the one that was written to last first."""
    found = []
    for path in (root / _FOLDER).glob("*/tune.json"):
        try:
            found.append((max(file.stat().st_mtime for file in path.parent.glob("*.json")), path.parent))
        except (OSError, ValueError):
            continue  # it was just deleted
    return [directory for _, directory in sorted(found, reverse=True)]


def logs_directory(root: Path, name: str) -> Path:
    return root / _FOLDER / name


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Two at once would measure each other; the lock ends with the process that has it, however that ends."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput("this tune is running already", source=str(directory)) from None
    finally:
        os.close(fd)


def read_state(directory: Path, name: str) -> TuneState:
    path = directory / "state.json"
    try:
        return read_json(path.read_bytes(), TuneState, str(path))
    except FileNotFoundError:
        return TuneState(name=name)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None


def add_row(directory: Path, state: TuneState, row: CellRow) -> TuneState:
    """On disk before it is believed."""
    grown = msgspec.structs.replace(state, rows=(*state.rows, row))
    _write(directory / "state.json", grown)
    return grown


def write_tune(directory: Path, tune: TuneFile) -> None:
    """For who looks on, and needs no other file; without what may be secret, for keys are never written anywhere."""
    _write(directory / "tune.json", msgspec.structs.replace(tune, command=_harmless(tune.command), stop="", env={}))


def _harmless(command: str) -> str:
    """`--api-key …`: the value of what is secret by its name is left out."""
    words, hidden = [], False
    for word in command.split():
        name, equals, _ = word.partition("=")
        secret = word.startswith("-") and not _SECRET.isdisjoint(re.split(r"[-_]", name.lower()))
        words.append(f"{name}=…" if secret and equals else "…" if hidden and not word.startswith("-") else word)
        hidden = secret and not equals
    return " ".join(words)


def read_kept_tune(directory: Path) -> TuneFile:
    path = directory / "tune.json"
    try:
        return read_json(path.read_bytes(), TuneFile, str(path))
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None


def write_present(directory: Path, present: Present) -> None:
    _write(directory / "present.json", present)


def read_present(directory: Path) -> Present | None:
    path = directory / "present.json"
    try:
        return read_json(path.read_bytes(), Present, str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None


def read_log(root: Path) -> tuple[Change, ...]:
    path = root / _FOLDER / "log.json"
    try:
        return read_json(path.read_bytes(), ChangeLog, str(path)).changes
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None


def add_change(root: Path, change: Change) -> Change:
    """With the number behind the last one; what was written down already stays as it is: two faces may look on."""
    changes = read_log(root)
    for known in changes:
        if (known.before, known.after) == (change.before, change.after):
            return known
    numbered = msgspec.structs.replace(change, number=max((known.number for known in changes), default=0) + 1)
    _write(root / _FOLDER / "log.json", ChangeLog(changes=(*changes, numbered)))
    return numbered


def mark_change(root: Path, number: int, kept: Literal["kept", "reverted"] | None, note: str | None) -> Change:
    """Says of a change whether it stays, or why."""
    changes = read_log(root)
    found = next((change for change in changes if change.number == number), None)
    if found is None:
        raise BadInput("the log has no change of this number; `swarmtui sessions log` shows it", key=str(number))
    marked = msgspec.structs.replace(
        found, kept=found.kept if kept is None else kept, note=found.note if note is None else note
    )
    rows = tuple(marked if change.number == number else change for change in changes)
    _write(root / _FOLDER / "log.json", ChangeLog(changes=rows))
    return marked


def _write(path: Path, value: msgspec.Struct) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(path)) from None
