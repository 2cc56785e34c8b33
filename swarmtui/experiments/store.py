"""Store experiments, with the logs of their servers, and the tuning log next to the sessions.

An experiment is one document, `tune.json` or `ab.json`, which is replaced after each step.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import psutil

from swarmtui.engines.command_line import redact_flags
from swarmtui.experiments.grid import launch_command, starts_in_file_order, tune_digest
from swarmtui.files import MAX_DATA, make_private_directory, read_file, write_file
from swarmtui.model.base import BadInput, Versioned, check_schema, writing
from swarmtui.model.endpoint import show_url
from swarmtui.model.parsing import parse_json
from swarmtui.model.tuning import (
    AbTest,
    ChangeLog,
    Definition,
    Experiment,
    ExperimentStatus,
    Flags,
    LoggedChange,
    Tune,
    TuneFile,
    TuneSteering,
    is_command,
)

T = TypeVar("T")
Kind = Literal["ab", "tune"]
_TYPES: dict[Kind, type[Experiment[Any]]] = {"ab": Experiment[AbTest], "tune": Experiment[TuneFile]}

# Hidden, so that it is not listed as a session.
_FOLDER = ".tuning"
# Two readings of the start time of a process may differ by a clock tick.
_START_TIME_TOLERANCE_S = 0.5
_USUAL_PORT = 8000


def tune_directory(root: Path, tune: TuneFile) -> Path:
    """The directory of a tune; it does not depend on the flags in the file."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", tune.name).strip("-").lower()[:40] or "tune"
    return root / _FOLDER / f"{name}-{tune_digest(tune)}"


def tune_directories(root: Path) -> list[Path]:
    """The directories of all tunes, the most recently changed first."""
    found = []
    for path in (root / _FOLDER).glob("*/tune.json"):
        try:
            found.append((path.stat().st_mtime, path.parent))
        except OSError:
            continue  # deleted in the meantime
    return [directory for _, directory in sorted(found, reverse=True)]


def experiment_directory(root: Path, name: str) -> Path:
    """The directory of the experiment of which sessions have this name in their series."""
    return root / _FOLDER / name


@contextmanager
def exclusive_lock(directory: Path, kind: Kind) -> Iterator[None]:
    """Allow one process per experiment; the kernel releases the lock when that process ends."""
    with writing(directory):
        make_private_directory(directory)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput(f"this {kind} is already running", source=str(directory)) from None
    finally:
        os.close(fd)


def read_experiment(directory: Path, kind: Kind) -> Experiment[Any] | None:
    """Return the experiment, which is interrupted if its process has died; None if it has not been started."""
    found = read_document(directory / f"{kind}.json", _TYPES[kind])
    if found is not None and not found.status.ended and not is_running(found.status):
        status = msgspec.structs.replace(found.status, ended="interrupted")
        return msgspec.structs.replace(found, status=status)
    return found


def read_tune(directory: Path) -> Tune | None:
    """Return a tune with the results of configurations that its file contains, in the order of the file."""
    found: Tune | None = read_experiment(directory, "tune")
    if found is None:
        return None
    return msgspec.structs.replace(found, starts=tuple(starts_in_file_order(found.definition, found.starts)))


def write_experiment(directory: Path, kind: Kind, experiment: Experiment[Any]) -> None:
    stored = msgspec.structs.replace(experiment, definition=without_secrets(experiment.definition))
    write_document(directory / f"{kind}.json", stored)


def read_steering(directory: Path) -> TuneSteering:
    return read_document(directory / "steering.json", TuneSteering) or TuneSteering()


def write_steering(directory: Path, steering: TuneSteering) -> None:
    write_document(directory / "steering.json", steering)


def without_secrets(definition: Definition) -> Definition:
    """Leave out anything that may be secret."""
    url = definition.url and show_url(definition.url)
    if isinstance(definition, AbTest):
        a, b = (redact_flags(side) if is_command(side) else show_url(side) for side in (definition.a, definition.b))
        return msgspec.structs.replace(definition, a=a, b=b, url=url)
    gpus = definition.plan.gpu_metrics_url
    plan = msgspec.structs.replace(definition.plan, gpu_metrics_url=gpus and show_url(gpus))
    command = redact_flags(definition.command)
    knobs = tuple(
        msgspec.structs.replace(knob, apply=redact_flags(knob.apply), restore=redact_flags(knob.restore))
        for knob in definition.knob
    )
    return msgspec.structs.replace(definition, command=command, url=url, plan=plan, knob=knobs, stop="", env={})


def shown_command(tune: TuneFile, flags: Flags) -> str:
    """Return the command to copy, without secrets."""
    try:
        return str(launch_command(without_secrets(tune), flags, _USUAL_PORT))
    except BadInput:
        return ""  # a stored tune whose command was redacted may no longer be complete


def process_start_time(pid: int) -> float:
    """Start time of a process; 0 if it does not exist or is a zombie."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return 0.0


def is_running(status: ExperimentStatus) -> bool:
    """Whether the process of an experiment runs; its pid may belong to another one by now."""
    return abs(process_start_time(status.pid) - status.born) < _START_TIME_TOLERANCE_S


def request_stop(status: ExperimentStatus) -> None:
    if not status.ended and is_running(status):
        os.kill(status.pid, signal.SIGTERM)


def read_log(root: Path) -> tuple[LoggedChange, ...]:
    found = read_document(root / _FOLDER / "log.json", ChangeLog)
    return found.changes if found else ()


def baseline_effects(root: Path) -> dict[str, LoggedChange]:
    """Return for each session that was compared with a baseline its change in the log; none if it cannot be read.

    The first one counts: it is the verdict of the end of the run.
    """
    try:
        return {change.after: change for change in reversed(read_log(root))}
    except BadInput:
        return {}


def latest_effect(root: Path, session_id: str) -> LoggedChange | None:
    """Return the newest change since a session, of those that were compared with it; null if there is none."""
    try:
        return next((change for change in reversed(read_log(root)) if change.before == session_id), None)
    except BadInput:
        return None


def add_change(root: Path, change: LoggedChange) -> LoggedChange:
    """Number and date a change and append it to the log, unless another client has already done so."""
    changes = read_log(root)
    for known in changes:
        if (known.before, known.after) == (change.before, change.after):
            return known
    number = max((known.number for known in changes), default=0) + 1
    created = change.created or datetime.now(UTC).isoformat(timespec="seconds")
    numbered = msgspec.structs.replace(change, number=number, created=created)
    write_document(root / _FOLDER / "log.json", ChangeLog(changes=(*changes, numbered)))
    return numbered


def find_change(root: Path, number: int) -> LoggedChange:
    found = next((change for change in read_log(root) if change.number == number), None)
    if found is None:
        raise BadInput("no change has this number; see `swarmtui sessions log`", key=str(number))
    return found


def mark_change(root: Path, number: int, kept: Literal["kept", "reverted"] | None, note: str | None) -> LoggedChange:
    found = find_change(root, number)
    marked = msgspec.structs.replace(
        found, kept=found.kept if kept is None else kept, note=found.note if note is None else note
    )
    rows = tuple(marked if change.number == number else change for change in read_log(root))
    write_document(root / _FOLDER / "log.json", ChangeLog(changes=rows))
    return marked


def read_document(path: Path, kind: type[T]) -> T | None:
    """Return the struct that a file holds; None if there is no file."""
    try:
        data = read_file(path, MAX_DATA)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None
    check_schema(parse_json(data, Versioned, str(path)).schema, str(path))
    return parse_json(data, kind, str(path))


def write_document(path: Path, value: msgspec.Struct) -> None:
    with writing(path):
        make_private_directory(path.parent)
        write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
