"""Endpoints: their address, their API dialect, what a session stores about them, and their TLS errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.redaction import MASK, Secrets, cover_url, is_secret_name, looks_like_key

# The URL path of each API dialect, whose code is the module of that name in swarmtui/loadgen/dialects. If the API is to
# be detected, the first one that the server knows is used.
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "ollama": "/api/chat",
}

AUTO = "auto"

SIMULATOR_PREFIX = "sim:"

Dialect = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(PATHS)})$")]

# What users may ask for.
ApiChoice = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join((*PATHS, AUTO))})$")]

_SUFFIXES = (*(path.removeprefix("/v1") for path in PATHS.values()), "/v1", "/")

# Paths that a server has, but to which no load can be sent; other paths may be those of a gateway.
_NO_API = re.compile(r"/v1/(chat|models|completion|embeddings)$|/api/(generate|tags)$|/(metrics|health)$")

# Error numbers of OpenSSL, as `SSLCertVerificationError.verify_code` gives them.
_SELF_SIGNED, _UNKNOWN_SIGNER = (18, 19), (2, 20, 21)
_NOT_YET, _EXPIRED, _OTHER_NAME = 9, 10, (62, 63, 64)

_TRUST_HINT = "trust it with --ca-file FILE, or turn verification off with --insecure (config.toml: ca_file, insecure)"
_INSECURE_HINT = "--ca-file does not help here; --insecure turns verification off"


class Endpoint(Stored, frozen=True, kw_only=True):
    """An endpoint as a session stores it, without secrets. An `embedded` one is a simulator that ends with the run."""

    url: str
    model: str
    dialect: Dialect = "chat"
    engine: str = ""
    ca_file: str | None = None
    insecure: bool = False
    header_names: tuple[str, ...] = ()
    embedded: bool = False


def api_text(endpoint: Endpoint) -> str:
    """Name the API of an endpoint; empty for chat, which is the usual one."""
    return "" if endpoint.dialect == "chat" else f"{endpoint.dialect} API"


class Address(Stored, frozen=True, kw_only=True):
    """The parts of a URL that a connection needs."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    base: str
    query: str = ""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"

    @property
    def root(self) -> str:
        """The URL without the path of the API, to which `/v1/models`, `/metrics` and others are appended."""
        return f"{self.scheme}://{self.authority}{self.base}"


def dialect_from_url(url: str) -> Dialect:
    """Return the dialect whose path ends the URL; OpenAI chat for a bare address."""
    return next((name for name, path in PATHS.items() if url.rstrip("/").endswith(path)), "chat")


def full_url(url: str) -> str:
    """`http://host:port` for `host:port`: one server has one name in sessions, by which they are compared."""
    text = url.strip()
    return text if "://" in text or text.startswith(SIMULATOR_PREFIX) else f"http://{text}"


def parse_address(url: str) -> Address:
    """Parse `host:port`, `http://host:port/v1` or a full path to `/v1/chat/completions`."""
    text, shown = url.strip(), show_url(url)
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        hint = (
            "; write an IPv6 address in brackets: http://[::1]:8000" if text.count(":") > 2 and "[" not in text else ""
        )
        raise BadInput(f"not a URL: {error}{hint}", key=shown) from None
    if parts.scheme not in ("http", "https"):
        raise BadInput(f"unsupported scheme {parts.scheme}://; expected http:// or https://", key=shown)
    if not parts.hostname:
        raise BadInput("no host; expected a URL like http://127.0.0.1:8000", key=shown)
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise BadInput(f"{parts.hostname!r} is not a host name", key=shown) from None
    if parts.username or parts.password:
        raise BadInput("a URL must not contain a password; use --api-key-env or --header", key=parts.hostname)
    base = parts.path
    while stripped := next((s for s in _SUFFIXES if base.endswith(s)), None):
        base = base[: -len(stripped)]
    return Address(
        scheme="https" if parts.scheme == "https" else "http",
        host=parts.hostname,
        port=port or (443 if parts.scheme == "https" else 80),
        base=base,
        query=quote(parts.query, safe="!$&'()*+,;=:@/?%"),
    )


def check_url(url: str) -> None:
    """Raise BadInput unless this is the URL of an endpoint without a key."""
    address = parse_address(url)
    if wrong := _NO_API.search(address.base):
        right = msgspec.structs.replace(address, base=address.base[: wrong.start()], query="").root
        raise BadInput(
            f"{wrong.group()} is not the path of an API; use {right}, and choose another API than chat with --api",
            key=show_url(url),
        )
    for part in re.split("[&;]", address.query):
        name, _, value = map(unquote, part.partition("="))
        if value != MASK and (is_secret_name(name) or looks_like_key(name) or looks_like_key(value)):
            named = "" if looks_like_key(name) else f" ({name})"
            raise BadInput(
                f"a URL must not contain a key{named}: set it in an environment variable and name that with "
                "--api-key-env, or send it with --header",
                key=address.host,
            )


def show_url(url: str) -> str:
    """Return a URL as it is stored and shown: of its query only harmless values, of its path no keys."""
    return url if url.startswith(SIMULATOR_PREFIX) else cover_url(url)[0]


def hide_urls(urls: tuple[str, ...], secrets: Secrets) -> tuple[tuple[str, ...], Secrets]:
    """Return the URLs as they are stored and shown, and the secrets with which requests to them find the real ones."""
    shown = {url: show_url(url) for url in urls}
    if len(set(shown.values())) < len(shown):
        raise BadInput("two endpoints differ only in what is not shown: a value of the query, or a key in the path")
    sent = {
        show: url for url, show in shown.items() if ("?" in url and not url.startswith(SIMULATOR_PREFIX)) or show != url
    }
    return tuple(shown[url] for url in urls), msgspec.structs.replace(secrets, urls=sent)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it; of several at the same time the first."""
    seen: BaseException | None = error
    while seen is not None:
        seen = seen.exceptions[0] if isinstance(seen, BaseExceptionGroup) else seen
        yield seen
        seen = seen.__cause__ or seen.__context__


def tls_problem(error: BaseException) -> str:
    """Describe this error or the TLS error that caused it; empty if it is not a TLS error."""
    import ssl  # most importers of endpoints need no TLS

    seen = next((cause for cause in causes(error) if isinstance(cause, ssl.SSLError)), None)
    if isinstance(seen, ssl.SSLCertVerificationError):
        return _describe_certificate_error(seen.verify_code, seen.verify_message)
    if isinstance(seen, ssl.SSLError):
        reason = str(seen.reason or "no reason given").lower().replace("_", " ")
        plain_http = seen.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
        return "the server does not use TLS; http:// instead of https://?" if plain_http else f"TLS failed: {reason}"
    return ""


def _describe_certificate_error(code: int, message: str) -> str:
    if code in _SELF_SIGNED:
        return f"its certificate is self-signed; {_TRUST_HINT}"
    if code in _UNKNOWN_SIGNER:
        return f"its certificate is signed by an unknown authority; {_TRUST_HINT}"
    if code == _EXPIRED:
        return f"its certificate has expired; {_INSECURE_HINT}"
    if code == _NOT_YET:
        return f"its certificate is not valid yet (is a clock wrong?); {_INSECURE_HINT}"
    if code in _OTHER_NAME:
        return f"its certificate is for another name ({message}); use a name that it covers. {_INSECURE_HINT}"
    return f"its certificate was rejected: {message}; {_TRUST_HINT}"
