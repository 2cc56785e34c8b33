"""A proxy in front of a server that holds answers back, or halves the token counts that the server reports."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_USAGE = re.compile(rb'("(?:completion_tokens|output_tokens)": ?)(\d+)')
# What a proxy with default settings collects before it passes something on.
_BUFFER = 4096

Change = Literal["buffer", "halve"]


def halve_usage(data: bytes) -> bytes:
    """Halve the counts of output tokens; the data keeps its length, so that its HTTP framing stays valid."""

    def half(found: re.Match[bytes]) -> bytes:
        count = str(int(found[2]) // 2).encode()
        return found[1] + count.rjust(len(found[2]))

    return _USAGE.sub(half, data)


class Proxy:
    """Forwards requests from a port of 127.0.0.1 to a server; each connection carries one."""

    def __init__(self, server: str, change: Change) -> None:
        address = urlsplit(server)
        self._host, self._server, self._change = address.hostname or "127.0.0.1", address.port or 80, change
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._listener = starting.result()
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            head = await client.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await client.readexactly(int(length.group(1))) if length else b""
            server, to_server = await asyncio.open_connection(self._host, self._server)
            to_server.write(head[:-2] + b"connection: close\r\n\r\n" + body)
            relay = asyncio.ensure_future(self._relay(server, to_client, streamed=b'"stream":true' in body))
            # A client that goes away ends the request at the server, too.
            gone = asyncio.ensure_future(client.read(1))
            await asyncio.wait((relay, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (relay, gone):
                task.cancel()
            to_server.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client or the server has gone
        finally:
            to_client.close()

    async def _relay(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, *, streamed: bool) -> None:
        edit: Callable[[bytes], bytes] = halve_usage if self._change == "halve" else bytes
        head = await server.readuntil(b"\r\n\r\n")
        client.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        held = b""
        while data := await server.read(65536):
            held += data
            if self._change == "halve":
                # A count may be cut in two only where a line is.
                whole, line, held = held.rpartition(b"\n")
                client.write(edit(whole + line))
            elif len(held) >= _BUFFER or not streamed:
                client.write(held)
                held = b""
            await client.drain()
        client.write(edit(held))
        await client.drain()
