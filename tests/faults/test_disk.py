"""Disks that fill up, and directories that somebody removes: the run goes on, says so, and saves elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from statistics import median

import pytest

from swarmtui.model.session import Event, StretchEnd
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.sessions.journal import JOURNAL, decode_line, read_journal
from swarmtui.sessions.store import list_sessions
from tests.cli.programs import Place, Program, until
from tests.cli.scripted import Scripted, scripted, words

ANSWER = words(6, gap_s=0.01)
ENDLESS = ("--levels", "2", "--requests", "100000", "--warmup", "none", "--no-gpu")


def begun(place: Place, server: Scripted, *words: str) -> Program:
    face = place.begin(server.url, *ENDLESS, *words)
    until(lambda: len(server.completed) >= 10, "some answers")
    return face


def stopped(face: Program) -> tuple[int, str]:
    face.signal_group(signal.SIGINT)
    ran = face.wait()
    return ran.code, ran.err


def test_a_removed_directory_is_said_aloud_and_all_of_it_comes_back(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = begun(place, server)
        name = place.session.name
        shutil.rmtree(place.sessions)
        until(lambda: "its directory was removed" in face.said(), "a warning")
        assert f"swarmtui sessions save-to {name} DIR" in face.said()
        before = len(server.completed)
        until(lambda: len(server.completed) >= before + 10, "it goes on")
        code, told = stopped(face)
    assert code == 4 and "removed while it was written; all of it was saved elsewhere" in told
    assert {record.id for record in read_journal(place.session).records} == {a.id for a in server.completed}
    assert place.listed()[0]["state"] == "stopped"


def test_told_where_to_it_saves_there_and_nowhere_else(place: Place) -> None:
    elsewhere = place.home / "elsewhere"
    with scripted(ANSWER) as server:
        face = begun(place, server)
        name = place.session.name
        ran = place.run("sessions", "save-to", name[:-2], str(elsewhere))
        assert (ran.code, ran.out) == (0, f"saved from now on in {elsewhere / name}\n"), ran
        assert list_sessions(place.sessions) == []
        (row,) = list_sessions(elsewhere)
        assert row.state == "running"
        before = len(server.completed)
        until(lambda: len(server.completed) >= before + 10, "it goes on")
        code, told = stopped(face)
    assert code == 4 and f"saved: {elsewhere / name}" in told
    assert {record.id for record in read_journal(elsewhere / name).records} == {a.id for a in server.completed}
    assert (elsewhere / name / "detail.json").exists()


def test_moved_elsewhere_its_workers_spool_there_too(place: Place) -> None:
    """What finished while the conductor hung is known to the worker alone."""
    elsewhere = place.home / "elsewhere"
    with scripted(ANSWER) as server:
        face = begun(place, server)
        name = place.session.name
        assert place.run("sessions", "save-to", name, str(elsewhere)).code == 0
        (conductor,) = place.processes("swarmtui.session_process")
        before = len(server.completed)
        until(lambda: len(server.completed) >= before + 4, "the worker was told")
        os.kill(conductor.pid, signal.SIGSTOP)
        known = {answer.id for answer in server.completed}
        # How many tasks the worker has in hand at this moment is chance; those in flight are certain.
        until(lambda: len(server.completed) >= len(known) + 2, "answers that nobody hears of")
        os.kill(conductor.pid, signal.SIGKILL)
        face.wait()
        until(lambda: not place.processes(), "all processes ended")
    assert (elsewhere / name / "spool-0.jsonl").exists() and not place.sessions.joinpath(name).exists()
    saved = {record.id for record in read_journal(elsewhere / name).records}
    assert known < saved


def test_told_a_place_that_takes_nothing_it_stays_where_it_is(place: Place) -> None:
    (place.home / "file").write_text("")
    with scripted(ANSWER) as server:
        face = begun(place, server)
        ran = place.run("sessions", "save-to", place.session.name, str(place.home / "file" / "in it"))
        assert "cannot be saved to" in ran.refused(2)
        (place.home / "file").unlink()
        assert place.run("sessions", "save-to", place.session.name, str(place.home / "file" / "in it")).code == 0
        assert stopped(face)[0] == 4
    (moved,) = (place.home / "file" / "in it").iterdir()
    assert {record.id for record in read_journal(moved).records} == {a.id for a in server.completed}
    assert "no such session" in place.run("sessions", "save-to", "2000", str(place.home)).refused(2)


def test_a_full_disk_stops_no_run_and_what_it_took_can_be_read(place: Place) -> None:
    """No file of ours may be longer than this: to a writer that is a full disk."""
    with scripted(ANSWER) as server:
        words = ("run", "--endpoint", server.url, "--session-dir", str(place.sessions), "--json", *ENDLESS[:2])
        ran = place.run(*words, "--requests", "60", "--warmup", "none", "--no-gpu", before=["prlimit", "--fsize=16000"])
    assert ran.code == 2, ran
    assert "warning: " in ran.err and "entries are not on disk" in ran.err and "File too large" in ran.err
    assert len(server.completed) == 60
    (row,) = list_sessions(place.sessions)
    assert row.problem is None
    found = read_journal(place.session)
    assert 0 < len(found.records) < 60


class Disk:
    """What the journal's writes meet: all is well, or full after so many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.room is None:
            return self._write(fd, data)
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = self._write(fd, data[: self.room])
        self.room -= taken
        return taken


def names(directory: Path) -> list[str]:
    """As they stand in the journal; a line that was cut short stands for nothing."""
    entries = [decode_line(line) for line in (directory / JOURNAL).read_bytes().splitlines()]
    return [entry.name for entry in entries if isinstance(entry, Event)]


def test_where_only_the_summary_finds_no_place_nothing_is_lost_and_that_is_said(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = begun(place, server)
        in_its_place = place.session / "detail.json"
        in_its_place.mkdir()
        code, told = stopped(face)
    assert code == 2 and "no summary: Is a directory; every request is in its journal" in told
    assert place.listed()[0]["state"] == "stopped"
    in_its_place.rmdir()
    assert place.shown()["levels"][0]["ok"] == len(server.completed)
    assert len(place.detail()["requests"]) == len(server.completed)


# Imported by every Python that is started with it: what goes into a file takes its time.
SLOW = """
import os, stat, time
write, fsync = os.write, os.fsync

def slow_write(fd, data):
    if stat.S_ISREG(os.fstat(fd).st_mode):
        time.sleep(0.02)
    return write(fd, data)

def slow_fsync(fd):
    time.sleep(0.5)
    fsync(fd)

os.write, os.fsync = slow_write, slow_fsync
"""


def test_a_slow_disk_holds_up_no_stream_and_nothing_is_lost(place: Place) -> None:
    slow = place.home / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW)
    env = {"PYTHONPATH": f"{slow}:{place.environment['PYTHONPATH']}"}
    with scripted(ANSWER) as server:
        words = ("--levels", "2", "--requests", "40", "--warmup", "none", "--no-gpu")
        ran = place.measure(server.url, *words, env=env)
    assert ran.code == 0, ran
    records = read_journal(place.session).records
    assert {record.id for record in records} == {answer.id for answer in server.completed}
    assert len(records) == 40
    # The disk is the conductor's alone: where a chunk came, the worker and the kernel say.
    assert median(gap for record in records for gap in record.chunk_us[1:]) < 15_000


def test_a_disk_that_has_room_again_gets_everything_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, ledger = Disk(monkeypatch), Ledger(tmp_path / "here")
    ledger.note("1")
    disk.room = 20
    ledger.note("2")
    assert ledger.problem.startswith("1 entry is not on disk")
    for name in "34":
        ledger.note(name)
    assert ledger.problem.startswith("3 entries are not on disk") and "No space left" in ledger.problem
    disk.room = None
    ledger.catch_up()
    ledger.note("5")
    assert (names(tmp_path / "here"), ledger.problem) == (["1", "2", "3", "4", "5"], "")


def test_what_no_disk_took_goes_along_to_the_next_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, ledger = Disk(monkeypatch), Ledger(tmp_path / "a" / "id")
    ledger.note("1")
    disk.room = 20
    ledger.note("2")
    with pytest.raises(OSError, match="No space left"):
        ledger.move(tmp_path / "b" / "id")
    assert not (tmp_path / "b" / "id").exists() and ledger.problem
    disk.room = None
    ledger.move(tmp_path / "b" / "id")
    ledger.note("3")
    assert (names(tmp_path / "b" / "id"), ledger.problem) == (["1", "2", "3"], "")
    assert not (tmp_path / "a" / "id").exists()


def test_a_disk_that_took_it_and_could_not_keep_it_is_said_and_another_place_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As disks over a network do: the write is well, and its failure comes with the sync."""
    ledger, real = Ledger(tmp_path / "a" / "id"), os.fsync

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    ledger.write(StretchEnd(number=1, t_ns=1, complete=True))
    monkeypatch.setattr(os, "fsync", real)
    ledger.note("1")
    assert ledger.problem.startswith(f"the disk may have lost some of it: {tmp_path / 'a' / 'id'}: Input/output error")
    assert "all of it was saved elsewhere" in ledger.rescue([tmp_path / "b"])
    assert (names(tmp_path / "b" / "id"), ledger.problem) == (["1"], "")
    # What seems to be there is not taken away: nobody knows which of the two disks is the better.
    assert names(tmp_path / "a" / "id") == ["1"]


def test_a_session_that_is_closed_can_be_moved_no_more_and_stays(tmp_path: Path) -> None:
    """The number of its file is another file's by then: the summary's, which is being written."""
    ledger = Ledger(tmp_path / "a" / "id")
    ledger.note("1")
    ledger.close()
    with (tmp_path / "another").open("w+") as another:
        with pytest.raises(OSError, match="Bad file descriptor"):
            ledger.move(tmp_path / "b" / "id")
        ledger.rescue([])
        ledger.note("2")
        assert another.read() == ""
    assert names(tmp_path / "a" / "id") == ["1"] and not (tmp_path / "b" / "id").exists()


def test_two_sessions_at_once_do_not_mix(place: Place) -> None:
    with scripted(ANSWER) as one, scripted(ANSWER) as other:
        faces = [begun(place, one, "--label", "one"), begun(place, other, "--label", "other")]
        assert {row["state"] for row in place.listed()} == {"running"}
        for face in faces:
            face.signal_group(signal.SIGINT)
        assert [face.wait().code for face in faces] == [4, 4]
    by_label = {row.label: Path(row.directory) for row in list_sessions(place.sessions)}
    for label, server in (("one", one), ("other", other)):
        journaled = read_journal(by_label[label])
        assert len(journaled.records) == len(server.completed)
        assert journaled.head.session.endpoints[0].url == server.url
