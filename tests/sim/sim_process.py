"""Run the simulator in its own process, and send HTTP requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cli.preloaded import start_module

TIMEOUT_S = 120


class Sim:
    """A running simulator, with one method for each kind of request."""

    def __init__(self, url: str, model: str) -> None:
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])
        self.model = model

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}

    def get(self, path: str) -> Any:
        status, text, _ = self.call("GET", path)
        assert status == 200, text
        return json.loads(text) if text else None

    def post(self, path: str, body: Any) -> Any:
        status, text, _ = self.call("POST", path, body)
        assert status == 200, text
        return json.loads(text)

    def chat(self, text: str = "Tell me about concurrency.", **options: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": text}], **options}

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """Return the events of a stream without [DONE], which must be the last."""
        status, text, headers = self.call("POST", path, {**body, "stream": True})
        assert status == 200, text
        assert headers["content-type"].startswith("text/event-stream")
        events = events_of(text)
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def metrics(self, path: str = "/metrics") -> dict[str, float]:
        """Return samples by name and labels, summed over replicas and GPUs."""
        status, text, headers = self.call("GET", path)
        assert status == 200 and headers["content-type"].startswith("text/plain")
        samples: dict[str, float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = re.sub(r'(engine|model_name|gpu|UUID|device|modelName)="[^"]*",?', "", series)
                name = name.replace(",}", "}").removesuffix("{}")
                samples[name] = samples.get(name, 0.0) + float(value)
        return samples

    def until(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """Wait until the metrics meet the condition, and return them."""
        give_up = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up:
            if condition(seen := self.metrics()):
                return seen
            time.sleep(0.005)
        raise AssertionError(f"never came true; last seen: {seen}")

    def open(self, path: str, body: dict[str, Any]) -> socket.socket:
        """Send a request; the caller reads the response."""
        data = json.dumps(body).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        sock.sendall(f"POST {path} HTTP/1.1\r\nhost: sim\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
        return sock


def events_of(text: str) -> list[str]:
    """Return the data of each server-sent event."""
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


@contextmanager
def simulator(spec: str, api_key: str = "") -> Iterator[Sim]:
    (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
    process = start_module("swarmtui.sim", spec, "--watch-stdin", streams=(their_input, their_output, 2))
    os.close(their_input)
    os.close(their_output)
    with os.fdopen(our_input) as said:
        with os.fdopen(our_output, "wb"):  # it exits when this is closed
            sim = Sim(said.readline().strip(), "")
            _, models, _ = sim.call("GET", "/v1/models", headers={"authorization": f"Bearer {api_key}"})
            sim.model = json.loads(models)["data"][0]["id"]
            yield sim
        assert process.wait(TIMEOUT_S) == 0
        assert said.read() == ""
