"""Find inference servers on this host: listening processes first, then the usual ports, all probed at once."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import psutil

from swarmtui.engines.base import Engine
from swarmtui.engines.registry import (
    ENGINES,
    GENERIC,
    engine_from_command,
    engine_named,
    flags_from_command,
    flags_from_environment,
)
from swarmtui.http_client import HttpClient
from swarmtui.model.telemetry import DiscoveredServer, Gpu
from swarmtui.telemetry.fingerprint import fingerprint
from swarmtui.telemetry.host import process_family

_USUAL_PORTS = frozenset(port for engine in ENGINES for port in engine.ports)
# Databases, message queues, printers and the like: not HTTP, and some fail on unexpected input.
_EXCLUDED_PORTS = frozenset(
    (1433, 1521, 1883, 2049, 2181, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 6000, 6379, 6380, 8086, 9042, 9092, 9100,
     9200, 9300, 11211, 26379, 27017, 29500)
)  # fmt: skip
_MAX_PORTS = 64
_THREADS = 16
_ANCESTORS = 3
# Programs that listen for a server in another process, container or host.
_FORWARDERS = frozenset(
    ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "conmon", "ssh", "kubectl", "socat", "nginx", "haproxy",
     "caddy", "envoy", "traefik")
)  # fmt: skip
# Lower user ids, and nobody, are of the system and its services, such as Ollama's: they are anybody's to use.
_FIRST_USER, _NOBODY = 1000, 65534


class Listener(NamedTuple):
    """A listening TCP socket of this host; `engine` is set if its process is an inference server.

    `user` is who opened it, if that is another person.
    """

    host: str
    port: int
    pid: int | None
    engine: Engine | None = None
    user: str = ""


def discover(timeout_s: float = 1.0) -> tuple[DiscoveredServer, ...]:
    """Return what answers in this time; an inference server that does not answer is listed as unreachable."""
    listeners = _candidates()
    deadline = time.monotonic() + timeout_s
    # Local certificates are mostly self-signed; these requests carry no secret.
    with HttpClient(insecure=True) as client:
        pool = ThreadPoolExecutor(_THREADS)
        futures = {pool.submit(_inspect, client, listener, deadline): listener for listener in listeners}
        done, late = wait(futures, timeout=max(0.0, deadline - time.monotonic()))
        pool.shutdown(wait=False, cancel_futures=True)
    found = [future.result() for future in done] + [_unreachable(futures[future], timed_out=True) for future in late]
    servers = [server for server in found if server is not None]
    # Those that answer first, then the user's own, by the number of their port.
    return tuple(sorted(servers, key=lambda s: (not s.reachable, bool(s.user), urlsplit(s.url).port or 0, s.url)))


def listening_sockets() -> frozenset[str]:
    """Return the inodes of the TCP sockets that listen here: a server that was restarted has another one.

    It is cheap, and no server notices it.
    """
    return frozenset(row[9] for row in _listening_rows())


def listeners_at(urls: Iterable[str]) -> dict[str, Listener]:
    """Return the listeners behind those URLs that are on this host.

    Slow when thousands of connections are open: call it before the load starts.
    """
    local = [url for url in urls if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")]
    by_port = _by_port(_listeners()) if local else {}
    ports = {url: urlsplit(url).port or (443 if url.startswith("https:") else 80) for url in local}
    return {url: by_port[port] for url, port in ports.items() if port in by_port}


def identify(
    url: str, listener: Listener | None = None, timeout_s: float = 2.0, *, client: HttpClient
) -> DiscoveredServer | None:
    """Describe the server at this address and, if it is on this host, its process; None if it does not answer."""
    listener = listener or listeners_at([url]).get(url)
    deadline = time.monotonic() + timeout_s
    if listener is None:
        return fingerprint(url, client=client, deadline=deadline)
    return _inspect(client, listener, deadline, url)


def with_gpus(servers: Iterable[DiscoveredServer], gpus: Sequence[Gpu]) -> tuple[DiscoveredServer, ...]:
    """Add to each server the GPUs on which its process or one of its child processes computes."""
    found = []
    for server in servers:
        known = server.pid is not None and any(gpu.pids for gpu in gpus)
        family = process_family([server.pid]) if server.pid is not None and known else set[int]()
        used = tuple(gpu.uuid for gpu in gpus if not family.isdisjoint(gpu.pids))
        found.append(msgspec.structs.replace(server, gpus=used))
    return tuple(found)


def server_process(listener: Listener) -> int | None:
    """Return the process that started all others of a server; None if what listens only forwards to a server.

    A server may listen in a process that is a child of its own, as `vllm serve` with several API servers does.
    """
    if listener.pid is None or (listener.engine is not None and listener.engine.gateway):
        return None
    pid = listener.pid
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        if process.name() in _FORWARDERS:
            return None
        for parent in process.parents()[:_ANCESTORS]:
            pid = parent.pid if engine_from_command(parent.cmdline()) else pid
    return pid


def process_flags(pid: int) -> dict[str, str] | None:
    """Return the flags and settings of a server's process; None if it cannot be read.

    Processes in a container or of another user cannot be read. A server that overwrites its processes' titles
    (VLLM::EngineCore) loses its command line; then that of its parent is used.
    """
    try:
        process = psutil.Process(pid)
        settings = None
        with suppress(psutil.Error, OSError):
            settings = flags_from_environment(process.environ())
        for candidate in (process, *process.parents()[:_ANCESTORS]):
            argv = candidate.cmdline()
            if _has_title(argv) or not (candidate is process or engine_from_command(argv)):
                continue
            if flags := flags_from_command(argv):
                return {**(settings or {}), **flags}
    except (psutil.Error, OSError):
        return None
    return settings


def _has_title(argv: Sequence[str]) -> bool:
    """Whether there is no command line but only a title, such as VLLM::Worker."""
    return not argv or "::" in argv[0]


def _candidates() -> list[Listener]:
    """Return the ports to try, likely ones first.

    The usual ports are tried even if no listener is visible: it may be in another container.
    """
    by_port = _by_port(listener for listener in _listeners() if _may_serve(listener))
    for port in _USUAL_PORTS:
        by_port.setdefault(port, Listener("127.0.0.1", port, None))
    order = sorted(by_port.values(), key=lambda one: (one.engine is None, one.port not in _USUAL_PORTS, one.port))
    return order[:_MAX_PORTS]


def _may_serve(listener: Listener) -> bool:
    """Ephemeral ports are mostly internal to a program: they count only for known servers."""
    port = listener.port
    privileged = port < 1024 and port != 80
    return not (port in _EXCLUDED_PORTS or privileged or (port in _ephemeral_ports() and listener.engine is None))


def _by_port(listeners: Iterable[Listener]) -> dict[int, Listener]:
    """Index by port; of several on one port the first is kept, IPv4 before IPv6."""
    by_port: dict[int, Listener] = {}
    for listener in listeners:
        if listener.port not in by_port or ":" in by_port[listener.port].host:
            by_port[listener.port] = listener
    return by_port


def _listeners() -> Iterable[Listener]:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return
    engines: dict[int, Engine | None] = {}
    users = _other_users()
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.laddr:
            continue
        address, pid = ip_address(connection.laddr.ip.partition("%")[0]), connection.pid
        if not (address.is_loopback or address.is_unspecified):
            continue
        host = "[::1]" if address.version == 6 and address.is_loopback else "127.0.0.1"
        if pid is not None and pid not in engines:
            engines[pid] = _process_engine(pid)
        port = connection.laddr.port
        yield Listener(host, port, pid, None if pid is None else engines[pid], users.get(port, ""))


def _other_users() -> dict[int, str]:
    """Return the names of other people with listening sockets, by port; the kernel tells it of all processes."""
    found: dict[int, str] = {}
    for row in _listening_rows():
        uid = int(row[7])
        if uid != os.getuid() and _FIRST_USER <= uid != _NOBODY:
            try:
                found[int(row[1].rpartition(":")[2], 16)] = pwd.getpwuid(uid).pw_name
            except KeyError:
                found[int(row[1].rpartition(":")[2], 16)] = f"user {uid}"
    return found


def _listening_rows() -> Iterator[list[str]]:
    for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for row in map(str.split, path.read_text().splitlines()[1:] if path.exists() else ()):
            if row[3] == "0A":
                yield row


def _process_engine(pid: int) -> Engine | None:
    """Return None for a server's helper processes (VLLM::Worker): they listen for each other, not for clients."""
    try:
        argv = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return None
    return None if _has_title(argv) else engine_from_command(argv)


@cache
def _ephemeral_ports() -> range:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(32768, 61000)


def _inspect(
    client: HttpClient, listener: Listener, deadline: float, url: str | None = None
) -> DiscoveredServer | None:
    """Fingerprint a listener and add its process; without a URL a known server is tried with both schemes."""
    schemes = ("http", "https") if listener.engine else ("http",)
    roots = [f"{scheme}://{listener.host}:{listener.port}" for scheme in schemes] if url is None else [url]
    replies = (fingerprint(root, client=client, deadline=deadline) for root in roots)
    found = next((server for server in replies if server is not None), None)
    if found is None:
        return _unreachable(listener, timed_out=time.monotonic() >= deadline)
    found = msgspec.structs.replace(found, user=listener.user)
    if listener.pid is None:
        return found
    # Some servers have nothing distinctive in their replies.
    by_process = listener.engine.name if listener.engine and found.engine == GENERIC.name else found.engine
    engine = engine_named(by_process)
    own = None if engine.gateway else process_flags(listener.pid)
    flags = None if own is None and found.flags is None else {**(found.flags or {}), **(own or {})}
    return msgspec.structs.replace(
        found,
        engine=by_process,
        pid=listener.pid,
        flags=flags,
        slots=engine.slots(own) if found.slots is None else found.slots,
        kv_tokens=engine.kv_tokens(found, own),
        models=found.models or ((flags["model"],) if flags and "model" in flags else ()),
    )


def _unreachable(listener: Listener, *, timed_out: bool) -> DiscoveredServer | None:
    """Describe an inference server by its process only; None for any other listener."""
    if listener.engine is None or listener.pid is None:
        return None
    if not timed_out and listener.port in _ephemeral_ports():
        return None  # an internal port of a server
    return DiscoveredServer(
        url=f"http://{listener.host}:{listener.port}",
        engine=listener.engine.name,
        pid=listener.pid,
        user=listener.user,
        flags=None if listener.engine.gateway else process_flags(listener.pid),
        reachable=False,
        problem=f"{'no answer in time' if timed_out else 'unexpected reply'}: the server may be loading or busy",
    )
