"""Secrets are recognised by name, and redacted in every form in which a server may repeat them."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmtui.model.endpoint import show_url
from swarmtui.model.redaction import Redactor, Secrets, is_secret_name, mask_secrets
from swarmtui.model.telemetry import DiscoveredServer

KEY = "sk-Live/7Qm+4zT2=xW9aB3cD5eF7gH1jK6mN8pR0s"
VALUE = "team ???>>> a/b"
HEADERS = {"X-Team": "Production", "X-Path": VALUE, "X-Auth-Token": "Bearer hidden-token-1"}
redactor = Redactor(Secrets(api_key=KEY, headers=HEADERS))


@pytest.mark.parametrize(
    "said",
    [
        KEY,
        KEY.lower(),
        KEY.upper(),
        quote(KEY),
        quote(KEY, safe=""),
        KEY[:36],
        KEY[5:],
        KEY[11:19],
        *(b64encode(b"x" * shift + KEY.encode() + b"yz").decode() for shift in range(4)),
        urlsafe_b64encode(f"user:{KEY}".encode()).decode(),
        "İ" * 9 + KEY,
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        urlsafe_b64encode(VALUE.encode()).decode(),
        "production",
        "hidden-token-1",
        "token-1 hidden-t",
    ],
)
def test_every_form_is_redacted(said: str) -> None:
    redacted = redactor.redact(f"before {said} after")
    assert redacted.startswith("before ") and redacted.endswith(" after") and "…" in redacted
    assert not any(redacted.lower().count(KEY.lower()[at : at + 8]) for at in range(len(KEY) - 7))
    assert VALUE not in unquote_plus(redacted)


@pytest.mark.parametrize("text", ["", "an answer", "Prod", KEY[:7], "İstanbul ﬁ", "product of Team"])
def test_other_text_is_unchanged(text: str) -> None:
    assert redactor.redact(text) == text


def test_short_values_are_not_secrets() -> None:
    assert Redactor(Secrets(api_key="none", headers={"X": "a"})).redact("none of a") == "none of a"


@given(st.lists(st.one_of(st.text(max_size=4), st.integers(0, 40).map(lambda at: KEY[at : at + 5])), max_size=30))
@example([KEY[:5], KEY[5:10], KEY[:5], KEY[5:10]])
def test_streamed_text_is_redacted_like_the_whole(pieces: list[str]) -> None:
    """Whatever the pieces in which it arrives, no part of the key that counts reaches the screen."""
    text = shown = ""
    done = 0
    for piece in (*pieces, KEY[:20], KEY[20:], " the end \n"):
        text += piece
        part, more = redactor.redact_streamed(text[done:])
        shown, done = shown + part, done + more
    assert done == len(text)
    assert redactor.redact(shown) == shown
    assert shown == redactor.redact(text)


@given(st.integers(0, 100))
def test_secret_across_the_end_of_what_is_kept_is_redacted(limit: int) -> None:
    text = f"a header {VALUE}, a key {KEY} and Production, which is more"
    shown = redactor.redact_start(text, limit)
    assert redactor.redact(text).startswith(shown)
    assert len(shown) <= limit <= len(text)


@given(
    st.lists(st.one_of(st.text(max_size=9), st.integers(0, 40).map(lambda at: KEY[at : at + 9])), max_size=30),
    st.integers(1, 60),
)
def test_end_of_streamed_text_contains_no_part_of_a_secret(pieces: list[str], limit: int) -> None:
    """Wherever the text is cut at its beginning, and wherever a secret continues after its end."""
    text = "".join(pieces)
    for said in (text, f"{text}{KEY}", f"{KEY}{text}", f"{text} production", f"{text}{KEY[:20]}"):
        shown = redactor.redact_end(said[-(limit + redactor.longest) :], limit)
        assert len(shown) <= limit
        assert not any(KEY[at : at + 8].lower() in shown.lower() for at in range(len(KEY) - 7))
        assert "production" not in shown.lower() and redactor.redact(shown) == shown


def test_end_of_text_without_secrets_is_its_end() -> None:
    assert redactor.redact_end("an answer 很", 8) == "answer 很"
    assert Redactor(Secrets()).redact_end("an answer", 60) == "an answer"


def test_all_text_of_a_struct_is_redacted() -> None:
    server = DiscoveredServer(url="http://a", version=KEY, models=(KEY, "m"), slots=4, flags={"a": f"x{KEY}"})
    assert redactor.redact_all(server) == DiscoveredServer(
        url="http://a", version="…", models=("…", "m"), slots=4, flags={"a": "x…"}
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:1/metrics?token=abc&name=x", "http://h:1/metrics?token=…&name=…"),
        ("http://h:1/metrics?Api-Version=2024-10-21&%6bey=#end", "http://h:1/metrics?Api-Version=2024-10-21&%6bey=…#…"),
        ("http://h:1/v1?api-version=sk-live-0123456789", "http://h:1/v1?api-version=…"),
        ("h:1?hunter2", "h:1?…"),
        ("http://h:1/v1?api-version=1;key=hunter2&version=%68unter2", "http://h:1/v1?api-version=…&version=…"),
        ("http://me:hunter2@h:1/v1", "http://…@h:1/v1"),
        ("https://h/openai/deployments/gpt-4o-2024-08-06/v1", "https://h/openai/deployments/gpt-4o-2024-08-06/v1"),
        ("https://a1b2c3d4e5f6g7.proxy.net/token/hunter/v1", "https://a1b2c3d4e5f6g7.proxy.net/token/…/v1"),
        ("https://h/auth/v1/messages", "https://h/auth/v1/messages"),
        ("https://h/9f86d081884c7d659a2f/v1", "https://h/…/v1"),
        ("https://h/sk-ant-abcdefgh/v1", "https://h/…/v1"),
        ("http://h:1/metrics", "http://h:1/metrics"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert show_url(url) == shown
    assert show_url(shown) == shown


def test_hidden_parts_of_a_url_are_redacted() -> None:
    hidden = Redactor(Secrets(urls={"": "http://h/token/canary-1/v1?user=canary%2D2&api-version=2024-10-21"}))
    assert hidden.redact("canary-1 CANARY-2 canary%2D2 2024-10-21") == "… … … 2024-10-21"


def test_secrets_are_masked_at_any_depth() -> None:
    extra = {
        "a": [{"apiKey": "canary"}, {"b": {"user_token": {"c": "canary"}}}],
        "max_tokens": 3,
        "x": "sk-canary-0123",
    }
    assert mask_secrets(extra) == {"a": [{"apiKey": "…"}, {"b": {"user_token": "…"}}], "max_tokens": 3, "x": "…"}


@pytest.mark.parametrize(
    "name",
    ["--ngrok-authtoken", "jwt", "--pw", "apiKey", "hfToken", "clientSecret", "HF_TOKEN", "OPENAI_API_KEY", "Cookie",
     "ssl-keyfile-password", "authHeader", "X-Api-Key", "APIKey", "accessKeyId", "dbPassword"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["max-num-batched-tokens", "tokenizer", "maxTokens", "PATH", "keyboard", "author", "passes", "X-Team"]
)
def test_names_that_only_resemble_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_secret_that_contains_another_is_redacted_to_its_end() -> None:
    inside = Redactor(Secrets(headers={"X-Team": "berlin-production-east", "X-Site": "production"}))
    assert inside.redact("from berlin-production-east.") == "from \N{HORIZONTAL ELLIPSIS}."


def test_threads_that_redact_a_new_type_at_once_do_not_crash() -> None:
    """Discovery redacts what servers say in several threads; msgspec crashed the process now and then."""
    script = """
import sys, threading, msgspec
from swarmtui.model.redaction import Redactor, Secrets
sys.setswitchinterval(1e-6)
redactor = Redactor(Secrets(api_key="sk-0123456789"))
def redact(value, barrier):
    barrier.wait()
    redactor.redact_all(value)
for number in range(50):
    inner = msgspec.defstruct("Inner", [(f"a{k}", int | None, None) for k in range(20)])
    outer = msgspec.defstruct("Outer", [(f"b{k}", tuple[inner, ...], ()) for k in range(20)])
    value, barrier = outer(b1=(inner(a1=1),)), threading.Barrier(8)
    threads = [threading.Thread(target=redact, args=(value, barrier)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
