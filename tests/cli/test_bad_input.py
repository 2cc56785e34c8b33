"""Errors before and during a run: one clear line each, the right exit code, no traceback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.cli.programs import SIM, Program, Sandbox, wait_until
from tests.cli.scripted_server import (
    ReceivedRequest,
    ScriptedHandler,
    respond_with_status,
    respond_with_words,
    scripted_server,
)

ONE = ("--levels", "1", "--requests", "2")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def non_http_port(greeting: bytes) -> Iterator[int]:
    """A port whose server sends `greeting` instead of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(greeting)
                    connection.recv(1 << 16)

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def assert_no_session(sandbox: Sandbox) -> None:
    """A run that measured nothing leaves no session."""
    assert not sandbox.sessions.exists() or not list(sandbox.sessions.iterdir())


# the endpoint: exit code 3


def test_refused_connection(sandbox: Sandbox) -> None:
    port = free_port()
    ran = sandbox.run_benchmark(f"http://127.0.0.1:{port}", "--json")
    error = ran.error_line(3)
    assert f"http://127.0.0.1:{port}: cannot connect" in error and "refused" in error
    document = json.loads(ran.out)
    assert (document["state"], document["session"], document["levels"]) == ("unusable", None, [])
    assert document["message"] in error
    assert_no_session(sandbox)


def test_unknown_host(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark("http://no-such-host.invalid:8000").error_line(3)
    assert "http://no-such-host.invalid:8000: cannot connect" in error
    assert_no_session(sandbox)


def test_port_without_http(sandbox: Sandbox) -> None:
    with non_http_port(b"SSH-2.0-OpenSSH_9.6\r\n") as port:
        error = sandbox.run_benchmark(f"127.0.0.1:{port}").error_line(3)
    assert f"http://127.0.0.1:{port}/v1/models" in error and "does it speak HTTP?" in error
    assert_no_session(sandbox)


def test_server_that_closes_the_connection(sandbox: Sandbox) -> None:
    with non_http_port(b"") as port:
        error = sandbox.run_benchmark(f"127.0.0.1:{port}").error_line(3)
    assert f"http://127.0.0.1:{port}/v1/models" in error


def test_missing_api_key(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark(f"{SIM}&api_key=right").error_line(3)
    assert "HTTP 401" in error and "--api-key-env" in error
    assert_no_session(sandbox)


def test_api_key_refused_by_the_chat_endpoint_only(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_status(401, b'{"error":"Unauthorized"}')) as server:
        error = sandbox.run_benchmark(server.url, *ONE).error_line(3)
    assert "http_401: Unauthorized" in error


def test_ca_file_without_certificate(sandbox: Sandbox) -> None:
    sandbox.home.mkdir(parents=True, exist_ok=True)
    wrong = sandbox.home / "ca.pem"
    wrong.write_text("hello\n")
    error = sandbox.run_benchmark("https://127.0.0.1:9", "--ca-file", str(wrong)).error_line(2)
    assert "--ca-file" in error and str(wrong) in error and "no certificate" in error
    assert_no_session(sandbox)


def test_spaces_around_a_header_are_stripped(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_words()) as server:
        ran = sandbox.run_benchmark(server.url, *ONE, "--warmup", "none", "--header", "X-Team = blue sky ")
        assert ran.code == 0, ran
        assert {request.headers.get("x-team") for request in server.received if "chat" in request.path} == {"blue sky"}


def test_unknown_model_is_refused_where_the_server_lists_its_models(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark(SIM, "--model", "nope", *ONE).error_line(2)
    assert "--model" in error and "no model 'nope'" in error and "it lists " in error
    assert_no_session(sandbox)


@pytest.mark.parametrize(
    ("listed", "model", "code"),
    [
        (["tiny:latest"], "tiny", 0),
        (["claude-sonnet-4-20250514"], "claude-sonnet-4-latest", 0),
        (["openai/*"], "openai/large", 0),
        (["a", "b"], "c", 2),
    ],
)
def test_models_that_a_server_lists_by_another_name_are_used(
    sandbox: Sandbox, listed: list[str], model: str, code: int
) -> None:
    models = json.dumps({"object": "list", "data": [{"id": name} for name in listed]}).encode()
    with scripted_server(respond_with_words(), listing=lambda to: to.whole(200, models)) as server:
        ran = sandbox.run_benchmark(server.url, "--model", model, *ONE, "--warmup", "none")
    assert ran.code == code, ran
    assert code == 0 or ", ".join(listed) in ran.err


def test_models_beyond_the_first_page_are_used(sandbox: Sandbox) -> None:
    page = b'{"object":"list","data":[{"id":"a"}],"has_more":true}'
    with scripted_server(respond_with_words(), listing=lambda to: to.whole(200, page)) as server:
        assert sandbox.run_benchmark(server.url, "--model", "b", *ONE, "--warmup", "none").code == 0


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/", "/v1/models", "/api/generate", "/metrics"])
def test_path_that_is_no_api_names_the_right_url(sandbox: Sandbox, path: str) -> None:
    error = sandbox.run_benchmark(f"http://127.0.0.1:9{path}").error_line(2)
    assert "--endpoint" in error and path.rstrip("/") in error and "use http://127.0.0.1:9," in error
    assert_no_session(sandbox)


def test_html_instead_of_a_model_list(sandbox: Sandbox) -> None:
    def page(to: ScriptedHandler) -> None:
        to.whole(200, b"<html><body>Welcome to nginx!</body></html>", "text/html")

    with scripted_server(listing=page) as server:
        error = sandbox.run_benchmark(server.url).error_line(3)
    assert "text/html, not a model list" in error and "--model" in error
    assert_no_session(sandbox)


def test_wrong_path_is_doubted_where_no_model_list_is(sandbox: Sandbox) -> None:
    def missing(to: ScriptedHandler) -> None:
        to.whole(404, b"{}", "application/json")

    with scripted_server(listing=missing) as server:
        error = sandbox.run_benchmark(f"{server.url}/v1/chatt").error_line(3)
    assert "HTTP 404" in error and "is the path /v1/chatt right?" in error and "--model" in error


def test_html_instead_of_a_response(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_status(200, b"<html><body>Welcome</body></html>", "text/html")) as server:
        error = sandbox.run_benchmark(server.url, *ONE).error_line(3)
    assert "every request failed" in error and "<html>" in error


def test_empty_model_list(sandbox: Sandbox) -> None:
    with scripted_server(listing=lambda to: to.whole(200, b'{"object":"list","data":[]}')) as server:
        error = sandbox.run_benchmark(server.url).error_line(3)
    assert "lists no model" in error and "--model" in error


def test_invalid_simulator(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark("sim:moe-tp1?slots=0").error_line(2)
    assert "slots" in error
    assert "did you mean moe-tp1?" in sandbox.run_benchmark("sim:moe-tp11").error_line(2)


# servers that can be used nevertheless


def test_stream_options_are_dropped_if_the_server_refuses_them(sandbox: Sandbox) -> None:
    def strict(to: ScriptedHandler, request: ReceivedRequest) -> None:
        if "stream_options" in request.body:
            to.whole(400, b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}')
        else:
            respond_with_words(3, usage=False)(to, request)

    with scripted_server(strict) as server:
        ran = sandbox.run_benchmark(server.url, *ONE, "--json")
        assert ran.code == 0, ran
        assert ["stream_options" in request.body for request in server.received].count(True) == 1
    (level,) = json.loads(ran.out)["levels"]
    assert (level["ok"], level["errors"], level["token_source"], level["tokens_out"]) == (2, 0, "chunks", 6)


def test_server_death_in_mid_sweep_leaves_levels_with_errors(sandbox: Sandbox) -> None:
    """The server answers the requests of the first level, and none after that."""

    def dying(to: ScriptedHandler, request: ReceivedRequest) -> None:
        if len(to.server.received) <= 5:
            respond_with_words(3)(to, request)
        else:
            to.server.socket.close()
            to.close_connection = True

    with scripted_server(dying) as server:
        arguments = ("--levels", "1,2", "--requests", "3", "--warmup", "1", "--on-restart", "stop", "--json")
        ran = sandbox.run_benchmark(server.url, *arguments)
    assert ran.code == 3 and "the server went away at C=2" in ran.err, ran
    one, two = json.loads(ran.out)["levels"]
    assert one["ok"] == 3 and one["errors"] <= 1, "a filler may be the first to fail"
    assert two["ok"] == 0 and two["errors"] >= two["n"]
    # Which requests failed depends on when the death was noticed: measured ones, or those of the pre-roll.
    assert two["errors"] and "errors" in [flag["code"] for flag in two["flags"]]
    assert (two["out_tps_wall"], two["ttft_s"]["mean"]) == (None, None)
    assert set(two["error_counts"]) <= {"reset", "closed_early", "refused", "connect"}
    assert sandbox.list_sessions()[0]["state"] == "unusable"


# arguments and files: exit code 2


def test_without_endpoint_several_local_servers_are_listed(sandbox: Sandbox) -> None:
    servers = [sandbox.start("sim", "moe-tp1") for _ in range(2)]
    urls = [wait_until(partial(Program.stdout_so_far, server), "a simulator listens") for server in servers]
    error = sandbox.run("run").error_line(2)
    assert "--endpoint" in error and all(url in error for url in urls)


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ("0", "level 0 is not between 1 and"),
        ("a", "'a' is not a whole number"),
        ("1,1", "duplicate level 1"),
        ("", "''"),
    ],
)
def test_invalid_levels(sandbox: Sandbox, levels: str, problem: str) -> None:
    error = sandbox.run_benchmark(SIM, "--levels", levels).error_line(2)
    assert "levels" in error and problem in error


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--requests", "many"), "'many' is neither a number nor a multiple of C like 4C"),
        (("--duration", "soon"), "'soon' is not a time like"),
        (("--duration", "1s", "--requests", "4"), "not both"),
        (("--warmup", "some"), "'some' is neither a number nor none"),
        (("--tag", "alone"), "expected K=V"),
        (("--header", "no colon=x"), "not a header"),
        (("--metrics-url", "box:9000"), "'box:9000' is not of the form http://HOST:PORT/metrics"),
        (("--gpu-metrics-url", "ftp://box"), "expected http:// or https://"),
        (("--on-restart", "wiat"), "'wiat' is neither wait nor stop nor a time"),
        (("--endpoint", "sim:moe-tp1?sped=9"), "sped: unknown key, did you mean speed?"),
    ],
)
def test_invalid_option_values(sandbox: Sandbox, given: tuple[str, ...], problem: str) -> None:
    assert problem in sandbox.run_benchmark(SIM, *given).error_line(2)


def test_invalid_url(sandbox: Sandbox) -> None:
    assert "expected http:// or https://" in sandbox.run_benchmark("ftp://127.0.0.1/").error_line(2)
    secret = sandbox.run_benchmark("http://me:hunter2@127.0.0.1:8000")
    assert "a URL must not contain a password" in secret.error_line(2) and "hunter2" not in secret.err


def test_typo_in_a_workload_is_reported_with_its_line(sandbox: Sandbox) -> None:
    workload = sandbox.home / "mine.toml"
    workload.write_text('kind = "prompts"\nname = "mine"\nmax_token = 5\n[[prompts]]\ntext = "Say something."\n')
    error = sandbox.run_benchmark(SIM, "--workload", str(workload)).error_line(2)
    assert f"{workload}:3: max_token: unknown key, did you mean max_tokens?" in error


def test_workload_that_is_not_toml(sandbox: Sandbox) -> None:
    workload = sandbox.home / "mine.toml"
    workload.write_text('kind = "prompts"\nname = "mine\n')
    assert f"{workload}:2: not valid TOML" in sandbox.run_benchmark(SIM, "--workload", str(workload)).error_line(2)


def test_missing_workload(sandbox: Sandbox) -> None:
    assert "no such file" in sandbox.run_benchmark(SIM, "--workload", "nowhere.toml").error_line(2)
    assert "did you mean coding?" in sandbox.run_benchmark(SIM, "--workload", "codding").error_line(2)


def test_empty_api_key_variable(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark(SIM, "--api-key-env", "KEY", env={"KEY": ""}).error_line(2)
    assert "--api-key-env: the variable KEY is not set, or empty" in error
    assert "not set, or empty" in sandbox.run_benchmark(SIM, "--api-key-env", "KEY_2").error_line(2)


def test_unknown_option_suggests_a_similar_one(sandbox: Sandbox) -> None:
    ran = sandbox.run("run", "--level", "1")
    assert ran.error_line(2) == "swarmtui: --level: no such option; did you mean levels?"


# local disk: exit code 2


def test_session_directory_below_a_file(sandbox: Sandbox) -> None:
    """Not even root can write there."""
    (sandbox.home / "file").write_text("")
    error = sandbox.run("run", "--endpoint", SIM, "--session-dir", str(sandbox.home / "file" / "sessions")).error_line(
        2
    )
    assert str(sandbox.home / "file" / "sessions") in error and "Not a directory" in error


def test_session_directory_without_write_permission(sandbox: Sandbox) -> None:
    error = sandbox.run("run", "--endpoint", SIM, "--session-dir", "/proc/sessions").error_line(2)
    assert "/proc/sessions" in error


def test_runtime_directory_below_a_file(sandbox: Sandbox) -> None:
    (sandbox.home / "file").write_text("")
    error = sandbox.run_benchmark(SIM, *ONE, env={"XDG_RUNTIME_DIR": str(sandbox.home / "file")}).error_line(2)
    assert "cannot create the socket" in error
    assert_no_session(sandbox)


def test_runtime_directory_with_too_long_a_name(sandbox: Sandbox) -> None:
    error = sandbox.run_benchmark(SIM, *ONE, env={"XDG_RUNTIME_DIR": str(sandbox.home / ("long" * 30))}).error_line(2)
    assert "cannot create the socket" in error
    assert_no_session(sandbox)


# Limits the size of files written by this process and its children; Python ignores SIGXFSZ. It would also write
# truncated bytecode, which breaks later tests.
_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.execvp(sys.argv[2], sys.argv[2:])
"""


def limited(size: int) -> list[str]:
    return [sys.executable, "-c", _LIMIT, str(size)]


def test_disk_full_at_start(sandbox: Sandbox) -> None:
    arguments = ("run", "--endpoint", SIM, "--session-dir", str(sandbox.sessions), *ONE)
    error = sandbox.run(*arguments, before=limited(0)).error_line(2)
    assert str(sandbox.sessions) in error and "File too large" in error
    assert "--session-dir DIR" in error and "save-to" not in error, "the session has ended and cannot be moved"
    assert_no_session(sandbox)


def test_disk_full_during_the_run_loses_no_results(sandbox: Sandbox) -> None:
    """The header and some requests are stored; what was measured after that is still printed."""
    with scripted_server(respond_with_words(200, gap_s=0.0003)) as server:  # slow enough for several frames
        ran = sandbox.run(
            "run", "--endpoint", server.url, "--session-dir", str(sandbox.sessions), "--levels", "1",
            "--requests", "30", before=limited(12_000),
        )  # fmt: skip
    error = ran.error_line(4)
    assert str(sandbox.session) in error and "not on disk" in error
    assert "--session-dir DIR" in error and "save-to" not in error
    assert "warning: " in ran.err
    assert ran.out.startswith("|") and "30" in ran.out
    assert not [path for path in sandbox.session.iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare(1) to mount a small tmpfs")
def test_small_tmpfs_full(sandbox: Sandbox) -> None:
    disk = sandbox.home / "disk"
    disk.mkdir()
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=16k tmpfs {disk}"
    if subprocess.run([*small, mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted")
    with scripted_server(respond_with_words(200, gap_s=0.0003)) as server:  # slow enough for several frames
        ran = sandbox.run(
            "run", "--endpoint", server.url, "--session-dir", str(disk), "--levels", "1", "--requests", "30",
            before=[*small, f'{mount} && exec "$@"', "sh"],
        )  # fmt: skip
    assert ran.code == 0 and ran.out.startswith("|"), ran
    assert "warning: " in ran.err and "not on disk" in ran.err
    assert f"{disk}" in ran.err and "No space left on device; all entries were saved elsewhere" in ran.err
    (row,) = sandbox.json("sessions", "--json")
    assert (row["state"], row["requests"]) == ("done", 30)


def test_port_alone_names_the_address_to_write(sandbox: Sandbox) -> None:
    assert "write a port of this host as http://127.0.0.1:8090" in sandbox.run_benchmark("8090").error_line(2)
