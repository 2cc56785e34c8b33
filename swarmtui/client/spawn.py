"""Start the processes of swarmtui, each connected to its parent by a socket as its standard input; locate their files.

This module imports as little as possible: the sooner a process is started, the sooner it is ready.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_BUFFER = 4 << 20
_EXIT_TIMEOUT_S = 2.0

# What Python needs to start, and what some clusters need to find the NVIDIA library; no proxies and no keys.
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip


class StartedProcess(NamedTuple):
    socket: socket.socket
    process: subprocess.Popen[bytes]


def module_command(module: str) -> list[str]:
    """Return the command that runs a module of the package, also from an unpacked swarmtui.pyz."""
    unpacked = Path(__file__).parents[2] / "swarmtui_module.py"
    return [sys.executable, "-P", *([str(unpacked)] if unpacked.exists() else ["-m"]), module]


def start_session_process() -> StartedProcess:
    """Start it in its own process group, so that it continues after we exit."""
    # It also needs the variables that name the user's directories.
    names = (*_INHERITED, "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    handle = os.open(error_log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return _start("swarmtui.session_process", child_environment(names), stderr=handle, own_session=True)
    finally:
        os.close(handle)


def start_worker() -> StartedProcess:
    return _start("swarmtui.loadgen.worker", child_environment(_INHERITED), stderr=None, own_session=False)


def child_environment(names: tuple[str, ...] = _INHERITED) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


class SimulatorProcess:
    """The embedded simulator in a process that ends with its parent."""

    def __init__(self, spec: str) -> None:
        self._process = subprocess.Popen(
            [*module_command("swarmtui.sim"), spec, "--watch-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )

    def url(self) -> str:
        """Wait until it listens; return an empty string if it did not start."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start(module: str, env: dict[str, str], stderr: int | None, own_session: bool) -> StartedProcess:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    with theirs:
        process = subprocess.Popen(
            module_command(module),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=env,
            start_new_session=own_session,
        )
    return StartedProcess(ours, process)


def socket_directory() -> Path:
    """Return the runtime directory; it is created if necessary, and must belong to the user alone."""
    # Imported late: processes are started early, before other imports.
    from swarmtui.files import is_private_directory, make_private_directory, runtime_directory
    from swarmtui.model.schema import BadInput

    path = runtime_directory()
    try:
        make_private_directory(path)
    except OSError as error:
        raise BadInput(f"cannot create the socket directory: {error.strerror}", key=str(path)) from None
    if not is_private_directory(path):
        raise BadInput("must belong to you alone (mode 0700); remove it, or set XDG_RUNTIME_DIR", key=str(path))
    return path


def error_log() -> Path:
    """The file for internal errors of session processes."""
    return socket_directory() / "errors.log"


def socket_path(session_id: str) -> Path:
    return socket_directory() / f"{session_id}.sock"
