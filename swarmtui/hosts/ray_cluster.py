"""Start an agent on each node of a Ray cluster; the only module that imports Ray.

It runs as a process of its own, because Ray ends its driver when a node or the head dies, and the session must survive
that. It ends when the session process closes the connection; with it end the actors and, if there is one, the private
cluster.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import threading
from typing import Any

import msgspec

from swarmtui.model import host_protocol, worker_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.hosts import HostsSpec, parse_hosts

_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 80_000_000
_POLL_S = 0.5
_CONNECT_TIMEOUT_S = 5.0
# A cluster that lost its head may never confirm that the driver leaves.
_LEAVE_TIMEOUT_S = 5.0
# A node that is cut off from its head keeps its actors until it finds out.
_ACTOR_TIMEOUT_S = 30.0


class PrivateCluster:
    """A Ray cluster on this host, with a token that nobody else has.

    Its processes are children of this process, and the kernel kills them with it.
    """

    def __init__(self, nodes: int, directory: str) -> None:
        # With a directory of its own, it does not become the cluster that `auto` finds.
        os.environ["RAY_TMPDIR"] = directory
        # Ray reads these variables when it is imported. Only root can undo a lowered priority.
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - that is how Ray spells it
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)
        from ray.cluster_utils import Cluster

        node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": _OBJECT_STORE_BYTES}
        self._cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        for _ in range(nodes - 1):
            self._cluster.add_node(**node)
        self.address: str = self._cluster.address

    def end(self) -> None:
        self._cluster.shutdown()


class HostActor:
    """Runs the agent of a node; after it, it exits if Ray does not end it."""

    def run(self, address: str, port: int, token: str, node: str) -> None:
        try:
            from swarmtui.hosts.node_agent import run_node_agent
        except ImportError as error:
            problem = f"swarmtui cannot be imported there ({error}): install it in the environment of the cluster"
            raise RuntimeError(problem) from None
        try:
            run_node_agent(address, port, token, node)
        finally:
            exit_after(_ACTOR_TIMEOUT_S)


class Launcher:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._messages = worker_protocol.Unpacker()
        self._cluster: PrivateCluster | None = None
        self._closed = threading.Event()

    def run(self) -> None:
        wanted = self._receive()
        if not isinstance(wanted, host_protocol.FindNodes):
            return
        try:
            spec = parse_hosts(wanted.hosts)
            assert spec is not None
            address, nodes = self._find_nodes(spec, wanted.directory)
            self._send(host_protocol.NodesFound(address, nodes))
            command = self._receive()
            if isinstance(command, host_protocol.LaunchAgents):
                self._run_agents(address, nodes, command)
        except (BadInput, ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
            self._send(host_protocol.LaunchFailed(first_line(error)))
        finally:
            # Actors end with their driver. The process exits even if Ray does not respond.
            exit_after(_LEAVE_TIMEOUT_S)
            import ray

            ray.shutdown()
            if self._cluster is not None:
                self._cluster.end()
            shutil.rmtree(wanted.directory, ignore_errors=True)

    def _receive(self) -> host_protocol.LauncherCommand | None:
        """Return the next command; None when the session process has closed the connection."""
        while data := self._control.recv(1 << 16):
            for body in self._messages.feed(data):
                return host_protocol.decode_launcher_command(body)
        return None

    def _send(self, message: msgspec.Struct) -> None:
        self._control.sendall(worker_protocol.pack(message))

    def _find_nodes(self, spec: HostsSpec, directory: str) -> tuple[str, tuple[str, ...]]:
        """Connect to the cluster; return the address of this host for its nodes, and their ids."""
        if spec.kind == "local":
            self._cluster = PrivateCluster(spec.nodes, directory)
        if spec.address not in ("", "auto"):
            check_reachable(spec.address)
        import ray

        address = self._cluster.address if self._cluster else spec.address
        # The address is never empty: without one, Ray would start a cluster.
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="swarmtui")
        except ConnectionError as error:
            raise ConnectionError(refusal(spec.address, first_line(error))) from None
        nodes = tuple(sorted(node["NodeID"] for node in ray.nodes() if node["Alive"]))
        return (_LOOPBACK if self._cluster else _own_address(spec.address)), nodes

    def _run_agents(self, address: str, nodes: tuple[str, ...], command: host_protocol.LaunchAgents) -> None:
        """Report agents that end early, until the session process closes the connection."""
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor_class = ray.remote(num_cpus=0, max_restarts=0)(HostActor)
        actors = {
            node: actor_class.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ).remote()
            for node in nodes
        }
        running = {actor.run.remote(address, command.port, command.token, node): node for node, actor in actors.items()}
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
        threading.Thread(target=self._await_close, daemon=True).start()
        while not self._closed.wait(_POLL_S):
            ended, _ = ray.wait(list(running), timeout=0) if running else ([], [])
            for result in ended:
                node = running.pop(result)
                try:
                    ray.get(result)
                except RayError as error:
                    self._send(host_protocol.AgentEnded(node, names[node], first_line(error)))

    def _await_close(self) -> None:
        self._receive()
        self._closed.set()


def exit_after(timeout_s: float) -> None:
    """End this process after a time, whatever it waits for then."""
    timer = threading.Timer(timeout_s, os._exit, (1,))
    timer.daemon = True
    timer.start()


def check_reachable(address: str) -> None:
    """Raise ConnectionError at once if nothing listens there: Ray would try for minutes."""
    host, port = address.removeprefix("ray://").rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ConnectionError(f"{address} cannot be reached: {error.strerror or error}") from None


def _own_address(cluster: str) -> str:
    """Return the address of this host on the way to a cluster."""
    import ray

    if not cluster.startswith("ray://"):
        return str(ray.util.get_node_ip_address())
    host, port = cluster.removeprefix("ray://").rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # sends nothing
        return str(probe.getsockname()[0])


def refusal(address: str, problem: str) -> str:
    """Return a sentence on a cluster that Ray cannot join, with what to do; Ray names its own options."""
    if address == "auto":
        return "no Ray cluster runs on this host: give the address of one, such as ray://HOST:10001"
    if address.startswith("ray://"):
        return problem
    return f"{problem}: this address is for nodes of the cluster; from elsewhere use ray://HOST:10001"


def first_line(error: Exception) -> str:
    """Return the first line of a message, that of its cause; if it announces a traceback, what that ends with."""
    error = getattr(error, "cause", None) or error
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with socket.socket(fileno=os.dup(0)) as control:
        # Processes of a private cluster inherit the standard input.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        Launcher(control).run()
    # Threads of Ray may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
