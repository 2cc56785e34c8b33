"""Starting our own processes, each with a socket to us as its standard input.

Imports next to nothing: a process that is started early is ready when the work for it is.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import NamedTuple

from swarmtui.client.sockets import error_log

_BUFFER = 4 << 20

# What Python needs to start and some clusters' NVIDIA library to be found, and nothing else: no proxies, no keys.
_KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip


class Started(NamedTuple):
    socket: socket.socket
    process: subprocess.Popen[bytes]


def start_conductor() -> Started:
    """In a session of its own: it goes on when we end. It needs our environment to find the user's directories."""
    names = (*_KEPT, "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    handle = os.open(error_log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return _start("swarmtui.session_process", environment(names), stderr=handle, own_session=True)
    finally:
        os.close(handle)


def start_worker() -> Started:
    return _start("swarmtui.loadgen.worker", environment(_KEPT), stderr=None, own_session=False)


def environment(names: tuple[str, ...] = _KEPT) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _start(module: str, env: dict[str, str], stderr: int | None, own_session: bool) -> Started:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=env,
            start_new_session=own_session,
        )
    return Started(ours, process)
