"""Run commands in forks of one process that has imported swarmtui: most of a short command is its imports.

A fork has its own session, environment, directory and pipes, and ends as `python -m swarmtui` does. What differs is
`/proc/PID/environ` and `cmdline` of the command itself, and that modules are imported before the environment is set.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import BinaryIO

_ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = ("analysis", "cli", "client", "experiments", "report", "sessions")
# A command with other values of these needs an interpreter of its own.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "VIRTUAL_ENV")
_MOST_BYTES = 100_000


class Ran:
    """The exit code and the output of a command."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out, err


def run_in_fork(arguments: tuple[str, ...], environment: dict[str, str], home: Path, limit_s: float) -> Ran | None:
    """Return None for a command that needs a process of its own, or while another one runs."""
    return _server().run(arguments, environment, home, limit_s)


class _Server:
    def __init__(self) -> None:
        self._environment = {
            name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ
        } | {"PYTHONPATH": str(_ROOT)}
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._free = threading.Lock()
        with theirs:
            process = subprocess.Popen(
                ["env", "--default-signal=HUP,INT", sys.executable, "-m", "tests.cli.preloaded"],
                stdin=theirs.fileno(),
                env=self._environment,
                cwd=_ROOT,
            )
        atexit.register(process.wait)
        atexit.register(self._connection.close)  # first: then it exits

    def run(self, arguments: tuple[str, ...], environment: dict[str, str], home: Path, limit_s: float) -> Ran | None:
        request = json.dumps([arguments, environment, str(home)]).encode()
        if len(request) > _MOST_BYTES or self._start_values(environment) != self._start_values(self._environment):
            return None
        if not self._free.acquire(blocking=False):
            return None
        try:
            return self._run(request, limit_s)
        finally:
            self._free.release()

    @staticmethod
    def _start_values(environment: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}

    def _run(self, request: bytes, limit_s: float) -> Ran:
        out, err = bytearray(), bytearray()
        readers, handles = [], []
        for into in (out, err):
            read, write = os.pipe()
            readers.append(threading.Thread(target=read_all, args=(os.fdopen(read, "rb"), into), daemon=True))
            readers[-1].start()
            handles.append(write)
        socket.send_fds(self._connection, [request], handles)
        for handle in handles:
            os.close(handle)
        self._connection.settimeout(limit_s)
        pid = int(self._connection.recv(32))
        try:
            code = int(self._connection.recv(32))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._connection.recv(32)
            raise AssertionError(f"did not exit; stderr so far: {err.decode(errors='replace')}") from None
        for reader in readers:
            reader.join()
        return Ran(code, bytes(out), bytes(err))


_server = cache(_Server)


def read_all(pipe: BinaryIO, into: bytearray) -> None:
    with pipe:
        while part := os.read(pipe.fileno(), 1 << 16):
            into += part


def _serve() -> None:
    """Fork for each request, and answer with the process id and the exit code; return in each fork, ready to run."""
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in _IMPORTED:
        package = importlib.import_module(f"swarmtui.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"swarmtui.{name}."):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    while True:
        request, handles, _, _ = socket.recv_fds(connection, 2 * _MOST_BYTES, 2)
        if not request:
            sys.exit()
        if not (pid := os.fork()):
            break
        for handle in handles:
            os.close(handle)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    connection.close()
    os.setsid()
    for number, handle in enumerate(handles, 1):
        os.dup2(handle, number)
        os.close(handle)
    arguments, environment, home = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(home)
    sys.argv = ["swarmtui", *arguments]
    sys.orig_argv = [sys.executable, "-m", "swarmtui", *arguments]


def _run_command() -> None:
    """End as the interpreter does, without destroying each module: that would copy the memory of all of them."""
    try:
        runpy.run_module("swarmtui", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(ended.code if isinstance(ended.code, int) else ended.code is not None)


if __name__ == "__main__":
    _serve()
    _run_command()
