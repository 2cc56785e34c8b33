"""Bytes of a body, cut anywhere, become the payloads of events (Server-Sent Events) or of lines (NDJSON)."""

from __future__ import annotations

MAX_EVENT = 4 << 20


class TooLong(Exception):
    """An event without an end in sight."""


class EventSplitter:
    """Server-Sent Events: what stands behind `data:`, event by event; comments and other fields are passed over.

    Servers end lines with LF, and then an event is what lies between two empty lines. The first carriage return
    switches this stream to reading line by line, which knows all three line ends of the standard.
    """

    __slots__ = ("_after_cr", "_by_line", "_data", "_pending", "_size")

    def __init__(self) -> None:
        self._pending = b""
        self._by_line = False
        self._after_cr = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._pending and not self._by_line:
            # One whole event in one chunk is what a server sends nearly always.
            if chunk[-2:] == b"\n\n" and chunk[:6] == b"data: " and chunk.count(b"\n") == 2 and b"\r" not in chunk:
                return [chunk[6:-2]]
        else:
            chunk = self._pending + chunk
        if self._by_line or b"\r" in chunk:
            self._by_line = True
            return self._feed_lines(chunk)
        events = chunk.split(b"\n\n")
        self._keep(events.pop())
        payloads = []
        for event in events:
            if event.startswith(b"data: ") and b"\n" not in event:
                payloads.append(event[6:])
            else:
                payloads += self._read_lines([*event.split(b"\n"), b""])
        return payloads

    def finish(self) -> list[bytes]:
        """What is left when the body ends without an empty line behind its last event."""
        rest, self._pending = self._pending, b""
        return self._read_lines([*rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""])

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        # A carriage return ends its line at once; when it was half of a CRLF, the other half comes now.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._keep(lines.pop())
        return self._read_lines(lines)

    def _read_lines(self, lines: list[bytes]) -> list[bytes]:
        payloads = []
        for line in lines:
            if not line:
                if self._data:
                    payloads.append(b"\n".join(self._data))
                    self._data, self._size = [], 0
            elif line.startswith(b"data:") or line == b"data":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
                if self._size > MAX_EVENT:
                    raise TooLong
        return payloads

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MAX_EVENT:
            raise TooLong
        self._pending = rest


class LineSplitter:
    """Newline-delimited JSON, as Ollama streams."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = (self._pending + chunk).split(b"\n")
        self._pending = lines.pop()
        if len(self._pending) > MAX_EVENT:
            raise TooLong
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        rest, self._pending = self._pending, b""
        return [rest] if rest.strip() else []


Splitter = EventSplitter | LineSplitter
