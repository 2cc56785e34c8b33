"""A proxy in front of a server that holds answers back, or halves the token counts that the server reports."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

from tests.forwarding import ForwardingProxy

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


class Proxy(ForwardingProxy):
    """Changes the answers of a server."""

    def __init__(self, server: str, change: Change) -> None:
        address = urlsplit(server)
        super().__init__(address.hostname or "127.0.0.1", address.port or 80)
        self._change = change

    async def _relay(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        edit: Callable[[bytes], bytes] = halve_usage if self._change == "halve" else bytes
        streamed, held = b'"stream":true' in body, b""
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
