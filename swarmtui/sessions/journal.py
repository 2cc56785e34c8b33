"""The journal of a session: one JSON line for each thing that happened, only ever added to."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec

from swarmtui.model.record import Record
from swarmtui.model.schema import SCHEMA_VERSION, BadInput, Stored
from swarmtui.model.session import (
    Description,
    End,
    Entry,
    Event,
    Head,
    QualityEntry,
    RequestEntry,
    Sample,
    ServerFound,
    Session,
    StageEnd,
    StageStart,
    TokenCount,
    entry_decoder,
    entry_encoder,
)
from swarmtui.model.telemetry import DiscoveredServer, Telemetry

JOURNAL = "journal.jsonl"
SPOOLS = "spool-*.jsonl"
_LOCK_PATIENCE_S = 2.0

_LONGEST_NS = 30 * 24 * 3600 * 1_000_000_000
_MOST_CHUNKS = 1 << 20
MOST_THINNED = 1 << 14
_MOST_TOKENS = 1 << 53
_MOST_KNOWN = 1 << 16


class Journal(Stored, frozen=True, kw_only=True):
    """A journal as read, with what workers had left in spool files beside it."""

    head: Head
    stretches: tuple[StageStart, ...] = ()
    ends: tuple[StageEnd, ...] = ()
    records: tuple[Record, ...] = ()
    events: tuple[Event, ...] = ()
    telemetry: tuple[Telemetry, ...] = ()
    servers: tuple[DiscoveredServer, ...] = ()
    trusted: QualityEntry | None = None
    end: End | None = None
    damaged_lines: int = 0


def read_journal(directory: Path) -> Journal:
    """A line that cannot be read is counted and passed over, wherever it stands; only the head must be there."""
    path = directory / JOURNAL
    try:
        found, damaged = entries(path)
        spooled = [entries(spool) for spool in sorted(directory.glob(SPOOLS))]
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=error.filename or str(path)) from None
    head = next((entry for entry in found if isinstance(entry, Head)), None)
    if head is None:
        raise BadInput("has no readable first line, so nobody knows what it measured", source=str(path))
    if head.schema > SCHEMA_VERSION:
        raise BadInput(f"was written by a newer swarmtui (schema {head.schema})", source=str(path))
    for more, more_damaged in spooled:
        found += (entry for entry in more if isinstance(entry, RequestEntry))
        damaged += more_damaged
    session = head.session
    possible = [entry for entry in found if _can_be(entry, session)]
    damaged += len(found) - len(possible)
    for entry in possible:
        if isinstance(entry, Description):
            session = msgspec.structs.replace(head.session, label=entry.label, note=entry.note)
            head = msgspec.structs.replace(head, session=session)
    return Journal(
        head=head,
        stretches=tuple(entry for entry in possible if isinstance(entry, StageStart)),
        ends=tuple(entry for entry in possible if isinstance(entry, StageEnd)),
        records=_counted(
            once([entry.record for entry in possible if isinstance(entry, RequestEntry)]),
            [entry for entry in possible if isinstance(entry, TokenCount)],
        ),
        events=tuple(entry for entry in possible if isinstance(entry, Event)),
        telemetry=tuple(entry.telemetry for entry in possible if isinstance(entry, Sample)),
        servers=tuple(entry.server for entry in possible if isinstance(entry, ServerFound)),
        trusted=next((entry for entry in reversed(possible) if isinstance(entry, QualityEntry)), None),
        end=next((entry for entry in reversed(possible) if isinstance(entry, End)), None),
        damaged_lines=damaged,
    )


def decode_line(line: bytes) -> Entry | None:
    """None for a line that is not, or no longer, an entry."""
    try:
        return entry_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_running(directory: Path) -> bool:
    """Its writer lives as long as it holds the lock; the kernel lets go of it with the process, however that ends."""
    with (directory / JOURNAL).open("rb") as file:
        return is_locked(file.fileno())


def is_locked(fd: int) -> bool:
    """Tried and let go at once: a writer that begins in that moment tries again."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


class JournalWriter:
    """Makes a new journal, and keeps it locked until closed. OSError is the caller's to handle."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._path = directory / JOURNAL
        self._fd = os.open(self._path, flags, 0o600)
        self._torn = False
        self.size = 0
        try:
            _lock(self._fd)
        except OSError:
            os.close(self._fd)
            raise

    def append(self, entry: Entry) -> None:
        """One line, in one write where the disk takes it whole; after a line that was cut short a new one begins."""
        line = entry_encoder.encode(entry) + b"\n"
        self._write(b"\n" + line if self._torn else line)

    def copy(self, other: JournalWriter) -> None:
        """What the other one has written so far, also where its file was removed from its directory since."""
        done = 0
        while part := os.pread(other._fd, 1 << 20, done):
            self._write(part)
            done += len(part)
        self._torn = other._torn

    def is_there(self) -> bool:
        """Whether people still find it where it was made."""
        try:
            return self._path.stat().st_ino == os.fstat(self._fd).st_ino
        except OSError:
            return False

    def _write(self, data: bytes) -> None:
        self._torn = True
        while data:
            written = os.write(self._fd, data)
            self.size += written
            data = data[written:]
        self._torn = False

    def fileno(self) -> int:
        return self._fd

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        """The number of its file may be another's from now on: whoever still writes or copies here gets an error."""
        fd, self._fd = self._fd, -1
        os.close(fd)


def _can_be(entry: Entry, session: Session) -> bool:
    """Whether its times lie in the session, and its numbers fit into a memory: a journal may come from anywhere."""
    t0 = session.t0_ns
    match entry:
        case RequestEntry(record=record):
            times = (
                record.t_sched_ns, record.t_sent_ns, record.t_headers_ns, record.t_event_ns, record.t_first_ns,
                record.t_first_reasoning_ns, record.t_first_content_ns, record.t_last_ns, record.t_done_ns,
            )  # fmt: skip
            spans = (1000 * sum(record.chunk_us), 1000 * min(record.chunk_us, default=0))
            return (
                all(t is None or abs(t - t0) <= _LONGEST_NS for t in times)
                and all(abs(span) <= _LONGEST_NS for span in spans)
                and 0 <= record.chunks <= (_MOST_CHUNKS if record.chunk_us else MOST_THINNED)
                and abs(record.tokens_out or 0) <= _MOST_TOKENS
            )
        case Sample(telemetry=telemetry):
            return abs(telemetry.t_ns - t0) <= _LONGEST_NS
        case StageStart(c=c, phase="level", load="closed") if c < 1:
            return False
        case StageStart() | StageEnd() | Event() | End():
            return abs(entry.t_ns - t0) <= _LONGEST_NS
    return True


def _lock(fd: int) -> None:
    """A reader that looks whether anybody writes holds the lock for an instant; anything longer is a real owner."""
    give_up = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.005)
        else:
            return


def entries(path: Path) -> tuple[list[Entry], int]:
    """Line by line: a long journal is never in memory as a whole beside what it says."""
    found: list[Entry] = []
    damaged, thrift = 0, Thrift()
    with path.open("rb") as file:
        for line in file:
            if line == b"\n":
                continue
            entry = decode_line(line)
            if isinstance(entry, RequestEntry):
                entry = RequestEntry(record=thrift.record(entry.record))
            if entry is None:
                damaged += 1
            else:
                found.append(entry)
    return found, damaged


def thinned(record: Record) -> Record:
    """Without the time of each chunk: first and last, the count and the longest gap stay."""
    if record.chunks > MOST_THINNED:
        return record
    return msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None, stall_us=record.longest_gap_us)


class Thrift:
    """Millions of gaps between chunks are a few thousand different numbers: each is kept once."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def record(self, record: Record) -> Record:
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        keep = self._known.setdefault
        return msgspec.structs.replace(record, chunk_us=tuple([keep(gap, gap) for gap in record.chunk_us]))


def once(records: list[Record]) -> tuple[Record, ...]:
    """A record that a worker spooled may already be in the journal: the first of equals stays."""
    kept = {(record.stage, record.task, record.turn): record for record in reversed(records)}
    return tuple(reversed(kept.values()))


def _counted(records: tuple[Record, ...], counts: list[TokenCount]) -> tuple[Record, ...]:
    """Answers that were counted afterwards: all but the first chunk's share came behind it."""
    known = {(count.stage, count.task, count.turn): count.tokens_out for count in counts}
    if not known:
        return records
    return tuple(
        record
        if (tokens := known.get((record.stage, record.task, record.turn))) is None
        else msgspec.structs.replace(
            record,
            tokens_out=tokens,
            token_source="tokenize",
            first_tokens=max(1, round(tokens / record.chunks)) if record.chunks else None,
        )
        for record in records
    )
