"""Serve a decoder with random weights on a GPU, in plain PyTorch: real prompts, real batches, answers that are noise.

    python3 serve_torch.py PORT [--layers 32] [--slots 32] [--context 1024] [--device cuda]

Needs PyTorch only. The shapes are those of a dense model of 7 B parameters (bf16); a step of all streams is one CUDA
graph, prompts are read one after the other between steps. `/v1/models` and `/v1/chat/completions` (streams only).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import threading
import time
from typing import Any

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 32, 8, 128, 14336, 32000
MODEL = "random-7b"


class Decoder:
    """The weights, the KV cache of all slots, and one captured graph for each number of streams."""

    def __init__(self, layers: int, slots: int, context: int, device: str, width: int) -> None:
        self.device, self.context, self.width = device, context, width
        self.heads, self.kv_heads = max(1, HEADS * width // 4096), max(1, KV_HEADS * width // 4096)
        inner, kind = INNER * width // 4096, torch.bfloat16
        q, kv = self.heads * HEAD, self.kv_heads * HEAD

        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, dtype=kind, device=device) * rows**-0.5

        self.layers = [
            (weight(width, q + 2 * kv), weight(q, width), weight(width, 2 * inner), weight(inner, width))
            for _ in range(layers)
        ]
        self.embedding, self.head = weight(VOCABULARY, width) * VOCABULARY**0.5, weight(width, VOCABULARY)
        shape = (layers, slots, self.kv_heads, context, HEAD)
        self.keys, self.values = (torch.zeros(shape, dtype=kind, device=device) for _ in range(2))
        self.tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self.positions = torch.zeros(slots, dtype=torch.long, device=device)
        self.places = torch.arange(context, device=device)
        self.sizes = sorted({min(2**power, slots) for power in range(12)})
        self.graphs = {size: self._capture(size) for size in self.sizes} if device == "cuda" else {}

    def _capture(self, size: int) -> Any:
        for _ in range(2):
            self._step(size)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(size)
        return graph

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)

    def _mix(self, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        gate, inner = (self._norm(x) @ up).chunk(2, dim=-1)
        return x + (F.silu(gate) * inner) @ down

    def _step(self, size: int) -> None:
        """One token of the first `size` slots."""
        at, groups = self.positions[:size], self.heads // self.kv_heads
        rows = torch.arange(size, device=self.device)
        mask = self.places[None, None, None, :] > at[:, None, None, None]
        x = self.embedding[self.tokens[:size]]
        for number, (qkv, out, up, down) in enumerate(self.layers):
            q, k, v = (self._norm(x) @ qkv).split(
                [self.heads * HEAD, self.kv_heads * HEAD, self.kv_heads * HEAD], dim=-1
            )
            keys, values = self.keys[number, :size], self.values[number, :size]
            keys[rows, :, at] = k.view(size, self.kv_heads, HEAD)
            values[rows, :, at] = v.view(size, self.kv_heads, HEAD)
            scores = q.view(size, self.kv_heads, groups, HEAD) @ keys.transpose(-1, -2) * HEAD**-0.5
            seen = scores.masked_fill(mask, float("-inf")).softmax(-1) @ values
            x = self._mix(x + seen.reshape(size, -1) @ out, up, down)
        self.tokens[:size] = (self._norm(x) @ self.head).argmax(-1)
        self.positions[:size] = (at + 1).clamp(max=self.context - 1)

    def step(self, size: int) -> list[int]:
        chosen = next(one for one in self.sizes if one >= size)
        if self.graphs:
            self.graphs[chosen].replay()
        else:
            self._step(chosen)
        found: list[int] = self.tokens[:size].tolist()  # waits for the GPU
        return found

    def read_prompt(self, slot: int, tokens: list[int]) -> int:
        """Fill the KV cache of a slot, and return the first token of the answer."""
        n, groups = len(tokens), self.heads // self.kv_heads
        x = self.embedding[torch.tensor(tokens, device=self.device)]
        for number, (qkv, out, up, down) in enumerate(self.layers):
            q, k, v = (self._norm(x) @ qkv).split(
                [self.heads * HEAD, self.kv_heads * HEAD, self.kv_heads * HEAD], dim=-1
            )
            q, k, v = (part.view(n, -1, HEAD).transpose(0, 1) for part in (q, k, v))
            self.keys[number, slot, :, :n], self.values[number, slot, :, :n] = k, v
            wide = (part.repeat_interleave(groups, 0)[None] for part in (k, v))
            seen = F.scaled_dot_product_attention(q[None], *wide, is_causal=True)[0]
            x = self._mix(x + seen.transpose(0, 1).reshape(n, -1) @ out, up, down)
        token = (self._norm(x[-1:]) @ self.head).argmax(-1)
        self.tokens[slot], self.positions[slot] = token[0], n
        return int(token[0])


class Stream:
    """One request: `send` hands tokens to the event loop, and None at the end."""

    def __init__(self, prompt: list[int], limit: int, send: Any) -> None:
        self.prompt, self.left, self.send, self.cancelled = prompt, limit, send, False


def run_engine(decoder: Decoder, slots: int, waiting: queue.Queue[Stream]) -> None:
    """Read waiting prompts while a slot is free, then make a step of all streams; forever."""
    active: dict[int, Stream] = {}
    with torch.inference_mode():
        while True:
            while len(active) < slots:
                try:
                    stream = waiting.get(block=not active)
                except queue.Empty:
                    break
                if stream.cancelled:
                    continue
                slot = min(set(range(slots)) - set(active))
                active[slot] = stream
                _hand_out(active, slot, decoder.read_prompt(slot, stream.prompt))
            if active:
                tokens = decoder.step(max(active) + 1)
                for slot in list(active):
                    _hand_out(active, slot, tokens[slot])


def _hand_out(active: dict[int, Stream], slot: int, token: int) -> None:
    stream = active[slot]
    stream.left -= 1
    stream.send(token)
    if stream.left <= 0 or stream.cancelled:
        stream.send(None)
        del active[slot]


class Endpoint:
    def __init__(self, waiting: queue.Queue[Stream], context: int) -> None:
        self.waiting, self.context, self.number = waiting, context, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.split(b"\r\n", 1)[0].split(b" ")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                if method == b"POST" and path.endswith(b"/chat/completions"):
                    await self._answer(json.loads(body), writer)
                elif path.endswith((b"/models", b"/health")):
                    _write(writer, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
                else:
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        text = "".join(str(message.get("content") or "") for message in body["messages"])
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 128)
        room = self.context - min(limit, self.context // 2)
        # About four characters are a token.
        prompt = [sum(text[at : at + 4].encode()) % VOCABULARY for at in range(0, len(text), 4)][:room] or [0]
        limit = min(limit, self.context - len(prompt))
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()
        stream = Stream(prompt, limit, lambda token: loop.call_soon_threadsafe(tokens.put_nowait, token))
        self.number += 1
        base: dict[str, Any] = {
            "id": f"t{self.number}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": MODEL,
        }
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self.waiting.put(stream)
        count = 0
        try:
            while (token := await tokens.get()) is not None:
                count += 1
                delta = {"role": "assistant", "content": f" w{token}"} if count == 1 else {"content": f" w{token}"}
                _event(writer, base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                await writer.drain()
        finally:
            stream.cancelled = True
        _event(writer, base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
        _event(writer, base | {"choices": [], "usage": usage})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.is_closing():
        raise ConnectionResetError
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _write(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    with torch.inference_mode():
        decoder = Decoder(given.layers, given.slots, given.context, given.device, given.width)
    waiting: queue.Queue[Stream] = queue.Queue()
    threading.Thread(target=run_engine, args=(decoder, given.slots, waiting), daemon=True).start()
    server = await asyncio.start_server(Endpoint(waiting, given.context).serve, "127.0.0.1", given.port)
    print(f"ready on {given.port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
