"""A server of all APIs that logs when each request arrived and when each token was handed to the socket.

It uses the client's clock (CLOCK_MONOTONIC). On SIGTERM it writes `requests.tsv` (seq, t_first_byte, t_first, t_last,
tokens) and `tokens.bin` (u32 seq, u32 index, i64 t_ns per token). With --itl-ms 0 it writes as fast as sockets accept
data, and logs no tokens. With --certificate it uses TLS; a token's time is then taken after encryption, so that the
server's encryption does not count as an error of the client.
"""

from __future__ import annotations

import argparse
import json
import select
import signal
import socket
import ssl
import struct
import sys
import time
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from swarmtui.model.endpoint import PATHS
from tests.loadgen.wire import WIRES

_BURST = 64


def _head(content_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event) if event else b""


class TlsLayer:
    """The server side of TLS over memory buffers, so that times can be taken between encrypting and sending."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._open = False

    def decrypt(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the decrypted data, and handshake data to send."""
        self._in.write(data)
        plain = b""
        try:
            if not self._open:
                self._tls.do_handshake()
                self._open = True
            while part := self._tls.read(1 << 16):
                plain += part
        except ssl.SSLWantReadError:
            pass
        return plain, self._out.read()

    def encrypt(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()


class _Limits(msgspec.Struct):
    """The only part of a request that is decoded: prompts may be long."""

    max_tokens: int | None = None
    max_output_tokens: int | None = None


class TruthStream:
    """A connection and its current request."""

    def __init__(self, sock: socket.socket, seal: TlsLayer | None) -> None:
        self.sock = sock
        self.tls = seal
        self.received = bytearray()
        self.length = -1
        self.unsent = b""
        self.seq = self.want = self.sent = -1
        self.t_byte = self.t_first = self.due = 0
        self.token = b""
        self.wire = WIRES["chat"]


def _named(stream: TruthStream, event: bytes) -> bytes:
    """Return an event with the name of the request, by which its record is found."""
    return event.replace(b'"answer"', b'"gen-%08d"' % stream.seq)


class TruthServer:
    def __init__(
        self,
        port: int,
        ttft_ms: float,
        itl_ms: float,
        per_chunk: int,
        folder: Path,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._ttft, self._itl = int(ttft_ms * 1e6), int(itl_ms * 1e6)
        self._per_chunk, self._folder = per_chunk, folder
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._streams: dict[int, TruthStream] = {}
        self._due: list[tuple[int, int, int]] = []
        self._requests: list[str] = []
        self._tokens: list[bytes] = []
        self._next = 0
        self.running = True

    def serve(self) -> None:
        while self.running:
            wait = max(0.0, (self._due[0][0] - time.perf_counter_ns()) / 1e9) if self._due else 0.2
            for fd, events in self._epoll.poll(wait):
                if fd == self._listener.fileno():
                    self._accept()
                elif events & select.EPOLLIN:
                    self._read(self._streams[fd])
                elif events & select.EPOLLOUT:
                    self._send(self._streams[fd], b"")
                else:
                    self._close(self._streams[fd])
            now = time.perf_counter_ns()
            while self._due and self._due[0][0] <= now:
                _, seq, fd = heappop(self._due)
                stream = self._streams.get(fd)
                if stream is not None and stream.seq == seq:
                    self._step(stream)
        self._write_logs()

    def _accept(self) -> None:
        try:
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._streams[sock.fileno()] = TruthStream(sock, TlsLayer(self._tls) if self._tls else None)
                self._epoll.register(sock, select.EPOLLIN)
        except BlockingIOError:
            pass

    def _close(self, stream: TruthStream) -> None:
        del self._streams[stream.sock.fileno()]
        stream.sock.close()

    def _read(self, stream: TruthStream) -> None:
        try:
            data = stream.sock.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._close(stream)
            return
        received = time.perf_counter_ns()
        if stream.tls:
            try:
                data, handshake = stream.tls.decrypt(data)
            except ssl.SSLError:  # a probe without TLS, or a client that rejects the certificate
                self._close(stream)
                return
            self._send(stream, handshake)
            if not data:
                return
        if not stream.received:
            stream.t_byte = received
        stream.received += data
        if stream.length < 0 and (end := stream.received.find(b"\r\n\r\n")) >= 0:
            lines = bytes(stream.received[:end]).lower().split(b"\r\n")
            stream.length = end + 4 + next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
        if stream.length < 0 or len(stream.received) < stream.length:
            return
        head, _, body = bytes(stream.received).partition(b"\r\n\r\n")
        stream.received, stream.length = bytearray(), -1
        if head.startswith(b"GET"):
            body = json.dumps({"object": "list", "data": [{"id": "truth", "owned_by": "truth"}]}).encode()
            self._send_plain(
                stream,
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(body), body),
            )
            return
        path = head.split(b" ", 2)[1].decode()
        wire = next((WIRES[dialect] for dialect in PATHS if PATHS[dialect] == path), None)
        if wire is None:  # such as /tokenize, at the end of a run
            self._send_plain(stream, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        stream.seq, self._next = self._next, self._next + 1
        request = msgspec.json.decode(body, type=_Limits)
        stream.want, stream.sent, stream.wire = request.max_tokens or request.max_output_tokens or 100, 0, wire
        stream.token = _chunk(_named(stream, stream.wire.word(" word" * self._per_chunk)))
        stream.due = time.perf_counter_ns() + self._ttft
        self._send_plain(stream, _head(stream.wire.content_type) + _chunk(_named(stream, stream.wire.start)))
        heappush(self._due, (stream.due, stream.seq, stream.sock.fileno()))

    def _step(self, stream: TruthStream) -> None:
        seq, first = stream.seq, stream.sent
        count = min(1 if self._itl else _BURST, -(-(stream.want - first) // self._per_chunk))
        stream.sent += count * self._per_chunk
        finished = stream.sent >= stream.want
        end = _chunk(_named(stream, stream.wire.end(stream.sent))) + b"0\r\n\r\n" if finished else b""
        data = stream.token * count + end
        if stream.tls:
            data = stream.tls.encrypt(data)
        now = time.perf_counter_ns()
        self._send(stream, data)
        if not first:
            stream.t_first = now
        if self._itl:
            for i in range(self._per_chunk):
                self._tokens.append(struct.pack("=IIq", seq, first + i, now))
        if finished:
            self._requests.append(f"{seq}\t{stream.t_byte}\t{stream.t_first}\t{now}\t{stream.sent}")
            stream.seq = -1
            return
        stream.due = stream.due + self._itl if self._itl else now
        if self._itl or not stream.unsent:
            heappush(self._due, (stream.due, seq, stream.sock.fileno()))

    def _send_plain(self, stream: TruthStream, data: bytes) -> None:
        self._send(stream, stream.tls.encrypt(data) if stream.tls else data)

    def _send(self, stream: TruthStream, data: bytes) -> None:
        data = stream.unsent + data
        try:
            sent = stream.sock.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            self._close(stream)
            return
        had, stream.unsent = bool(stream.unsent), data[sent:]
        if had != bool(stream.unsent):
            self._epoll.modify(stream.sock, select.EPOLLIN | (select.EPOLLOUT if stream.unsent else 0))
            if had and not self._itl and stream.seq >= 0:
                heappush(self._due, (time.perf_counter_ns(), stream.seq, stream.sock.fileno()))

    def _write_logs(self) -> None:
        (self._folder / "requests.tsv").write_text("\n".join(self._requests) + "\n")
        (self._folder / "tokens.bin").write_bytes(b"".join(self._tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=200.0)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--per-chunk", type=int, default=1)
    parser.add_argument("--certificate", type=Path, help="PEM file with certificate and key, to use TLS")
    options = parser.parse_args()
    tls = None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate)
    truth = TruthServer(options.port, options.ttft_ms, options.itl_ms, options.per_chunk, options.folder, tls)

    def stop(number: int, frame: object) -> None:
        truth.running = False

    signal.signal(signal.SIGTERM, stop)
    sys.stdout.write(f"http{'s' if tls else ''}://127.0.0.1:{truth._listener.getsockname()[1]}\n")
    sys.stdout.flush()
    truth.serve()


if __name__ == "__main__":
    main()
