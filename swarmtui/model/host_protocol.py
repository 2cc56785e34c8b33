"""Messages between a session process, its launcher and the node agent of each host, packed like those of workers.

The launcher finds the nodes of a cluster and starts a node agent on each. The agent connects to the session process,
and starts workers there, each with a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from swarmtui.model.hosts import Host
from swarmtui.model.telemetry import Gpu
from swarmtui.model.worker_protocol import ProtocolMessage

# session process to launcher


class FindNodes(ProtocolMessage, frozen=True):
    """First message to the launcher; `hosts` is written as on the command line, `directory` is for temporary files."""

    hosts: str
    directory: str


class LaunchAgents(ProtocolMessage, frozen=True):
    """Start an agent on each node, which connects to this port and shows this token."""

    port: int
    token: str


LauncherCommand = FindNodes | LaunchAgents

# launcher to session process


class NodesFound(ProtocolMessage, frozen=True):
    """The ids of the nodes, and the address of this host by which they reach it."""

    address: str
    nodes: tuple[str, ...]


class LaunchFailed(ProtocolMessage, frozen=True):
    """`problem` is a sentence for the user."""

    problem: str


class AgentEnded(ProtocolMessage, frozen=True):
    """The agent of a node ended although nothing asked it to."""

    node: str
    name: str
    problem: str


LauncherReport = NodesFound | LaunchFailed | AgentEnded

# agent to session process


class AgentHello(ProtocolMessage, frozen=True):
    token: str
    node: str
    host: Host


class WorkerHello(ProtocolMessage, frozen=True):
    """First message of a connection that belongs to a worker; everything after it is the worker's own protocol."""

    token: str
    worker: int


HostHello = AgentHello | WorkerHello


class Pong(ProtocolMessage, frozen=True):
    """The answer to a ping, with the monotonic clock of the host; `orphaned`: what started the agent is gone."""

    number: int
    t_ns: int
    orphaned: bool = False


class WorkerExited(ProtocolMessage, frozen=True):
    """`code` is negative for a signal, as in `subprocess`."""

    worker: int
    code: int


class HostGpus(ProtocolMessage, frozen=True):
    """The GPUs of the host about once per second; `serving`: an endpoint runs on this host."""

    gpus: tuple[Gpu, ...]
    serving: bool


class HostSpeed(ProtocolMessage, frozen=True):
    """The result of the self-test; a `problem` says why there is none."""

    token_us: float = 0.0
    streams: int = 0
    problem: str = ""


AgentReport = Pong | WorkerExited | HostGpus | HostSpeed

# session process to agent


class Ping(ProtocolMessage, frozen=True):
    number: int


class StartWorker(ProtocolMessage, frozen=True):
    worker: int


class KillWorker(ProtocolMessage, frozen=True):
    worker: int


class SampleGpus(ProtocolMessage, frozen=True):
    """Report the GPUs from now on; `endpoints` are the host names of the endpoints."""

    endpoints: tuple[str, ...]


class MeasureSpeed(ProtocolMessage, frozen=True):
    """Run the self-test."""


AgentCommand = Ping | StartWorker | KillWorker | SampleGpus | MeasureSpeed

decode_launcher_command: Callable[[bytes], LauncherCommand] = msgspec.msgpack.Decoder(LauncherCommand).decode
decode_launcher_report: Callable[[bytes], LauncherReport] = msgspec.msgpack.Decoder(LauncherReport).decode
decode_hello: Callable[[bytes], HostHello] = msgspec.msgpack.Decoder(HostHello).decode
decode_agent_report: Callable[[bytes], AgentReport] = msgspec.msgpack.Decoder(AgentReport).decode
decode_agent_command: Callable[[bytes], AgentCommand] = msgspec.msgpack.Decoder(AgentCommand).decode
