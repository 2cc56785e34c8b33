from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path

import pytest

from swarmtui.model.journal import RequestEntry, StageStart
from swarmtui.session_process import journal_queue
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import wait_until
from tests.sessions.session_builders import T0, head, record


def test_thinning_keeps_chunk_times_of_one_request_in_eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other request keeps its first and last time, its count and its longest gap."""
    monkeypatch.setattr(journal_queue, "_FULL_DETAIL_BYTES", 1)
    queue = JournalQueue(tmp_path / "s")
    queue.write(head())
    queue.flush()
    for task in range(24):
        queue.write(RequestEntry(record=record(task)))
    queue.close()
    records = read_journal(tmp_path / "s").records
    assert [r.task for r in records] == list(range(24))
    assert [r.task for r in records if r.chunk_us] == [0, 8, 16]
    assert records[8] == record(8)
    assert (records[9].chunks, records[9].longest_gap_us) == (10, 10_000)
    assert records[9].ttft_s == pytest.approx(0.05)


def saved(queue: JournalQueue) -> int:
    queue.flush()
    return queue.saved()


def test_entries_count_as_saved_only_when_they_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = JournalQueue(tmp_path / "s")
    assert (queue.write(head()), saved(queue)) == (1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(queue._writer, "append", _full)
        assert queue.write(RequestEntry(record=record(0))) == 2
        assert queue.write(RequestEntry(record=record(1))) == 3
        assert saved(queue) == 1
    assert saved(queue) == 3
    shutil.rmtree(tmp_path / "s")
    assert (queue.write(RequestEntry(record=record(2))), saved(queue)) == (4, 3)
    queue.move(tmp_path / "t")
    assert queue.saved() == 4
    queue.close()


def _full(entry: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_entries_that_could_not_be_written_follow_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = JournalQueue(tmp_path / "s")
    queue.write(head())
    queue.flush()
    with monkeypatch.context() as patch:
        patch.setattr(queue._writer, "append", _full)
        for task in range(3):
            queue.write(RequestEntry(record=record(task)))
        queue.flush()
        assert queue.warning is not None and queue.warning.code == "not_on_disk"
        assert len(queue.unsaved_requests) == 3
    queue.write(RequestEntry(record=record(3)))
    queue.flush()
    assert queue.warning is None
    queue.close()
    assert [r.task for r in read_journal(tmp_path / "s").records] == [0, 1, 2, 3]


class SlowDisk:
    """Lets each sync wait until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sync, self.reached, self.released = os.fsync, threading.Event(), threading.Event()
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, fd: int) -> None:
        self.reached.set()
        self.released.wait()
        self._sync(fd)


def test_event_loop_runs_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was not synced is acknowledged; closing waits for everything."""
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr(journal_queue, "_SLOW_S", 0.0)

    async def scenario() -> None:
        queue, ticks = JournalQueue(tmp_path / "s"), 0
        queue.write(head())
        queue.flush()
        queue.write(StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=100))
        await asyncio.to_thread(disk.reached.wait)
        for task in range(100):
            queue.write(RequestEntry(record=record(task)))
            assert queue.saved() == 1
            await asyncio.sleep(0)
        assert queue.warning is not None and queue.warning.text.startswith("101 entries are not on disk")
        closing = asyncio.create_task(asyncio.to_thread(queue.close))
        while ticks < 100:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not closing.done()
        disk.released.set()
        await closing
        assert queue.saved() == 102 and queue.warning is None

    asyncio.run(scenario())
    assert len(read_journal(tmp_path / "s").records) == 100


def test_entries_that_arrive_during_a_move_follow_in_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = JournalQueue(tmp_path / "a" / "id")
    queue.write(head())
    queue.flush()
    disk = SlowDisk(monkeypatch)
    queue.write(RequestEntry(record=record(0)))
    moving = threading.Thread(target=queue.move, args=(tmp_path / "b" / "id",))
    moving.start()
    disk.reached.wait()
    queue.write(RequestEntry(record=record(1)))
    copy = queue.duplicate()
    disk.released.set()
    moving.join()
    assert os.pread(copy, 1 << 20, 0), "a reader of the old file can still read it"
    os.close(copy)
    queue.close()
    assert queue.saved() == 3 and not (tmp_path / "a" / "id").exists()
    assert [r.task for r in read_journal(tmp_path / "b" / "id").records] == [0, 1]


def test_queue_finds_out_by_itself_that_there_is_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_queue, "_RETRY_S", 0.01)
    queue = JournalQueue(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(queue._writer, "append", _full)
        place = queue.write(head())
        queue.flush()
        assert queue.warning is not None
    wait_until(lambda: queue.saved() == place, "the entry is on disk")
    assert queue.warning is None
    queue.close()


def test_nothing_is_acknowledged_after_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known which of the writes before it reached the disk."""
    queue = JournalQueue(tmp_path / "s")
    queue.write(head())
    assert saved(queue) == 1

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        queue.write(StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=1))
        assert saved(queue) == 1
    queue.write(RequestEntry(record=record(0)))
    assert saved(queue) == 1
    queue.move(tmp_path / "t")
    assert queue.saved() == 3
    queue.close()
