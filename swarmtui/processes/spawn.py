"""Start the processes of swarmtui, each connected to its parent by a socket as its standard input; locate their files.

This module imports as little as possible: the sooner a process is started, the sooner it is ready.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from swarmtui.processes import finished_counts

# Open files of a worker besides its streams: standard streams, the pipe, epoll, libraries.
SPARE_FILES = 64
_BUFFER = 4 << 20
_EXIT_TIMEOUT_S = 2.0
# What Python needs to start, and what some clusters need to find the NVIDIA library; no proxies and no keys.
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip


class StartedProcess(NamedTuple):
    """`counts` is where the workers of a session process count finished requests."""

    socket: socket.socket
    process: subprocess.Popen[bytes]
    counts: int | None = None


def module_command(module: str) -> list[str]:
    """Return the command that runs a module of the package, also from an unpacked swarmtui.pyz."""
    unpacked = Path(__file__).parents[2] / "swarmtui_module.py"
    return [sys.executable, "-P", *([str(unpacked)] if unpacked.exists() else ["-m"]), module]


def start_session_process() -> StartedProcess:
    """Start it in its own process group, so that it continues after we exit."""
    # It also needs the variables that name the user's directories.
    names = (*_INHERITED, "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
    handle = os.open(error_log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ours, theirs = _socket_pair()
    counts = finished_counts.create()
    try:
        with theirs:
            process = start_module(
                "swarmtui.session_process",
                theirs,
                child_environment(names) | _ray_environment(),
                stderr=handle,
                own_session=True,
                counts=counts,
            )
    finally:
        os.close(handle)
    return StartedProcess(ours, process, counts)


def start_worker() -> StartedProcess:
    ours, theirs = _socket_pair()
    with theirs:
        return StartedProcess(ours, start_worker_on(theirs))


def start_worker_on(connection: socket.socket, *, own_session: bool = False) -> subprocess.Popen[bytes]:
    """Start a worker that talks to its session process over this connection; the caller may close its own handle."""
    counts = finished_counts.inherited()
    return start_module(
        "swarmtui.loadgen.worker", connection, child_environment(), own_session=own_session, counts=counts
    )


def start_launcher(module: str) -> StartedProcess:
    """Start the process that starts agents on other hosts, in a process group of its own; it logs to our error log."""
    ours, theirs = _socket_pair()
    with theirs:
        environment = child_environment() | _ray_environment()
        return StartedProcess(ours, start_module(module, theirs, environment, own_session=True))


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return ends


def _ray_environment() -> dict[str, str]:
    """Return the variables that configure Ray, among them the address of the cluster."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_")}


def child_environment(names: tuple[str, ...] = _INHERITED) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


class ServerProcess:
    """A server of ours, in a process that ends with its parent: it exits when its standard input is closed."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*module_command(module), *arguments],
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
        wait_or_kill(self._process, _EXIT_TIMEOUT_S)


class ExitingProcess(Protocol):
    """A process that can be waited for: a `subprocess.Popen`, or one on another host."""

    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def wait_or_kill(process: ExitingProcess, timeout_s: float) -> None:
    """Wait for a process that was told to exit; end it if it does not."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_simulator(spec: str) -> ServerProcess:
    return ServerProcess("swarmtui.sim", spec, "--watch-stdin")


def start_module(
    module: str,
    standard_input: socket.socket,
    env: dict[str, str],
    *,
    stderr: int | None = None,
    own_session: bool = False,
    counts: int | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        module_command(module),
        stdin=standard_input.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=env if counts is None else env | {finished_counts.VARIABLE: str(counts)},
        pass_fds=() if counts is None else (counts,),
        start_new_session=own_session,
    )


def socket_directory() -> Path:
    """Return the runtime directory; it is created if necessary, and must belong to the user alone."""
    # Imported late: processes are started early, before other imports.
    from swarmtui.files import is_private_directory, make_private_directory, runtime_directory
    from swarmtui.model.base import BadInput

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


def open_file_limit() -> int | None:
    """Return the hard limit of a process, to which a worker raises its soft limit; None if there is none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard
