"""Hosts that run workers: how the user names them, and what a session stores of each."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.redaction import cover_url

MAX_LOCAL_NODES = 16


class Host(Stored, frozen=True, kw_only=True):
    """A node of a Ray cluster and what it reported about itself; `name` is unique in a session.

    `machine` is the boot id: two nodes with the same one share a machine, and its clock. `open_files` is the hard limit
    of a process, null if there is none. `workers` are the numbers of the workers that run there; agent A belongs to
    worker A modulo the number of all workers.
    """

    name: str
    address: str
    machine: str
    cores: int
    open_files: int | None = None
    kernel: str = ""
    python: str = ""
    version: str = ""
    workers: tuple[int, ...] = ()


class ClockOffset(Stored, frozen=True, kw_only=True):
    """The lead of a host's monotonic clock over the session's, measured at `t_ns` of the session's clock.

    The true offset is within ± `bound_ns`: half of the shortest round trip of several pings.
    """

    t_ns: int
    offset_ns: int
    bound_ns: int


class HostsSpec(msgspec.Struct, frozen=True):
    """`local`: a private cluster of `nodes` nodes on this host; `cluster`: an existing one, `auto` or at an address."""

    kind: Literal["local", "cluster"]
    address: str = ""
    nodes: int = 0


def parse_hosts(text: str) -> HostsSpec | None:
    """Parse `auto`, `ray://HOST:PORT`, `HOST:PORT` or `local:N`; empty is this process's own host."""
    text = text.strip()
    if not text:
        return None
    if match := re.fullmatch(r"local:(\d{1,3})", text):
        nodes = int(match.group(1))
        if not 1 <= nodes <= MAX_LOCAL_NODES:
            raise BadInput(f"local:N takes 1 to {MAX_LOCAL_NODES} nodes, not {nodes}", key="--hosts")
        return HostsSpec("local", nodes=nodes)
    if text == "auto" or re.fullmatch(r"(ray://)?(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}", text):
        return HostsSpec("cluster", address=text)
    raise BadInput(f"{cover_url(text)[0]!r} is neither auto, ray://HOST:PORT, HOST:PORT nor local:N", key="--hosts")
