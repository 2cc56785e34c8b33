"""API keys and header values are sent to the server, and appear nowhere else."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.programs import Sandbox, wait_until
from tests.cli.scripted_server import (
    ReceivedRequest,
    ScriptedHandler,
    respond_with_status,
    respond_with_words,
    scripted_server,
)

KEY = "canary-key-5d1f"
VALUE = "canary-value-77aa"
GIVEN = ("--api-key-env", "MY_KEY", "--header", f"X-Team={VALUE}", "--levels", "2", "--requests", "4")


def contains_secret(path: Path) -> bool:
    text = path.read_bytes()
    return KEY.encode() in text or VALUE.encode() in text


def leaks(sandbox: Sandbox) -> list[Path]:
    """Every file with a secret among sessions, sockets and temporary files."""
    found = [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in found)
    return [path for path in found if contains_secret(path)]


def test_secrets_are_sent_but_not_saved(sandbox: Sandbox) -> None:
    with scripted_server() as server:
        ran = sandbox.run_benchmark(server.url, *GIVEN, env={"MY_KEY": KEY})
    assert ran.code == 0, ran
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {KEY}"}
    assert {request.headers["x-team"] for request in server.received} == {VALUE}
    assert KEY not in ran.out + ran.err and VALUE not in ran.out + ran.err
    assert leaks(sandbox) == []
    assert sandbox.show_session()["session"]["endpoints"][0]["header_names"] == ["X-Team"]


def test_key_in_an_error_response_is_not_printed(sandbox: Sandbox) -> None:
    def echo_key(to: ScriptedHandler, request: ReceivedRequest) -> None:
        respond_with_status(401, f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode())(to, request)

    with scripted_server(echo_key) as server:
        ran = sandbox.run_benchmark(server.url, *GIVEN, env={"MY_KEY": KEY})
    assert ran.code == 3, ran
    assert KEY not in ran.out + ran.err
    assert leaks(sandbox) == []


def test_secrets_are_not_in_command_lines_or_environments(sandbox: Sandbox) -> None:
    """Command lines can be read by all users, environments by all processes of the same user."""
    with scripted_server(respond_with_words(100, gap_s=0.05)) as server:
        program = sandbox.start_benchmark(server.url, *GIVEN, env={"MY_KEY": KEY})
        wait_until(lambda: len(server.received) >= 2, "requests in flight")
        ours = [process for process in sandbox.processes() if process.pid != program.pid]
        assert len(ours) == 2
        for process in ours:
            proc = Path("/proc") / str(process.pid)
            assert not contains_secret(proc / "cmdline") and not contains_secret(proc / "environ")
        assert KEY.encode() not in (Path("/proc") / str(program.pid) / "cmdline").read_bytes()
        program.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping" in program.stderr_so_far(), "the first Ctrl-C is handled")
        program.signal_group(signal.SIGINT)
        program.wait()
