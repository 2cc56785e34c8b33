"""A server that goes away during a run: the run waits for it, or stops."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from swarmtui.client.session_client import attach
from swarmtui.model.client_protocol import Frame, Subscribe
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import TIMEOUT_S, Sandbox, wait_until
from tests.cli.scripted_server import Responder, ScriptedServer, model_list, respond_with_words
from tests.faults.kill_checks import HoldingResponder

ANSWER = respond_with_words(6, gap_s=0.01)


class RestartableServer(ScriptedServer):
    """Can drop all its connections, and be started again at the same address."""

    allow_reuse_address = True

    def __init__(self, port: int, responder: Responder) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(responder, model_list, port)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        super().process_request(request, client_address)

    def drop_connections(self) -> None:
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@contextmanager
def running_server(port: int = 0, responder: Responder = ANSWER) -> Iterator[RestartableServer]:
    with RestartableServer(port, responder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.socket.close()
            server.drop_connections()


LOAD = ("--warmup", "1", "--seed", "1", "--no-gpu", "--json")


def events(sandbox: Sandbox) -> list[str]:
    return [event.name for event in read_journal(sandbox.session).events if event.name.startswith("server_")]


def countdown(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return two successive countdown values that a client sees."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sandbox.runtime))
    values: list[int] = []
    client = attach(sandbox.session.name, Subscribe(hz=20.0))
    while len(values) < 2:
        match client.receive(TIMEOUT_S):
            case Frame(note=note) if found := re.search(r"waiting for it, (\d+) s left", note):
                if int(found[1]) not in values:
                    values.append(int(found[1]))
            case None:
                raise AssertionError("no frame was received")
    client.close()
    return values[0], values[1]


def test_run_waits_for_the_server_and_repeats_the_level(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(responder=HoldingResponder(12)) as server:
        port = server.server_address[1]
        limit = ("--fail-if", "errors>0")
        command = sandbox.start_benchmark(
            server.url, "--levels", "4,8", "--requests", "24", "--complete", *limit, *LOAD
        )
        wait_until(lambda: len(server.completed) >= 12, "some responses")
    wait_until(lambda: "waiting for it" in command.stderr_so_far(), "the run waits")
    first, second = countdown(sandbox, monkeypatch)
    assert first > second
    with running_server(port):
        ran = command.wait()
    assert ran.code == 1, ran
    assert events(sandbox) == ["server_gone", "server_back"]
    first, second = sandbox.show_session()["levels"]
    for found in (first, second):
        assert (found["n"], found["ok"], found["complete"]) == (24, 24, True)
    assert first["errors"] >= 4 and second["errors"] == 0, "the errors of the first attempt count"
    assert [any(flag["code"] == "server_gone" for flag in found["flags"]) for found in (first, second)] == [True, False]
    # Answers of the first attempt are kept, but are in no figure.
    assert len(read_journal(sandbox.session).records) > 49


def test_run_ends_and_saves_if_the_server_does_not_come_back(sandbox: Sandbox) -> None:
    with running_server(responder=HoldingResponder(34)) as server:
        command = sandbox.start_benchmark(
            server.url, "--levels", "2,4", "--requests", "24", "--complete", "--on-restart", "1s", *LOAD
        )
        wait_until(lambda: len(server.completed) >= 34, "the second level")
    ran = command.wait()
    assert ran.code == 3, ran
    assert "the server went away at C=4 (refused), and was not back within 1 s" in ran.err
    assert events(sandbox) == ["server_gone"]
    first = sandbox.show_session()["levels"][0]
    assert (first["c"], first["ok"], first["complete"]) == (2, 24, True)


def test_on_restart_stop_ends_the_run(sandbox: Sandbox) -> None:
    with running_server() as server:
        command = sandbox.start_benchmark(
            server.url, "--levels", "2", "--requests", "1000", "--on-restart", "stop", *LOAD
        )
        wait_until(lambda: len(server.completed) >= 10, "some responses")
    ran = command.wait()
    assert ran.code == 3, ran
    assert "the server went away at C=2 (refused)" in ran.err and "waiting for it" not in ran.err
    assert list_sessions(sandbox.sessions)[0].state == "unusable"


def simulator(port: int, slots: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=5", f"--port={port}", f"--slots={slots}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


@pytest.mark.parametrize(("slots", "code"), [(2, 0), (4, 4)])
def test_server_that_comes_back_with_other_flags_ends_the_run(sandbox: Sandbox, slots: int, code: int) -> None:
    """With the same flags the run continues."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = simulator(port, 2)
    load = ("--levels", "1,2", "--requests", "60C", "--max-tokens", "16", *LOAD)
    command = sandbox.start_benchmark(f"http://127.0.0.1:{port}", *load)
    wait_until(lambda: "C=2" in command.stderr_so_far(), "the second level")
    first.kill()
    first.wait()
    wait_until(lambda: "waiting for it" in command.stderr_so_far(), "the countdown is shown")
    second = simulator(port, slots)
    ran = command.wait()
    second.kill()
    second.wait()
    assert ran.code == code, ran
    names = [name for name in events(sandbox) if name != "server_restarted"]  # detected by its counters, at any time
    assert names == ["server_gone", "server_changed" if code else "server_back"]
    assert ("the server came back with other flags: --slots 2 → 4" in ran.err) == bool(code)
    summary = sandbox.show_session()
    assert summary["levels"][0]["complete"] and summary["servers"][0]["flags"]["slots"] == "2"
