"""Requests outside the load path: who gets the secrets, and what is passed on of a reply."""

from __future__ import annotations

import ast
from http.server import BaseHTTPRequestHandler

import pytest

from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.endpoint import Secrets
from tests.cli.programs import ROOT
from tests.telemetry.text_server import TextReply, serving

KEY = "canary-key-5d1f"
SECRETS = Secrets(api_key=KEY, headers={"X-Team": "canary-value"})


def test_secrets_go_to_the_same_scheme_host_and_port_only() -> None:
    with serving({"/metrics": "ok"}) as endpoint, serving({"/metrics": "ok"}) as other:
        other_port, own_port = (url.rsplit(":", 1)[1] for url in (other.url, endpoint.url))
        with HttpClient((f"{endpoint.url}/v1",), SECRETS) as client:
            client.get(f"{endpoint.url}/metrics", 5.0)
            client.get(f"http://127.0.0.1:{other_port}/metrics", 5.0)
            client.get(f"http://localhost:{own_port}/metrics", 5.0)
        with HttpClient((endpoint.url.replace("http:", "https:"),), SECRETS) as client:
            client.get(f"{endpoint.url}/metrics", 5.0)
    assert endpoint.authorizations == [f"Bearer {KEY}", None, None]
    assert other.authorizations == [None]


def test_own_authorization_header_replaces_the_key() -> None:
    with serving({"/": "ok"}) as server:
        with HttpClient((server.url,), Secrets(api_key=KEY, headers={"authorization": "Basic abc"})) as client:
            client.get(f"{server.url}/", 5.0)
        assert server.authorizations == ["Basic abc"]


def test_replies_and_errors_are_redacted() -> None:
    def bad_status_line(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"HTTP/1.1 {KEY} no\r\n\r\n".encode())
        handler.close_connection = True

    escaped = "".join(f"\\u{ord(char):04x}" for char in KEY)
    body = f'{{"id": "{escaped}", "{KEY}": ["{KEY.upper()}"]}}'.encode()
    headers = {"Content-Type": f"text/{KEY}", "Server": KEY}
    with (
        serving({"/": TextReply(200, body, headers), "/bad": bad_status_line}) as server,
        HttpClient((), SECRETS) as client,
    ):
        reply = client.get(f"{server.url}/", 5.0)
        with pytest.raises(RequestFailed) as failed:
            client.get(f"{server.url}/bad", 5.0)
    assert (reply.content_type, reply.server, reply.json()) == ("text/…", "…", {"id": "…", "…": ["…"]})
    assert "canary" not in reply.text.lower() and "…" in str(failed.value) and "canary" not in str(failed.value)


def test_deeply_nested_reply_is_a_value_error() -> None:
    with serving({"/": "[" * 100_000}) as server, HttpClient() as client, pytest.raises(ValueError):
        client.get(f"{server.url}/", 5.0).json()


@pytest.mark.parametrize("url", ["http://[bad", "https://a..b/x", "ftp://a", "http://" + "a" * 70 + ".b"])
def test_impossible_address_is_a_failure(url: str) -> None:
    with HttpClient() as client, pytest.raises(RequestFailed):
        client.get(url, 5.0)


def test_no_other_module_sends_requests() -> None:
    """One place decides who gets the key; only the load path has its own connections."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "swarmtui").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
        if name.split(".")[0] in ("httpx", "httpx2", "requests", "urllib3", "aiohttp")
        or name.startswith("http.client")
        or name.startswith("urllib.request")
    }
    assert importing == {"swarmtui/http_client.py"}


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}"] if isinstance(node, ast.ImportFrom) else []
