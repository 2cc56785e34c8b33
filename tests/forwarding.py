"""A proxy in front of a server of this machine, in a thread; what it does with answers is up to its subclasses."""

from __future__ import annotations

import asyncio
import re
import threading
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class ForwardingProxy:
    """Forwards requests from a port of 127.0.0.1; each connection carries one.

    A subclass implements `_relay`, which passes the answer on, and may choose another server in `_address`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._server = host, port
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

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
        try:
            head = await client.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await client.readexactly(int(length.group(1))) if length else b""
            server, to_server = await asyncio.open_connection(*self._address(body))
            to_server.write(head[:-2] + b"connection: close\r\n\r\n" + body)
            relay = asyncio.ensure_future(self._forward(server, to_client, body))
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

    async def _forward(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        head = await server.readuntil(b"\r\n\r\n")
        client.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        await self._relay(server, client, body)

    def _address(self, body: bytes) -> tuple[str, int]:
        return self._host, self._server

    async def _relay(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        """Pass on what follows the head of the answer to the request with this body."""
        raise NotImplementedError
