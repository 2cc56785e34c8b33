"""Full disks and removed directories: the run continues, warns, and saves elsewhere."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from swarmtui.client import follow
from swarmtui.client.session_client import SessionClient, StopControl
from swarmtui.model.journal import RequestEntry, StageEnd
from swarmtui.model.record import CANCELLED
from swarmtui.model.session import Event
from swarmtui.session_process import finish
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import JOURNAL, decode_line, read_journal
from swarmtui.sessions.store import summary_error
from swarmtui.tui.frame_source import LiveSource
from tests.cli.programs import Program, Sandbox, wait_until
from tests.cli.scripted_server import ScriptedServer, respond_with_words, scripted_server
from tests.faults.full_disk import FullDisk, claimed, spools
from tests.faults.kill_checks import SESSION_PROCESS, WORKER, measured, pid_of, processed, wait_for_idle_workers

ANSWER = respond_with_words(6, gap_s=0.01)
ENDLESS = ("--levels", "2", "--requests", "100000", "--warmup", "none", "--no-gpu")


def started_run(sandbox: Sandbox, server: ScriptedServer, *words: str) -> Program:
    command = sandbox.start_benchmark(server.url, *ENDLESS, *words)
    wait_until(lambda: len(server.completed) >= 10, "some responses")
    return command


def stop(command: Program) -> tuple[int, str]:
    command.signal_group(signal.SIGINT)
    ran = command.wait()
    return ran.code, ran.err


def test_removed_session_directory_is_reported_and_restored(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        name = sandbox.session.name
        shutil.rmtree(sandbox.sessions)
        wait_until(lambda: "its directory was removed" in command.stderr_so_far(), "a warning")
        assert f"swarmtui sessions save-to {name} DIR" in command.stderr_so_far()
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 10, "the run continues")
        code, stderr = stop(command)
    assert code == 4 and "removed during the run; all entries were saved elsewhere" in stderr
    assert {record.id for record in read_journal(sandbox.session).records} == {r.id for r in server.completed}
    assert list_sessions(sandbox.sessions)[0].state == "stopped"


def test_save_to_moves_the_session(sandbox: Sandbox) -> None:
    elsewhere = sandbox.home / "elsewhere"
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        name = sandbox.session.name
        ran = sandbox.run("sessions", "save-to", name[:-2], str(elsewhere))
        assert ran.code == 0 and ran.out.endswith(f"{elsewhere / name}\n"), ran
        assert list_sessions(sandbox.sessions) == []
        (row,) = list_sessions(elsewhere)
        assert row.state == "running"
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 10, "the run continues")
        code, stderr = stop(command)
    assert code == 4 and f"saved: {elsewhere / name}" in stderr
    assert {record.id for record in read_journal(elsewhere / name).records} == {r.id for r in server.completed}
    assert (elsewhere / name / "detail.json").exists()


def test_workers_spool_to_the_new_directory_after_save_to(sandbox: Sandbox) -> None:
    """Requests that finish while the session process hangs are known only to the worker."""
    elsewhere = sandbox.home / "elsewhere"
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        name = sandbox.session.name
        assert sandbox.run("sessions", "save-to", name, str(elsewhere)).code == 0
        (session_process,) = sandbox.processes("swarmtui.session_process")
        os.kill(session_process.pid, signal.SIGSTOP)
        expected = wait_for_idle_workers(sandbox, server)
        os.kill(session_process.pid, signal.SIGKILL)
        command.wait()
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    assert (elsewhere / name / "spool-0.jsonl").exists() and not sandbox.sessions.joinpath(name).exists()
    assert {record.id for record in read_journal(elsewhere / name).records} == expected


def test_save_to_an_unusable_directory_is_refused(sandbox: Sandbox) -> None:
    (sandbox.home / "file").write_text("")
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        ran = sandbox.run("sessions", "save-to", sandbox.session.name, str(sandbox.home / "file" / "in it"))
        assert "cannot be saved to" in ran.error_line(2)
        (sandbox.home / "file").unlink()
        assert sandbox.run("sessions", "save-to", sandbox.session.name, str(sandbox.home / "file" / "in it")).code == 0
        assert stop(command)[0] == 4
    (moved,) = (sandbox.home / "file" / "in it").iterdir()
    assert {record.id for record in read_journal(moved).records} == {r.id for r in server.completed}
    assert "no such session" in sandbox.run("sessions", "save-to", "2000", str(sandbox.home)).error_line(2)


def test_full_disk_does_not_stop_the_run(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on file sizes acts like a full disk."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    monkeypatch.setenv("HOME", str(sandbox.home))
    with scripted_server(ANSWER) as server:
        words = ("run", "--endpoint", server.url, "--session-dir", str(sandbox.sessions), "--json", *ENDLESS[:2])
        # Bytecode would be truncated too, and break later tests.
        ran = sandbox.run(
            *words, "--requests", "60", "--complete", "--warmup", "none", "--no-gpu",
            env={"PYTHONDONTWRITEBYTECODE": "1"}, before=["prlimit", "--fsize=16000"],
        )  # fmt: skip
    assert ran.code == 4, ran
    assert "warning: " in ran.err and "entries are not on disk" in ran.err and "File too large" in ran.err
    assert len(server.completed) >= 60
    (row,) = list_sessions(sandbox.sessions)
    assert row.problem is None
    readable = [record for record in read_journal(sandbox.session).records if record.error != CANCELLED]
    saved, finished = claimed(ran.err) or (0, 0)
    assert 0 < len(readable) == saved <= finished <= len(server.completed) and finished >= 60


def test_full_disk_and_killed_session_process_lose_no_request(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker keeps what is not in the journal, and writes it where there is space."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    disk = FullDisk(sandbox)
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=disk.environment)
        wait_until(lambda: len(server.completed) >= 10, "some responses")
        disk.fill()
        wait_until(lambda: "not on disk" in command.stderr_so_far(), "a warning")
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 20, "the run continues")
        expected = processed(server)
        os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
        ran = command.wait()
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    assert spools(sandbox)
    records = read_journal(sandbox.session).records
    assert expected <= {record.id for record in records}
    assert claimed(ran.err) == (len(records), len(records)), ran
    assert "No space left on device" in ran.err and "free some space" in ran.err
    disk.free()
    assert sandbox.show_session()["state"] == "interrupted"
    assert {record.id for record in read_journal(sandbox.session).records} >= expected
    assert not spools(sandbox)


def spooled_ids(sandbox: Sandbox) -> set[str]:
    entries = [decode_line(line) for path in spools(sandbox) for line in path.read_bytes().splitlines()]
    return {entry.record.id for entry in entries if isinstance(entry, RequestEntry)}


@pytest.mark.parametrize(("fault", "runtime"), [("full disk", False), ("stopped", True)])
def test_records_that_wait_for_long_survive_the_worker_and_the_session_process(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, fault: str, runtime: bool
) -> None:
    """The worker copies them to the runtime directory or, if that is full too, to the state directory."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    monkeypatch.setenv("HOME", str(sandbox.home))
    disk = FullDisk(sandbox)
    if not runtime:
        (sandbox.runtime / "swarmtui").mkdir(mode=0o700)
        (sandbox.runtime / "swarmtui" / "spools").touch()
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=disk.environment)
        wait_until(lambda: len(server.completed) >= 10, "some responses")
        session_process, worker = pid_of(sandbox, SESSION_PROCESS), pid_of(sandbox, WORKER)
        if fault == "full disk":
            disk.fill()
            wait_until(lambda: "not on disk" in command.stderr_so_far(), "a warning")
            expected = processed(server)
        else:
            os.kill(session_process, signal.SIGSTOP)
            expected = wait_for_idle_workers(sandbox, server)
        journaled = {record.id for record in read_journal(sandbox.session).records}
        wait_until(lambda: expected - journaled <= spooled_ids(sandbox), "copies of all records")
        os.kill(worker, signal.SIGKILL)
        os.kill(session_process, signal.SIGKILL)
        ran = command.wait()
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    assert ran.code == 4, ran
    disk.free()
    assert sandbox.show_session()["state"] == "interrupted"
    assert expected <= {record.id for record in read_journal(sandbox.session).records}
    assert not spools(sandbox)


def test_text_says_how_many_were_in_no_file_yet(sandbox: Sandbox) -> None:
    """The session process hangs, and is killed with the worker before that could copy its records."""
    disk = FullDisk(sandbox, elsewhere=False)
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=disk.environment)
        wait_until(lambda: len(server.completed) >= 10, "some responses")
        disk.fill()
        session_process, worker = pid_of(sandbox, SESSION_PROCESS), pid_of(sandbox, WORKER)
        os.kill(session_process, signal.SIGSTOP)
        wait_for_idle_workers(sandbox, server)
        for pid in (worker, session_process):
            os.kill(pid, signal.SIGKILL)
        ran = command.wait()
    saved, finished = claimed(ran.err) or (0, 0)
    assert saved == len(read_journal(sandbox.session).records), ran
    assert saved < finished == len(server.completed), ran


def test_copies_are_removed_once_the_session_has_the_records(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    disk = FullDisk(sandbox)
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=disk.environment)
        wait_until(lambda: len(server.completed) >= 10, "some responses")
        disk.fill()
        wait_until(lambda: spools(sandbox), "copies")
        disk.free()
        wait_until(lambda: not spools(sandbox), "no copies")
        code, _ = stop(command)
    assert code == 4
    assert {record.id for record in read_journal(sandbox.session).records} == {r.id for r in server.completed}
    assert not list(sandbox.session.glob("spool-*"))


def test_what_is_left_of_a_removed_session_is_named(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        shutil.rmtree(sandbox.sessions)
        wait_until(lambda: "its directory was removed" in command.stderr_so_far(), "a warning")
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 20, "the run continues")
        os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
        ran = command.wait()
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    assert ran.code == 4, ran
    (spool,) = spools(sandbox)
    finished = [entry for line in spool.read_bytes().splitlines() if (entry := decode_line(line))]
    count = len({e.record.key for e in finished if isinstance(e, RequestEntry) and e.record.error != CANCELLED})
    lost = re.search(rf"; {count} of (\d+) finished requests are left in {spool}", ran.err)
    assert count >= 20 and lost is not None and before <= int(lost[1]) <= len(server.completed), ran


@pytest.mark.parametrize("killed", [True, False])
def test_nothing_is_written_through_a_link_in_place_of_the_session(sandbox: Sandbox, killed: bool) -> None:
    elsewhere = sandbox.home / "elsewhere"
    elsewhere.mkdir()
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        session = sandbox.session
        shutil.rmtree(session)
        session.symlink_to(elsewhere)
        # What was saved before is in the removed directory; only later requests have copies.
        wait_until(lambda: "its directory was removed" in command.stderr_so_far(), "a warning")
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 20, "the run continues")
        if killed:
            os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
            command.wait()
        else:
            code, stderr = stop(command)
            assert code == 4 and "saved elsewhere" in stderr
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    assert list(elsewhere.iterdir()) == [] and bool(spools(sandbox)) == killed


def test_text_says_what_is_lost_if_there_is_no_space_anywhere(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    disk = FullDisk(sandbox, elsewhere=False)
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=disk.environment)
        wait_until(lambda: len(server.completed) >= 10, "some responses")
        disk.fill()
        wait_until(lambda: "not on disk" in command.stderr_so_far(), "a warning")
        before = len(server.completed)
        wait_until(lambda: len(server.completed) >= before + 20, "the run continues")
        os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
        ran = command.wait()
        wait_until(lambda: not sandbox.processes(), "all processes have ended")
    saved, finished = claimed(ran.err) or (0, 0)
    assert saved == len(read_journal(sandbox.session).records), ran
    assert saved < len(processed(server)) <= finished <= len(server.completed)


def test_nothing_is_said_to_be_saved_in_a_directory_that_was_removed(tmp_path: Path) -> None:
    """Neither by the command nor by the app, after the session process was killed."""
    ours, theirs = socket.socketpair()
    with theirs, closing(SessionClient(ours)) as client:
        ended = follow._recover(str(tmp_path / "20261115-014455-3f9a"), 30, client, StopControl())
        source = LiveSource(client)
        source.live.set_directory(str(tmp_path / "20261115-014455-3f9a"))
        theirs.close()
        source._read()
    assert (
        ended.directory == "" and "its directory was removed" in ended.message and "nothing is saved" in ended.message
    )
    assert source.live.ended is not None and source.live.ended.directory == ""


def test_session_without_any_directory_for_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = JournalQueue(tmp_path / "a" / "id")
    shutil.rmtree(tmp_path / "a")
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    found, _ = asyncio.run(finish.save(queue, "/dev/null", "stopped", "", 7, asyncio.Event()))
    assert found.ending == "unsaved" and "its directory was removed" in found.message
    assert found.directory == ""


@pytest.mark.parametrize(("number", "advised"), [(errno.ENOSPC, True), (errno.EROFS, False)])
def test_space_is_advised_only_if_it_is_missing(tmp_path: Path, number: int, advised: bool) -> None:
    text = summary_error(tmp_path, OSError(number, os.strerror(number)), 3)
    assert os.strerror(number) in text and "0 of 3 finished requests are saved" in text
    assert ("free some space" in text) == advised


class FakeDisk:
    """Makes os.write fail after `room` bytes, unless None."""

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


def warning_text(queue: JournalQueue) -> str:
    queue.flush()
    assert queue.warning is not None
    return queue.warning.text


def event_names(directory: Path) -> list[str]:
    """Return the events of the journal, without torn lines."""
    entries = [decode_line(line) for line in (directory / JOURNAL).read_bytes().splitlines()]
    return [entry.name for entry in entries if isinstance(entry, Event)]


def test_failure_to_write_the_summary_loses_no_request(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = started_run(sandbox, server)
        blocker = sandbox.session / "detail.json"
        blocker.mkdir()
        code, stderr = stop(command)
    assert code == 4 and "Is a directory" in stderr
    assert list_sessions(sandbox.sessions)[0].state == "stopped"
    blocker.rmdir()
    assert sandbox.show_session()["levels"][0]["ok"] == len(measured(sandbox))
    assert len(sandbox.detail()["requests"]) == len(server.completed)


# Imported by every Python process: makes writing to files slow.
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


def test_slow_disk_loses_no_request(sandbox: Sandbox) -> None:
    slow = sandbox.home / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW)
    env = {"PYTHONPATH": f"{slow}:{sandbox.environment['PYTHONPATH']}"}
    with scripted_server(ANSWER) as server:
        words = ("--levels", "2", "--requests", "40", "--complete", "--warmup", "none", "--no-gpu")
        ran = sandbox.run_benchmark(server.url, *words, env=env)
    assert ran.code == 0, ran
    records = read_journal(sandbox.session).records
    assert {record.id for record in records if record.ok} <= {r.id for r in server.completed}
    assert sum(record.phase == "level" and record.ok for record in records) == 40


# Imported by every Python process: no sync ends before a file exists.
HANGING = """
import os, time
fsync = os.fsync

def hanging_fsync(fd):
    while not os.path.exists({release!r}):
        time.sleep(0.01)
    fsync(fd)

os.fsync = hanging_fsync
"""


def test_run_goes_on_while_the_disk_hangs(sandbox: Sandbox) -> None:
    """Agents get their next tasks, the user a warning, and in the end everything is saved."""
    release, folder = sandbox.home / "release", sandbox.home / "hanging"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HANGING.format(release=str(release)))
    env = {"PYTHONPATH": f"{folder}:{sandbox.environment['PYTHONPATH']}"}
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, env=env)
        wait_until(lambda: len(server.completed) >= 40, "some responses")
        wait_until(lambda: "a write has taken more than 5 s" in command.stderr_so_far(), "a warning")
        release.touch()
        code, _ = stop(command)
    assert code == 4
    assert {record.id for record in read_journal(sandbox.session).records} == {r.id for r in server.completed}


def test_unwritten_entries_are_written_in_order_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, queue = FakeDisk(monkeypatch), JournalQueue(tmp_path / "here")
    queue.log_event("1")
    queue.flush()
    disk.room = 20
    queue.log_event("2")
    assert warning_text(queue).startswith("1 entry is not on disk")
    for name in "34":
        queue.log_event(name)
    assert warning_text(queue).startswith("3 entries are not on disk") and "No space left" in warning_text(queue)
    disk.room = None
    queue.log_event("5")
    queue.flush()
    assert (event_names(tmp_path / "here"), queue.warning) == (["1", "2", "3", "4", "5"], None)


def test_write_that_failed_completely_leaves_no_empty_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, queue = FakeDisk(monkeypatch), JournalQueue(tmp_path / "here")
    disk.room = 0
    queue.log_event("1")
    queue.flush()
    disk.room = None
    queue.flush()
    assert len((tmp_path / "here" / JOURNAL).read_bytes().splitlines()) == 1


def test_unwritten_entries_move_to_the_new_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, queue = FakeDisk(monkeypatch), JournalQueue(tmp_path / "a" / "id")
    queue.log_event("1")
    queue.flush()
    disk.room = 20
    queue.log_event("2")
    with pytest.raises(OSError, match="No space left"):
        queue.move(tmp_path / "b" / "id")
    assert not (tmp_path / "b" / "id").exists() and warning_text(queue)
    disk.room = None
    queue.move(tmp_path / "b" / "id")
    queue.log_event("3")
    queue.flush()
    assert (event_names(tmp_path / "b" / "id"), queue.warning) == (["1", "2", "3"], None)
    assert not (tmp_path / "a" / "id").exists()


def test_failed_sync_is_reported_and_the_session_saved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On network file systems a write may succeed and the sync fail."""
    queue, real = JournalQueue(tmp_path / "a" / "id"), os.fsync

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    queue.write(StageEnd(number=1, t_ns=1, complete=True))
    queue.flush()
    monkeypatch.setattr(os, "fsync", real)
    queue.log_event("1")
    assert warning_text(queue).startswith(
        f"some entries may not be on disk: {tmp_path / 'a' / 'id'}: Input/output error"
    )
    assert "all entries were saved elsewhere" in queue.save_elsewhere([tmp_path / "b"])
    assert (event_names(tmp_path / "b" / "id"), queue.warning) == (["1"], None)
    # The original is kept: either copy may be the better one.
    assert event_names(tmp_path / "a" / "id") == ["1"]


def test_closed_session_is_not_moved(tmp_path: Path) -> None:
    """Its file descriptor may already belong to another file."""
    queue = JournalQueue(tmp_path / "a" / "id")
    queue.log_event("1")
    queue.close()
    with (tmp_path / "another").open("w+") as another:
        with pytest.raises(OSError, match="Bad file descriptor"):
            queue.move(tmp_path / "b" / "id")
        queue.save_elsewhere([])
        queue.log_event("2")
        assert another.read() == ""
    assert event_names(tmp_path / "a" / "id") == ["1"] and not (tmp_path / "b" / "id").exists()


def test_concurrent_sessions_do_not_mix(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as one, scripted_server(ANSWER) as other:
        commands = [started_run(sandbox, one, "--label", "one"), started_run(sandbox, other, "--label", "other")]
        assert {row.state for row in list_sessions(sandbox.sessions)} == {"running"}
        for command in commands:
            command.signal_group(signal.SIGINT)
        assert [command.wait().code for command in commands] == [4, 4]
    by_label = {row.label: Path(row.directory) for row in list_sessions(sandbox.sessions)}
    for label, server in (("one", one), ("other", other)):
        journaled = read_journal(by_label[label])
        assert len(journaled.records) == len(server.completed)
        assert journaled.head.session.endpoints[0].url == server.url
