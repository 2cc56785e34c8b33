"""What can be wrong before and while a run: one clear line each, the right exit code, no traceback."""

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

from tests.cli.programs import SIM, Place, Program, until
from tests.cli.scripted import Answering, Asked, refusing, scripted, words

ONE = ("--levels", "1", "--requests", "2")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def speaking(greeting: bytes) -> Iterator[int]:
    """A port that speaks, but not HTTP."""
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


def nothing_left(place: Place) -> None:
    """A run that measured nothing leaves no session behind."""
    assert not place.sessions.exists() or not list(place.sessions.iterdir())


# the endpoint: exit code 3


def test_a_port_that_refuses(place: Place) -> None:
    port = free_port()
    told = place.measure(f"http://127.0.0.1:{port}").refused(3)
    assert f"http://127.0.0.1:{port}: cannot connect" in told and "refused" in told
    nothing_left(place)


def test_a_host_that_does_not_exist(place: Place) -> None:
    told = place.measure("http://no-such-host.invalid:8000").refused(3)
    assert "http://no-such-host.invalid:8000: cannot connect" in told
    nothing_left(place)


def test_a_port_that_speaks_no_http(place: Place) -> None:
    with speaking(b"SSH-2.0-OpenSSH_9.6\r\n") as port:
        told = place.measure(f"127.0.0.1:{port}").refused(3)
    assert f"http://127.0.0.1:{port}/v1/models" in told and "does it speak HTTP?" in told
    nothing_left(place)


def test_a_server_that_hangs_up(place: Place) -> None:
    with speaking(b"") as port:
        told = place.measure(f"127.0.0.1:{port}").refused(3)
    assert f"http://127.0.0.1:{port}/v1/models" in told


def test_a_key_that_is_missing(place: Place) -> None:
    told = place.measure(f"{SIM}&api_key=right").refused(3)
    assert "HTTP 401" in told and "--api-key-env" in told
    nothing_left(place)


def test_a_key_that_is_refused_by_the_chat_alone(place: Place) -> None:
    with scripted(refusing(401, b'{"error":"Unauthorized"}')) as server:
        told = place.measure(server.url, *ONE).refused(3)
    assert "http_401: Unauthorized" in told


def test_a_ca_file_that_holds_no_certificate(place: Place) -> None:
    place.home.mkdir(parents=True, exist_ok=True)
    wrong = place.home / "ca.pem"
    wrong.write_text("hello\n")
    told = place.measure("https://127.0.0.1:9", "--ca-file", str(wrong)).refused(2)
    assert "--ca-file" in told and str(wrong) in told and "no certificate" in told
    nothing_left(place)


def test_blanks_around_a_header_are_no_part_of_it(place: Place) -> None:
    with scripted(words()) as server:
        ran = place.measure(server.url, *ONE, "--warmup", "none", "--header", "X-Team = blue sky ")
        assert ran.code == 0, ran
        assert {asked.headers.get("x-team") for asked in server.asked if "chat" in asked.path} == {"blue sky"}


def test_a_model_that_is_not_there(place: Place) -> None:
    told = place.measure(SIM, "--model", "nope", *ONE).refused(3)
    assert "http_404" in told and "The model `nope` does not exist" in told


def test_a_model_that_is_not_there_without_warm_up(place: Place) -> None:
    told = place.measure(SIM, "--model", "nope", *ONE, "--warmup", "none").refused(3)
    assert "http_404" in told


def test_html_instead_of_a_model_list(place: Place) -> None:
    def page(to: Answering) -> None:
        to.whole(200, b"<html><body>Welcome to nginx!</body></html>", "text/html")

    with scripted(listing=page) as server:
        told = place.measure(server.url).refused(3)
    assert "text/html, not a model list" in told and "--model" in told
    nothing_left(place)


def test_html_instead_of_an_answer(place: Place) -> None:
    with scripted(refusing(200, b"<html><body>Welcome</body></html>", "text/html")) as server:
        told = place.measure(server.url, *ONE).refused(3)
    assert "every request failed" in told and "<html>" in told


def test_no_model_listed(place: Place) -> None:
    with scripted(listing=lambda to: to.whole(200, b'{"object":"list","data":[]}')) as server:
        told = place.measure(server.url).refused(3)
    assert "lists no model" in told and "--model" in told


def test_a_simulator_that_cannot_be(place: Place) -> None:
    told = place.measure("sim:moe-tp1?seats=0").refused(2)
    assert "seats" in told
    assert "did you mean moe-tp1?" in place.measure("sim:moe-tp11").refused(2)


# servers that can be used all the same


def test_a_server_that_refuses_stream_options_is_asked_without(place: Place) -> None:
    def strict(to: Answering, asked: Asked) -> None:
        if "stream_options" in asked.body:
            to.whole(400, b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}')
        else:
            words(3, usage=False)(to, asked)

    with scripted(strict) as server:
        ran = place.measure(server.url, *ONE, "--json")
        assert ran.code == 0, ran
        assert ["stream_options" in asked.body for asked in server.asked].count(True) == 1
    (level,) = json.loads(ran.out)["levels"]
    assert (level["ok"], level["errors"], level["token_source"], level["tokens_out"]) == (2, 0, "chunks", 6)


def test_a_server_that_dies_in_mid_sweep_leaves_rows_with_errors(place: Place) -> None:
    """It answers the first level, and then neither this request nor any other."""

    def dying(to: Answering, asked: Asked) -> None:
        if len(to.server.asked) <= 4:
            words(3)(to, asked)
        else:
            to.server.socket.close()
            to.close_connection = True

    with scripted(dying) as server:
        words_given = ("--levels", "1,2", "--requests", "3", "--warmup", "1", "--on-restart", "stop", "--json")
        ran = place.measure(server.url, *words_given)
    assert ran.code == 3 and "the server went away at C=2" in ran.err, ran
    one, two = json.loads(ran.out)["levels"]
    assert (one["ok"], one["errors"]) == (3, 0)
    assert two["ok"] == 0 and two["errors"] == two["n"] in (2, 3)
    assert (two["out_tps_wall"], two["ttft_s"]["mean"]) == (None, None)
    assert set(two["error_counts"]) <= {"reset", "closed_early", "refused", "connect"}
    assert place.listed()[0]["state"] == "unusable"


# words and files: exit code 2


def test_without_an_endpoint_several_servers_on_this_host_are_named_and_none_is_loaded(place: Place) -> None:
    servers = [place.start("sim", "moe-tp1") for _ in range(2)]
    urls = [until(partial(Program.printed, server), "a simulator listens") for server in servers]
    told = place.run("run").refused(2)
    assert "--endpoint" in told and all(url in told for url in urls)


@pytest.mark.parametrize(
    ("levels", "problem"),
    [("0", "level 0 is outside 1 to"), ("a", "'a' is not a whole number"), ("1,1", "level 1 stands twice"), ("", "''")],
)
def test_levels_that_are_none(place: Place, levels: str, problem: str) -> None:
    told = place.measure(SIM, "--levels", levels).refused(2)
    assert "levels" in told and problem in told


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
        (("--gpu-metrics-url", "ftp://box"), "is not http:// or https://"),
        (("--on-restart", "wiat"), "'wiat' is neither wait nor stop nor a time"),
        (("--endpoint", "sim:moe-tp1?sped=9"), "sped: unknown key, did you mean speed?"),
    ],
)
def test_options_that_mean_nothing(place: Place, given: tuple[str, ...], problem: str) -> None:
    assert problem in place.measure(SIM, *given).refused(2)


def test_a_url_that_is_none(place: Place) -> None:
    assert "is not http:// or https://" in place.measure("ftp://127.0.0.1/").refused(2)
    secret = place.measure("http://me:hunter2@127.0.0.1:8000")
    assert "a password does not belong in a URL" in secret.refused(2) and "hunter2" not in secret.err


def test_a_workload_with_a_typo_is_named_with_its_line(place: Place) -> None:
    workload = place.home / "mine.toml"
    workload.write_text('kind = "prompts"\nname = "mine"\nmax_token = 5\n[[prompts]]\ntext = "Say something."\n')
    told = place.measure(SIM, "--workload", str(workload)).refused(2)
    assert f"{workload}:3: max_token: unknown key, did you mean max_tokens?" in told


def test_a_workload_that_is_no_toml(place: Place) -> None:
    workload = place.home / "mine.toml"
    workload.write_text('kind = "prompts"\nname = "mine\n')
    assert f"{workload}:2: not valid TOML" in place.measure(SIM, "--workload", str(workload)).refused(2)


def test_a_workload_that_is_missing(place: Place) -> None:
    assert "no such file" in place.measure(SIM, "--workload", "nowhere.toml").refused(2)
    assert "did you mean coding?" in place.measure(SIM, "--workload", "codding").refused(2)


def test_a_key_variable_that_is_empty(place: Place) -> None:
    told = place.measure(SIM, "--api-key-env", "KEY", env={"KEY": ""}).refused(2)
    assert "--api-key-env KEY" in told and "not set, or empty" in told
    assert "not set, or empty" in place.measure(SIM, "--api-key-env", "KEY_2").refused(2)


def test_an_unknown_option_is_said_with_its_help(place: Place) -> None:
    ran = place.run("run", "--level", "1")
    assert ran.code == 2 and "--levels" in ran.err and "Traceback" not in ran.err


# our own disk: exit code 2


def test_a_session_directory_that_cannot_be(place: Place) -> None:
    """Below a regular file: not even root can write there."""
    (place.home / "file").write_text("")
    told = place.run("run", "--endpoint", SIM, "--session-dir", str(place.home / "file" / "sessions")).refused(2)
    assert str(place.home / "file" / "sessions") in told and "Not a directory" in told


def test_a_session_directory_that_nobody_may_write(place: Place) -> None:
    told = place.run("run", "--endpoint", SIM, "--session-dir", "/proc/sessions").refused(2)
    assert "/proc/sessions" in told


def test_a_runtime_directory_that_cannot_be(place: Place) -> None:
    (place.home / "file").write_text("")
    told = place.measure(SIM, *ONE, env={"XDG_RUNTIME_DIR": str(place.home / "file")}).refused(2)
    assert "no place for sockets" in told
    nothing_left(place)


def test_a_runtime_directory_with_too_long_a_name(place: Place) -> None:
    told = place.measure(SIM, *ONE, env={"XDG_RUNTIME_DIR": str(place.home / ("long" * 30))}).refused(2)
    assert "no place for sockets" in told
    nothing_left(place)


# Files of this process and its children end at so many bytes; Python ignores the signal that comes with it.
_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def limited(size: int) -> list[str]:
    return [sys.executable, "-c", _LIMIT, str(size)]


def test_a_disk_that_is_full_at_once(place: Place) -> None:
    words_given = ("run", "--endpoint", SIM, "--session-dir", str(place.sessions), *ONE)
    told = place.run(*words_given, before=limited(0)).refused(2)
    assert str(place.sessions) in told and "File too large" in told
    assert "--session-dir DIR" in told and "save-to" not in told, "it has ended: nothing is left to be saved elsewhere"
    nothing_left(place)


def test_a_disk_that_fills_up_loses_no_figure(place: Place) -> None:
    """The head and some requests still go in; what was measured after that is printed all the same."""
    with scripted(words(200)) as server:
        ran = place.run(
            "run", "--endpoint", server.url, "--session-dir", str(place.sessions), "--levels", "1", "--requests", "30",
            before=limited(12_000),
        )  # fmt: skip
    told = ran.refused(2)
    assert str(place.session) in told and "not on disk" in told
    assert "--session-dir DIR" in told and "save-to" not in told
    assert "warning: " in ran.err
    assert ran.out.startswith("|") and "30" in ran.out
    assert not [path for path in place.session.iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare(1) to make a small disk with")
def test_a_disk_that_is_really_full(place: Place) -> None:
    disk = place.home / "disk"
    disk.mkdir()
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=16k tmpfs {disk}"
    if subprocess.run([*small, mount], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody but root mount a small disk")
    with scripted(words(200)) as server:
        ran = place.run(
            "run", "--endpoint", server.url, "--session-dir", str(disk), "--levels", "1", "--requests", "30",
            before=[*small, f'{mount} && exec "$@"', "sh"],
        )  # fmt: skip
    assert ran.code == 0 and ran.out.startswith("|"), ran
    assert "warning: " in ran.err and "entries are not on disk" in ran.err
    assert f"{disk}" in ran.err and "No space left on device; all of it was saved elsewhere" in ran.err
    (row,) = place.json("sessions", "--json")
    assert (row["state"], row["requests"]) == ("done", 30)
