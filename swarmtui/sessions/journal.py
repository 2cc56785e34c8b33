"""Read and write the journal of a session: an append-only file with one JSON entry per line."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from swarmtui.files import (
    MAX_JOURNAL,
    append_whole,
    is_private_directory,
    make_private_directory,
    open_regular,
    open_without_links,
    read_file,
    read_lines,
    runtime_directory,
    state_directory,
)
from swarmtui.model.base import DECODE_ERRORS, SCHEMA_VERSION, BadInput, Stored, Versioned, check_schema
from swarmtui.model.journal import (
    CapacitySearch,
    DescriptionEntry,
    End,
    Entry,
    Head,
    QualityEntry,
    RequestEntry,
    SearchEntry,
    ServerEntry,
    StageEnd,
    StageStart,
    SweepEntry,
    TelemetryEntry,
    TokenCount,
    entry_decoder,
)
from swarmtui.model.record import Record, time_fields
from swarmtui.model.session import Event, Session
from swarmtui.model.telemetry import DiscoveredServer, Telemetry

E = TypeVar("E", bound=msgspec.Struct)
JOURNAL = "journal.jsonl"
_SPOOLS = "spool-*.jsonl"
_LOCK_PATIENCE_S = 2.0
_MAX_SPAN_NS = 30 * 24 * 3600 * 1_000_000_000
_MAX_CHUNKS = 1 << 20
_MAX_THINNED_CHUNKS = 1 << 14
_MAX_TOKENS = 1 << 53
_MAX_READING = 1e20
_MAX_CACHED_GAPS = 1 << 16


class Journal(Stored, frozen=True, kw_only=True):
    """The entries of a journal and of the spool files that workers left next to it; `entries` are in their order."""

    head: Head
    entries: tuple[Entry, ...] = ()
    stages: tuple[StageStart, ...] = ()
    ends: tuple[StageEnd, ...] = ()
    records: tuple[Record, ...] = ()
    events: tuple[Event, ...] = ()
    search: CapacitySearch | None = None
    telemetry: tuple[Telemetry, ...] = ()
    servers: tuple[DiscoveredServer, ...] = ()
    quality: QualityEntry | None = None
    end: End | None = None
    damaged_lines: int = 0


def has_journal(directory: Path) -> bool:
    """Return whether there is a journal: the directory may have been removed during the run."""
    return (directory / JOURNAL).is_file()


def read_journal(directory: Path) -> Journal:
    """Read a journal. Damaged lines are counted and skipped; only the head is required."""
    path = directory / JOURNAL
    try:
        found, damaged = read_entries(path)
        spooled = [read_entries(spool) for spool in spool_files(directory)]
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=error.filename or str(path)) from None
    head = next((entry for entry in found if isinstance(entry, Head)), None)
    check_schema(head.schema if head else schema_of(next(iter(read_lines(path)), None) or b""), str(path))
    if head is None:
        raise BadInput("has no readable first line, so what it measured is unknown", source=str(path))
    for more, more_damaged in spooled:
        found += entries_of(RequestEntry, more)
        damaged += more_damaged
    session = head.session
    possible = [entry for entry in found if _is_plausible(entry, session)]
    damaged += len(found) - len(possible)
    for entry in possible:
        if isinstance(entry, DescriptionEntry):
            session = msgspec.structs.replace(head.session, label=entry.label, note=entry.note)
            head = msgspec.structs.replace(head, session=session)
    return Journal(
        head=head,
        entries=tuple(possible),
        stages=entries_of(StageStart, possible),
        ends=entries_of(StageEnd, possible),
        records=_apply_token_counts(unique_records(possible), entries_of(TokenCount, possible)),
        events=entries_of(Event, possible),
        search=last_of(CapacitySearch, possible),
        telemetry=tuple(entry.telemetry for entry in entries_of(TelemetryEntry, possible)),
        servers=tuple(entry.server for entry in entries_of(ServerEntry, possible)),
        quality=last_of(QualityEntry, possible),
        end=last_of(End, possible),
        damaged_lines=damaged,
    )


def entries_of(kind: type[E], entries: Iterable[Entry]) -> tuple[E, ...]:
    return tuple(entry for entry in entries if isinstance(entry, kind))


def last_of(kind: type[E], entries: Iterable[Entry]) -> E | None:
    return next(reversed(entries_of(kind, entries)), None)


def schema_of(line: bytes) -> int:
    """Return the schema of a journal by its first line, which this version may not be able to read otherwise."""
    try:
        return msgspec.json.decode(line, type=Versioned).schema
    except DECODE_ERRORS:
        return SCHEMA_VERSION


def spool_paths(directory: Path, worker: int, *, other_machine: bool = False) -> tuple[Path, ...]:
    """Return where a worker writes records that are not in the journal: next to it or, if it cannot, elsewhere."""
    elsewhere = (machine_spools(directory),) if other_machine else _other_spools(directory)
    return tuple(path / f"spool-{worker}.jsonl" for path in (directory, *elsewhere))


def machine_spools(directory: Path) -> Path:
    """Return where another machine, which does not have the directory of the session, keeps its spool files."""
    return Path("/tmp") / f"swarmtui-{directory.name}"


def _other_spools(directory: Path) -> tuple[Path, ...]:
    return tuple(base / "spools" / directory.name for base in (runtime_directory(), state_directory()))


def spool_files(directory: Path) -> list[Path]:
    """Return the spool files of a session, also those that did not fit on its disk."""
    elsewhere = filter(is_private_directory, _other_spools(directory))
    return [spool for path in (directory, *elsewhere) for spool in sorted(path.glob(_SPOOLS))]


def read_spooled(directory: Path) -> dict[tuple[int, int, int], Record]:
    found: dict[tuple[int, int, int], Record] = {}
    for spool in spool_files(directory):
        with suppress(OSError):
            entries, _ = read_entries(spool)
            found |= {record.key: record for record in unique_records(entries)}
    return found


def collect_spools(directory: Path) -> None:
    """Move the spool files of a session to its directory, as far as there is space for them."""
    for spool in spool_files(directory):
        if spool.parent != directory:
            with suppress(OSError):
                append_whole(directory / spool.name, read_file(spool, MAX_JOURNAL))
                spool.unlink()
    for path in _other_spools(directory):
        with suppress(OSError):
            path.rmdir()


def discard_spools(directory: Path) -> None:
    for path in _other_spools(directory):
        shutil.rmtree(path, ignore_errors=True)


def decode_line(line: bytes) -> Entry | None:
    """Decode an entry; None if the line is damaged or of an unknown kind."""
    try:
        return entry_decoder.decode(line)
    except DECODE_ERRORS:
        return None


def is_running(directory: Path) -> bool:
    """Return whether the writer holds the lock. The kernel releases it when the process ends, however it ends."""
    fd = open_regular(directory / JOURNAL, MAX_JOURNAL)
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def is_locked(fd: int) -> bool:
    """Test the lock by taking it for an instant; a writer that starts in that instant retries."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


class JournalWriter:
    """Creates a journal and keeps it locked until closed. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._path = directory / JOURNAL
        self._fd = open_without_links(self._path, flags)
        self._torn = False
        self.size = 0
        try:
            lock_file(self._fd)
        except OSError:
            os.close(self._fd)
            raise

    def append(self, entry: bytes) -> None:
        """Write an encoded entry as one line; after a write that was cut short, start on a new line."""
        line = entry + b"\n"
        self._write(b"\n" + line if self._torn else line)

    def copy(self, other: JournalWriter) -> None:
        """Copy everything that `other` has written, even if its file has been unlinked since."""
        done = 0
        while part := os.pread(other._fd, 1 << 20, done):
            self._write(part)
            done += len(part)
        self._torn = other._torn

    def is_in_place(self) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(self._fd).st_ino
        except OSError:
            return False

    def _write(self, data: bytes) -> None:
        while data:
            written = os.write(self._fd, data)
            self.size += written
            data = data[written:]
            self._torn = bool(data)

    def fileno(self) -> int:
        return self._fd

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file. Its descriptor number may be reused, so later writes and copies must fail."""
        fd, self._fd = self._fd, -1
        os.close(fd)


def _is_plausible(entry: Entry, session: Session) -> bool:
    """Return whether times lie within the session and counts are bounded: a journal may come from anywhere."""
    t0 = session.t0_ns
    match entry:
        case RequestEntry(record=record):
            times = [getattr(record, name) for name in time_fields(Record)]
            spans = (1000 * sum(record.chunk_us), 1000 * min(record.chunk_us, default=0))
            return (
                all(t is None or abs(t - t0) <= _MAX_SPAN_NS for t in times)
                and all(abs(span) <= _MAX_SPAN_NS for span in spans)
                and 0 <= record.chunks <= (_MAX_CHUNKS if record.chunk_us else _MAX_THINNED_CHUNKS)
                and abs(record.tokens_out or 0) <= _MAX_TOKENS
            )
        case TelemetryEntry(telemetry=telemetry):
            readings = [value for gpu in telemetry.gpus for value in msgspec.structs.astuple(gpu)]
            return abs(telemetry.t_ns - t0) <= _MAX_SPAN_NS and all(
                abs(value) <= _MAX_READING for value in readings if isinstance(value, int | float)
            )
        case StageStart(c=c, phase="level") if c < 1:
            return False
        case StageStart() | StageEnd() | Event() | CapacitySearch() | SearchEntry() | SweepEntry() | End():
            return abs(entry.t_ns - t0) <= _MAX_SPAN_NS
    return True


def lock_file(fd: int, patience_s: float = _LOCK_PATIENCE_S) -> None:
    """Lock for writing, past readers that test the lock for an instant. BlockingIOError: another writer holds it."""
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.005)
        else:
            return


def read_entries(path: Path) -> tuple[list[Entry], int]:
    """Return the entries and the number of damaged lines. Reads line by line, since a journal can be large."""
    found: list[Entry] = []
    damaged, cache = 0, GapCache()
    for line in read_lines(path):
        if line == b"\n":
            continue
        entry = None if line is None else decode_line(line)
        if isinstance(entry, RequestEntry):
            entry = RequestEntry(record=cache.compact(entry.record))
        if entry is None:
            damaged += 1
        else:
            found.append(entry)
    return found, damaged


def without_chunk_times(record: Record) -> Record:
    """Drop the time of each chunk; first and last time, count and longest gap stay."""
    if record.chunks > _MAX_THINNED_CHUNKS:
        return record
    return msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None, stall_us=record.longest_gap_us)


class GapCache:
    """Shares equal integers: millions of gaps between chunks have only a few thousand different values."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def compact(self, record: Record) -> Record:
        if len(self._known) > _MAX_CACHED_GAPS:
            self._known.clear()
        keep = self._known.setdefault
        return msgspec.structs.replace(record, chunk_us=tuple([keep(gap, gap) for gap in record.chunk_us]))


def unique_records(entries: Iterable[Entry]) -> tuple[Record, ...]:
    """Return each record once, as it was first: one that a worker spooled may already be in the journal."""
    kept = {entry.record.key: entry.record for entry in reversed(entries_of(RequestEntry, entries))}
    return tuple(reversed(kept.values()))


def _apply_token_counts(records: tuple[Record, ...], counts: Iterable[TokenCount]) -> tuple[Record, ...]:
    """Replace token counts that were recounted after the answer; the first chunk gets an even share of them."""
    known = {(count.stage, count.task, count.turn): count.tokens_out for count in counts}
    if not known:
        return records
    return tuple(
        record
        if (tokens := known.get(record.key)) is None
        else msgspec.structs.replace(
            record,
            tokens_out=tokens,
            token_source="tokenize",
            first_tokens=max(1, round(tokens / record.chunks)) if record.chunks else None,
        )
        for record in records
    )
