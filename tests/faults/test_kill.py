"""Processes that are killed, and people who stop: what a server had finished is saved, and nobody stays behind."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from swarmtui.model.record import Record
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import SIM, TIMEOUT_S, Place, Ran, until, with_signal
from tests.cli.scripted import Answering, Asked, Scripted, scripted, words

# More of them find more: SWARMTUI_KILL_ROUNDS=50.
ROUNDS = range(int(os.environ.get("SWARMTUI_KILL_ROUNDS", "2")))
SETTLED_NS = 300_000_000
LINGER_S = 3.0

# Four streams, each answer about 60 ms: sixty answers a second.
ANSWER = words(6, gap_s=0.01)
LOAD = ("--levels", "4", "--warmup", "none", "--seed", "1")
ENDLESS = (*LOAD, "--requests", "100000")

CONDUCTOR, WORKER = "swarmtui.session_process", "swarmtui.loadgen.worker"


def only(place: Place, part: str) -> int:
    """The process id of our conductor or worker, once it is there."""
    (found,) = until(lambda: place.processes(part), f"a process of {part}")
    pid: int = found.pid
    return pid


def after(server: Scripted, seed: int) -> None:
    """Some moment in mid-level: so many answers have gone out, and nobody knows what is under way."""
    moment = random.Random(seed).randint(30, 50)
    until(lambda: len(server.completed) >= moment, f"{moment} answers")


def more_after(server: Scripted, count: int) -> None:
    """So many more answers, and time enough that they count as settled."""
    enough = len(server.completed) + count
    until(lambda: len(server.completed) >= enough, f"{count} more answers")
    time.sleep(SETTLED_NS / 1e9)


def saved(place: Place) -> dict[str, Record]:
    """By the id that the server gave; each once."""
    records = [record for record in read_journal(place.session).records if record.id and record.ok]
    by_id = {record.id: record for record in records}
    assert len(by_id) == len(records)
    return by_id


def settled(server: Scripted, now_ns: int) -> set[str]:
    return {answer.id for answer in server.completed if answer.t_ns <= now_ns - SETTLED_NS}


def nothing_half_written(directory: Path) -> None:
    names = {path.name for path in directory.iterdir()}
    assert names <= {"journal.jsonl", "spool-0.jsonl", "spool-1.jsonl", "detail.json", "summary.toml", "index.json"}
    for path in directory.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            json.loads(line)
    for path in directory.glob("*.json"):
        json.loads(path.read_bytes())
    for path in directory.glob("*.toml"):
        tomllib.loads(path.read_text())


def nobody_left(place: Place) -> None:
    until(lambda: not place.processes(), f"all processes ended; there were {place.processes()}", LINGER_S)


def cut_off(place: Place, server: Scripted, killed_ns: int) -> None:
    """What must be true after any of our processes was killed, and its session with it."""
    expected = settled(server, killed_ns)
    assert len(expected) > 5
    found = saved(place)
    assert expected <= found.keys()
    (row,) = place.listed()
    assert row["state"] == "interrupted"
    summary = place.shown()
    assert summary["state"] == "interrupted"
    (level,) = summary["levels"]
    assert level["ok"] == len(found) and not level["complete"]
    assert level["out_tps_wall"] > 0
    nothing_half_written(place.session)


def interrupted(ran: Ran) -> None:
    """What the person at the terminal sees of it."""
    assert ran.code == 4, ran
    assert ran.out.startswith("|") and "Traceback" not in ran.err
    assert "saved: " in ran.err


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_killed_worker_loses_nothing_that_was_finished(place: Place, seed: int) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, seed)
        killed_ns = kill(only(place, WORKER))
        ran = face.wait()
    interrupted(ran)
    assert "worker 0 ended by signal SIGKILL" in ran.err
    cut_off(place, server, killed_ns)
    nobody_left(place)


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_killed_conductor_loses_nothing_that_was_finished(place: Place, seed: int) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, seed)
        killed_ns = kill(only(place, CONDUCTOR))
        ran = face.wait()
        nobody_left(place)
    interrupted(ran)
    assert "the conductor was killed" in ran.err
    cut_off(place, server, killed_ns)


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_killed_face_does_not_end_the_run(place: Place, seed: int) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *LOAD, "--requests", "70")
        after(server, seed)
        kill(face.pid)
        assert face.wait().code == -signal.SIGKILL
        assert place.processes(CONDUCTOR)
        goes_on_to_the_end(place, server, 70)


@pytest.mark.parametrize("seed", ROUNDS[:1])
def test_a_killed_conductor_takes_its_simulator_along(place: Place, seed: int) -> None:
    face = place.begin(SIM, "--levels", "4", "--requests", "100000", "--max-tokens", "20")
    until(lambda: place.sessions.exists() and enough_lines(place), "some requests in the journal")
    kill(only(place, CONDUCTOR))
    ran = face.wait()
    nobody_left(place)
    interrupted(ran)
    assert place.listed()[0]["state"] == "interrupted"


def test_two_workers_and_one_of_them_killed(place: Place) -> None:
    """What the other one had finished is saved too."""
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS, "--workers", "2")
        after(server, 0)
        until(lambda: len(place.processes(WORKER)) == 2, "two workers")
        killed_ns = kill(place.processes(WORKER)[0].pid)
        interrupted(face.wait())
        cut_off(place, server, killed_ns)
        nobody_left(place)


def test_a_conductor_that_hung_before_it_was_killed(place: Place) -> None:
    """What finished while it hung is known to the worker alone, which leaves it beside the journal."""
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 5)
        conductor = only(place, CONDUCTOR)
        os.kill(conductor, signal.SIGSTOP)
        more_after(server, 4)
        killed_ns = kill(conductor)
        interrupted(face.wait())
        nobody_left(place)
    assert (place.session / "spool-0.jsonl").exists()
    cut_off(place, server, killed_ns)


def test_two_workers_and_one_of_them_killed_while_the_conductor_hung(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS, "--workers", "2")
        after(server, 6)
        conductor = only(place, CONDUCTOR)
        os.kill(conductor, signal.SIGSTOP)
        more_after(server, 4)
        killed_ns = kill(place.processes(WORKER)[0].pid)
        os.kill(conductor, signal.SIGCONT)
        interrupted(face.wait())
        cut_off(place, server, killed_ns)
        nobody_left(place)


def test_everything_killed_at_once_keeps_the_journal(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 1)
        pids = [process.pid for process in place.processes()]
        assert len(pids) == 3
        killed_ns = max(kill(pid) for pid in sorted(pids))
        face.wait()
        cut_off(place, server, killed_ns)
        nobody_left(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_once_it_saves_and_prints_the_table(place: Place, number: signal.Signals) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 2)
        face.signal_group(number)
        ran = face.wait()
    stopped(place, ran, server)
    assert "stopping: " in ran.err
    # What was in flight was waited for: the server finished all that it began.
    assert saved(place).keys() == {answer.id for answer in server.completed}
    assert place.shown()["levels"][0]["cancelled"] == 0


def test_stopped_twice_it_does_not_wait(place: Place) -> None:
    """Three of four streams never end; what the fourth finished is kept, what was cancelled is in no figure."""
    with scripted(three_of_four_without_end) as server:
        face = place.begin(server.url, *ENDLESS)
        until(lambda: len(server.completed) >= 8, "some answers")
        face.signal_group(signal.SIGINT)
        until(lambda: "stopping: " in face.said(), "the first Ctrl-C was heard")
        until(lambda: place.processes(WORKER), "it waits for what is in flight")
        face.signal_group(signal.SIGINT)
        ran = face.wait()
        stopped(place, ran, server)
        assert {answer.id for answer in server.completed} <= saved(place).keys()
    (level,) = place.shown()["levels"]
    assert level["cancelled"] in (3, 4) and level["errors"] == 0


def test_stopped_twice_it_does_not_wait_for_a_server_that_counts(place: Place) -> None:
    """A server without usage is asked to count its answers at the end, and this one never says a number."""
    counting = threading.Event()

    def answer(to: Answering, asked: Asked) -> None:
        if asked.path == "/tokenize":
            counting.set()
            to.rfile.read(1)
        words(6, gap_s=0.01, usage=False)(to, asked)

    with scripted(answer) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 7)
        face.signal_group(signal.SIGINT)
        assert counting.wait(TIMEOUT_S)
        assert face.process.poll() is None
        face.signal_group(signal.SIGINT)
        stopped(place, face.wait(), server)
        assert saved(place).keys() == {answer.id for answer in server.completed}


def test_stopped_before_the_first_answer_there_is_nothing_to_save(place: Place) -> None:
    with scripted(words(100, gap_s=60.0)) as server:
        face = place.begin(server.url, *ENDLESS)
        until(lambda: len(server.asked) == 4, "four requests")
        face.signal_group(signal.SIGINT)
        until(lambda: "stopping: " in face.said(), "the first Ctrl-C was heard")
        face.signal_group(signal.SIGINT)
        ran = face.wait()
    assert ran.code == 4 and "Traceback" not in ran.err
    nobody_left(place)


def test_stopped_while_the_endpoint_is_still_looked_at(place: Place) -> None:
    def silent(to: Answering) -> None:
        until(lambda: False, "nothing")

    with scripted(listing=silent) as server:
        face = place.begin(server.url, *ENDLESS)
        until(lambda: "starting" in face.said(), "it began")
        face.signal_group(signal.SIGINT)
        until(lambda: "stopping: " in face.said(), "the first Ctrl-C was heard")
        face.signal_group(signal.SIGINT)
        ran = face.wait()
    assert ran.code == 4, ran
    nobody_left(place)


def test_stopped_while_it_reads_its_own_words(place: Place) -> None:
    """Before there is anybody to stop: a workload that never comes keeps it in that moment."""
    os.mkfifo(place.home / "slow.toml")
    face = place.begin("127.0.0.1:9", "--workload", str(place.home / "slow.toml"))
    until(lambda: place.processes(CONDUCTOR), "the conductor was started ahead")
    face.signal_group(signal.SIGINT)
    ran = face.wait()
    assert (ran.code, ran.out) == (4, "") and "Traceback" not in ran.err
    nobody_left(place)


def test_a_hang_up_does_not_end_the_run(place: Place) -> None:
    """As when SSH drops: the terminal's process group gets SIGHUP."""
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *LOAD, "--requests", "60")
        after(server, 3)
        face.signal_group(signal.SIGHUP)
        assert face.wait().code == -signal.SIGHUP
        goes_on_to_the_end(place, server, 60)


def test_sigterm_to_the_conductor_stops_and_saves(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 4)
        with_signal(only(place, CONDUCTOR), signal.SIGTERM)
        stopped(place, face.wait(), server)


def kill(pid: int) -> int:
    """Returns when."""
    os.kill(pid, signal.SIGKILL)
    return time.perf_counter_ns()


def enough_lines(place: Place) -> bool:
    journals = list(place.sessions.glob("*/journal.jsonl"))
    return bool(journals) and journals[0].read_bytes().count(b"\n") > 20


def goes_on_to_the_end(place: Place, server: Scripted, requests: int) -> None:
    until(lambda: [row["state"] for row in place.listed()] == ["done"], "the session is done")
    nobody_left(place)
    assert saved(place).keys() == {answer.id for answer in server.completed}
    (level,) = place.shown()["levels"]
    assert (level["n"], level["ok"], level["complete"]) == (requests, requests, True)
    nothing_half_written(place.session)


def stopped(place: Place, ran: Ran, server: Scripted) -> None:
    interrupted(ran)
    (row,) = place.listed()
    assert row["state"] == "stopped"
    (level,) = place.shown()["levels"]
    assert level["ok"] == len(saved(place)) > 5
    nothing_half_written(place.session)
    nobody_left(place)
    assert not list((place.runtime / "swarmtui").glob("*.sock"))


def three_of_four_without_end(to: Answering, asked: Asked) -> None:
    endless: Callable[[Answering, Asked], None] = words(100_000, gap_s=0.02)
    (endless if len(to.server.asked) <= 3 else ANSWER)(to, asked)
