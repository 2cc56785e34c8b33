"""Start the hosts of a session, start workers on them, follow their clocks, and notice when one is lost."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

from swarmtui.hosts.clocks import HostClock, RoundTrip, best_offset
from swarmtui.hosts.node_agent import keep_alive, machine_id
from swarmtui.model import host_protocol, worker_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import SessionWarning
from swarmtui.model.hosts import ClockOffset, Host
from swarmtui.model.telemetry import Gpu
from swarmtui.processes.spawn import StartedProcess, start_launcher, wait_or_kill
from swarmtui.version import __version__

T = TypeVar("T")
LAUNCHER = "swarmtui.hosts.ray_cluster"
_FIND_TIMEOUT_S = 120.0
_START_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 10.0
# A host that does not answer a ping for this long is lost. TCP repeats what was not received up to 12.6 s later.
_PING_TIMEOUT_S = 15.0
# A silence of this length is an event.
_SILENT_S = 1.0
# Pings of a round are spread, so that one disturbance does not delay them all.
_PINGS, _FIRST_PINGS, _PING_PAUSE_S = 8, 32, 0.01
_ROUND_S = 2.0
_SPEED_TIMEOUT_S = 30.0
_MAX_HELLO = 64 << 10
_HELLO_TIMEOUT_S = 5.0


class HostWorkerProcess:
    """A worker process on another host, with the methods of `subprocess.Popen` that its link needs."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self.kill = kill
        self._exited = threading.Event()
        self._code = 0

    def exited(self, code: int) -> None:
        if not self._exited.is_set():
            self._code = code
            self._exited.set()

    def wait(self, timeout: float | None = None) -> int:
        if not self._exited.wait(timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return self._code


class HostWorker(NamedTuple):
    """A worker that was started on a host, and the connection to it."""

    socket: socket.socket
    process: HostWorkerProcess
    host: HostLink


class HostLink(asyncio.Protocol):
    def __init__(self, node: str, host: Host, on_lost: Callable[[HostLink, str], None]) -> None:
        self.node, self.host, self.clock = node, host, HostClock()
        self.gpus: tuple[Gpu, ...] = ()
        self.silent_s = 0.0
        self.orphaned = False
        self._speed: asyncio.Future[host_protocol.HostSpeed] = asyncio.get_running_loop().create_future()
        self._on_lost = on_lost
        self._unpacker = worker_protocol.Unpacker()
        self._transport: asyncio.WriteTransport | None = None
        self._processes: dict[int, HostWorkerProcess] = {}
        self._pongs: dict[int, asyncio.Future[RoundTrip]] = {}
        self._ping = self._sent_ns = 0
        self._closing = False

    @property
    def is_this_machine(self) -> bool:
        return self.host.machine == machine_id()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received_ns = time.perf_counter_ns()
        for body in self._unpacker.feed(data):
            match host_protocol.decode_agent_report(body):
                case host_protocol.Pong(number, host_ns, orphaned) if (
                    pong := self._pongs.pop(number, None)
                ) is not None:
                    self.orphaned = orphaned
                    if not pong.done():
                        pong.set_result(RoundTrip(self._sent_ns, host_ns, received_ns))
                case host_protocol.WorkerExited(worker, code) if worker in self._processes:
                    self._processes[worker].exited(code)
                case host_protocol.HostGpus(gpus, serving):
                    self.gpus = tuple(
                        msgspec.structs.replace(gpu, host=self.host.name, other_host=not serving) for gpu in gpus
                    )
                case host_protocol.HostSpeed() as speed if not self._speed.done():
                    self._speed.set_result(speed)

    def connection_lost(self, error: Exception | None) -> None:
        why = error.strerror if isinstance(error, OSError) else error
        self.lose("its agent exited" if error is None else f"the connection to its agent broke: {why}")

    def lose(self, how: str) -> None:
        """Report the host as lost, once; its workers then count as exited."""
        if not self._closing:
            self._closing = True
            self._on_lost(self, how)
        for pong in self._pongs.values():
            if not pong.done():
                pong.set_exception(ConnectionResetError(how))
        for process in self._processes.values():
            process.exited(0)
        if self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def send(self, command: msgspec.Struct) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(worker_protocol.pack(command))

    def start_worker(self, number: int) -> HostWorkerProcess:
        process = HostWorkerProcess(lambda: self.send(host_protocol.KillWorker(number)))
        self._processes[number] = process
        self.send(host_protocol.StartWorker(number))
        return process

    async def measure_speed(self) -> host_protocol.HostSpeed:
        self.send(host_protocol.MeasureSpeed())
        return await asyncio.wait_for(self._speed, _SPEED_TIMEOUT_S)

    @property
    def is_silent(self) -> bool:
        return bool(self._pongs) and time.perf_counter_ns() - self._sent_ns > 1e9 * _SILENT_S

    async def measure_clock(self, pings: int = _PINGS) -> ClockOffset:
        """Ping the host several times; `silent_s` becomes the longest time until an answer."""
        trips: list[RoundTrip] = []
        for _ in range(pings):
            self._ping += 1
            pong = self._pongs[self._ping] = asyncio.get_running_loop().create_future()
            self._sent_ns = time.perf_counter_ns()
            self.send(host_protocol.Ping(self._ping))
            trips.append(await asyncio.wait_for(pong, _PING_TIMEOUT_S))
            await asyncio.sleep(_PING_PAUSE_S)
        self.silent_s = max(trip.received_ns - trip.sent_ns for trip in trips) / 1e9
        measured = best_offset(trips)
        self.clock.add(measured)
        return measured


class HostPool:
    """The hosts of a session. `on_lost` gets a host that is gone, `on_clock` each measured offset.

    `on_event` gets the name and a text of other events: `hosts` is what the launcher reports, why an agent ended or
    that the launcher itself did; `host_silent` is a host that answered late.
    """

    def __init__(
        self,
        hosts: str,
        on_lost: Callable[[HostLink, str], None],
        on_clock: Callable[[HostLink, ClockOffset], None] = lambda host, measured: None,
        on_event: Callable[[str, str], None] = lambda name, text: None,
    ) -> None:
        self._hosts, self._on_lost, self._on_clock, self._on_event = hosts, on_lost, on_clock, on_event
        self._token = secrets.token_hex(32)
        self._directory = ""
        self._launcher: StartedProcess | None = None
        self._to_launcher: asyncio.StreamWriter | None = None
        self._listening: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hellos: asyncio.Queue[HostLink] = asyncio.Queue()
        self._worker_sockets: dict[int, asyncio.Future[socket.socket]] = {}
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._started = self._closing = False
        self.links: list[HostLink] = []

    # starting

    async def start(self) -> None:
        """Start an agent on each host and measure their clocks; BadInput says why that failed."""
        # A short path: those of Unix sockets below it are limited to 107 characters.
        self._directory = tempfile.mkdtemp(prefix="swarmtui-ray-")
        self._launcher = start_launcher(LAUNCHER)
        reader, self._to_launcher = await asyncio.open_connection(sock=self._launcher.socket)
        reports: asyncio.Queue[host_protocol.NodesFound] = asyncio.Queue()
        self._follow(self._read_launcher(reader, reports))
        self._send_to_launcher(host_protocol.FindNodes(self._hosts, self._directory))
        found = await self._unless_failed(
            reports.get(), _FIND_TIMEOUT_S, "the cluster does not respond; is its head running?"
        )
        self._listening = _listen(found.address)
        port: int = self._listening.getsockname()[1]
        self._follow(self._accept(self._listening))
        self._send_to_launcher(host_protocol.LaunchAgents(port, self._token))
        problem = f"not all hosts connected to {found.address}:{port}; does a firewall allow it?"
        for _ in found.nodes:
            self.links.append(await self._unless_failed(self._hellos.get(), _START_TIMEOUT_S, problem))
        self._name_hosts()
        for link in self.links:
            try:
                self._on_clock(link, await link.measure_clock(_FIRST_PINGS))
            except OSError:
                raise BadInput(f"{link.host.name} does not respond", key="hosts") from None
            self._follow(self._follow_clock(link))
        self._started = True

    def _follow(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _send_to_launcher(self, command: host_protocol.LauncherCommand) -> None:
        assert self._to_launcher is not None
        self._to_launcher.write(worker_protocol.pack(command))

    async def _read_launcher(
        self, reader: asyncio.StreamReader, found: asyncio.Queue[host_protocol.NodesFound]
    ) -> None:
        unpacker = worker_protocol.Unpacker()
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for body in unpacker.feed(data):
                    match host_protocol.decode_launcher_report(body):
                        case host_protocol.NodesFound() as nodes:
                            found.put_nowait(nodes)
                        case host_protocol.LaunchFailed(problem):
                            self._fail(problem)
                        case host_protocol.AgentEnded(node, name, problem):
                            name = next((link.host.name for link in self.links if link.node == node), name)
                            self._fail(f"{name}: {problem}")
        self._fail("the connection to the cluster was lost")

    def _fail(self, problem: str) -> None:
        """While hosts start, a problem ends the session; later the hosts themselves show whether they are alive."""
        if self._started and not self._closing:
            self._on_event("hosts", f"Ray: {problem}")
        elif not self._failed.done():
            self._failed.set_result(problem)

    async def _unless_failed(self, work: Awaitable[T], timeout_s: float, late: str) -> T:
        waiting = asyncio.ensure_future(work)
        await asyncio.wait((waiting, self._failed), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        raise BadInput(self._failed.result() if self._failed.done() else late, key="hosts")

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listening)
            self._follow(self._greet(connection))

    async def _greet(self, connection: socket.socket) -> None:
        """Read the first message of a connection; close it unless it shows our token."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        keep_alive(connection)
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                # Exactly one message: what follows belongs to others.
                size = int.from_bytes(await _read_exactly(connection, worker_protocol.HEADER_BYTES), "big")
                if size > _MAX_HELLO:
                    raise ValueError(f"invalid message of {size} bytes")
                hello = host_protocol.decode_hello(await _read_exactly(connection, size))
        except (OSError, TimeoutError, ValueError, RecursionError):
            connection.close()
            return
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            connection.close()
        elif isinstance(hello, host_protocol.AgentHello):
            link = HostLink(hello.node, hello.host, self._on_lost)
            await loop.create_connection(lambda: link, sock=connection)
            self._hellos.put_nowait(link)
        elif hello.worker in self._worker_sockets and not self._worker_sockets[hello.worker].done():
            self._worker_sockets[hello.worker].set_result(connection)
        else:
            connection.close()

    def _name_hosts(self) -> None:
        """Number hosts of the same name, and refuse another version: its records might mean something else."""
        self.links.sort(key=lambda link: (link.host.name, link.node))
        names, seen = Counter(link.host.name for link in self.links), Counter[str]()
        for link in self.links:
            name = link.host.name
            seen[name] += 1
            if names[name] > 1:
                link.host = msgspec.structs.replace(link.host, name=f"{name}-{seen[name]}")
            if link.host.version != __version__:
                problem = f"{link.host.name} has swarmtui {link.host.version}; install {__version__} there"
                raise BadInput(problem, key="hosts")

    def check_addresses(self, endpoints: Iterable[str]) -> None:
        """Refuse loopback addresses of endpoints if a host is another machine: there they mean that machine."""
        for endpoint in endpoints:
            elsewhere = [link.host.name for link in self.links if not link.is_this_machine]
            if elsewhere and _is_loopback(endpoint):
                problem = f"{endpoint} means another machine on {elsewhere[0]}: use an address that all hosts can reach"
                raise BadInput(problem, key="endpoint")

    async def start_workers(self, counts: list[int]) -> list[HostWorker]:
        """Start this many workers on each host; consecutive numbers are on different hosts."""
        turns = [link for turn in range(max(counts)) for link, n in zip(self.links, counts, strict=True) if turn < n]
        loop = asyncio.get_running_loop()
        self._worker_sockets = {number: loop.create_future() for number in range(len(turns))}
        processes = [link.start_worker(number) for number, link in enumerate(turns)]
        started = []
        for number, (link, process) in enumerate(zip(turns, processes, strict=True)):
            late = f"{link.host.name}: the worker did not connect"
            connection = await self._unless_failed(self._worker_sockets[number], _START_TIMEOUT_S, late)
            started.append(HostWorker(connection, process, link))
        for link in self.links:
            numbers = tuple(number for number, host in enumerate(turns) if host is link)
            link.host = msgspec.structs.replace(link.host, workers=numbers)
        return started

    # running

    async def _follow_clock(self, link: HostLink) -> None:
        known = False
        while True:
            await asyncio.sleep(_ROUND_S)
            if link.orphaned and not known:
                known = True
                self._on_event("hosts", _orphaned_text(link))
            try:
                self._on_clock(link, await link.measure_clock())
            except OSError:
                link.lose(f"it did not answer for {_PING_TIMEOUT_S:g} s")
                return
            if link.silent_s >= _SILENT_S:
                name, silent = link.host.name, f"{link.silent_s:.1f} s or longer"
                self._on_event(
                    "host_silent", f"{name} did not answer for {silent}; nothing is lost, but it may have lacked tasks"
                )

    @property
    def warnings(self) -> tuple[SessionWarning, ...]:
        """A sentence on each host that does not answer at the moment, or whose Ray node is gone."""
        lost = f"does not answer: after {_PING_TIMEOUT_S:g} s it is lost"
        silent = [SessionWarning("host_silent", f"{link.host.name} {lost}") for link in self.links if link.is_silent]
        orphaned = [SessionWarning("host_orphaned", _orphaned_text(link)) for link in self.links if link.orphaned]
        return (*silent, *orphaned)

    @property
    def bound_s(self) -> float:
        return max((link.clock.bound_ns for link in self.links), default=0) / 1e9

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for link in self.links for gpu in link.gpus)

    def sample_gpus(self, endpoints: tuple[str, ...]) -> None:
        for link in self.links:
            link.send(host_protocol.SampleGpus(endpoints))

    async def close(self) -> None:
        """Let the agents and the launcher exit; kill the launcher if it does not."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        for link in self.links:
            link.close()
        if self._listening is not None:
            self._listening.close()
        if self._to_launcher is not None:
            self._to_launcher.close()
        if self._launcher is not None:
            await asyncio.to_thread(_await_exit, self._launcher.process)
            shutil.rmtree(self._directory, ignore_errors=True)


def _orphaned_text(link: HostLink) -> str:
    return f"the Ray node of {link.host.name} died; its workers continue, and nothing is lost so far"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _listen(address: str) -> socket.socket:
    try:
        listening = socket.create_server((address, 0), backlog=128)
    except OSError as error:
        raise BadInput(f"cannot listen on {address}: {os.strerror(error.errno or 0)}", key="hosts") from None
    listening.setblocking(False)
    return listening


async def _read_exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        received = await loop.sock_recv(connection, size - len(data))
        if not received:
            raise ConnectionError("closed")
        data += received
    return data


def _await_exit(process: subprocess.Popen[bytes]) -> None:
    wait_or_kill(process, _EXIT_TIMEOUT_S)
    # A launcher that was killed, or a head that died, leaves processes of the private cluster behind.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
