"""A proxy between client and simulator that corrupts a share of the answers under load; canaries are answered first."""

from __future__ import annotations

import asyncio
import re
import threading
from random import Random
from types import TracebackType
from typing import Self

_CONTENT = re.compile(rb'(?<="content":")[^"]+')
_NOT_TEXT = "\ufffd".encode()
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class CorruptingProxy:
    """Forwards each request to `knowing` if it asks a canary question, else to `server`; both are 127.0.0.1 ports.

    Corrupted answers have as many bytes as before, so that the HTTP framing stays valid: they are a loop, or contain
    characters that are not text. An answer that nobody shares the server with is left alone.
    """

    def __init__(self, server: int, knowing: int, share: float, seed: int) -> None:
        self._server, self._knowing, self._share, self._random = server, knowing, share, Random(seed)
        self.answers, self.corrupted, self.port = 0, 0, 0
        self._in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._listener = starting.result()
        self.port = self._listener.sockets[0].getsockname()[1]
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
        """Serve one request; the connection ends with it."""
        self._in_flight += 1
        try:
            head = await client.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await client.readexactly(int(length.group(1))) if length else b""
            port = self._knowing if b"Answer with that only" in body else self._server
            server, to_server = await asyncio.open_connection("127.0.0.1", port)
            to_server.write(head[:-2] + b"connection: close\r\n\r\n" + body)
            await self._forward(server, to_client, self._choose_filler() if body else None)
            to_server.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client or the server has gone
        finally:
            self._in_flight -= 1
            to_client.close()

    def _choose_filler(self) -> bytes | None:
        self.answers += 1
        # At C=1 a request can arrive before its predecessor is over here.
        if self._in_flight < 3 or self._random.random() >= self._share:
            return None
        self.corrupted += 1
        return self._random.choice((b"a", _NOT_TEXT))

    async def _forward(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, filler: bytes | None) -> None:
        begun = False
        while data := await server.read(65536):
            if not begun:
                begun, data = True, data.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
            if filler is not None:
                data = _corrupt(data, filler)
            client.write(data)
            await client.drain()
            if data.endswith(b"\r\n0\r\n\r\n"):  # the last chunk; a server may keep its connection open
                return


def _corrupt(data: bytes, filler: bytes) -> bytes:
    def fill(found: re.Match[bytes]) -> bytes:
        count, rest = divmod(len(found.group()), len(filler))
        return filler * count + b"?" * rest

    return _CONTENT.sub(fill, data)
