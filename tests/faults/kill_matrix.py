"""Send signals to processes of a run at random moments, and count lost requests, leaked processes and wrong states.

Where there are two faults, the first is a full disk or a signal, and another signal comes soon after it. A response is
`finished` when the server has sent its last byte. It is `lost` if a worker had processed it before the last signal and
it is not in the session, and `unread` if it is missing but may not have been read when the signal came. Where the
worker and the session process die together, what counts is what was on a disk at that moment. A request that was
cancelled at the end of its level is not lost. A `wrong sentence` is one about saving that is not true.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.client.session_client import running_sessions
from swarmtui.model.base import BadInput
from swarmtui.model.record import CANCELLED
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.saved_requests import count_saved_requests
from tests.cli.programs import Program, Sandbox, open_sandbox, send_signal, wait_until
from tests.cli.scripted_server import ScriptedServer, scripted_server
from tests.faults.full_disk import FullDisk, claimed
from tests.faults.kill_checks import ANSWER, SESSION_PROCESS, WORKER, invalid_files, processed

# Eight streams with responses of about 60 ms: over a hundred responses per second.
LOAD = ("--levels", "8", "--warmup", "none", "--seed", "1", "--no-gpu")
REQUESTS = 400
LATEST_S = 2.5
EARLY = 0.15

PARTS = {"session process": SESSION_PROCESS, "worker": WORKER}

Outcome = Literal["continues", "stopped", "interrupted"]
Fault = tuple[str, str]

OUTCOMES: dict[Fault, Outcome] = {
    ("client", "KILL"): "continues",
    ("client", "TERM"): "stopped",
    ("client", "HUP"): "continues",
    ("client", "STOP"): "continues",
    ("session process", "KILL"): "interrupted",
    ("session process", "TERM"): "stopped",
    ("session process", "HUP"): "continues",
    ("session process", "STOP"): "continues",
    ("worker", "KILL"): "interrupted",
    ("worker", "TERM"): "interrupted",
    ("worker", "HUP"): "continues",
    ("worker", "STOP"): "continues",
    ("all", "KILL"): "interrupted",
    ("all", "HUP"): "continues",
    ("all", "STOP"): "continues",
}

# The second fault follows while the first one lasts; a stopped process is continued after it.
DOUBLE_FAULTS: dict[tuple[Fault, Fault], Outcome] = {
    (("disk", "FULL"), ("session process", "KILL")): "interrupted",
    (("disk", "FULL"), ("worker", "KILL")): "interrupted",
    (("disk", "FULL"), ("session process", "TERM")): "stopped",
    (("disk", "FULL"), ("all", "KILL")): "interrupted",
    (("session process", "STOP"), ("worker", "KILL")): "interrupted",
    (("session process", "STOP"), ("session process", "KILL")): "interrupted",
    (("client", "KILL"), ("session process", "KILL")): "interrupted",
    (("worker", "STOP"), ("all", "KILL")): "interrupted",
    (("disk", "FULL"), ("processes", "KILL")): "interrupted",
    (("session process", "STOP"), ("processes", "KILL")): "interrupted",
}


class KillRound(NamedTuple):
    """`leaked` are processes and sockets; `wrong_state` is what `sessions` or `attach` reported incorrectly."""

    case: str
    finished: int = 0
    lost: int = 0
    unread: int = 0
    leaked: tuple[str, ...] = ()
    invalid_files: str = ""
    wrong_state: str = ""
    wrong_sentence: str = ""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.leaked or self.invalid_files or self.wrong_state or self.wrong_sentence)


def run_round(
    home: Path, faults: tuple[Fault, ...], seed: int, latest_s: float = LATEST_S, requests: int = REQUESTS
) -> KillRound:
    chance = random.Random(seed)
    # Most signals come during the load, some while it is being started.
    early, moment, pause = chance.random() < EARLY, chance.uniform(0.0, latest_s), chance.uniform(0.05, 1.0)
    outcome = OUTCOMES[faults[0]] if len(faults) == 1 else DOUBLE_FAULTS[faults[0], faults[1]]
    case = " + ".join(" ".join(fault) for fault in faults)
    with open_sandbox(home) as sandbox, scripted_server(ANSWER) as server:
        os.environ["XDG_RUNTIME_DIR"] = str(sandbox.runtime)
        disk = FullDisk(sandbox)
        count = str(requests if outcome == "continues" else 100_000)
        command = sandbox.start_benchmark(server.url, *LOAD, "--requests", count, env=disk.environment)
        if not early:
            wait_until(lambda: server.completed, "the first response")
        time.sleep(moment)
        *first, (target, name) = faults
        pids = _targets(sandbox, command, target)
        stopped: list[int] = []
        for fault in first:
            stopped = _first_fault(fault, sandbox, command, disk)
            time.sleep(pause)
        # Records that a worker has sent are lost if the session process is killed together with it.
        expected = _journaled(sandbox) if target in ("all", "processes") else processed(server)
        _send_signals(pids, signal.Signals[f"SIG{name}"], pause)
        for pid in stopped:
            send_signal(pid, signal.SIGCONT)
        try:
            if outcome == "continues":
                _check_while_running(sandbox)
            text = _wait_for_end(sandbox, command)
        except AssertionError as error:
            return KillRound(case, leaked=_leftovers(sandbox), wrong_state=str(error)[:200])
        speaks = target != "all" and not any(killed == "client" for killed, _ in faults)
        sentence = _wrong_sentence(sandbox, text, len(processed(server)) if speaks else 0, len(server.completed))
        disk.free()
        return _result(case, sandbox, server, outcome, expected, text)._replace(wrong_sentence=sentence)


def _first_fault(fault: Fault, sandbox: Sandbox, command: Program, disk: FullDisk) -> list[int]:
    """Return the processes that are to be continued later."""
    target, name = fault
    if target == "disk":
        disk.fill()
        return []
    pids = _targets(sandbox, command, target)
    for pid in pids:
        send_signal(pid, signal.Signals[f"SIG{name}"])
    return pids if name == "STOP" else []


def _directory(sandbox: Sandbox, text: str) -> Path | None:
    """Return where the session is: it may have been saved elsewhere."""
    saved = [line.removeprefix("saved: ") for line in text.splitlines() if line.startswith("saved: ")]
    if saved:
        return Path(saved[-1])
    return next(iter(sandbox.sessions.iterdir()), None) if sandbox.sessions.exists() else None


def _wrong_sentence(sandbox: Sandbox, text: str, at_least: int, at_most: int) -> str:
    """Return what the client said about saving that is not true at its end; so many requests have finished."""
    directory, said = _directory(sandbox, text), claimed(text)
    if directory is None or not (directory / "journal.jsonl").is_file():
        return text if said or "saved: " in text else ""
    readable, _ = count_saved_requests(directory)
    if said is not None and not (said[0] == readable and max(at_least, readable) <= said[1] <= at_most):
        return f"{said} are claimed, {readable} are readable, {at_least} to {at_most} finished: {text[-300:]}"
    return text[-300:] if said is None and at_least > readable else ""


def _result(
    case: str, sandbox: Sandbox, server: ScriptedServer, outcome: Outcome, expected: set[str], text: str
) -> KillRound:
    finished = {response.id for response in server.completed}
    if outcome == "continues":
        expected = finished
    leaked, directory = _leftovers(sandbox), _directory(sandbox, text)
    rows = list_sessions(directory.parent) if directory is not None else []
    if directory is None or not rows or rows[0].problem:
        # Nothing is saved if the signal comes before the first request.
        problem = rows[0].problem or "" if rows and expected else ""
        return KillRound(case, len(finished), len(expected), leaked=leaked, wrong_state=problem)
    saved, cancelled, invalid = _saved(directory)
    return KillRound(
        case,
        finished=len(finished),
        lost=max(0, len(expected - saved) - cancelled),
        unread=len(finished - expected - saved),
        leaked=leaked,
        invalid_files=invalid,
        wrong_state=_wrong_state(sandbox, directory, outcome),
    )


def _journaled(sandbox: Sandbox) -> set[str]:
    sessions = list(sandbox.sessions.iterdir()) if sandbox.sessions.exists() else []
    try:
        return {record.id for session in sessions for record in read_journal(session).records if record.ok}
    except BadInput:
        return set()


def _leftovers(sandbox: Sandbox) -> tuple[str, ...]:
    return (
        *(process.command_line for process in sandbox.processes()),
        *(f"socket {name}" for name in running_sessions()),
    )


def _targets(sandbox: Sandbox, command: Program, target: str) -> list[int]:
    """Return the ids of the target's processes; none if the run is already over."""
    part, count = ("swarmtui", 3) if target in ("all", "processes") else (PARTS.get(target, ""), 1)
    wait_until(lambda: len(sandbox.processes(part)) >= count or command.process.poll() is not None, target)
    if target == "client":
        return [command.pid]
    found = sorted(process.pid for process in sandbox.processes(part))
    return [pid for pid in found if target != "processes" or pid != command.pid]


def _send_signals(pids: list[int], number: signal.Signals, pause: float) -> None:
    for pid in pids:
        send_signal(pid, number)
    if number == signal.SIGSTOP:
        time.sleep(pause)
        for pid in pids:
            send_signal(pid, signal.SIGCONT)


def _wait_for_end(sandbox: Sandbox, command: Program) -> str:
    """Return what the client wrote."""
    text = command.wait().err
    wait_until(lambda: not _leftovers(sandbox), "all processes and sockets are gone")
    return text


def _check_while_running(sandbox: Sandbox) -> None:
    """A run that continues is listed as running and accepts clients until it ends."""
    before = sandbox.processes(SESSION_PROCESS)
    states = [row.state for row in list_sessions(sandbox.sessions) if not row.problem]
    running = running_sessions()
    if before and sandbox.processes(SESSION_PROCESS) and states and not (states == ["running"] and len(running) == 1):
        # It may be about to exit, after its end has been saved.
        wait_until(lambda: not sandbox.processes(SESSION_PROCESS), f"{states}, {running} of a run that continues")


def _wrong_state(sandbox: Sandbox, directory: Path, outcome: Outcome) -> str:
    """Return what `sessions` and `attach` report incorrectly after the end."""
    wrong = []
    expected = "done" if outcome == "continues" else outcome
    rows = sandbox.json("sessions", "--json", "--session-dir", str(directory.parent))
    states = [row["state"] for row in rows]
    if states != [expected]:
        wrong.append(f"sessions: {states}, not {expected}")
    attached = sandbox.run("attach", directory.name)
    if attached.code != 2 or "no such session is running" not in attached.err:
        wrong.append(f"attach: {attached}")
    return "; ".join(wrong)


def _saved(directory: Path) -> tuple[set[str], int, str]:
    """Return the saved responses, the number of cancelled fillers, and what is wrong with the files."""
    try:
        records = read_journal(directory).records
    except BadInput as error:
        return set(), 0, str(error)
    wrong = invalid_files(directory)
    ids = [record.id for record in records if record.ok]
    if len(set(ids)) != len(ids):
        wrong.append("a response is saved twice")
    cancelled = sum(record.phase in ("filler", "unfinished") and record.error == CANCELLED for record in records)
    return set(ids), cancelled, "; ".join(wrong)
