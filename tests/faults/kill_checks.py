"""What tests of killed and stopped runs wait for and check."""

from __future__ import annotations

import json
import random
import threading
import tomllib
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path

import psutil

from swarmtui.model.record import Record
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import JOURNAL, read_journal
from tests.cli.programs import TIMEOUT_S, CommandResult, Sandbox, wait_until
from tests.cli.scripted_server import ReceivedRequest, Responder, ScriptedHandler, ScriptedServer, respond_with_words

# Four streams with responses of about 60 ms: sixty responses per second.
ANSWER = respond_with_words(6, gap_s=0.01)
LOAD = ("--levels", "4", "--warmup", "none", "--seed", "1")
ENDLESS = (*LOAD, "--requests", "100000")
SESSION_PROCESS, WORKER = "swarmtui.session_process", "swarmtui.loadgen.worker"


def pid_of(sandbox: Sandbox, part: str) -> int:
    """Return the process id of the session process or the worker, once it is running."""
    (found,) = wait_until(lambda: sandbox.processes(part), f"a process of {part}")
    pid: int = found.pid
    return pid


def wait_for_responses(server: ScriptedServer, seed: int) -> None:
    """Wait for 30 to 50 completed responses: a moment in the middle of a level."""
    count = random.Random(seed).randint(30, 50)
    wait_until(lambda: len(server.completed) >= count, f"{count} responses")


class HoldingResponder:
    """Completes some responses and holds all further ones until `release` is set."""

    def __init__(self, count: int) -> None:
        self.release = threading.Event()
        self._count = count

    def __call__(self, to: ScriptedHandler, request: ReceivedRequest) -> None:
        if len(to.server.completed) >= self._count:
            self.release.wait(TIMEOUT_S)
        ANSWER(to, request)


def three_endless_streams() -> Responder:
    """Three responses never end, all of them after the pre-roll."""
    endless, numbers = respond_with_words(100_000, gap_s=0.02), count(1)

    def respond(to: ScriptedHandler, request: ReceivedRequest) -> None:
        (endless if 40 < next(numbers) <= 43 else ANSWER)(to, request)

    return respond


def processed(server: ScriptedServer) -> set[str]:
    """Return the responses that a worker has certainly processed: two more requests came on their connection.

    After one more, another agent may have taken the connection just before the response was processed.
    """
    requests = Counter(request.connection for request in list(server.received))
    completed: defaultdict[int, list[str]] = defaultdict(list)
    for response in list(server.completed):
        completed[response.connection].append(response.id)
    return {id for connection, ids in completed.items() for id in ids[: max(0, requests[connection] - 2)]}


def wait_for_idle_workers(sandbox: Sandbox, server: ScriptedServer) -> set[str]:
    """Wait until workers whose session process hangs have processed all responses; return these.

    They sleep, have no unread data, and get no more tasks.
    """

    def idle(worker: psutil.Process) -> bool:
        ports = {f"{connection.laddr.port:04X}" for connection in worker.net_connections("tcp4")}
        return not unread_bytes(ports) and worker.status() == psutil.STATUS_SLEEPING and not unread_bytes(ports)

    def all_completed(count: int) -> bool:
        return len(server.completed) == len(server.received) == count

    def all_idle() -> bool:
        count = len(server.received)
        return count > before and all_completed(count) and all(map(idle, workers)) and all_completed(count)

    before = len(server.completed)
    workers = [psutil.Process(process.pid) for process in sandbox.processes(WORKER)]
    wait_until(all_idle, "idle workers")
    return {response.id for response in server.completed}


def unread_bytes(ports: set[str]) -> int:
    """Return how much data has not yet been read from the sockets with these local ports."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].partition(":")[2] in ports)


def wait_until_saved(sandbox: Sandbox, server: ScriptedServer) -> None:
    """Wait until all completed responses are in the journal."""

    def all_saved() -> bool:
        text = (sandbox.session / JOURNAL).read_text()
        return all(f'"id":"{response.id}"' in text for response in list(server.completed))

    wait_until(all_saved, "all responses are in the journal")


def saved(sandbox: Sandbox) -> dict[str, Record]:
    """Return the saved records by response id; none is saved twice."""
    records = [record for record in read_journal(sandbox.session).records if record.id and record.ok]
    by_id = {record.id: record for record in records}
    assert len(by_id) == len(records)
    return by_id


def measured(sandbox: Sandbox) -> dict[str, Record]:
    """Return the saved records without pre-roll and fillers."""
    return {id: record for id, record in saved(sandbox).items() if record.phase == "level"}


def assert_files_valid(directory: Path) -> None:
    names = {path.name for path in directory.iterdir()}
    assert names <= {"journal.jsonl", "spool-0.jsonl", "spool-1.jsonl", "detail.json", "summary.toml", "index.json"}
    assert invalid_files(directory) == []


def invalid_files(directory: Path) -> list[str]:
    """Return which files of a session are incomplete or unexpected, and why."""
    wrong = []
    for path in directory.iterdir():
        data = path.read_bytes()
        try:
            if path.suffix == ".jsonl":
                for line in data.splitlines():
                    json.loads(line)
            elif path.suffix == ".json":
                json.loads(data)
            elif path.suffix == ".toml":
                tomllib.loads(data.decode())
            else:
                wrong.append(f"{path.name} is unexpected")
        except ValueError as error:
            wrong.append(f"{path.name}: {error}")
    return wrong


def assert_no_processes(sandbox: Sandbox) -> None:
    wait_until(lambda: not sandbox.processes(), "all processes have ended")


def assert_saved_message(ran: CommandResult) -> None:
    """Check the output of an interrupted run."""
    assert ran.code == 4, ran
    assert ran.out.startswith("|") and "Traceback" not in ran.err
    assert "saved: " in ran.err


def assert_interrupted_session(sandbox: Sandbox, expected: set[str]) -> None:
    """Check a session whose process or worker was killed: it has at least the expected responses."""
    assert len(expected) > 5
    found = saved(sandbox)
    assert expected <= found.keys()
    # A killed process holds the lock until the last of its threads has left the kernel.
    wait_until(
        lambda: [row.state for row in list_sessions(sandbox.sessions)] == ["interrupted"], "the lock is released"
    )
    summary = sandbox.show_session()
    assert summary["state"] == "interrupted"
    (level,) = summary["levels"]
    assert level["ok"] == len(measured(sandbox)) and not level["complete"]
    assert level["out_tps_wall"] > 0
    assert_files_valid(sandbox.session)


def assert_stopped_session(sandbox: Sandbox, ran: CommandResult, server: ScriptedServer) -> None:
    assert_saved_message(ran)
    (row,) = list_sessions(sandbox.sessions)
    assert row.state == "stopped"
    (level,) = sandbox.show_session()["levels"]
    assert level["ok"] == len(measured(sandbox)) > 5
    assert_files_valid(sandbox.session)
    assert_no_processes(sandbox)
    assert not list((sandbox.runtime / "swarmtui").glob("*.sock"))


def assert_run_completes(sandbox: Sandbox, server: ScriptedServer, requests: int) -> None:
    wait_until(lambda: [row.state for row in list_sessions(sandbox.sessions)] == ["done"], "the session is done")
    assert_no_processes(sandbox)
    assert measured(sandbox).keys() <= {response.id for response in server.completed}
    (level,) = sandbox.show_session()["levels"]
    assert (level["n"], level["ok"], level["complete"]) == (requests, requests, True)
    assert_files_valid(sandbox.session)
