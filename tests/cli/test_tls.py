"""TLS as people meet it: a certificate that is not accepted is told in words, with what to do about it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from swarmtui.telemetry.discovery import identify
from tests.cli.programs import Place
from tests.cli.scripted import Scripted, scripted, words

ONE = ("--levels", "1", "--requests", "2", "--warmup", "none", "--no-gpu")


@contextmanager
def secured(certificate: trustme.LeafCert) -> Iterator[Scripted]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with scripted(words()) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield server


def address(server: Scripted) -> str:
    return server.url.replace("http://", "https://")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def test_an_authority_that_is_not_known_and_both_ways_around_it(
    place: Place, authority: trustme.CA, ca_file: str
) -> None:
    with secured(authority.issue_cert("127.0.0.1")) as server:
        told = place.measure(address(server)).refused(3)
        assert f"{address(server)}: its certificate is signed by an authority that is not known here" in told
        assert "--ca-file FILE" in told and "--insecure" in told
        assert "_ssl.c" not in told and "is the server up" not in told
        assert place.measure(address(server), *ONE, "--ca-file", ca_file).code == 0
        assert place.measure(address(server), *ONE, "--insecure").code == 0


def test_a_server_on_this_host_is_known_by_its_process_with_tls_as_without(authority: trustme.CA) -> None:
    with secured(authority.issue_cert("127.0.0.1")) as server:
        found = identify(address(server))
    assert found is not None and found.reachable
    assert (found.url, found.models, found.pid) == (address(server), ("scripted",), os.getpid())


def test_a_certificate_for_another_name(place: Place, authority: trustme.CA, ca_file: str) -> None:
    with secured(authority.issue_cert("models.example")) as server:
        told = place.measure(address(server), "--ca-file", ca_file).refused(3)
    assert "its certificate is for another name" in told and "127.0.0.1" in told and "--insecure" in told


def test_a_certificate_that_has_expired(place: Place, authority: trustme.CA, ca_file: str) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    with secured(authority.issue_cert("127.0.0.1", not_after=past)) as server:
        told = place.measure(address(server), "--ca-file", ca_file).refused(3)
    assert "its certificate has expired" in told and "--insecure" in told


def test_https_where_http_is_spoken_and_the_other_way_around(place: Place, authority: trustme.CA) -> None:
    with scripted() as server:
        assert "http:// instead of https://?" in place.measure(address(server)).refused(3)
    with secured(authority.issue_cert("127.0.0.1")) as server:
        assert "Or is it https://?" in place.measure(server.url).refused(3)
