from __future__ import annotations

import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import Address, Dialect, check_url, dialect_from_url, hide_urls, parse_address
from swarmtui.model.redaction import Secrets


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000/",
        "http://127.0.0.1:8000/v1",
        "http://127.0.0.1:8000/v1/",
        "http://127.0.0.1:8000/v1/chat/completions",
        "http://127.0.0.1:8000/v1/completions",
        "http://127.0.0.1:8000/api/chat",
        "  http://127.0.0.1:8000  ",
    ],
)
def test_forms_of_a_url_are_the_same_server(url: str) -> None:
    address = parse_address(url)
    assert address == Address(scheme="http", host="127.0.0.1", port=8000, base="")
    assert address.root == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("https://api.example.org/v1", "https://api.example.org"),
        ("https://api.example.org:443/v1", "https://api.example.org"),
        ("https://api.example.org:80", "https://api.example.org:80"),
        ("http://box", "http://box"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("http://gate/team/a/v1/chat/completions", "http://gate/team/a"),
    ],
)
def test_root_url(url: str, root: str) -> None:
    assert parse_address(url).root == root


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://box", "ftp://"),
        ("http://", "no host"),
        ("http://box:port", "not a URL"),
        ("http://box:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("::1:8000", "in brackets: http://[::1]:8000"),
        ("http://fe80::1:8000", "in brackets"),
        ("http://me:secret@box", "password"),
    ],
)
def test_invalid_addresses_are_refused(url: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_address(url)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://box/v1?api_key=canary",
        "http://box/v1?x=1&%61uth=canary",
        "http://box/v1?api-version=1;key=canary",
        "http://box/v1?user=hf_canary01234",
        "http://box/v1?sk-canary01234",
        "ftp://canary:canary@box/v1?x=canary",
    ],
)
def test_keys_in_a_url_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_url(url)
    assert "canary" not in str(caught.value)


def test_query_of_a_url_is_kept_for_requests() -> None:
    url = "http://box/v1?api-version=2024-10-21&user=a b"
    check_url(url)
    assert parse_address(url).query == "api-version=2024-10-21&user=a%20b"
    shown, secrets = hide_urls((url, "http://box:1"), Secrets(api_key="k"))
    assert shown == ("http://box/v1?api-version=2024-10-21&user=…", "http://box:1")
    assert secrets == Secrets(api_key="k", urls={shown[0]: url})


def test_endpoints_that_look_the_same_are_refused() -> None:
    with pytest.raises(BadInput, match="differ only in what is not shown"):
        hide_urls(("http://box?user=a", "http://box?user=b"), Secrets())


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("box:8000", "chat"),
        ("http://box/v1", "chat"),
        ("http://box/v1/chat/completions", "chat"),
        ("http://box/v1/completions/", "completions"),
        ("http://box:11434/api/chat", "ollama"),
    ],
)
def test_dialect_by_path(url: str, dialect: Dialect) -> None:
    assert dialect_from_url(url) == dialect


def test_repr_of_secrets_hides_them() -> None:
    secrets = Secrets(api_key="sk-hidden", headers={"X-Key": "hidden too"})
    assert "hidden" not in f"{secrets} {secrets!r}"
