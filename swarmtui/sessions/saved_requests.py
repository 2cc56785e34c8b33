"""Count the requests that can be read from the journal of a session and from the spool files of its workers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.files import read_lines
from swarmtui.model.base import DECODE_ERRORS
from swarmtui.model.record import CANCELLED
from swarmtui.sessions.journal import JOURNAL, spool_files


class RecordKey(msgspec.Struct, frozen=True):
    """The fields that identify a record; decoding no others saves time."""

    task: int
    turn: int = 0
    stage: int = 0
    phase: str = "level"
    error: str | None = None


class _RequestLine(msgspec.Struct, frozen=True):
    record: RecordKey


_line_decoder = msgspec.json.Decoder(_RequestLine)


def count_saved_requests(directory: Path) -> tuple[int, int]:
    """Return how many have finished, and how many were cancelled by us."""
    try:
        records = saved_records(directory).values()
    except OSError:
        return 0, 0
    cancelled = sum(record.error == CANCELLED for record in records)
    return len(records) - cancelled, cancelled


def saved_records(directory: Path) -> dict[tuple[int, int, int], RecordKey]:
    """Return all of them by stage, task and turn."""
    known: dict[tuple[int, int, int], RecordKey] = {}
    for path in (directory / JOURNAL, *spool_files(directory)):
        for line in read_lines(path):
            try:
                record = _line_decoder.decode(line or b"").record
            except DECODE_ERRORS:
                continue
            known.setdefault((record.stage, record.task, record.turn), record)
    return known
