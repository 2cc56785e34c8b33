"""List and search sessions, using a small index file next to each journal: thousands in well under a second."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.capacity.marks import summary_marks
from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.files import MAX_JOURNAL, open_regular, read_file, write_file
from swarmtui.model.base import DECODE_ERRORS, BadInput, Stored, check_schema, copy_fields
from swarmtui.model.endpoint import parse_address
from swarmtui.model.journal import DescriptionEntry, End, Head
from swarmtui.model.plan import PlanGoal, level_name
from swarmtui.model.session import Session, SessionState, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.shared import SHARED
from swarmtui.sessions.documents import read_saved_summary
from swarmtui.sessions.journal import JOURNAL, decode_line, is_locked, schema_of, spool_files
from swarmtui.sessions.saved_requests import saved_records

INDEX = "index.json"
_INDEX_VERSION = 12
# A session that ended more recently may still be writing its own index, or its workers their spool files.
_SETTLED_S = 60.0
_TAIL_BYTES = 16 << 10
_HEAD_BYTES = 16 << 20
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")

SortOrder = Literal["newest", "best", "model", "workload"]


class SessionRow(Stored, frozen=True, kw_only=True):
    """One session in the list. Figures are null until a summary was written; `problem` is why it cannot be read.

    `best_out_tps` is the best `Level.headline_tps`, reached at `best_c` or `best_rate`; with `chunks_counted` it counts
    chunks, not tokens. `curve` has the load and throughput of each level, `curve_half_widths` those of its intervals.
    Without a summary, `requests` is counted in the journal once the session has ended. `flags` are those of the server,
    null if not known. `agents` keep the SLO, `agents_open` if it may be any number more, `agents_low` and `agents_high`
    are the ends of the range, which is `agents_range` where it is wide, `doubtful` if the measurement is in doubt;
    `previous` is the baseline, or what it `repeats`. `shared`: without a journal. `max_tokens`: the plan's own limit.
    """

    id: str
    created: str = ""
    state: SessionState | None = None
    label: str = ""
    endpoint: str = ""
    model: str = ""
    workload: str = ""
    levels: tuple[int | float, ...] = ()
    best_out_tps: float | None = None
    best_c: int | None = None
    best_rate: float | None = None
    chunks_counted: bool = False
    cliff: int | None = None
    curve: tuple[tuple[float, float], ...] = ()
    curve_half_widths: tuple[float | None, ...] = ()
    flags: dict[str, str] | None = None
    agents: int | None = None
    agents_open: bool = False
    agents_range: tuple[int, int] | None = None
    agents_low: int | None = None
    agents_high: int | None = None
    doubtful: bool = False
    requests: int | None = None
    simulated: bool = False
    embedded: bool = False
    tags: dict[str, str] = {}
    series: Series | None = None
    goal: PlanGoal = "sweep"
    max_tokens: int | None = None
    previous: str = ""
    repeats: bool = False
    directory: str = ""
    problem: str | None = None
    shared: bool = False

    @property
    def kind(self) -> str:
        """The kind of session, so that like is compared with like."""
        return self.series.kind if self.series else "capacity" if self.goal == "capacity" else "run"

    @property
    def in_experiment(self) -> bool:
        """Whether it is a run of an A/B test or a start of a tune, which say something only together."""
        return self.kind in ("ab", "tune")

    @property
    def stands_alone(self) -> bool:
        """Whether it answers a question by itself; a run of an experiment does not, nor a probe of a history."""
        return not self.in_experiment and self.kind != "probe"

    @property
    def alike(self) -> tuple[str, str, str, int | None]:
        """What two sessions have in common if their figures can be compared."""
        return self.model, self.workload, self.kind, self.max_tokens

    @property
    def is_complete(self) -> bool:
        return self.state == "done" and bool(self.levels)

    def is_at(self, url: str, model: str, embedded: bool) -> bool:
        """Whether it is of this endpoint; an embedded simulator has a new address each time."""
        if self.shared or self.embedded != embedded:
            return False
        if embedded:
            return self.model == model
        return _address(self.endpoint.partition(" ")[0]) == _address(url)

    @property
    def best_at(self) -> str:
        return "" if self.best_c is None else level_name((self.best_c, self.best_rate))


def session_beside(rows: Sequence[SessionRow], chosen: SessionRow) -> str:
    """Return the session to compare one with: its baseline, else the one before it of its model and workload.

    The first one is compared with the next one; empty if there is none, either. A shared one is of another host.
    """
    others = [row for row in rows if row.id != chosen.id and row.levels]
    if found := baseline_of(others, chosen):
        return found
    near = [row for row in others if row.alike[:2] == chosen.alike[:2] and not row.shared]
    alike = (
        [row for row in near if row.alike == chosen.alike] or [row for row in near if row.kind == chosen.kind] or near
    )
    ids = sorted(row.id for row in ([row for row in alike if row.endpoint == chosen.endpoint] or alike))
    return next((id for id in reversed(ids) if id < chosen.id), next(iter(ids), ""))


def baseline_of(rows: Sequence[SessionRow], chosen: SessionRow) -> str:
    """Return the id of the session that one is compared with; empty if there is none.

    It is the one that the user chose, else the newest earlier complete session of its endpoint, model, workload and
    kind that is not in doubt; of a repeated run, the newest of these with other flags, if there is one: the last before
    the change. If all are in doubt, it is the one with the most agents of the last flags before the change, as what
    disturbs a server only makes it slower, else the one that is repeated. One level is no curve, unless it is repeated.
    """
    known = {row.id for row in rows if row.levels}
    if chosen.previous in known and not chosen.repeats:
        return chosen.previous
    from swarmtui.analysis.compare.differences import describe_flag_changes  # lazily: few lists need it

    alike = [
        row
        for row in sorted(rows, key=lambda row: row.id, reverse=True)
        if row.id < chosen.id
        and row.is_complete
        and (len(row.levels) > 1 or row.id == chosen.previous)
        and row.alike == chosen.alike
        and row.is_at(chosen.endpoint.partition(" ")[0], chosen.model, chosen.embedded)
    ]
    changed = [
        row
        for row in alike
        if chosen.repeats and row.flags and chosen.flags and describe_flag_changes(row.flags, chosen.flags)
    ]
    sure = [row for part in (changed, alike) for row in part if not row.doubtful]
    best = sorted(changed, key=lambda row: (row.flags == changed[0].flags, row.agents or 0), reverse=True)[:1]
    last = [chosen.previous] if chosen.previous in known else []
    return next(iter((*(row.id for row in (*sure, *best)), *last, *(row.id for row in alike))), "")


def compared_with(rows: Sequence[SessionRow], row: SessionRow) -> str:
    """Return the id of the session that the verdict on a run is about; empty if it has no baseline."""
    return baseline_of(rows, row) if row.repeats else row.previous


def live_row(session: Session, flags: dict[str, str] | None) -> SessionRow:
    return msgspec.structs.replace(_head_row(session), flags=flags)


def _address(url: str) -> str:
    try:
        return parse_address(url).root
    except BadInput:
        return url


class _IndexFile(Stored, frozen=True, kw_only=True):
    """The index file. It is stale if the journal is no longer `journal_bytes` long.

    Without a summary the row has no figures, and the requests are counted in the journal and in `spool_bytes` of spool
    files; with one, that is null.
    """

    schema: int
    journal_bytes: int
    spool_bytes: int | None = None
    row: SessionRow


_index_decoder = msgspec.json.Decoder(_IndexFile)


def new_session_id(now: datetime) -> str:
    """Return an id that sorts by time, to 4 ms; in UTC, so daylight saving does not change the order."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{now.microsecond * 256 // 1_000_000:02x}{os.urandom(1).hex()}"


def session_directories(root: Path) -> list[str]:
    """Return the directories under `root`, newest first, followed by those not named like a session."""
    try:
        with os.scandir(root) as found:
            names = [entry.name for entry in found if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(root)) from None
    return sorted(names, key=lambda name: (_ID.fullmatch(name) is not None, name), reverse=True)


def list_sessions(root: Path) -> list[SessionRow]:
    return [read_row(root / name) for name in session_directories(root)]


def index_json(summary: Summary, journal_bytes: int) -> bytes:
    found = _IndexFile(schema=_INDEX_VERSION, journal_bytes=journal_bytes, row=_summary_row(summary))
    return msgspec.json.encode(found) + b"\n"


def _summary_row(summary: Summary) -> SessionRow:
    from swarmtui.analysis.compare.differences import known_flags  # lazily: only writing needs it

    found, marks = summary.scaling, summary_marks(summary)
    named = summary.answer.best_c if summary.answer else None
    best = next(
        (level for level in summary.levels if level.rate is None and level.c == named),
        headline_level(summary.levels, found.reported_slots if found else None),
    )
    return msgspec.structs.replace(
        _head_row(summary.session),
        state=summary.state,
        levels=tuple(level.offered_load for level in summary.levels),
        best_out_tps=best.headline_tps if best else None,
        best_c=best.c if best else None,
        best_rate=best.rate if best else None,
        chunks_counted=best is not None and best.tokens_estimated,
        cliff=found.cliff.c if found and found.cliff and not marks.by_slo else None,
        curve=tuple((x.offered_load, x.headline_tps) for x in summary.levels if x.headline_tps is not None),
        curve_half_widths=tuple(x.headline_hw for x in summary.levels if x.headline_tps is not None),
        flags=known_flags(summary),
        agents=summary.answer.agents if summary.answer else None,
        agents_open=summary.answer is not None and summary.answer.is_open,
        agents_range=summary.answer.wide_range if summary.answer else None,
        agents_low=summary.answer.low if summary.answer else None,
        agents_high=summary.answer.high if summary.answer else None,
        doubtful=summary.answer is not None and summary.answer.is_doubtful,
        requests=sum(level.n for level in summary.levels),
    )


def read_row(directory: Path) -> SessionRow:
    try:
        fd = open_regular(directory / JOURNAL, MAX_JOURNAL)
    except FileNotFoundError:
        if (directory / SHARED).is_file():
            return _shared_row(directory)
        return _unreadable_row(directory, f"contains no {JOURNAL}")
    except OSError as error:
        return _unreadable_row(directory, f"{JOURNAL} cannot be read: {error.strerror}")
    try:
        file = os.fstat(fd)
        index = _read_index(directory, file.st_size)
        row = index.row if index is not None else _row_from_journal(fd, file.st_size)
        if row.state is None or row.state == "running":
            row = msgspec.structs.replace(row, state="running" if is_locked(fd) else "interrupted")
        if row.requests is None and row.state != "running":
            spool_bytes = _spool_bytes(directory)
            known = saved_records(directory).values()
            row = msgspec.structs.replace(row, requests=sum(record.phase == "level" for record in known))
            if time.time() - file.st_mtime > _SETTLED_S:
                found = _IndexFile(schema=_INDEX_VERSION, journal_bytes=file.st_size, spool_bytes=spool_bytes, row=row)
                # The directory may be read-only.
                with suppress(OSError):
                    write_file(directory / INDEX, msgspec.json.encode(found) + b"\n", sync=False)
    except BadInput as error:
        return _unreadable_row(directory, str(error))
    except OSError as error:
        name = Path(error.filename or JOURNAL).name  # or one of its spool files
        return _unreadable_row(directory, f"{name} cannot be read: {error.strerror}")
    finally:
        os.close(fd)
    return msgspec.structs.replace(row, id=_utf8(directory.name), directory=_utf8(str(directory)))


def _shared_row(directory: Path) -> SessionRow:
    """Return the row of a shared file, which is small: it needs no index."""
    from swarmtui.sessions.shared_file import read_shared  # lazily: few lists have one

    try:
        row = _summary_row(read_shared(directory / SHARED))
    except BadInput as error:
        return _unreadable_row(directory, f"{SHARED} {error.problem}")
    return msgspec.structs.replace(row, id=_utf8(directory.name), directory=_utf8(str(directory)), shared=True)


def _unreadable_row(directory: Path, problem: str) -> SessionRow:
    return SessionRow(id=_utf8(directory.name), directory=_utf8(str(directory)), problem=problem)


def _utf8(name: str) -> str:
    """Make the bytes of a name visible that are not UTF-8."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _read_index(directory: Path, journal_bytes: int) -> _IndexFile | None:
    """Read the index file; None if it is stale.

    One that is missing, damaged or of another version is derived from the summary, if there is one.
    """
    try:
        index = _index_decoder.decode(read_file(directory / INDEX))
        if index.journal_bytes != journal_bytes:
            return None
        if index.schema == _INDEX_VERSION:
            # Spool files are looked up only where they matter: that takes longer than all the rest.
            return index if index.spool_bytes is None or index.spool_bytes == _spool_bytes(directory) else None
    except (OSError, *DECODE_ERRORS):
        pass
    summary = read_saved_summary(str(directory))
    if summary is None:
        return None
    content = index_json(summary, journal_bytes)
    # The directory may be read-only.
    with suppress(OSError):
        write_file(directory / INDEX, content, sync=False)
    return _index_decoder.decode(content)


def _spool_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in spool_files(directory))


def has_indexed_summary(directory: Path) -> bool:
    index = _read_index(directory, (directory / JOURNAL).stat().st_size)
    return index is not None and index.spool_bytes is None


def _row_from_journal(fd: int, size: int) -> SessionRow:
    """Read the row from the first and the last lines of a journal, without what is between them."""
    first = _first_line(fd)
    head = decode_line(first)
    check_schema(schema_of(first), JOURNAL)
    if not isinstance(head, Head):
        raise BadInput("has no readable first line", source=JOURNAL)
    row = _head_row(head.session)
    tail = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    described = False
    for line in reversed(tail.rstrip(b"\n").split(b"\n")):
        entry = decode_line(line)
        if isinstance(entry, End):
            return msgspec.structs.replace(row, state=entry.state)
        if not isinstance(entry, DescriptionEntry):
            break
        if not described:  # the last one applies
            row, described = msgspec.structs.replace(row, label=entry.label), True
    return row


def _first_line(fd: int) -> bytes:
    """Read the first line, which can be long: the head contains the whole workload."""
    text = b""
    while len(text) < _HEAD_BYTES:
        part = os.pread(fd, 64 << 10, len(text))
        text += part
        if not part or b"\n" in part:
            break
    return text.partition(b"\n")[0]


def _head_row(session: Session) -> SessionRow:
    endpoint = session.endpoints[0] if session.endpoints else None
    others = f" +{len(session.endpoints) - 1}" if len(session.endpoints) > 1 else ""
    return copy_fields(
        SessionRow,
        session,
        endpoint=endpoint.url + others if endpoint else "",
        model=endpoint.model if endpoint else "",
        goal=session.plan.goal,
        max_tokens=session.plan.max_tokens,
        embedded=endpoint is not None and endpoint.embedded,
    )


def search_sessions(rows: Sequence[SessionRow], by: SortOrder, words: str) -> list[SessionRow]:
    """Filter rows, which are sorted by date, to those that contain all words, and sort them."""
    terms = words.lower().split()
    kept = [row for row in rows if all(term in _search_text(row) for term in terms)]
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


def _search_text(row: SessionRow) -> str:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    series = f"{row.series.kind}={row.series.name} side={row.series.side}" if row.series else ""
    flags = " ".join(f"--{name.lstrip('-')} {value}" for name, value in (row.flags or {}).items())
    parts = (row.id, row.label, row.model, row.workload, row.endpoint, row.state or "", tags, series, flags)
    return " ".join(parts).lower()
