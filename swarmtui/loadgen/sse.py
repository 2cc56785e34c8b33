"""Split a response body, received in arbitrary pieces, into the payloads of Server-Sent Events or NDJSON lines."""

from __future__ import annotations

MAX_EVENT = 4 << 20
_BOM = b"\xef\xbb\xbf"
# A search for a number is many times faster than one for a bytes object.
_CR = ord("\r")


class TooLong(Exception):
    """An event, header block or response exceeds its size limit."""


class ErrorPayload(bytes):
    """The data of a Server-Sent Event of type `error`."""


class _Pending:
    """Keeps an incomplete line or event in one growing buffer: small reads do not copy a long one again and again."""

    __slots__ = ("_at_start", "_pending")

    def __init__(self) -> None:
        self._at_start = True
        self._pending = bytearray()

    def _keep(self, rest: bytes) -> None:
        self._pending += rest
        if len(self._pending) > MAX_EVENT:
            raise TooLong

    def _join(self, chunk: bytes = b"") -> bytes:
        if self._pending:
            self._pending += chunk
            chunk = bytes(self._pending)
            self._pending.clear()
        return chunk

    def _skip_bom(self, chunk: bytes) -> bytes:
        """Return the start of a stream without a byte order mark; nothing until there are enough bytes to tell."""
        chunk = self._join(chunk)
        if _BOM.startswith(chunk) and chunk != _BOM:
            self._keep(chunk)
            return b""
        self._at_start = False
        return chunk.removeprefix(_BOM)


def _data_lines(events: bytes) -> list[bytes] | None:
    """Return the payloads of whole events that consist of one `data: ` line each, as nearly all do; otherwise None."""
    payloads = events[6:-2].split(b"\n\ndata: ")
    plain = events[:6] == b"data: " and events[-2:] == b"\n\n" and events.count(b"\n") == 2 * len(payloads)
    return payloads if plain else None


def _data_after_type(event: bytes) -> bytes | None:
    """Return the data of an event of two lines, `event: …` and `data: …`; None for any other event, and for errors."""
    if event[:7] != b"event: ":
        return None
    end = event.find(b"\n")
    start = end + 7
    if event[end:start] != b"\ndata: " or event.find(b"\n", start) >= 0 or event[7:end].strip() == b"error":
        return None
    return event[start:]


class EventSplitter(_Pending):
    """Returns the `data` of each Server-Sent Event, as an `ErrorPayload` if its type is `error`; the rest is skipped.

    Nearly all servers end lines with LF, so events are separated by two of them. The first carriage return
    switches the stream to line-by-line parsing, which handles all three line endings of the standard.
    """

    __slots__ = ("_after_cr", "_by_line", "_data", "_is_error", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._by_line = False
        self._after_cr = False
        self._data: list[bytes] = []
        self._size = 0
        self._is_error = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._at_start:
            chunk = self._skip_bom(chunk)
        if self._by_line or _CR in chunk:
            if self._by_line and self._pending and b"\n" not in chunk and b"\r" not in chunk:
                self._keep(chunk)
                return []
            self._by_line = True
            return self._feed_lines(self._join(chunk))
        if self._pending and b"\n\n" not in chunk and not (chunk[:1] == b"\n" and self._pending[-1:] == b"\n"):
            self._keep(chunk)
            return []
        chunk = self._join(chunk)
        end = chunk.rfind(b"\n\n") + 2
        if end < 2:
            end = 0
        if end < len(chunk):
            self._keep(chunk[end:])
            chunk = chunk[:end]
        if (payloads := _data_lines(chunk)) is not None:
            return payloads
        payloads = []
        for event in chunk.split(b"\n\n")[:-1]:
            if (data := _data_after_type(event)) is not None:
                payloads.append(data)
            else:
                payloads += self._read_lines([*event.split(b"\n"), b""])
        return payloads

    def feed_each(self, chunks: list[bytes]) -> list[bytes] | None:
        """Return the payloads of chunks that hold one plain event each; do nothing and return None if they do not.

        All of them must end with an empty line.
        """
        if self._pending or self._by_line or self._at_start:
            return None
        joined = b"".join(chunks)
        payloads = None if _CR in joined else _data_lines(joined)
        return payloads if payloads is not None and len(payloads) == len(chunks) else None

    def finish(self) -> list[bytes]:
        """Return the last event of a body that ends without an empty line."""
        rest = self._join()
        return self._read_lines([*rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""])

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        # A carriage return ends its line at once; a line feed that follows it belongs to the same line ending.
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
                if self._data or self._is_error:
                    data = b"\n".join(self._data)
                    payloads.append(ErrorPayload(data) if self._is_error else data)
                    self._data, self._size, self._is_error = [], 0, False
            elif line.startswith(b"data:") or line == b"data":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
                if self._size > MAX_EVENT:
                    raise TooLong
            elif line.startswith(b"event:"):
                self._is_error = line[6:].strip() == b"error"
        return payloads


class LineSplitter(_Pending):
    """Returns the lines of newline-delimited JSON, as streamed by Ollama."""

    __slots__ = ()

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._at_start:
            chunk = self._skip_bom(chunk)
        if self._pending and b"\n" not in chunk:
            self._keep(chunk)
            return []
        lines = self._join(chunk).split(b"\n")
        self._keep(lines.pop())
        return [line for line in lines if line.strip()]

    def feed_each(self, chunks: list[bytes]) -> list[bytes] | None:
        """Return lines that came one by one; do nothing and return None otherwise."""
        plain = not (self._pending or self._at_start) and all(chunk.find(b"\n") == len(chunk) - 1 for chunk in chunks)
        return [chunk[:-1] for chunk in chunks] if plain else None

    def finish(self) -> list[bytes]:
        rest = self._join()
        return [rest] if rest.strip() else []


Splitter = EventSplitter | LineSplitter
