"""Signals to our processes at moments that a seed chooses, round after round; what was lost, what stayed behind.

    python -m tests.faults.kill_matrix --rounds 200

An answer is finished when the server has written its last byte, by the server's own log, and its age is the time from
then to the first signal. Lost is what is older than 100 ms and not in the session; `younger` counts the missing that
are not as old, most of them bytes that no process of ours had read, and `oldest` is the largest age of any missing one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.client import client
from swarmtui.model.schema import BadInput
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.store import list_sessions
from tests.cli.programs import Place, Program, place_in, until, with_signal
from tests.cli.scripted import scripted, words

# Eight streams, each answer about 60 ms: over a hundred answers a second.
ANSWER = words(6, gap_s=0.01)
ENOUGH = 400
LOAD = ("--levels", "8", "--warmup", "none", "--seed", "1", "--no-gpu")

PARTS = {"conductor": "swarmtui.session_process", "worker": "swarmtui.loadgen.worker"}

BAR_NS = 100_000_000
LINGER_S = 5.0
LATEST_S = 4.0

Outcome = Literal["goes on", "stopped", "interrupted"]

EXPECTED: dict[tuple[str, str], Outcome] = {
    ("face", "KILL"): "goes on",
    ("face", "TERM"): "stopped",
    ("face", "HUP"): "goes on",
    ("face", "STOP"): "goes on",
    ("conductor", "KILL"): "interrupted",
    ("conductor", "TERM"): "stopped",
    ("conductor", "HUP"): "goes on",
    ("conductor", "STOP"): "goes on",
    ("worker", "KILL"): "interrupted",
    ("worker", "TERM"): "interrupted",
    ("worker", "HUP"): "goes on",
    ("worker", "STOP"): "goes on",
    ("all", "KILL"): "interrupted",
    ("all", "HUP"): "goes on",
    ("all", "STOP"): "goes on",
}


class Round(NamedTuple):
    """`leaked` are processes and sockets; `untrue` is in words what `sessions` and `attach` told wrongly."""

    case: str
    finished: int = 0
    lost: int = 0
    younger: int = 0
    oldest_ms: float = 0.0
    leaked: tuple[str, ...] = ()
    half_written: str = ""
    untrue: str = ""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.leaked or self.half_written or self.untrue)


def play(home: Path, seed: int, latest_s: float = LATEST_S, enough: int = ENOUGH) -> Round:
    chance = random.Random(seed)
    target, name = sorted(EXPECTED)[seed % len(EXPECTED)]
    moment, pause = chance.uniform(0.1, latest_s), chance.uniform(0.05, 1.0)
    outcome, case = EXPECTED[target, name], f"{target} {name}"
    requests = str(enough if outcome == "goes on" else 100_000)
    with place_in(home) as place, scripted(ANSWER) as server:
        os.environ["XDG_RUNTIME_DIR"] = str(place.runtime)
        face = place.begin(server.url, *LOAD, "--requests", requests)
        time.sleep(moment)
        hit_ns = _hit(place, face, target, name, pause)
        untrue = _told_while_it_runs(place) if outcome == "goes on" else ""
        try:
            _settle(place, face, outcome)
        except AssertionError as error:
            return Round(case, leaked=_left_behind(place), untrue=str(error)[:200])
        leaked = _left_behind(place)
        finished = {a.id: hit_ns - a.t_ns for a in server.completed if a.t_ns <= hit_ns or outcome == "goes on"}
        rows = list_sessions(place.sessions)
        if not rows or rows[0].problem:
            # Hit before the first request: there is nothing to save.
            untrue = untrue or (rows[0].problem or "" if rows and finished else "")
            return Round(case, len(finished), len(finished), leaked=leaked, untrue=untrue)
        saved, half_written = _saved(place)
        missing = [age for name, age in finished.items() if name not in saved]
        lost = [age for age in missing if age > BAR_NS or outcome == "goes on"]
        return Round(
            case,
            finished=len(finished),
            lost=len(lost),
            younger=len(missing) - len(lost),
            oldest_ms=max(missing, default=0) / 1e6,
            leaked=leaked,
            half_written=half_written,
            untrue=untrue or _told(place, outcome),
        )


def _left_behind(place: Place) -> tuple[str, ...]:
    return (*(process.words for process in place.processes()), *(f"socket {name}" for name in client.running()))


def _hit(place: Place, face: Program, target: str, name: str, pause: float) -> int:
    """A run that is over by then has nobody left to be hit."""
    part, least = ("swarmtui", 3) if target == "all" else (PARTS.get(target, ""), 1)
    until(lambda: len(place.processes(part)) >= least or face.process.poll() is not None, target)
    pids = [face.pid] if target == "face" else sorted(process.pid for process in place.processes(part))
    number = signal.Signals[f"SIG{name}"]
    hit_ns = time.perf_counter_ns()
    for pid in pids:
        with_signal(pid, number)
    if number == signal.SIGSTOP:
        time.sleep(pause)
        for pid in pids:
            with_signal(pid, signal.SIGCONT)
    return hit_ns


def _settle(place: Place, face: Program, outcome: Outcome) -> None:
    """Until all has ended by itself."""
    face.wait()
    if outcome == "goes on":
        until(lambda: not place.processes(), "the run came to its end")
    # A process that was killed has left /proc a moment before its socket is closed.
    until(lambda: not _left_behind(place), f"nobody stayed behind: {_left_behind(place)}", LINGER_S)


def _told_while_it_runs(place: Place) -> str:
    """A run that goes on is listed as running and can be joined, as long as it is there."""
    before = place.processes(PARTS["conductor"])
    told = [row.state for row in list_sessions(place.sessions) if not row.problem]
    joinable = client.running()
    if before and place.processes(PARTS["conductor"]) and told and not (told == ["running"] and len(joinable) == 1):
        # In its last moments it has said how it ended, and hangs up.
        until(lambda: not place.processes(PARTS["conductor"]), f"{told}, {joinable} of a run that goes on", LINGER_S)
    return ""


def _told(place: Place, outcome: Outcome) -> str:
    """What `sessions` and `attach` say afterwards, asked as a person asks."""
    wrong = []
    wanted = {"goes on": "done", "stopped": "stopped", "interrupted": "interrupted"}[outcome]
    states = [row["state"] for row in place.listed()]
    if states != [wanted]:
        wrong.append(f"sessions: {states}, not {wanted}")
    joined = place.run("attach", place.session.name)
    if joined.code != 2 or "no such session is running" not in joined.err:
        wrong.append(f"attach: {joined}")
    return "; ".join(wrong)


def _saved(place: Place) -> tuple[set[str], str]:
    """The answers that are saved, and what is wrong with the files."""
    try:
        records = read_journal(place.session).records
    except BadInput as error:
        return set(), str(error)
    wrong = _half_written(place.session)
    ids = [record.id for record in records if record.ok]
    if len(set(ids)) != len(ids):
        wrong.append("an answer is saved twice")
    return set(ids), "; ".join(wrong)


def _half_written(directory: Path) -> list[str]:
    wrong = []
    for path in directory.iterdir():
        text = path.read_bytes()
        try:
            if path.suffix == ".jsonl":
                for line in text.splitlines():
                    json.loads(line)
            elif path.suffix == ".json":
                json.loads(text)
            elif path.suffix == ".toml":
                tomllib.loads(text.decode())
            else:
                wrong.append(f"{path.name} was left")
        except ValueError as error:
            wrong.append(f"{path.name}: {error}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    rounds: list[Round] = []
    for seed in range(given.first, given.first + given.rounds):
        with tempfile.TemporaryDirectory(prefix="swarmtui-kill-") as home:
            try:
                found = play(Path(home), seed)
            except AssertionError as error:
                found = Round(" ".join(sorted(EXPECTED)[seed % len(EXPECTED)]), untrue=str(error)[-300:])
        rounds.append(found)
        if not found.clean:
            sys.stdout.write(f"seed {seed}: {found}\n")
            sys.stdout.flush()
    sys.stdout.write(_table(rounds))


def _table(rounds: list[Round]) -> str:
    lines = ["case | rounds | finished | lost | younger | oldest ms | orphans | half-written | sessions/attach wrong"]
    for case in [*sorted({found.case for found in rounds}), "all together"]:
        of = [found for found in rounds if case in (found.case, "all together")]
        figures = (
            len(of), sum(r.finished for r in of), sum(r.lost for r in of), sum(r.younger for r in of),
            f"{max(r.oldest_ms for r in of):.1f}", sum(len(r.leaked) for r in of),
            sum(bool(r.half_written) for r in of), sum(bool(r.untrue) for r in of),
        )  # fmt: skip
        lines.append(f"{case} | {' | '.join(map(str, figures))}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
