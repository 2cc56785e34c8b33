"""`swarmtui ab` on simulators: a true difference is found with eight runs, and one server against itself is not."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Place, place_in, until

SHORT = ("--max-tokens", "32", "--level", "2", "--requests", "4", "--warmup", "1", "--seed", "3", "--quiet")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_in(tmp_path) as found:
        yield found


def sim(speed: float) -> str:
    return f"{sys.executable} -m swarmtui.sim moe-tp1 --speed={speed} --port={{port}}"


def contest(place: Place, *words: str) -> tuple[str, ...]:
    return ("ab", *words, "--session-dir", str(place.sessions), *SHORT)


def test_a_server_that_is_a_quarter_faster_is_found_with_eight_runs(place: Place) -> None:
    ran = place.run(*contest(place, "--a", sim(4), "--b", sim(5), "--yes", "--json"))
    assert ran.code == 0, ran
    found = json.loads(ran.out)
    assert found["decision"]["word"] == "faster"
    assert found["decision"]["n"] == 4
    order = "".join(run["side"] for run in found["runs"])
    assert [order[k : k + 4] in ("ABBA", "BAAB") for k in (0, 4)] == [True, True]
    assert len({run["session"] for run in found["runs"]}) == 8
    (change,) = place.json("sessions", "log", "--json", "--session-dir", str(place.sessions))
    assert (change["what"], change["verdict"]) == ("--speed 4 → 5", "faster")
    assert place.processes("swarmtui.sim") == []


def test_a_command_that_fails_ends_it_with_its_last_lines(place: Place) -> None:
    bad = f"{sys.executable} -m swarmtui.sim nonsense --port={{port}}"
    ran = place.run(*contest(place, "--a", bad, "--b", bad, "--yes"))
    assert ran.code == 3, ran
    assert "ended with exit code 2" in ran.err
    assert "no such preset" in ran.err


def test_ctrl_c_leaves_no_server(place: Place) -> None:
    program = place.start(*contest(place, "--a", sim(0.1), "--b", sim(0.1), "--yes"))
    until(lambda: list(place.sessions.glob(".tuning/*/1-*.log")), "a server is started")
    program.signal_group(signal.SIGINT)
    assert program.wait().code == 4
    assert place.processes("swarmtui.sim") == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--a", "sim:moe-tp1"), "give --b, or --aa"),
        (("--a", "serve it", "--b", "sim:moe-tp1"), "put {port} where"),
        (("--a", "sim:moe-tp1", "--b", "sim:nope"), "no such preset"),
        (("--a", "sim:moe-tp1", "--aa", "--detect", "much"), "is not a share"),
        (("--a", "serve {port}", "--aa"), "say --yes"),
    ],
)
def test_what_is_wrong_is_one_line(place: Place, words: tuple[str, ...], told: str) -> None:
    assert told in place.run(*contest(place, *words)).refused(2)
