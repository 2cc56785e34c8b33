"""Ctrl-C again: whoever does not want to wait leaves at once, nothing finished is lost, and nobody stays behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.programs import Place, Program, Ran, until
from tests.cli.scripted import scripted
from tests.faults.test_kill import (
    ANSWER,
    CONDUCTOR,
    ENDLESS,
    WORKER,
    after,
    cut_off,
    interrupted,
    kill,
    more_after,
    nobody_left,
    nothing_half_written,
    only,
    saved,
    stopped,
    three_of_four_without_end,
)

FIGURES_LATER = "its figures: swarmtui sessions show"


@contextmanager
def summary_without_end(place: Place) -> Iterator[None]:
    """A session that takes for ever to be summed up: what a worker seems to have left there is never said."""
    pipe = place.session / "spool-9.jsonl"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        pipe.unlink()


def again_until_it_ends(face: Program, number: int = signal.SIGINT) -> Ran:
    while face.process.poll() is None:
        face.signal_group(number)
        time.sleep(0.01)
    return face.wait()


def without_figures(place: Place, ran: Ran, state: str) -> None:
    """Stopped before they were made, with all that they are made of; and so they can be made later."""
    interrupted(ran)
    assert FIGURES_LATER in ran.err
    nobody_left(place)
    nothing_half_written(place.session)
    assert not (place.session / "detail.json").exists()
    (row,) = place.listed()
    assert (row["state"], row["requests"], row["levels"]) == (state, len(saved(place)), [])
    summary = place.shown()
    assert summary["state"] == state
    assert summary["levels"][0]["ok"] == len(saved(place)) > 5
    (row,) = place.listed()
    assert row["levels"] == [4]
    nothing_half_written(place.session)


def test_stopped_twice_it_leaves_without_the_summary_of_a_long_session(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 1)
        with summary_without_end(place):
            face.signal_group(signal.SIGINT)
            until(lambda: not place.processes(WORKER), "it saves")
            assert face.process.poll() is None
            face.signal_group(signal.SIGINT)
            ran = face.wait()
        without_figures(place, ran, "stopped")
        assert saved(place).keys() == {answer.id for answer in server.completed}


def test_stopped_twice_while_streams_are_waited_for_it_leaves_without_the_summary(place: Place) -> None:
    with scripted(three_of_four_without_end) as server:
        face = place.begin(server.url, *ENDLESS)
        until(lambda: len(server.completed) >= 8, "some answers")
        with summary_without_end(place):
            face.signal_group(signal.SIGINT)
            until(lambda: "stopping: " in face.said(), "the first Ctrl-C was heard")
            face.signal_group(signal.SIGINT)
            ran = face.wait()
        without_figures(place, ran, "stopped")
        assert {answer.id for answer in server.completed} <= saved(place).keys()


def test_stopped_twice_a_conductor_that_hangs_is_ended(place: Place) -> None:
    """What finished while it hung is known to the worker alone, which leaves it beside the journal."""
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 2)
        os.kill(only(place, CONDUCTOR), signal.SIGSTOP)
        more_after(server, 4)
        hit_ns = time.perf_counter_ns()
        face.signal_group(signal.SIGINT)
        until(lambda: "stopping: " in face.said(), "the first Ctrl-C was heard")
        face.signal_group(signal.SIGINT)
        ran = face.wait()
        nobody_left(place)
    assert ran.code == 4 and "Traceback" not in ran.err and FIGURES_LATER in ran.err
    assert (place.session / "spool-0.jsonl").exists()
    cut_off(place, server, hit_ns)


def test_stopped_twice_nobody_waits_for_the_summary_of_a_killed_conductor(place: Place) -> None:
    with scripted(ANSWER) as server:
        face = place.begin(server.url, *ENDLESS)
        after(server, 3)
        with summary_without_end(place):
            killed_ns = kill(only(place, CONDUCTOR))
            until(lambda: not place.processes(WORKER), "the worker has left what it held")
            ran = again_until_it_ends(face)
    assert ran.code == 4 and "Traceback" not in ran.err and FIGURES_LATER in ran.err
    nobody_left(place)
    cut_off(place, server, killed_ns)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_again_and_again_it_ends_as_if_stopped_twice(place: Place, number: signal.Signals) -> None:
    with scripted(three_of_four_without_end) as server:
        face = place.begin(server.url, *ENDLESS)
        until(lambda: len(server.completed) >= 8, "some answers")
        stopped(place, again_until_it_ends(face, number), server)
        assert {answer.id for answer in server.completed} <= saved(place).keys()


def test_a_probe_by_the_clock_is_left_in_its_pause(place: Place) -> None:
    with scripted(ANSWER) as server:
        words = ("probe", "--endpoint", server.url, "--every", "1h", "--session-dir", str(place.sessions), "--quiet")
        face = place.start(*words)
        until(lambda: "tok/s" in face.printed(), "the first probe is done")
        ran = again_until_it_ends(face)
    assert ran.code == 4 and "Traceback" not in ran.err
    nobody_left(place)


# A server as it should not be: it hears no SIGTERM, and says nothing either.
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def test_a_contest_stopped_twice_does_not_wait_for_a_server_that_will_not_end(place: Place) -> None:
    """Which is ended all the same."""
    script = place.home / "deaf_server.py"
    script.write_text(DEAF)
    command = f"{sys.executable} {script} {{port}}"
    face = place.start("ab", "--a", command, "--b", command, "--yes", "--session-dir", str(place.sessions), "--quiet")
    until(lambda: any("deaf" in log.read_text() for log in logs(place)), "a server is started")
    face.signal_group(signal.SIGINT)
    # It has twenty seconds to end in good order, and would take them.
    until(lambda: place.processes("guardian"), "its guardian is there")
    ran = again_until_it_ends(face)
    assert ran.code == 4 and "Traceback" not in ran.err
    nobody_left(place)
    until(lambda: not place.processes("deaf_server"), "the server is gone", 5.0)


def logs(place: Place) -> list[Path]:
    return list(place.sessions.glob(".tuning/*/1-*.log"))
