"""The simulator as a server on 127.0.0.1, which sends the tokens of each engine step when the step ends.

The engine runs on an absolute schedule: if the event loop wakes late, it sends all due tokens at once, so that delays
do not accumulate.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import msgspec

from swarmtui.files import raise_open_file_limit
from swarmtui.model.base import BadInput
from swarmtui.processes.exits import set_at_end_of_stdin
from swarmtui.sim import gpu, metrics
from swarmtui.sim.apis import APIS
from swarmtui.sim.batching import BatchingEngine, Job
from swarmtui.sim.http import HttpRequest, SimConnection
from swarmtui.sim.kv_pool import block_hashes
from swarmtui.sim.presets import Preset, Settings, changed_settings, fault_for
from swarmtui.sim.replies import FAILURE, Reply, SimApi
from swarmtui.sim.requests import ParsedRequest, RequestRefused, tokenize
from swarmtui.text import echo

HOST = "127.0.0.1"
VERSION = "sim-1"
_BACKLOG = 4096
_OPENAI = APIS["/v1/chat/completions"]


class SimulatorServer:
    """One simulated endpoint. Must be created in a running event loop."""

    def __init__(self, preset: Preset, settings: Settings) -> None:
        self._preset, self._speed, self._seed = preset, settings.speed, settings.seed
        self._loop = asyncio.get_running_loop()
        self._t0 = self._loop.time()
        self._engine = BatchingEngine(preset, self._seed)
        self._meters = [metrics.Meters(self._speed) for _ in self._engine.replicas]
        self._cards = [gpu.Cards(preset.gpu, preset.slots, self._t0) for _ in self._engine.replicas]
        self._boot = int(time.time())
        self._replies: dict[int, Reply] = {}
        self._by_connection: dict[SimConnection, Reply] = {}
        self._connections: set[SimConnection] = set()
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def connect(self) -> SimConnection:
        connection = SimConnection(self._handle, self._on_disconnect)
        self._connections.add(connection)
        return connection

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        for connection in tuple(self._connections):
            connection.transport.abort()

    def _on_disconnect(self, connection: SimConnection) -> None:
        self._connections.discard(connection)
        reply = self._by_connection.get(connection)
        if reply:
            self._advance()
            if reply.job.number in self._replies:
                self._drop(reply, "abort")
            self._schedule()

    def _server_info(self) -> bytes:
        """Return what distinguishes two simulators; the default speed is left out."""
        preset = self._preset
        speed = {} if self._speed == 1 else {"speed": f"{self._speed:g}"}
        info = {"version": VERSION, "preset": preset.name, "slots": preset.slots, "replicas": preset.replicas}
        return msgspec.json.encode(info | speed | {"settings": changed_settings(preset)})

    def _handle(self, connection: SimConnection, request: HttpRequest) -> None:
        gets: dict[str, Callable[[], bytes]] = {
            "/v1/models": self._models,
            "/api/tags": lambda: msgspec.json.encode({"models": [{"name": self._preset.model}]}),
            "/metrics": self._metrics,
            "/gpu/metrics": self._gpu_metrics,
            "/version": lambda: msgspec.json.encode({"version": VERSION}),
            "/server_info": self._server_info,
            "/health": lambda: b"",
        }
        path = request.path
        key, shown = self._preset.api_key, request.headers.get
        known = shown("authorization") == f"Bearer {key}" or shown("x-api-key") == key
        if key and path.startswith(("/v1/", "/api/")) and not known:
            connection.respond(401, b'{"error":"Unauthorized"}')
        elif path in gets and request.method == "GET":
            kind = metrics.CONTENT_TYPE if path.endswith("/metrics") else "application/json"
            connection.respond(200, gets[path](), kind)
        elif (path in APIS or path == "/tokenize") and request.method == "POST":
            self._post(connection, request)
        elif path in gets or path in APIS or path == "/tokenize":
            connection.respond(405, b'{"detail":"Method Not Allowed"}')
        else:
            connection.respond(404, b'{"detail":"Not Found"}')

    def _post(self, connection: SimConnection, request: HttpRequest) -> None:
        api = APIS.get(request.path, _OPENAI)
        try:
            if request.path == "/tokenize":
                connection.respond(200, tokenize(request.body, self._preset))
                return
            parsed = api.parse(request.body, self._preset, self._seed)
            if parsed.stream and not request.http_1_1:
                raise RequestRefused(400, "A stream needs HTTP/1.1.")
        except RequestRefused as refusal:
            connection.respond(refusal.status, msgspec.json.encode(api.whole.error(refusal)))
        else:
            self._accept(connection, api, parsed)

    def _accept(self, connection: SimConnection, api: SimApi, parsed: ParsedRequest) -> None:
        """Submit a valid request to the engine, unless it is to fail immediately."""
        number = self._count
        self._count += 1
        fault = fault_for(number, self._preset.failures, self._seed)
        if fault == "http_500" or fault == "http_503":
            failure = RequestRefused(int(fault.removeprefix("http_")), FAILURE.message, kind=FAILURE.kind)
            connection.respond(failure.status, msgspec.json.encode(api.whole.error(failure)))
            return
        preset = self._preset
        blocks = block_hashes(parsed.prompt, preset.block_size) if preset.prefix_cache else ()
        job = Job(number, len(parsed.prompt), parsed.output_tokens, blocks)
        kind: type[Reply] = api.stream if parsed.stream else api.whole
        reply = kind(connection, job, parsed, fault, preset, self._speed, self._boot)
        self._replies[number] = self._by_connection[connection] = reply
        reply.start()
        self._engine.submit(job, self._advance())
        self._schedule()

    def _advance(self) -> float:
        """Send what is due, and return the engine's time."""
        now = (self._loop.time() - self._t0) * self._speed
        touched: dict[int, Reply] = {}
        replies = self._replies
        for step in self._engine.advance(now):
            self._meters[step.replica].step(step)
            self._cards[step.replica].work(self._wall(step.start), self._wall(step.end), step.batch)
            for job, count in step.tokens:
                reply = replies[job.number]
                reply.produce(count)
                touched[job.number] = reply
        for reply in touched.values():
            self._deliver(reply)
        return now

    def _deliver(self, reply: Reply) -> None:
        if reply.faulted:
            self._apply_fault(reply)
        elif not reply.stalled:
            reply.flush()
            if reply.job.done:
                self._remove(reply, reply.request.finish_reason)
                reply.complete()

    def _apply_fault(self, reply: Reply) -> None:
        if reply.fault == "stall":
            reply.faulted = False
            self._loop.call_later(self._preset.failures.stall_s / self._speed, self._resume, reply)
            return
        self._drop(reply, "error")
        if reply.fault == "error_event":
            reply.fail()
        elif reply.fault == "reset":
            reply.connection.reset()
        else:
            reply.connection.transport.close()

    def _resume(self, reply: Reply) -> None:
        """End a stall, and send what was produced during it."""
        if reply.job.number in self._replies:
            reply.resume()
            self._deliver(reply)

    def _drop(self, reply: Reply, how: metrics.Finish) -> None:
        self._engine.cancel(reply.job)
        self._remove(reply, how)

    def _remove(self, reply: Reply, how: metrics.Finish) -> None:
        del self._replies[reply.job.number]
        del self._by_connection[reply.connection]
        self._meters[reply.job.replica].end(reply.job, how)

    def _schedule(self) -> None:
        if self._timer:
            self._timer.cancel()
        end = self._engine.next_end()
        self._timer = None if end is None else self._loop.call_at(self._wall(end), self._wake)

    def _wake(self) -> None:
        self._advance()
        self._schedule()

    def _wall(self, virtual: float) -> float:
        return self._t0 + virtual / self._speed

    def _models(self) -> bytes:
        model = {
            "id": self._preset.model,
            "object": "model",
            "created": 0,
            "owned_by": "swarmtui-sim",
            "root": self._preset.name,
            "parent": None,
            "max_model_len": self._preset.max_model_len,
        }
        return msgspec.json.encode({"object": "list", "data": [model]})

    def _metrics(self) -> bytes:
        self._wake()
        return metrics.page(metrics.render(self._preset, self._engine.replicas, self._meters))

    def _gpu_metrics(self) -> bytes:
        self._wake()
        now, room = self._loop.time(), metrics.kv_capacity(self._preset)
        readings = [
            cards.read(now, replica.step.batch if replica.step else 0, replica.kv_tokens_used / room)
            for cards, replica in zip(self._cards, self._engine.replicas, strict=True)
        ]
        return metrics.page(gpu.render(self._preset.gpu, readings))


async def serve(preset: Preset, settings: Settings, port: int, *, watch_stdin: bool) -> None:
    """Print the URL and serve until SIGTERM or SIGINT, or with `watch_stdin` until stdin is closed."""
    raise_open_file_limit()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    simulator = SimulatorServer(preset, settings)
    try:
        server = await loop.create_server(simulator.connect, HOST, port, backlog=_BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise BadInput(f"cannot listen on {HOST}: {why}", key=f"port {port}") from None
    echo(f"http://{HOST}:{server.sockets[0].getsockname()[1]}")
    if watch_stdin:
        set_at_end_of_stdin(stop)
    await stop.wait()
    server.close()
    simulator.close()
