"""Represent one host in a session: start its workers, answer pings, and report its GPUs.

It runs in an actor of a Ray cluster, and knows nothing of Ray. It ends when the session process closes the connection.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import threading
import time
from contextlib import suppress

import msgspec

from swarmtui.files import read_file
from swarmtui.model import host_protocol, worker_protocol
from swarmtui.model.hosts import Host
from swarmtui.processes.spawn import open_file_limit, start_worker_on, wait_or_kill
from swarmtui.version import __version__

_CONNECT_TIMEOUT_S = 10.0
# A connection that is silent for longer than this is tested, and given up after as long again.
_KEEPALIVE_S = 10
# How long workers get to exit after the session process has gone.
_EXIT_TIMEOUT_S = 5.0
_GPU_PAUSE_S = 1.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def keep_alive(connection: socket.socket) -> None:
    """Send messages at once, and notice a host that is gone without having closed the connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * 2 * _KEEPALIVE_S)


def machine_id() -> str:
    """Return the boot id: processes with the same one share a machine and its monotonic clock."""
    return read_file(_BOOT_ID, 64).decode().strip()


def describe_host(address: str) -> Host:
    return Host(
        name=socket.gethostname(),
        address=address,
        machine=machine_id(),
        cores=os.cpu_count() or 1,
        open_files=open_file_limit(),
        kernel=platform.release(),
        python=platform.python_version(),
        version=__version__,
    )


class NodeAgent:
    """Serves the session process over one connection until that is closed."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._address, self._port, self._token = address, port, token
        self._parent = os.getppid()
        self._control = self._connect()
        self._sending = threading.Lock()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self._address, self._port), _CONNECT_TIMEOUT_S)
        connection.settimeout(None)
        keep_alive(connection)
        return connection

    def run(self, node: str) -> None:
        unpacker = worker_protocol.Unpacker()
        with self._control as control:
            self._send(host_protocol.AgentHello(self._token, node, describe_host(control.getsockname()[0])))
            try:
                while data := control.recv(1 << 16):
                    for body in unpacker.feed(data):
                        self._handle(host_protocol.decode_agent_command(body))
            except OSError:
                pass  # the session process is gone
            finally:
                self._ended.set()
                self._end_workers()

    def _handle(self, command: host_protocol.AgentCommand) -> None:
        match command:
            case host_protocol.Ping(number):
                self._send(host_protocol.Pong(number, time.perf_counter_ns(), os.getppid() != self._parent))
            case host_protocol.StartWorker(number):
                self._start_worker(number)
            case host_protocol.KillWorker(number) if number in self._workers:
                self._workers[number].kill()
            case host_protocol.SampleGpus(endpoints):
                threading.Thread(target=self._sample_gpus, args=(endpoints,), daemon=True).start()
            case host_protocol.MeasureSpeed():
                threading.Thread(target=self._measure_speed, daemon=True).start()

    def _send(self, message: msgspec.Struct) -> None:
        with self._sending, suppress(OSError):  # `run` notices that the session process is gone
            self._control.sendall(worker_protocol.pack(message))

    def _start_worker(self, number: int) -> None:
        with self._connect() as connection:
            connection.sendall(worker_protocol.pack(host_protocol.WorkerHello(self._token, number)))
            # In a session of its own: it outlives the actor by the moment that it needs to save its records.
            self._workers[number] = process = start_worker_on(connection, own_session=True)
        threading.Thread(target=self._await_exit, args=(number, process), daemon=True).start()

    def _await_exit(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self._send(host_protocol.WorkerExited(number, process.wait()))

    def _end_workers(self) -> None:
        """Wait for the workers, which exit when the session process closes their connections."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        for process in self._workers.values():
            wait_or_kill(process, max(0.0, deadline - time.monotonic()))

    def _sample_gpus(self, endpoints: tuple[str, ...]) -> None:
        from swarmtui.telemetry.gpu.readers import is_local, open_gpus

        serving = any(map(is_local, endpoints))
        reader = open_gpus()
        while not self._ended.is_set():
            self._send(host_protocol.HostGpus(reader.read(), serving))
            self._ended.wait(_GPU_PAUSE_S)
        reader.close()

    def _measure_speed(self) -> None:
        from swarmtui.processes.selftest import SelfTestFailed, measure_client_speed

        try:
            found = measure_client_speed()
        except SelfTestFailed as error:
            self._send(host_protocol.HostSpeed(problem=str(error)))
        else:
            self._send(host_protocol.HostSpeed(found.token_us, found.streams))


def run_node_agent(address: str, port: int, token: str, node: str) -> None:
    """Serve this host until the session process closes the connection."""
    # Ray lowers the priority of actors, which the workers would inherit: requests would be sent late on a busy host.
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    NodeAgent(address, port, token).run(node)
