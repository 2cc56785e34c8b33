"""Run commands and session processes in forks of one process that has imported swarmtui: imports take most of a start.

Each has a session and a directory of its own. What a fork starts of swarmtui is forked as well (`forked_processes`).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from swarmtui.processes import finished_counts, spawn
from tests.cli.forked_processes import ENVIRONMENT_ROOM, ROOM, become, import_packages

if TYPE_CHECKING:
    import pytest

_ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = (
    "analysis", "cli", "client", "experiments", "loadgen", "prompts", "report", "session_process", "sessions", "sim",
    "state", "telemetry",
)  # fmt: skip
# Imported when they are first needed, which is in most runs.
_LIBRARIES = (
    "anyio._backends._asyncio", "argparse", "encodings.idna", "encodings.utf_8_sig", "httpcore2", "platformdirs",
    "prometheus_client.parser", "tomli_w", "wcwidth",
)  # fmt: skip
# A process with other values of these needs an interpreter of its own.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "VIRTUAL_ENV")
_OURS = dict(os.environ)
_MOST_BYTES = 100_000


class ForkedProcess:
    """A process that was forked, with the methods of `subprocess.Popen` that a client of it needs."""

    def __init__(self, reply: socket.socket) -> None:
        self._reply = reply
        self.pid = int(reply.recv(32))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._exit_code(timeout)) is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
        return code

    def _exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._reply], [], [], timeout)[0]:
            self.returncode = int(self._reply.recv(32))
            self._reply.close()
        return self.returncode

    def kill(self) -> None:
        self._send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._send_signal(signal.SIGTERM)

    def _send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def start_in_fork(
    command: list[str], environment: dict[str, str], directory: Path, streams: Sequence[int]
) -> ForkedProcess | None:
    """Start a command that runs a module of swarmtui; return None if it needs an interpreter of its own."""
    return _server().start(command, environment, directory, streams)


def start_module(
    module: str, *arguments: str, streams: tuple[int, int, int], forked: bool = True
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start a module with our own environment, where possible in a fork."""
    command = [sys.executable, "-m", module, *arguments]
    process = start_in_fork(command, dict(os.environ), Path.cwd(), streams) if forked else None
    return process or subprocess.Popen(command, stdin=streams[0], stdout=streams[1], stderr=streams[2])


def fork_session_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let session processes that the test itself starts be forks."""
    start = spawn.start_module

    def fork(module: str, standard_input: socket.socket, env: dict[str, str], **options: Any) -> Any:
        if module == "swarmtui.session_process":
            with Path(os.devnull).open("w") as nothing:
                streams = (standard_input.fileno(), nothing.fileno(), options["stderr"])
                process = _server().start(spawn.module_command(module), env, Path.cwd(), streams, options["counts"])
            if process is not None:
                return process
        return start(module, standard_input, env, **options)

    monkeypatch.setattr(spawn, "start_module", fork)


class _Server:
    def __init__(self) -> None:
        self._environment = {
            name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ
        } | {"PYTHONPATH": str(_ROOT)}
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                ["env", "--default-signal=HUP,INT", sys.executable, "-m", "tests.cli.preloaded", ROOM],
                stdin=theirs.fileno(),
                env=self._environment | ENVIRONMENT_ROOM,
                cwd=_ROOT,
            )
        atexit.register(process.wait)
        atexit.register(self._connection.close)  # first: then it exits

    def start(
        self,
        command: list[str],
        environment: dict[str, str],
        directory: Path,
        streams: Sequence[int],
        counts: int | None = None,
    ) -> ForkedProcess | None:
        request = json.dumps([command, environment, str(directory)]).encode()
        if len(request) > _MOST_BYTES or self._start_values(environment) != self._start_values(self._environment):
            return None
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handles = [theirs.fileno(), *streams, *([] if counts is None else [counts])]
            socket.send_fds(self._connection, [request], handles)
        return ForkedProcess(reply)

    @staticmethod
    def _start_values(environment: dict[str, str]) -> dict[str, str]:
        found = {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
        ours = [name for name in found if name.startswith("PYTHON") and found[name] == _OURS.get(name)]
        if found.get("PYTHONPATH", "").endswith(f":{_ROOT}"):  # a fork searches more folders first
            ours.append("PYTHONPATH")
        return {"PYTHONPATH": str(_ROOT)} | {name: value for name, value in found.items() if name not in ours}


_server = cache(_Server)


def _serve() -> NoReturn:
    """Fork for each request."""
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import_packages(_IMPORTED)
    for name in _LIBRARIES:
        importlib.import_module(name)
    _prepare_structs()
    gc.collect()
    gc.freeze()
    while True:
        request, handles, _, _ = socket.recv_fds(connection, 2 * _MOST_BYTES, 5)
        if not request:
            sys.exit()
        if not os.fork():
            _run(*json.loads(request), *handles)
        for handle in handles:
            os.close(handle)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended
                pass


def _prepare_structs() -> None:
    """Let msgspec look at the fields of all structs, as it otherwise does when it first decodes one."""
    found = msgspec.Struct.__subclasses__()
    while found:
        struct = found.pop()
        found += struct.__subclasses__()
        with suppress(TypeError):  # a generic one, which is decoded with its types only
            msgspec.json.Decoder(struct)


def _run(command: list[str], environment: dict[str, str], directory: str, reply: int, *handles: int) -> NoReturn:
    """Run a command in a fork; send its process id and its exit code."""
    if pid := os.fork():
        for handle in handles:
            os.close(handle)
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(reply, str(pid).encode())
            os.write(reply, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        os._exit(0)
    os.setsid()
    os.chdir(directory)
    tempfile.tempdir = None
    for number, handle in enumerate(handles[:3]):
        os.dup2(handle, number)
    for handle in handles[3:]:
        environment[finished_counts.VARIABLE] = str(handle)
    become(command, environment, handles[3:])


if __name__ == "__main__":
    _serve()
