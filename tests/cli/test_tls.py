"""TLS: a rejected certificate is explained, with what to do about it."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import trustme

from swarmtui.cli.options import commands
from swarmtui.http_client import HttpClient
from swarmtui.telemetry.discovery import identify
from tests.cli.programs import Sandbox
from tests.cli.scripted_server import ModelLister, ScriptedServer, model_list, respond_with_words, scripted_server

ONE = ("--levels", "1", "--requests", "2", "--warmup", "none", "--no-gpu")


@contextmanager
def tls_server(certificate: trustme.LeafCert, listing: ModelLister = model_list) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with scripted_server(respond_with_words(), listing) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield server


def https_url(server: ScriptedServer) -> str:
    return server.url.replace("http://", "https://")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_unknown_authority_and_both_remedies(sandbox: Sandbox, authority: trustme.CA, ca_file: str) -> None:
    with tls_server(authority.issue_cert("127.0.0.1")) as server:
        error = sandbox.run_benchmark(https_url(server)).error_line(3)
        assert f"{https_url(server)}: its certificate is signed by an unknown authority" in error
        assert "--ca-file FILE" in error and "--insecure" in error
        assert "_ssl.c" not in error and "is the server up" not in error
        assert sandbox.run_benchmark(https_url(server), *ONE, "--ca-file", ca_file).code == 0
        assert sandbox.run_benchmark(https_url(server), *ONE, "--insecure").code == 0


def test_doctor_takes_both_remedies(sandbox: Sandbox, authority: trustme.CA, ca_file: str) -> None:
    def endpoint_check(*words: str) -> str:
        ran = sandbox.run("doctor", "--endpoint", https_url(server), "--json", *words)
        return next(str(line["state"]) for line in json.loads(ran.out) if line["code"] == "endpoint")

    with tls_server(authority.issue_cert("127.0.0.1")) as server:
        # On a busy machine the round trip is doubtful.
        assert endpoint_check("--insecure") != "wrong"
        assert endpoint_check("--ca-file", ca_file) != "wrong"


def test_commands_that_contact_an_endpoint_take_both_remedies() -> None:
    """`tune` takes them from its file, and `discover` from config.toml."""
    for name in ("run", "probe", "ab", "doctor"):
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        assert {"ca_file", "insecure"} <= {option.name for option in command.params}, name


def test_unusable_certificate_file_of_the_config_is_a_row(sandbox: Sandbox) -> None:
    config = sandbox.home / ".config" / "swarmtui" / "config.toml"
    config.parent.mkdir(parents=True)
    os.mkfifo(sandbox.home / "fifo")
    config.write_text(
        "".join(
            f'[endpoints.{name}]\nurl = "https://127.0.0.1:{port}"\nca_file = "{sandbox.home / name}"\n'
            for port, name in enumerate(("missing", "fifo"), 5)
        )
    )
    found = {server["url"]: server["problem"] for server in sandbox.json("discover", "--json")}
    assert "No such file or directory" in found["https://127.0.0.1:5"]
    assert "not a regular file" in found["https://127.0.0.1:6"]


def test_local_tls_server_is_identified_with_its_process(authority: trustme.CA) -> None:
    with tls_server(authority.issue_cert("127.0.0.1")) as server, HttpClient(insecure=True) as client:
        found = identify(https_url(server), client=client)
    assert found is not None and found.reachable
    assert (found.url, found.models, found.pid) == (https_url(server), ("scripted",), os.getpid())


def test_certificate_for_another_name(sandbox: Sandbox, authority: trustme.CA, ca_file: str) -> None:
    with tls_server(authority.issue_cert("models.example")) as server:
        error = sandbox.run_benchmark(https_url(server), "--ca-file", ca_file).error_line(3)
    assert "its certificate is for another name" in error and "127.0.0.1" in error and "--insecure" in error


def test_expired_certificate(sandbox: Sandbox, authority: trustme.CA, ca_file: str) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    with tls_server(authority.issue_cert("127.0.0.1", not_after=past)) as server:
        error = sandbox.run_benchmark(https_url(server), "--ca-file", ca_file).error_line(3)
    assert "its certificate has expired" in error and "--insecure" in error


def test_https_to_http_port_and_the_reverse(sandbox: Sandbox, authority: trustme.CA) -> None:
    with scripted_server() as server:
        assert "http:// instead of https://?" in sandbox.run_benchmark(https_url(server)).error_line(3)
    with tls_server(authority.issue_cert("127.0.0.1")) as server:
        assert "Or is it https://?" in sandbox.run_benchmark(server.url).error_line(3)
