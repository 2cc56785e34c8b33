"""Play a cluster with plain processes; the clock of its last host is ahead, where the system allows it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from swarmtui.model import host_protocol, worker_protocol
from swarmtui.model.hosts import parse_hosts

AHEAD_S = 5000
_IN_TIME_NAMESPACE = ["unshare", "--time", "--monotonic", str(AHEAD_S)]
_AGENT = """
import sys
from swarmtui.hosts.node_agent import run_node_agent
run_node_agent("127.0.0.1", int(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


def clocks_can_differ() -> bool:
    """Time namespaces need root."""
    try:
        return subprocess.run([*_IN_TIME_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _commands(control: socket.socket) -> Iterator[host_protocol.LauncherCommand]:
    unpacker = worker_protocol.Unpacker()
    while data := control.recv(1 << 16):
        for body in unpacker.feed(data):
            yield host_protocol.decode_launcher_command(body)


def main() -> None:
    agents: list[subprocess.Popen[bytes]] = []
    nodes: tuple[str, ...] = ()
    with socket.socket(fileno=os.dup(0)) as control:
        for command in _commands(control):
            match command:
                case host_protocol.FindNodes(hosts=hosts):
                    spec = parse_hosts(hosts)
                    assert spec is not None
                    nodes = tuple(f"node{number}" for number in range(spec.nodes))
                    control.sendall(worker_protocol.pack(host_protocol.NodesFound("127.0.0.1", nodes)))
                case host_protocol.LaunchAgents(port, token):
                    for node in nodes:
                        before = _IN_TIME_NAMESPACE if node == nodes[-1] and clocks_can_differ() else []
                        agent = [*before, sys.executable, "-P", "-c", _AGENT, str(port), token, node]
                        agents.append(subprocess.Popen(agent, stdin=subprocess.DEVNULL))
    for process in agents:
        process.wait()


if __name__ == "__main__":
    main()
