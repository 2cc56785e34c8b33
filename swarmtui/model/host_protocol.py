"""Messages between a session process, its launcher and the node agent of each host, packed like those of workers.

The launcher finds the nodes of a cluster and starts a node agent on each. The agent connects to the session process,
and starts workers there, each with a connection of its own.
"""

from __future__ import annotations

import msgspec

from swarmtui.model.hosts import Host
from swarmtui.model.telemetry import Gpu


class _HostMessage(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the class name is the tag."""


# session process to launcher


class FindNodes(_HostMessage, frozen=True):
    """First message to the launcher; `hosts` is written as on the command line, `directory` is for temporary files."""

    hosts: str
    directory: str


class LaunchAgents(_HostMessage, frozen=True):
    """Start an agent on each node, which connects to this port and shows this token."""

    port: int
    token: str


LauncherCommand = FindNodes | LaunchAgents

# launcher to session process


class NodesFound(_HostMessage, frozen=True):
    """The ids of the nodes, and the address of this host by which they reach it."""

    address: str
    nodes: tuple[str, ...]


class LaunchFailed(_HostMessage, frozen=True):
    """`problem` is a sentence for the user."""

    problem: str


class AgentEnded(_HostMessage, frozen=True):
    """The agent of a node ended although nothing asked it to."""

    node: str
    problem: str


LauncherReport = NodesFound | LaunchFailed | AgentEnded

# agent to session process


class AgentHello(_HostMessage, frozen=True):
    token: str
    node: str
    host: Host


class WorkerHello(_HostMessage, frozen=True):
    """First message of a connection that belongs to a worker; everything after it is the worker's own protocol."""

    token: str
    worker: int


Hello = AgentHello | WorkerHello


class Pong(_HostMessage, frozen=True):
    """The answer to a ping, with the monotonic clock of the host."""

    number: int
    t_ns: int


class WorkerExited(_HostMessage, frozen=True):
    """`code` is negative for a signal, as in `subprocess`."""

    worker: int
    code: int


class HostGpus(_HostMessage, frozen=True):
    """The GPUs of the host about once per second; `serving`: an endpoint runs on this host."""

    gpus: tuple[Gpu, ...]
    serving: bool


class HostSpeed(_HostMessage, frozen=True):
    """The result of the self-test; a `problem` says why there is none."""

    token_us: float = 0.0
    streams: int = 0
    problem: str = ""


AgentReport = Pong | WorkerExited | HostGpus | HostSpeed

# session process to agent


class Ping(_HostMessage, frozen=True):
    number: int


class StartWorker(_HostMessage, frozen=True):
    worker: int


class KillWorker(_HostMessage, frozen=True):
    worker: int


class SampleGpus(_HostMessage, frozen=True):
    """Report the GPUs from now on; `endpoints` are the host names of the endpoints."""

    endpoints: tuple[str, ...]


class MeasureSpeed(_HostMessage, frozen=True):
    """Run the self-test."""


AgentCommand = Ping | StartWorker | KillWorker | SampleGpus | MeasureSpeed

_launcher_command: msgspec.msgpack.Decoder[LauncherCommand] = msgspec.msgpack.Decoder(LauncherCommand)
_launcher_report: msgspec.msgpack.Decoder[LauncherReport] = msgspec.msgpack.Decoder(LauncherReport)
_hello: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)
_agent_report: msgspec.msgpack.Decoder[AgentReport] = msgspec.msgpack.Decoder(AgentReport)
_agent_command: msgspec.msgpack.Decoder[AgentCommand] = msgspec.msgpack.Decoder(AgentCommand)


def decode_launcher_command(body: bytes) -> LauncherCommand:
    return _launcher_command.decode(body)


def decode_launcher_report(body: bytes) -> LauncherReport:
    return _launcher_report.decode(body)


def decode_hello(body: bytes) -> Hello:
    return _hello.decode(body)


def decode_agent_report(body: bytes) -> AgentReport:
    return _agent_report.decode(body)


def decode_agent_command(body: bytes) -> AgentCommand:
    return _agent_command.decode(body)
