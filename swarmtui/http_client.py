"""Send the requests outside the load path, and decide which of them carry the API key and the headers."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import httptools
import msgspec

from swarmtui.model.endpoint import Address, Secrets, parse_address
from swarmtui.model.redaction import Redactor
from swarmtui.model.schema import BadInput
from swarmtui.model.tls_errors import tls_problem

T = TypeVar("T")

_MAX_BYTES = 16 << 20
_NO_SECRETS = Secrets()

# The most bytes outside the body: an endless header line would exhaust memory.
_MAX_UNFRAMED = 256 << 10
_READ_BYTES = 64 << 10
# A stop is noticed within this time.
_POLL_S = 0.2

# Characters that are not quoted: a URL may contain quoted ones already.
_URL_CHARS = "/?:@!$&'()*+,;=~%"

FailureKind = Literal["address", "connect", "connect_timeout", "tls", "timeout", "too_large", "protocol"]


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

    The secrets go to URLs with the scheme, host and port of one of `endpoints`, and to no others. `stopped` is called
    while waiting: if it returns true, the request fails.
    """

    def __init__(
        self,
        endpoints: Iterable[str] = (),
        secrets: Secrets = _NO_SECRETS,
        *,
        ca_file: str | None = None,
        insecure: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._origins = {_origin(parse_address(url)) for url in endpoints}
        overridden = {name.lower() for name in secrets.headers}
        bearer = {"Authorization": f"Bearer {secrets.api_key}"} if secrets.api_key else {}
        self._headers = secrets.headers if "authorization" in overridden else bearer | secrets.headers
        self._ca_file, self._insecure, self._stopped = ca_file, insecure, stopped
        self._context: ssl.SSLContext | None = None
        self._idle: dict[tuple[str, str, int], list[_Connection]] = {}
        self._lock = Lock()
        self.redactor = Redactor(secrets)

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def get(self, url: str, timeout_s: float, *, max_bytes: int = _MAX_BYTES) -> HttpReply:
        return self.request("GET", url, timeout_s, max_bytes=max_bytes)

    def request(
        self, method: str, url: str, timeout_s: float, *, json: Any = None, max_bytes: int = _MAX_BYTES
    ) -> HttpReply:
        """Return the whole response; raises RequestFailed. Its size and its total time are limited."""
        redact = self.redactor.redact
        response = _Response(max_bytes)
        try:
            address = parse_address(url)
            headers = self._headers if _origin(address) in self._origins else {}
            message = _message(method, url, address, headers, None if json is None else msgspec.json.encode(json))
            self._exchange(address, message, response, _Deadline(timeout_s, self._stopped))
        except TimeoutError:
            waited = f"within {timeout_s:g} s"
            if not response.connected:
                raise RequestFailed("connect_timeout", f"no connection {waited}") from None
            raise RequestFailed("timeout", f"{'not finished' if response.status else 'no answer'} {waited}") from None
        except ssl.SSLError as error:
            raise RequestFailed("tls", redact(tls_problem(error))) from None
        except OSError as error:
            raise RequestFailed("protocol" if response.connected else "connect", redact(str(error))) from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            start = redact(response.start.decode(errors="replace"))[:80]
            raise RequestFailed("protocol", f"{error}: {start!r}") from None
        except (BadInput, UnicodeError) as error:
            raise RequestFailed("address", redact(str(error))) from None
        content_type, server = (redact(response.headers.get(name, "")) for name in ("content-type", "server"))
        return HttpReply(response.status, content_type, server, bytes(response.body), self.redactor)

    def _exchange(self, address: Address, message: bytes, response: _Response, deadline: _Deadline) -> None:
        reused = self._idle_connection(address)
        tls = self._tls_context() if address.scheme == "https" else None
        connection = reused or _Connection(address, tls, deadline)
        try:
            connection.exchange(message, response, deadline)
        except BaseException as error:
            connection.close()
            if reused is None or response.start or not isinstance(error, ConnectionError):
                raise
            # The server had closed the idle connection.
            self._exchange(address, message, response, deadline)
            return
        if response.keep_alive:
            with self._lock:
                self._idle.setdefault(_origin(address), []).append(connection)
        else:
            connection.close()

    def _idle_connection(self, address: Address) -> _Connection | None:
        with self._lock:
            idle = self._idle.get(_origin(address))
            return idle.pop() if idle else None

    def _tls_context(self) -> ssl.SSLContext:
        """Create the context on first use: loading certificates takes longer than everything else here."""
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=self._ca_file)
                if self._insecure:
                    self._context.check_hostname = False
                    self._context.verify_mode = ssl.CERT_NONE
            return self._context


class _Deadline:
    """When a request has to end. TimeoutError is raised then, or when it is stopped."""

    def __init__(self, timeout_s: float, stopped: Callable[[], bool]) -> None:
        self._at, self._stopped = time.monotonic() + timeout_s, stopped

    def _left_s(self) -> float:
        left = self._at - time.monotonic()
        if left <= 0 or self._stopped():
            raise TimeoutError
        return left

    def next_wait_s(self) -> float:
        return min(self._left_s(), _POLL_S)

    def share(self, share: float) -> _Deadline:
        """Return the deadline of this share of the time that is left."""
        return _Deadline(self._left_s() * share, self._stopped)

    def run(self, sock: socket.socket, operation: Callable[[], T]) -> T:
        """Repeat an operation of a socket, for a short time each, until it succeeds."""
        while True:
            sock.settimeout(self.next_wait_s())
            with suppress(TimeoutError):
                return operation()


class _Response:
    """Collects one response; the HTTP parser calls the methods named `on_…`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.connected = False
        self.start_reading()

    def start_reading(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._unframed = 0
        self.start = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = self.keep_alive = False

    def feed(self, data: bytes) -> None:
        size, self.start = len(self.body), self.start or data[:1024]
        self._parser.feed_data(data)
        self._unframed += len(data) if size == len(self.body) else 0
        if len(self.body) > self._max_bytes:
            raise RequestFailed("too_large", f"more than {self._max_bytes >> 20} MB, not read")
        if self._unframed > _MAX_UNFRAMED:
            raise RequestFailed("too_large", f"headers of more than {_MAX_UNFRAMED >> 10} KB, not read")

    def end(self) -> None:
        """Complete a response without a length: it ends with the connection."""
        if self.status < 200 or "content-length" in self.headers or "transfer-encoding" in self.headers:
            raise ConnectionError("the server closed the connection before the end of its response")
        self.complete = True

    def on_message_begin(self) -> None:
        if self.complete:
            self.keep_alive = False  # a second response, which was not requested
        else:
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self.complete:
            self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.body += data

    def on_message_complete(self) -> None:
        if not self.complete and self.status >= 200:
            self.complete, self.keep_alive = True, self._parser.should_keep_alive()


class _Connection:
    def __init__(self, address: Address, tls: ssl.SSLContext | None, deadline: _Deadline) -> None:
        self._sock = _connect(address, deadline)
        if tls is None:
            return
        try:
            secure = tls.wrap_socket(self._sock, server_hostname=address.host, do_handshake_on_connect=False)
            self._sock = secure
            deadline.run(secure, secure.do_handshake)
        except BaseException:
            self._sock.close()
            raise

    def exchange(self, message: bytes, response: _Response, deadline: _Deadline) -> None:
        response.start_reading()
        response.connected = True
        sock, rest = self._sock, memoryview(message)
        with suppress(BrokenPipeError, ConnectionResetError):  # a server may respond before it has read everything
            while rest:
                rest = rest[deadline.run(sock, partial(sock.send, rest)) :]
        while not response.complete:
            data = deadline.run(sock, partial(sock.recv, _READ_BYTES))
            if data:
                response.feed(data)
            else:
                response.end()

    def close(self) -> None:
        self._sock.close()


def _connect(address: Address, deadline: _Deadline) -> socket.socket:
    """Connect to the first address of the host that accepts; each gets only a share of the time that is left."""
    found = _resolve(address, deadline)
    for number, (family, kind, protocol, _, target) in enumerate(found, 1):
        sock = socket.socket(family, kind, protocol)
        try:
            share = deadline.share(1 / (1 + len(found) - number))
            sock.setblocking(False)
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                poller = select.poll()
                poller.register(sock, select.POLLOUT)
                while not poller.poll(1000 * share.next_wait_s()):
                    pass
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not code:
                return sock
            raise OSError(code, os.strerror(code))
        except OSError:
            sock.close()
            if number == len(found):
                raise
    raise ConnectionError(f"{address.host} has no address")


def _resolve(address: Address, deadline: _Deadline) -> list[Any]:
    """Look up the addresses of a host in a thread, which is abandoned if the name server does not answer in time."""
    with suppress(socket.gaierror):
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    found: list[Any] = []
    problems: list[OSError | UnicodeError] = []
    done = Event()

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            problems.append(error)
        done.set()

    Thread(target=look_up, daemon=True).start()
    while not done.wait(deadline.next_wait_s()):
        pass
    if problems:
        raise problems[0]
    return found


def _message(method: str, url: str, address: Address, headers: dict[str, str], body: bytes | None) -> bytes:
    parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
    target = quote(parts.path or "/", safe=_URL_CHARS) + (f"?{quote(parts.query, safe=_URL_CHARS)}" * bool(parts.query))
    fields = {"Host": address.authority, "User-Agent": "swarmtui", "Accept": "*/*", "Accept-Encoding": "identity"}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    overridden = {name.lower() for name in headers}
    fields = {name: value for name, value in fields.items() if name.lower() not in overridden} | headers
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def _origin(address: Address) -> tuple[str, str, int]:
    return address.scheme, address.host, address.port
