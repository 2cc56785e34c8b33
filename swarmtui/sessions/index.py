"""The list of all sessions, from a small file that lies beside each journal; thousands in well under a second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.model.level_key import level_name
from swarmtui.model.record import CANCELLED
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.session import End, Head, Session, State, Summary
from swarmtui.sessions.files import is_id
from swarmtui.sessions.journal import JOURNAL, SPOOLS, decode_line, is_locked

INDEX = "index.json"
_INDEX_VERSION = 2
_TAIL_BYTES = 16 << 10
_HEAD_BYTES = 16 << 20


class Listed(Stored, frozen=True, kw_only=True):
    """A row of the list. Figures are null until a summary was made; `problem` says why a row cannot be read.

    `best_out_tps` is the throughput that leads (`Level.lead_tps`), `best_c` and `best_rate` where it was reached, and
    `chunks_counted` says that it counts chunks, not tokens. Until there is a summary `requests` is taken from the
    journal itself, of a session that runs no more.
    """

    id: str
    created: str = ""
    state: State | None = None
    label: str = ""
    endpoint: str = ""
    model: str = ""
    workload: str = ""
    levels: tuple[int | float, ...] = ()
    best_out_tps: float | None = None
    best_c: int | None = None
    best_rate: float | None = None
    chunks_counted: bool = False
    requests: int | None = None
    simulated: bool = False
    tags: dict[str, str] = {}
    directory: str = ""
    problem: str | None = None

    @property
    def best_at(self) -> str:
        """The place of the best level; empty where there is none."""
        return "" if self.best_c is None else level_name((self.best_c, self.best_rate))


class _Index(Stored, frozen=True, kw_only=True):
    """`journal_bytes` tells whether the journal has grown since."""

    schema: int
    journal_bytes: int
    row: Listed


_index_decoder = msgspec.json.Decoder(_Index)


def session_names(root: Path) -> list[str]:
    """Names of the directories under `root`, newest first, and behind them those that no session of ours has."""
    try:
        with os.scandir(root) as found:
            names = [entry.name for entry in found if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(root)) from None
    return sorted(names, key=lambda name: (is_id(name), name), reverse=True)


def list_sessions(root: Path) -> list[Listed]:
    return [_row(root / name) for name in session_names(root)]


def index_json(summary: Summary, journal_bytes: int) -> bytes:
    best = headline_level(summary.levels)
    row = msgspec.structs.replace(
        _head_row(summary.session),
        state=summary.state,
        levels=tuple(level.offered_load for level in summary.levels),
        best_out_tps=best.headline_tps if best else None,
        best_c=best.c if best else None,
        best_rate=best.rate if best else None,
        chunks_counted=best is not None and best.token_source in ("chunks", "mixed"),
        requests=sum(level.n for level in summary.levels),
    )
    return msgspec.json.encode(_Index(schema=_INDEX_VERSION, journal_bytes=journal_bytes, row=row)) + b"\n"


def _row(directory: Path) -> Listed:
    try:
        fd = os.open(directory / JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        return _unreadable(directory, f"no {JOURNAL} in it")
    except OSError as error:
        return _unreadable(directory, f"{JOURNAL} cannot be read: {error.strerror}")
    try:
        size = os.fstat(fd).st_size
        row = _indexed(directory, size) or _from_ends(fd, size)
        if row is None:
            return _unreadable(directory, f"{JOURNAL} has no readable first line")
        if row.state is None or row.state == "running":
            row = msgspec.structs.replace(row, state="running" if is_locked(fd) else "interrupted")
        if row.requests is None and row.state != "running":
            row = msgspec.structs.replace(row, requests=_finished(directory))
    except OSError as error:
        return _unreadable(directory, f"{JOURNAL} cannot be read: {error.strerror}")
    finally:
        os.close(fd)
    return msgspec.structs.replace(row, id=directory.name, directory=str(directory))


def _unreadable(directory: Path, problem: str) -> Listed:
    return Listed(id=directory.name, directory=str(directory), problem=problem)


def _indexed(directory: Path, journal_bytes: int) -> Listed | None:
    """None where there is none of today's kind, or where the journal went on after it was made."""
    try:
        index = _index_decoder.decode((directory / INDEX).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return index.row if (index.schema, index.journal_bytes) == (_INDEX_VERSION, journal_bytes) else None


def is_indexed(directory: Path) -> bool:
    return _indexed(directory, (directory / JOURNAL).stat().st_size) is not None


def _from_ends(fd: int, size: int) -> Listed | None:
    """From the first and the last line of a journal, whatever lies between."""
    head = decode_line(_first_line(fd))
    if not isinstance(head, Head):
        return None
    tail = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    last = decode_line(tail.rstrip(b"\n").rpartition(b"\n")[2])
    return msgspec.structs.replace(_head_row(head.session), state=last.state if isinstance(last, End) else None)


class _Brief(msgspec.Struct, frozen=True):
    """As much of a record as tells it from others; what is left out costs no time."""

    task: int
    turn: int = 0
    stretch: int = 0
    phase: str = "level"
    error: str | None = None


class _Line(msgspec.Struct, frozen=True):
    record: _Brief


_line_decoder = msgspec.json.Decoder(_Line)


def _finished(directory: Path) -> int:
    """Requests of levels in the journal, and in what its workers left beside it; each once."""
    known: set[tuple[int, int, int]] = set()
    for path in (directory / JOURNAL, *directory.glob(SPOOLS)):
        with path.open("rb") as file:
            for line in file:
                try:
                    one = _line_decoder.decode(line).record
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                if one.phase == "level" and one.error != CANCELLED:
                    known.add((one.stretch, one.task, one.turn))
    return len(known)


def _first_line(fd: int) -> bytes:
    """A head holds its whole workload, so it can be long."""
    text = b""
    while len(text) < _HEAD_BYTES:
        part = os.pread(fd, 64 << 10, len(text))
        text += part
        if not part or b"\n" in part:
            break
    return text.partition(b"\n")[0]


def _head_row(session: Session) -> Listed:
    endpoint = session.endpoints[0] if session.endpoints else None
    others = f" +{len(session.endpoints) - 1}" if len(session.endpoints) > 1 else ""
    return Listed(
        id=session.id,
        created=session.created,
        label=session.label,
        endpoint=endpoint.url + others if endpoint else "",
        model=endpoint.model if endpoint else "",
        workload=session.workload,
        simulated=session.simulated,
        tags=session.tags,
    )


By = Literal["newest", "best", "model", "workload"]


def ordered(rows: Sequence[Listed], by: By, words: str) -> list[Listed]:
    """Those that hold all the words; rows come newest first."""
    wanted = words.lower().split()
    kept = [row for row in rows if all(word in _searched(row) for word in wanted)]
    match by:
        case "best":
            kept.sort(key=lambda row: -(row.best_out_tps or 0.0))
        case "model":
            kept.sort(key=lambda row: (row.model, -(row.best_out_tps or 0.0)))
        case "workload":
            kept.sort(key=lambda row: (row.workload, -(row.best_out_tps or 0.0)))
        case "newest":
            pass
    return kept


def _searched(row: Listed) -> str:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    return " ".join([row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", tags]).lower()
