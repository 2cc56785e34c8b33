"""Send signals to processes of a run at random moments, and count lost requests, leaked processes and wrong states.

    python -m tests.faults.kill_matrix --rounds 200

A response is `finished` when the server has sent its last byte. It is `lost` if a worker had processed it before the
signal and it is not in the session, and `unread` if it is missing but may not have been read when the signal came.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.client import client
from swarmtui.model.schema import BadInput
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import Program, Sandbox, open_sandbox, send_signal, wait_until
from tests.cli.scripted_server import ScriptedServer, scripted_server
from tests.faults.kill_checks import ANSWER, SESSION_PROCESS, WORKER, invalid_files, processed

# Eight streams with responses of about 60 ms: over a hundred responses per second.
LOAD = ("--levels", "8", "--warmup", "none", "--seed", "1", "--no-gpu")
REQUESTS = 400
LATEST_S = 4.0

PARTS = {"session process": SESSION_PROCESS, "worker": WORKER}

Outcome = Literal["continues", "stopped", "interrupted"]

OUTCOMES: dict[tuple[str, str], Outcome] = {
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


class KillRound(NamedTuple):
    """`leaked` are processes and sockets; `wrong_state` is what `sessions` or `attach` reported incorrectly."""

    case: str
    finished: int = 0
    lost: int = 0
    unread: int = 0
    leaked: tuple[str, ...] = ()
    invalid_files: str = ""
    wrong_state: str = ""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.leaked or self.invalid_files or self.wrong_state)


def run_round(home: Path, seed: int, latest_s: float = LATEST_S, requests: int = REQUESTS) -> KillRound:
    chance = random.Random(seed)
    target, name = sorted(OUTCOMES)[seed % len(OUTCOMES)]
    moment, pause = chance.uniform(0.1, latest_s), chance.uniform(0.05, 1.0)
    outcome, case = OUTCOMES[target, name], f"{target} {name}"
    with open_sandbox(home) as sandbox, scripted_server(ANSWER) as server:
        os.environ["XDG_RUNTIME_DIR"] = str(sandbox.runtime)
        count = str(requests if outcome == "continues" else 100_000)
        command = sandbox.start_benchmark(server.url, *LOAD, "--requests", count)
        time.sleep(moment)
        pids = _targets(sandbox, command, target)
        # Records that a worker has sent are lost if the session process is killed together with it.
        expected = _journaled(sandbox) if target == "all" else processed(server)
        _send_signals(pids, signal.Signals[f"SIG{name}"], pause)
        try:
            if outcome == "continues":
                _check_while_running(sandbox)
            _wait_for_end(sandbox, command)
        except AssertionError as error:
            return KillRound(case, leaked=_leftovers(sandbox), wrong_state=str(error)[:200])
        return _result(case, sandbox, server, outcome, expected)


def _result(case: str, sandbox: Sandbox, server: ScriptedServer, outcome: Outcome, expected: set[str]) -> KillRound:
    finished = {response.id for response in server.completed}
    if outcome == "continues":
        expected = finished
    leaked, rows = _leftovers(sandbox), list_sessions(sandbox.sessions)
    if not rows or rows[0].problem:
        # Nothing is saved if the signal comes before the first request.
        problem = rows[0].problem or "" if rows and expected else ""
        return KillRound(case, len(finished), len(expected), leaked=leaked, wrong_state=problem)
    saved, invalid = _saved(sandbox)
    return KillRound(
        case,
        finished=len(finished),
        lost=len(expected - saved),
        unread=len(finished - expected - saved),
        leaked=leaked,
        invalid_files=invalid,
        wrong_state=_wrong_state(sandbox, outcome),
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
        *(f"socket {name}" for name in client.running_sessions()),
    )


def _targets(sandbox: Sandbox, command: Program, target: str) -> list[int]:
    """Return the ids of the target's processes; none if the run is already over."""
    part, count = ("swarmtui", 3) if target == "all" else (PARTS.get(target, ""), 1)
    wait_until(lambda: len(sandbox.processes(part)) >= count or command.process.poll() is not None, target)
    return [command.pid] if target == "client" else sorted(process.pid for process in sandbox.processes(part))


def _send_signals(pids: list[int], number: signal.Signals, pause: float) -> None:
    for pid in pids:
        send_signal(pid, number)
    if number == signal.SIGSTOP:
        time.sleep(pause)
        for pid in pids:
            send_signal(pid, signal.SIGCONT)


def _wait_for_end(sandbox: Sandbox, command: Program) -> None:
    command.wait()
    wait_until(lambda: not _leftovers(sandbox), "all processes and sockets are gone")


def _check_while_running(sandbox: Sandbox) -> None:
    """A run that continues is listed as running and accepts clients until it ends."""
    before = sandbox.processes(SESSION_PROCESS)
    states = [row.state for row in list_sessions(sandbox.sessions) if not row.problem]
    running = client.running_sessions()
    if before and sandbox.processes(SESSION_PROCESS) and states and not (states == ["running"] and len(running) == 1):
        # It may be about to exit, after its end has been saved.
        wait_until(lambda: not sandbox.processes(SESSION_PROCESS), f"{states}, {running} of a run that continues")


def _wrong_state(sandbox: Sandbox, outcome: Outcome) -> str:
    """Return what `sessions` and `attach` report incorrectly after the end."""
    wrong = []
    expected = "done" if outcome == "continues" else outcome
    states = [row["state"] for row in sandbox.list_sessions()]
    if states != [expected]:
        wrong.append(f"sessions: {states}, not {expected}")
    attached = sandbox.run("attach", sandbox.session.name)
    if attached.code != 2 or "no such session is running" not in attached.err:
        wrong.append(f"attach: {attached}")
    return "; ".join(wrong)


def _saved(sandbox: Sandbox) -> tuple[set[str], str]:
    """Return the saved responses, and what is wrong with the files."""
    try:
        records = read_journal(sandbox.session).records
    except BadInput as error:
        return set(), str(error)
    wrong = invalid_files(sandbox.session)
    ids = [record.id for record in records if record.ok]
    if len(set(ids)) != len(ids):
        wrong.append("a response is saved twice")
    return set(ids), "; ".join(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first round")
    options = parser.parse_args()
    rounds: list[KillRound] = []
    for seed in range(options.first, options.first + options.rounds):
        with tempfile.TemporaryDirectory(prefix="swarmtui-kill-") as home:
            try:
                result = run_round(Path(home), seed)
            except AssertionError as error:
                result = KillRound(" ".join(sorted(OUTCOMES)[seed % len(OUTCOMES)]), wrong_state=str(error)[-300:])
        rounds.append(result)
        if not result.clean:
            sys.stdout.write(f"seed {seed}: {result}\n")
            sys.stdout.flush()
    sys.stdout.write(_table(rounds))


def _table(rounds: list[KillRound]) -> str:
    lines = ["case | rounds | finished | lost | unread | leaked | invalid files | wrong state"]
    for case in [*sorted({result.case for result in rounds}), "total"]:
        group = [result for result in rounds if case in (result.case, "total")]
        figures = (
            len(group), sum(r.finished for r in group), sum(r.lost for r in group), sum(r.unread for r in group),
            sum(len(r.leaked) for r in group), sum(bool(r.invalid_files) for r in group),
            sum(bool(r.wrong_state) for r in group),
        )  # fmt: skip
        lines.append(f"{case} | {' | '.join(map(str, figures))}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
