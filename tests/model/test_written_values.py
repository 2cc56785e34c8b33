"""What people write on a command line: levels, requests, times, addresses."""

from __future__ import annotations

import pytest

from swarmtui.model.endpoint import Address, Dialect, Secrets, dialect_from_url, parse_address
from swarmtui.model.plan import MAX_STREAMS, Requests, parse_levels, parse_requests, parse_seconds
from swarmtui.model.schema import BadInput


def test_levels() -> None:
    assert parse_levels("1,2, 4 ,8") == (1, 2, 4, 8)
    assert parse_levels("8,1") == (8, 1)
    assert parse_levels(str(MAX_STREAMS)) == (MAX_STREAMS,)


@pytest.mark.parametrize("text", ["0", "1,0", "", "1,,2", "one", "-1", "1.5", "2,2", "1;2", str(MAX_STREAMS + 1)])
def test_levels_that_are_none(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_levels(text)
    assert caught.value.key == "levels"


@pytest.mark.parametrize(
    ("text", "requests", "at_8"),
    [
        ("40", Requests(count=40, per_stream=False), 40),
        ("4C", Requests(count=4, per_stream=True), 32),
        (" 2c ", Requests(count=2, per_stream=True), 16),
    ],
)
def test_requests(text: str, requests: Requests, at_8: int) -> None:
    assert parse_requests(text) == requests
    assert requests.at(8) == at_8
    assert parse_requests(str(requests)) == requests


@pytest.mark.parametrize("text", ["0", "0C", "C", "", "4D", "-4", "1.5C"])
def test_requests_that_are_none(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_requests(text)
    assert caught.value.key == "requests"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1.5h", 5400.0), (" 3 s ", 3.0)]
)
def test_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text, "timeout") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1d", "s", "1 2", "inf", "nan"])
def test_seconds_that_are_none(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_seconds(text, "timeout")
    assert caught.value.key == "timeout"


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
def test_all_these_are_the_same_server(url: str) -> None:
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
def test_roots(url: str, root: str) -> None:
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
def test_addresses_that_are_none(url: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_address(url)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


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
def test_dialects_by_path(url: str, dialect: Dialect) -> None:
    assert dialect_from_url(url) == dialect


def test_secrets_are_not_shown() -> None:
    secrets = Secrets(api_key="sk-hidden", headers={"X-Key": "hidden too"})
    assert "hidden" not in f"{secrets} {secrets!r}"
