"""A proxy between client and simulator that corrupts a share of the answers under load; canaries are answered first."""

from __future__ import annotations

import asyncio
import re
from random import Random

from tests.forwarding import ForwardingProxy

_CONTENT = re.compile(rb'(?<="content":")[^"]+')
_NOT_TEXT = "\ufffd".encode()


class CorruptingProxy(ForwardingProxy):
    """Forwards each request to `knowing` if it asks a canary question, else to `server`; both are 127.0.0.1 ports.

    Corrupted answers have as many bytes as before, so that the HTTP framing stays valid: they are a loop, or contain
    characters that are not text. An answer that nobody shares the server with is left alone.
    """

    def __init__(self, server: int, knowing: int, share: float, seed: int) -> None:
        super().__init__("127.0.0.1", server)
        self._knowing, self._share, self._random = knowing, share, Random(seed)
        self.answers, self.corrupted = 0, 0
        self._in_flight = 0

    def _address(self, body: bytes) -> tuple[str, int]:
        host, port = super()._address(body)
        return host, self._knowing if b"Answer with that only" in body else port

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._in_flight += 1
        try:
            await super()._serve(client, to_client)
        finally:
            self._in_flight -= 1

    def _choose_filler(self) -> bytes | None:
        self.answers += 1
        # At C=1 a request can arrive before its predecessor is over here.
        if self._in_flight < 3 or self._random.random() >= self._share:
            return None
        self.corrupted += 1
        return self._random.choice((b"a", _NOT_TEXT))

    async def _relay(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        filler = self._choose_filler() if body else None
        while data := await server.read(65536):
            client.write(data if filler is None else _corrupt(data, filler))
            await client.drain()
            if data.endswith(b"\r\n0\r\n\r\n"):  # the last chunk; a server may keep its connection open
                return


def _corrupt(data: bytes, filler: bytes) -> bytes:
    def fill(found: re.Match[bytes]) -> bytes:
        count, rest = divmod(len(found.group()), len(filler))
        return filler * count + b"?" * rest

    return _CONTENT.sub(fill, data)
