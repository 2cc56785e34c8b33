"""A server that goes away in the middle of a sweep: noticed, waited for, and told; or the end, for who wants that."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from swarmtui.client.client import attach
from swarmtui.model.client_protocol import Frame, Subscribe
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import TIMEOUT_S, Place, until
from tests.cli.scripted import Scripted, model_list, words

ANSWER = words(6, gap_s=0.01)


class Restartable(Scripted):
    """Goes away with all its connections, and comes back at the same address."""

    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[socket.socket] = set()
        super().__init__(ANSWER, model_list, port)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        super().process_request(request, client_address)

    def cut_off(self) -> None:
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@contextmanager
def up(port: int = 0) -> Iterator[Restartable]:
    with Restartable(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.socket.close()
            server.cut_off()


LOAD = ("--warmup", "1", "--seed", "1", "--no-gpu", "--json")


def events(place: Place) -> list[str]:
    return [event.name for event in read_journal(place.session).events if event.name.startswith("server_")]


def counted_down(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Two numbers that a face sees one after the other."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    seen: list[int] = []
    face = attach(place.session.name, Subscribe(hz=20.0))
    while len(seen) < 2:
        match face.next(TIMEOUT_S):
            case Frame(note=note) if found := re.search(r"waiting for it, (\d+) s left", note):
                if int(found[1]) not in seen:
                    seen.append(int(found[1]))
            case None:
                raise AssertionError("no frame came")
    face.close()
    return seen[0], seen[1]


@pytest.mark.parametrize("level", [1, 4])
def test_it_is_waited_for_and_the_level_is_begun_again(
    place: Place, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with up() as server:
        port = server.server_address[1]
        face = place.begin(server.url, "--levels", f"{level},8", "--requests", "24", *LOAD)
        until(lambda: len(server.completed) >= 12, "some answers")
    until(lambda: "waiting for it" in face.said(), "it says that it waits")
    first, second = counted_down(place, monkeypatch)
    assert first > second
    with up(port):
        ran = face.wait()
    assert ran.code == 0, ran
    assert events(place) == ["server_gone", "server_back"]
    first, second = place.shown()["levels"]
    for found in (first, second):
        assert (found["n"], found["ok"], found["errors"], found["complete"]) == (24, 24, 0, True)
    assert [any("went away" in flag for flag in found["flags"]) for found in (first, second)] == [True, False]
    # What the first attempt had finished, well and not, is not lost: it is only in no figure.
    assert len(read_journal(place.session).records) > 49


def test_one_that_does_not_come_back_ends_the_run_and_what_was_measured_is_saved(place: Place) -> None:
    with up() as server:
        face = place.begin(server.url, "--levels", "2,4", "--requests", "24", "--on-restart", "1s", *LOAD)
        until(lambda: len(server.completed) >= 30, "the second level")
    ran = face.wait()
    assert ran.code == 3, ran
    assert "the server went away at C=4 (refused), and was not back within 1 s" in ran.err
    assert events(place) == ["server_gone"]
    first = place.shown()["levels"][0]
    assert (first["c"], first["ok"], first["complete"]) == (2, 24, True)


def test_who_wants_it_stops_at_once(place: Place) -> None:
    with up() as server:
        face = place.begin(server.url, "--levels", "2", "--requests", "1000", "--on-restart", "stop", *LOAD)
        until(lambda: len(server.completed) >= 10, "some answers")
    ran = face.wait()
    assert ran.code == 3, ran
    assert "the server went away at C=2 (refused)" in ran.err and "waiting for it" not in ran.err
    assert place.listed()[0]["state"] == "unusable"


def test_a_wish_that_nobody_understands_is_refused(place: Place) -> None:
    assert "--on-restart" in place.measure("127.0.0.1:9", "--on-restart", "perhaps").refused(2)


def simulated(port: int, seats: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", f"--port={port}", f"--seats={seats}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


@pytest.mark.parametrize(("seats", "code"), [(2, 0), (4, 4)])
def test_one_that_comes_back_with_other_flags_is_another_server(place: Place, seats: int, code: int) -> None:
    """Its figures would not belong to this session; with the same flags it is the same server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = simulated(port, 2)
    load = ("--levels", "1,2", "--requests", "40", "--max-tokens", "16", *LOAD)
    face = place.begin(f"http://127.0.0.1:{port}", *load)
    until(lambda: "C=2" in face.said(), "the second level")
    first.kill()
    first.wait()
    until(lambda: "waiting for it" in face.said(), "the countdown is shown")
    second = simulated(port, seats)
    ran = face.wait()
    second.kill()
    second.wait()
    assert ran.code == code, ran
    told = [name for name in events(place) if name != "server_restarted"]  # its counters say so, sooner or later
    assert told == ["server_gone", "server_changed" if code else "server_back"]
    assert ("the server came back with other flags: --seats 2 → 4" in ran.err) == bool(code)
    summary = place.shown()
    assert summary["levels"][0]["complete"] and summary["servers"][0]["flags"]["seats"] == "2"
