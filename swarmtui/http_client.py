"""Send the requests outside the load path, and decide which of them carry the API key and the headers."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from threading import Lock
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec

from swarmtui.model.endpoint import Secrets, parse_address
from swarmtui.model.redaction import Redactor
from swarmtui.model.schema import BadInput
from swarmtui.model.tls_errors import tls_problem

_MAX_BYTES = 16 << 20
_NO_SECRETS = Secrets()

FailureKind = Literal["address", "connect", "connect_timeout", "tls", "timeout", "too_large", "protocol"]


class RequestFailed(Exception):
    """There is no response, or not a whole one. The message contains no secret."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


class HttpReply(NamedTuple):
    """A response. Everything but `body` is redacted."""

    status: int
    content_type: str
    server: str
    body: bytes
    redactor: Redactor

    @property
    def text(self) -> str:
        return self.redactor.redact(self.body.decode(errors="replace"))

    def json(self) -> Any:
        """Decode the body; raises ValueError."""
        return self.redactor.redact_all(self.raw_json())

    def raw_json(self) -> Any:
        """Decode the body without redacting it, for names that requests have to repeat exactly."""
        try:
            return msgspec.json.decode(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None


class HttpClient:
    """Sends single requests. Redirects are not followed, and proxies set in the environment are not used.

    The secrets go to URLs with the scheme, host and port of one of `endpoints`, and to no others.
    """

    def __init__(
        self,
        endpoints: Iterable[str] = (),
        secrets: Secrets = _NO_SECRETS,
        *,
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        self._origins = {_origin(url) for url in endpoints}
        overridden = {name.lower() for name in secrets.headers}
        bearer = {"Authorization": f"Bearer {secrets.api_key}"} if secrets.api_key else {}
        self._headers = secrets.headers if "authorization" in overridden else bearer | secrets.headers
        self._ca_file, self._insecure = ca_file, insecure
        self._clients: dict[str, httpx2.Client] = {}
        self._lock = Lock()
        self.redactor = Redactor(secrets)

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def get(self, url: str, timeout_s: float, *, max_bytes: int = _MAX_BYTES) -> HttpReply:
        return self.request("GET", url, timeout_s, max_bytes=max_bytes)

    def request(
        self, method: str, url: str, timeout_s: float, *, json: Any = None, max_bytes: int = _MAX_BYTES
    ) -> HttpReply:
        """Return the whole response; raises RequestFailed. Its size and its total time are limited."""
        deadline, body, redact = time.monotonic() + timeout_s, bytearray(), self.redactor.redact
        try:
            origin = _origin(url)
            headers = self._headers if origin in self._origins else {}
            client = self._client(origin[0])
            with client.stream(method, url, headers=headers, json=json, timeout=timeout_s) as response:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > max_bytes:
                        raise RequestFailed("too_large", f"more than {max_bytes >> 20} MB, not read")
                    if time.monotonic() > deadline:
                        raise RequestFailed("timeout", f"not finished within {timeout_s:g} s")
                content_type, server = (redact(response.headers.get(n, "")) for n in ("content-type", "server"))
                return HttpReply(response.status_code, content_type, server, bytes(body), self.redactor)
        except httpx2.ConnectTimeout:
            raise RequestFailed("connect_timeout", f"no connection within {timeout_s:g} s") from None
        except httpx2.TimeoutException:
            raise RequestFailed("timeout", f"no answer within {timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            text = redact(str(error)) or type(error).__name__
            if problem := tls_problem(error):
                raise RequestFailed("tls", problem) from None
            kind: FailureKind = "connect" if isinstance(error, httpx2.ConnectError) else "protocol"
            raise RequestFailed(kind, text) from None
        except (BadInput, httpx2.InvalidURL, UnicodeError) as error:
            raise RequestFailed("address", redact(str(error))) from None

    def _client(self, scheme: str) -> httpx2.Client:
        """Create the client on first use: loading certificates takes longer than everything else here."""
        with self._lock:
            if scheme not in self._clients:
                verified = scheme == "https" and not self._insecure
                context = ssl.create_default_context(cafile=self._ca_file) if verified else False
                self._clients[scheme] = httpx2.Client(trust_env=False, verify=context)
            return self._clients[scheme]


def _origin(url: str) -> tuple[str, str, int]:
    address = parse_address(url)
    return address.scheme, address.host, address.port
