from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swarmtui.model.session import Entry, RequestEntry
from swarmtui.session_process import journal_queue
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.sessions.journal import read_journal
from tests.sessions.session_builders import head, record


def test_thinning_keeps_chunk_times_of_one_request_in_eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other request keeps its first and last time, its count and its longest gap."""
    monkeypatch.setattr(journal_queue, "_FULL_DETAIL_BYTES", 1)
    queue = JournalQueue(tmp_path / "s")
    queue.write(head())
    for task in range(24):
        queue.write(RequestEntry(record=record(task)))
    queue.close()
    records = read_journal(tmp_path / "s").records
    assert [r.task for r in records] == list(range(24))
    assert [r.task for r in records if r.chunk_us] == [0, 8, 16]
    assert records[8] == record(8)
    assert (records[9].chunks, records[9].longest_gap_us) == (10, 10_000)
    assert records[9].ttft_s == pytest.approx(0.05)


def test_entries_count_as_saved_only_when_they_are_on_disk(tmp_path: Path) -> None:
    queue = JournalQueue(tmp_path / "s")
    assert (queue.write(head()), queue.saved()) == (1, 1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(queue._writer, "append", _full)
        assert queue.write(RequestEntry(record=record(0))) == 2
        assert queue.write(RequestEntry(record=record(1))) == 3
        assert queue.saved() == 1
    queue.flush()
    assert queue.saved() == 3
    shutil.rmtree(tmp_path / "s")
    assert (queue.write(RequestEntry(record=record(2))), queue.saved()) == (4, 3)
    queue.move(tmp_path / "t")
    assert queue.saved() == 4
    queue.close()


def _full(entry: Entry) -> None:
    raise OSError(28, "No space left on device")


def test_entries_that_could_not_be_written_follow_in_order(tmp_path: Path) -> None:
    queue = JournalQueue(tmp_path / "s")
    queue.write(head())
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(queue._writer, "append", _full)
        for task in range(3):
            queue.write(RequestEntry(record=record(task)))
        assert queue.warning is not None and queue.warning.code == "not_on_disk"
    queue.flush()
    queue.write(RequestEntry(record=record(3)))
    assert queue.warning is None
    queue.close()
    assert [r.task for r in read_journal(tmp_path / "s").records] == [0, 1, 2, 3]
