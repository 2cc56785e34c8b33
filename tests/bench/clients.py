"""Measure the cost of common clients, for comparison: httpx, and httpx on aiohttp's transport. Prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import httpx


async def _stream(client: httpx.AsyncClient, url: str, tokens: int) -> int:
    body = {"model": "truth", "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": "go"}]}
    events = 0
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                events += bool(json.loads(line[6:])["choices"])
    return events


async def measure(kind: str, url: str, c: int, tokens: int) -> dict[str, float]:
    limits = httpx.Limits(max_connections=c, max_keepalive_connections=c)
    if kind == "httpx+aiohttp":
        from httpx_aiohttp import AiohttpTransport

        client = httpx.AsyncClient(transport=AiohttpTransport(limits=limits), timeout=600.0)
    else:
        client = httpx.AsyncClient(limits=limits, timeout=600.0)
    async with client:
        await _stream(client, url, 2)
        cpu, wall = time.process_time(), time.perf_counter()
        events = sum(await asyncio.gather(*(_stream(client, url, tokens) for _ in range(c))))
        return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "events": events}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
