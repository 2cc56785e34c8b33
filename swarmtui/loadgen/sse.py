"""Split a response body, received in arbitrary pieces, into the payloads of Server-Sent Events or NDJSON lines."""

from __future__ import annotations

MAX_EVENT = 4 << 20


class TooLong(Exception):
    """An event, header block or response exceeds its size limit."""


class EventSplitter:
    """Returns the `data` of each Server-Sent Event; comments and other fields are skipped.

    Nearly all servers end lines with LF, so that events are separated by two of them. The first carriage return
    switches the stream to line-by-line parsing, which handles all three line endings of the standard.
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
            # Fast path: nearly all chunks hold exactly one event.
            if chunk[-2:] == b"\n\n" and chunk[:6] == b"data: " and chunk.count(b"\n") == 2 and b"\r" not in chunk:
                return [chunk[6:-2]]
        else:
            chunk = self._pending + chunk
        if self._by_line or b"\r" in chunk:
            self._by_line = True
            return self._feed_lines(chunk)
        events = chunk.split(b"\n\n")
        self._set_pending(events.pop())
        payloads = []
        for event in events:
            if event.startswith(b"data: ") and b"\n" not in event:
                payloads.append(event[6:])
            else:
                payloads += self._read_lines([*event.split(b"\n"), b""])
        return payloads

    def finish(self) -> list[bytes]:
        """Return the last event of a body that ends without an empty line."""
        rest, self._pending = self._pending, b""
        return self._read_lines([*rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""])

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        # A carriage return ends its line at once; a line feed that follows it belongs to the same line ending.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._set_pending(lines.pop())
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

    def _set_pending(self, rest: bytes) -> None:
        if len(rest) > MAX_EVENT:
            raise TooLong
        self._pending = rest


class LineSplitter:
    """Returns the lines of newline-delimited JSON, as streamed by Ollama."""

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
