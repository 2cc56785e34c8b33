"""Servers on this host: who listens, and what they say of themselves. GET only, several at once, within a second."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec
import psutil

from swarmtui.model.telemetry import Discovered, Gpu
from swarmtui.telemetry.fingerprint import fingerprint
from swarmtui.telemetry.server_flags import flags_of, looks_like_server, seats

USUAL_PORTS = (8000, 30000, 8080, 11434, 3000, 1234, 5000, 23333, 4000, 8001, 8002, 8003)
# Not HTTP, and some of them take a stray line amiss: mail, databases, queues, printers, torch's rendezvous.
_LEAVE_ALONE = frozenset(
    (1433, 1521, 1883, 2049, 2181, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 6000, 6379, 6380, 8086, 9042, 9092, 9100,
     9200, 9300, 11211, 26379, 27017, 29500)
)  # fmt: skip
_MOST_PORTS = 64
_THREADS = 16


class Listener(NamedTuple):
    """Who takes connections at a port of this host."""

    host: str
    port: int
    pid: int | None
    known: bool  # its process looks like a server of models


def discover(timeout_s: float = 1.0) -> tuple[Discovered, ...]:
    """Everything that is found within this time; what looks like a server and does not answer is listed as such."""
    give_up = time.monotonic() + timeout_s
    listeners = list(_candidates())
    with httpx2.Client(trust_env=False, verify=False, timeout=timeout_s) as client:
        pool = ThreadPoolExecutor(_THREADS)
        asked = {pool.submit(_look, client, listener, give_up): listener for listener in listeners}
        done, late = wait(asked, timeout=max(0.0, give_up - time.monotonic()))
        pool.shutdown(wait=False, cancel_futures=True)
    found = [server for future in done if (server := future.result()) is not None]
    found += [server for future in late if (server := _silent(asked[future], timeout_s)) is not None]
    return tuple(sorted(found, key=lambda server: (not server.reachable, server.url)))


def listeners_at(urls: Iterable[str]) -> dict[str, Listener]:
    """Of those on this host. With thousands of connections open it takes long: better before the load."""
    local = [url for url in urls if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")]
    by_port: dict[int, Listener] = {}
    for one in _listeners() if local else ():
        if one.port not in by_port or ":" in by_port[one.port].host:
            by_port[one.port] = one
    ports = {url: urlsplit(url).port or (443 if url.startswith("https:") else 80) for url in local}
    return {url: by_port[port] for url, port in ports.items() if port in by_port}


def identify(url: str, listener: Listener | None = None, timeout_s: float = 2.0) -> Discovered | None:
    """The server at this address, and, where it listens on this host, the process behind it; None when it is silent."""
    listener = listener or listeners_at([url]).get(url)
    give_up = time.monotonic() + timeout_s
    with httpx2.Client(trust_env=False, verify=False, timeout=timeout_s) as client:
        if listener is None:
            return fingerprint(url, client=client, give_up=give_up)
        return _look(client, listener, give_up, secure=url.startswith("https:"))


def with_gpus(servers: Iterable[Discovered], gpus: Sequence[Gpu]) -> tuple[Discovered, ...]:
    """Each with the GPUs on which it, or a process that it started, computes."""
    return tuple(msgspec.structs.replace(server, gpus=_gpus_of(server.pid, gpus)) for server in servers)


def _gpus_of(pid: int | None, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    if pid is None or not any(gpu.processes for gpu in gpus):
        return ()
    try:
        family = {pid} | {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.Error:
        family = {pid}
    return tuple(gpu.uuid for gpu in gpus if any(process.pid in family for process in gpu.processes))


def _candidates() -> list[Listener]:
    """Ports to try, likely ones first; usual ports also where nobody is seen to listen, as from another container."""
    first, last = _ephemeral()
    by_port: dict[int, Listener] = {}
    for listener in _listeners():
        port = listener.port
        passing = first <= port <= last and not listener.known
        if port in _LEAVE_ALONE or passing or (port < 1024 and port != 80):
            continue
        if port not in by_port or ":" in by_port[port].host:
            by_port[port] = listener
    for port in USUAL_PORTS:
        by_port.setdefault(port, Listener("127.0.0.1", port, None, False))
    order = sorted(by_port.values(), key=lambda one: (not one.known, one.port not in USUAL_PORTS, one.port))
    return order[:_MOST_PORTS]


def _listeners() -> Iterable[Listener]:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return
    known: dict[int, bool] = {}
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.laddr:
            continue
        address, pid = ip_address(connection.laddr.ip.partition("%")[0]), connection.pid
        if not (address.is_loopback or address.is_unspecified):
            continue
        host = "[::1]" if address.version == 6 and address.is_loopback else "127.0.0.1"
        if pid is not None and pid not in known:
            known[pid] = _known(pid)
        yield Listener(host, connection.laddr.port, pid, pid is not None and known[pid])


def _known(pid: int) -> bool:
    """Processes that a server made for its own use (VLLM::Worker) listen for each other, not for us."""
    try:
        argv = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return False
    return bool(argv) and "::" not in argv[0] and looks_like_server(argv)


def _ephemeral() -> tuple[int, int]:
    """Where the system takes ports for whoever does not care: mostly inner matters of some program."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32768, 60999


def _look(
    client: httpx2.Client, listener: Listener, give_up: float, *, secure: bool | None = None
) -> Discovered | None:
    """Where nobody said whether it speaks TLS, a process that looks like a server is asked both ways."""
    ways = ("http", "https") if secure is None and listener.known else ("https",) if secure else ("http",)
    roots = (f"{way}://{listener.host}:{listener.port}" for way in ways)
    asked = (fingerprint(root, client=client, give_up=give_up) for root in roots)
    found = next((answer for answer in asked if answer is not None), None)
    if found is None:
        return _silent(listener, None)
    if listener.pid is None:
        return found
    flags = flags_of(listener.pid)
    merged = None if flags is None and found.flags is None else {**(found.flags or {}), **(flags or {})}
    number = found.seats if found.seats is not None else seats(found.engine, flags)
    models = found.models or ((merged["model"],) if merged and "model" in merged else ())
    return msgspec.structs.replace(found, pid=listener.pid, flags=merged, seats=number, models=models)


def _silent(listener: Listener, timeout_s: float | None) -> Discovered | None:
    """A process that looks like a server, and does not answer like one."""
    if not listener.known or listener.pid is None:
        return None
    first, last = _ephemeral()
    if first <= listener.port <= last and timeout_s is None:
        return None  # an inner port of a server
    why = "its answer is not that of a server" if timeout_s is None else f"no answer within {timeout_s:g} s"
    return Discovered(
        url=f"http://{listener.host}:{listener.port}",
        pid=listener.pid,
        flags=flags_of(listener.pid),
        reachable=False,
        problem=f"{why}: is it loading, or busy?",
    )
