"""Signals to our processes at moments that a seed chooses, round after round; what was lost, what stayed behind.

python -m tests.faults.kill_matrix --rounds 200
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
from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.conductor import client
from swarmtui.model.schema import BadInput
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.store import list_sessions
from tests.cli.programs import Place, Program, place_in, until, with_signal
from tests.cli.scripted import Scripted, scripted, words

# Four streams, each answer about 60 ms: sixty answers a second.
ANSWER = words(6, gap_s=0.01)
ENOUGH = 150
LOAD = ("--levels", "4", "--warmup", "none", "--seed", "1", "--no-gpu")

PARTS = {"conductor": "swarmtui.conductor", "worker": "swarmtui.swarm.worker"}

# What a worker had no time to tell anybody, and what the server believes sent while it is still on its way.
SETTLED_NS = 300_000_000
LINGER_S = 5.0
LATEST_S = 2.6

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
    """`lost` answers, `leaked` processes and sockets, and in words what else was not as it must be."""

    case: str
    finished: int
    lost: int
    leaked: int
    wrong: str


def play(home: Path, seed: int) -> Round:
    chance = random.Random(seed)
    target, name = sorted(EXPECTED)[seed % len(EXPECTED)]
    moment, pause = chance.uniform(0.1, LATEST_S), chance.uniform(0.05, 1.0)
    outcome = EXPECTED[target, name]
    requests = str(ENOUGH if outcome == "goes on" else 100_000)
    with place_in(home) as place, scripted(ANSWER) as server:
        os.environ["XDG_RUNTIME_DIR"] = str(place.runtime)
        face = place.begin(server.url, *LOAD, "--requests", requests)
        time.sleep(moment)
        hit_ns = _hit(place, face, target, name, pause)
        try:
            _settle(place, face, outcome, target)
        except AssertionError as error:
            return Round(f"{target} {name}", 0, 0, len(place.processes()), str(error)[:200])
        leaked = len(place.processes()) + len(client.running())
        must = [a.id for a in server.completed if a.t_ns <= hit_ns - SETTLED_NS or outcome == "goes on"]
        saved, wrong = _look(place, outcome, server)
        lost = len(set(must) - saved)
    return Round(f"{target} {name}", len(must), lost, leaked, wrong)


def _hit(place: Place, face: Program, target: str, name: str, pause: float) -> int:
    if target == "face":
        pids = [face.pid]
    elif target == "all":
        until(lambda: len(place.processes()) >= 3, "all processes")
        pids = sorted(process.pid for process in place.processes())
    else:
        pids = [process.pid for process in until(lambda: place.processes(PARTS[target]), target)]
    number = signal.Signals[f"SIG{name}"]
    for pid in pids:
        with_signal(pid, number)
    hit_ns = time.perf_counter_ns()
    if number == signal.SIGSTOP:
        time.sleep(pause)
        for pid in pids:
            with_signal(pid, signal.SIGCONT)
    return hit_ns


def _settle(place: Place, face: Program, outcome: Outcome, target: str) -> None:
    """Until all has ended by itself."""
    face.wait()
    if outcome == "goes on":
        until(lambda: not place.processes(), "the run came to its end")
    else:
        until(lambda: not place.processes(), f"nobody stayed behind: {place.processes()}", LINGER_S)


def _look(place: Place, outcome: Outcome, server: Scripted) -> tuple[set[str], str]:
    """The answers that are saved, and what is wrong with the session."""
    rows = list_sessions(place.sessions)
    if not rows or rows[0].problem:
        # Hit before the first request: there is nothing to save, and nothing was asked.
        told = rows[0].problem if rows else "no session"
        return set(), "" if not server.completed or outcome != "goes on" else f"{told} after {len(server.completed)}"
    (row,) = rows
    wanted = {"goes on": "done", "stopped": "stopped", "interrupted": "interrupted"}[outcome]
    wrong = [] if row.state == wanted else [f"state {row.state}, not {wanted}"]
    try:
        records = read_journal(place.session).records
    except BadInput as error:
        return set(), str(error)
    wrong += _half_written(place.session)
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
                found = Round(" ".join(sorted(EXPECTED)[seed % len(EXPECTED)]), 0, 0, 0, str(error)[-300:])
        rounds.append(found)
        if found.lost or found.leaked or found.wrong:
            sys.stdout.write(f"seed {seed}: {found}\n")
            sys.stdout.flush()
    played = Counter(found.case for found in rounds)
    sys.stdout.write("case | rounds | finished | lost | leaked | wrong\n")
    for case in [*sorted(played), "all together"]:
        of = [found for found in rounds if case in (found.case, "all together")]
        figures = (len(of), *(sum(part) for part in zip(*((r.finished, r.lost, r.leaked) for r in of), strict=True)))
        sys.stdout.write(f"{case} | {' | '.join(map(str, figures))} | {sum(bool(r.wrong) for r in of)}\n")


if __name__ == "__main__":
    main()
