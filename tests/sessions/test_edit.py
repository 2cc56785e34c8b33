from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.journal import RequestEntry
from swarmtui.sessions.edit import move_session, set_description
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import is_running, read_journal
from tests.sessions.session_builders import full_session, head, journal_writer, record, write_session

ID = "20261115-014455-3f9a"


@pytest.mark.parametrize(("cut", "tasks", "damaged"), [(0, [1, 2], 0), (1, [1, 2], 0), (2, [1], 1), (40, [1], 1)])
def test_label_survives_torn_last_line(tmp_path: Path, cut: int, tasks: list[int], damaged: int) -> None:
    """A line of which only the newline is missing is a whole record, and stays one."""
    directory = write_session(tmp_path / ID, [head(), *(RequestEntry(record=record(task)) for task in (1, 2))])
    path = directory / "journal.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    set_description(directory, "first", "")
    set_description(directory, "tuned", "with 4 slots")
    journal = read_journal(directory)
    assert (journal.head.session.label, journal.head.session.note) == ("tuned", "with 4 slots")
    assert ([r.task for r in journal.records], journal.damaged_lines) == (tasks, damaged)
    (row,) = list_sessions(tmp_path)
    assert (row.label, row.state) == ("tuned", "interrupted")


def test_label_is_listed_without_index(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session())
    for label in ("first", "tuned"):
        set_description(directory, label, "")
    (directory / "index.json").unlink()
    (row,) = list_sessions(tmp_path)
    assert (row.label, row.state) == ("tuned", "done")


def test_running_session_is_not_labelled(tmp_path: Path) -> None:
    with journal_writer(tmp_path / ID, 10) as child:
        before = (tmp_path / ID / "journal.jsonl").read_bytes()
        with pytest.raises(BadInput, match="still being written"):
            set_description(tmp_path / ID, "mine", "")
        assert (tmp_path / ID / "journal.jsonl").read_bytes() == before
        child.kill()
        child.wait()
    set_description(tmp_path / ID, "mine", "")
    assert read_journal(tmp_path / ID).head.session.label == "mine"


def test_journal_is_locked_while_it_is_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_session(tmp_path / ID, full_session())
    real = os.write
    states: list[bool] = []

    def write(fd: int, data: bytes) -> int:
        states.append(is_running(directory))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    set_description(directory, "mine", "")
    assert states == [True]
    assert not is_running(directory)


def test_label_that_does_not_fit_on_the_disk_is_an_error_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_session(tmp_path / ID, full_session())
    before = (directory / "journal.jsonl").read_bytes()
    real = os.write
    calls: list[bytes] = []

    def short_then_full(fd: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 1:
            return real(fd, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short_then_full)
    with pytest.raises(BadInput, match="cannot be written: No space left"):
        set_description(directory, "mine", "")
    assert (directory / "journal.jsonl").read_bytes() == before


def test_label_of_unreadable_journal_is_an_error(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session())
    (directory / "journal.jsonl").write_bytes(b"\x00\n")
    with pytest.raises(BadInput, match="no readable first line"):
        set_description(directory, "mine", "")


def test_label_that_cannot_be_read_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_session(tmp_path / ID, full_session())
    monkeypatch.setattr(os, "write", lambda fd, data: len(data))
    with pytest.raises(BadInput, match="cannot be read back"):
        set_description(directory, "mine", "")


def test_move_keeps_the_session_if_the_target_exists(tmp_path: Path) -> None:
    directory = write_session(tmp_path / "a" / ID, full_session())
    (tmp_path / "b" / ID).mkdir(parents=True)
    with pytest.raises(BadInput, match="exists"):
        move_session(directory, tmp_path / "b")
    assert read_journal(directory).end is not None
    assert move_session(directory, tmp_path / "c") == tmp_path / "c" / ID
    assert not directory.exists() and read_journal(tmp_path / "c" / ID).end is not None
