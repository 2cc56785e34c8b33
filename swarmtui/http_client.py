"""Send the requests outside the load path, and decide which of them carry the API key and the headers."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import aclosing
from functools import cache
from threading import Lock, Thread
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import causes, parse_address, tls_problem
from swarmtui.model.redaction import Redactor, Secrets

_MAX_BYTES = 16 << 20
_NO_SECRETS = Secrets()
_starting = Lock()

# A stop is noticed within this time.
_POLL_S = 0.1

FailureKind = Literal[
    "address", "unknown_host", "refused", "connect", "connect_timeout", "tls", "timeout", "too_large", "protocol"
]  # fmt: skip


class RequestFailed(Exception):
    """No complete response was received. The message contains no secret."""

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

    The secrets go to URLs with the scheme, host and port of one of `endpoints`, and to no others, as do the headers in
    `auth`, in which an API wants its key; by default that is a Bearer token. URLs of endpoints are given as they are
    shown. `stopped` is called while waiting: if it returns true, the request fails.
    """

    def __init__(
        self,
        endpoints: Iterable[str] = (),
        secrets: Secrets = _NO_SECRETS,
        *,
        auth: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        insecure: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._origins = {_origin(url) for url in endpoints}
        overridden = {name.lower() for name in secrets.headers}
        if auth is None:
            auth = {"Authorization": f"Bearer {secrets.api_key}"} if secrets.api_key else {}
        self._headers = {n: value for n, value in auth.items() if n.lower() not in overridden} | secrets.headers
        self._ca_file, self._insecure, self._stopped = ca_file, insecure, stopped
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._addresses = [(parse_address(shown).root, parse_address(url)) for shown, url in secrets.urls.items()]
        self.redactor = Redactor(secrets)

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._clients:  # a cancelled request may still add one
            _, client = self._clients.popitem()
            asyncio.run_coroutine_threadsafe(client.aclose(), _event_loop()).result()

    def get(self, url: str, timeout_s: float, *, max_bytes: int = _MAX_BYTES) -> HttpReply:
        return self.request("GET", url, timeout_s, max_bytes=max_bytes)

    def request(
        self, method: str, url: str, timeout_s: float, *, json: Any = None, max_bytes: int = _MAX_BYTES
    ) -> HttpReply:
        """Return the whole response; raises RequestFailed. Its size and its total time are limited.

        httpx limits each read by itself, so a server that sends a byte now and then could hold up a blocking call for
        ever. Here every step is a coroutine that is cancelled at the deadline, or when the caller stops.
        """
        state, redact = _Progress(), self.redactor.redact
        try:
            sending = asyncio.run_coroutine_threadsafe(
                self._send(method, url, timeout_s, json, max_bytes, state), _event_loop()
            )
            try:
                while not wait([sending], _POLL_S).done:
                    if self._stopped():
                        raise TimeoutError
                return sending.result()
            finally:
                sending.cancel()
        except TimeoutError:
            waited = f"within {timeout_s:g} s"
            if not state.connected:
                raise RequestFailed("connect_timeout", f"no connection {waited}") from None
            raise RequestFailed("timeout", f"{'not finished' if state.responded else 'no answer'} {waited}") from None
        except httpx2.HTTPError as error:
            if problem := tls_problem(error):
                raise RequestFailed("tls", redact(problem)) from None
            kind: FailureKind = "connect" if isinstance(error, httpx2.ConnectError) else "protocol"
            raise RequestFailed(kind, redact(_reason(error))) from None
        except (BadInput, httpx2.InvalidURL, UnicodeError) as error:
            raise RequestFailed("address", redact(str(error))) from None
        except OSError as error:
            reason = "no certificate in PEM form" if isinstance(error, ssl.SSLError) else _reason(error)
            raise RequestFailed("tls", f"{self._ca_file} cannot be used: {reason}") from None

    async def _send(
        self, method: str, url: str, timeout_s: float, json: Any, max_bytes: int, state: _Progress
    ) -> HttpReply:
        origin, body, redact = _origin(url), bytearray(), self.redactor.redact
        headers = self._headers if origin in self._origins else {}
        client, extensions = self._client(origin[0]), {"trace": state.trace}
        request = client.build_request(method, self._sent(url), headers=headers, json=json, extensions=extensions)
        async with asyncio.timeout(timeout_s):
            try:
                response = await client.send(request, stream=True)
            except (httpx2.NetworkError, httpx2.RemoteProtocolError):
                if state.new_connection:
                    raise
                # The server had closed the idle connection.
                response = await client.send(request, stream=True)
            state.responded = True
            async with aclosing(response):
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > max_bytes:
                        raise RequestFailed("too_large", f"more than {max_bytes >> 20} MB, not read")
            content_type, server = (redact(response.headers.get(name, "")) for name in ("content-type", "server"))
            return HttpReply(response.status_code, content_type, server, bytes(body), self.redactor)

    def _sent(self, url: str) -> str:
        """Return the URL with the path and the query of the real endpoint, if it begins with one that is shown."""
        for shown, real in self._addresses:
            if url == shown or url.startswith(f"{shown}/"):
                return real.root + url[len(shown) :] + (f"?{real.query}" if real.query and "?" not in url else "")
        return url

    def _client(self, scheme: str) -> httpx2.AsyncClient:
        """Create the client on first use: loading certificates takes longer than everything else here."""
        if scheme not in self._clients:
            verified = scheme == "https" and not self._insecure
            context = ssl.create_default_context(cafile=self._ca_file) if verified else False
            self._clients[scheme] = httpx2.AsyncClient(trust_env=False, verify=context, timeout=None)
        return self._clients[scheme]


def check_connection(url: str, timeout_s: float) -> None:
    """Open a connection and close it again; raises RequestFailed. The time limit includes the name server's."""
    try:
        asyncio.run_coroutine_threadsafe(_connect(url, timeout_s), _event_loop()).result()
    except TimeoutError:
        raise RequestFailed("connect_timeout", f"no answer within {timeout_s:g} s") from None
    except socket.gaierror as error:
        raise RequestFailed("unknown_host", _reason(error)) from None
    except ConnectionRefusedError as error:
        raise RequestFailed("refused", _reason(error)) from None
    except OSError as error:
        raise RequestFailed("connect", _reason(error)) from None
    except (BadInput, UnicodeError) as error:
        raise RequestFailed("address", str(error)) from None


async def _connect(url: str, timeout_s: float) -> None:
    loop, (_, host, port) = asyncio.get_running_loop(), _origin(url)
    async with asyncio.timeout(timeout_s):
        problem = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as sock:
                sock.setblocking(False)
                try:
                    return await loop.sock_connect(sock, address)
                except OSError as error:
                    problem = error
        raise problem


class _Progress:
    def __init__(self) -> None:
        self.new_connection = self.connected = self.responded = False

    async def trace(self, event: str, info: object) -> None:
        self.new_connection = self.new_connection or event.endswith("connect_tcp.started")
        self.connected = self.connected or event.endswith("send_request_headers.started")


class _DaemonExecutor(ThreadPoolExecutor):
    """Runs each call in a daemon thread: a name server that does not answer must not keep the program from exiting."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                found = fn(*args, **options)
            except (OSError, UnicodeError) as error:
                future.set_exception(error)
            else:
                future.set_result(found)

        Thread(target=run, daemon=True).start()
        return future


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all requests; threads that need it first at the same time get the same one."""
    with _starting:
        return _start_event_loop()


@cache
def _start_event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_DaemonExecutor())
    Thread(target=loop.run_forever, daemon=True, name="http").start()
    return loop


def _reason(error: BaseException) -> str:
    """Return the operating system's error behind a failure; anyio says only that all attempts failed."""
    for found in causes(error):
        if isinstance(found, OSError) and found.errno:
            return os.strerror(found.errno) if found.errno > 0 else str(found.strerror)
    return str(error) or type(error).__name__


def _origin(url: str) -> tuple[str, str, int]:
    address = parse_address(url)
    return address.scheme, address.host, address.port
