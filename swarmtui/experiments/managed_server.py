"""Start a server under a guardian process, wait until it is ready, and stop it. Running servers are left alone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import psutil

from swarmtui.client.catalogue import is_listening
from swarmtui.client.config_file import read_config
from swarmtui.experiments.grid import LaunchCommand
from swarmtui.experiments.server_guardian import GUARDIAN_SIGNALS, ServerSpec
from swarmtui.files import make_private_directory
from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.redaction import Redactor, Secrets, is_secret_name
from swarmtui.processes.spawn import module_command
from swarmtui.text import sanitize

_POLL_S = 0.1
_READY_TIMEOUT_S = 2.0
_LOG_LINES = 5
_LOG_BYTES = 32 << 10
# How long the guardian may take beyond the time limits of the server.
_GUARDIAN_EXTRA_S = 15.0
_KILL_TIMEOUT_S = 1.0
# A variable in the environment of a server and of all processes that it starts, even in another session.
_MARKER = "SWARMTUI_SERVER"


class ServerFailed(Exception):
    """The server could not be started or did not become ready."""


class PortInUse(ServerFailed):
    """Another process listens on the port of the server, perhaps one that an earlier server left behind."""


class Interrupted(Exception):
    """A stop was requested while waiting."""


class ManagedServer:
    """A server process; use it in a `with` block, so that it is always stopped.

    `immediate` is called while it stops: if it returns true, the server is killed without further waiting.
    """

    def __init__(
        self,
        launch: LaunchCommand,
        log: Path,
        environment: dict[str, str],
        *,
        directory: str | None = None,
        stop_within_s: float = 20.0,
        immediate: Callable[[], bool] = lambda: False,
        redactor: Redactor | None = None,
    ) -> None:
        self._launch, self._log, self._directory, self._stop_within_s = launch, log, directory, stop_within_s
        self._environment, self._immediate = environment, immediate
        self._redactor = redactor or Redactor(Secrets())
        self._guardian: subprocess.Popen[bytes] | None = None
        self._guardian_output = ""
        self._mark = os.urandom(8).hex()

    def __enter__(self) -> ManagedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if is_listening(self._launch.url):
            raise PortInUse(f"another server is already listening on {self._launch.url}; it was left alone")
        make_private_directory(self._log.parent)
        self._log.write_bytes(b"")
        self._log.chmod(0o600)
        # Ctrl-C must not kill a guardian that has not left our process group yet; it unblocks the signals itself.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, GUARDIAN_SIGNALS)
        try:
            self._guardian = subprocess.Popen(
                module_command("swarmtui.experiments.server_guardian"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=self._environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        spec = ServerSpec(
            command=self._launch.command,
            env=self._launch.env | {_MARKER: self._mark},
            log=str(self._log.resolve()),
            directory=self._directory,
            stop=self._launch.stop,
            stop_within_s=self._stop_within_s,
        )
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(msgspec.json.encode(spec) + b"\n")
        self._guardian.stdin.flush()

    def wait_until_ready(self, within_s: float, stopped: Callable[[], bool]) -> float:
        """Return the seconds it took. A command that exits has failed, unless there is a stop command."""
        started = time.monotonic()
        deadline = started + within_s
        with HttpClient(stopped=stopped) as client:
            while not stopped():
                if (reason := self.failure()) is not None:
                    raise ServerFailed(reason)
                if _is_ready(client, self._launch.ready, min(_READY_TIMEOUT_S, deadline - time.monotonic())):
                    return time.monotonic() - started
                if time.monotonic() > deadline:
                    raise ServerFailed(f"not ready within {within_s:g} s: no response from {self._launch.ready}")
                time.sleep(_POLL_S)
        raise Interrupted

    def failure(self) -> str | None:
        """How the server exited, or None; one that its command starts in the background cannot be observed."""
        self._read_guardian()
        for line in self._guardian_output.splitlines():
            event, _, rest = line.partition(" ")
            if event == "failed":
                return f"could not be started: {rest}"
            if event == "exit" and not (self._launch.stop and rest == "0"):
                return f"was killed by signal {rest[1:]}" if rest.startswith("-") else f"exited with code {rest}"
        if self._guardian is not None and self._guardian.poll() is not None:
            return "its guardian process died"
        return None

    def log_tail(self) -> tuple[str, ...]:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _LOG_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return ()
        lines = [sanitize(line) for line in self._redactor.redact(text).splitlines()]
        return tuple([line for line in lines if line][-_LOG_LINES:])

    def stop(self) -> None:
        """Terminate the server, then kill it; return when all its processes are gone.

        With `immediate` it is killed; a stop command is left to the guardian, which outlives us.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None and guardian.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.write(b"end\n")
            guardian.stdin.flush()
        deadline = time.monotonic() + 2 * self._stop_within_s + _GUARDIAN_EXTRA_S
        while (
            not (exited := _exits_within(guardian, _POLL_S)) and not self._immediate() and time.monotonic() < deadline
        ):
            continue
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.close()
        if not exited and not _exits_within(guardian, _KILL_TIMEOUT_S) and not self._immediate():
            guardian.kill()
            guardian.wait()
        guardian.stdout.close()
        if guardian.returncode:
            self._kill_marked()

    def _kill_marked(self) -> None:
        """Kill what a guardian that was killed could not stop. The kernel kills only the server's first process."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        # Again, because they may have started others since then.
        while (left := _marked_processes(self._mark)) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=_POLL_S)

    def _read_guardian(self) -> None:
        if self._guardian is None or self._guardian.stdout is None:
            return
        pipe = self._guardian.stdout.fileno()
        while select.select([pipe], [], [], 0)[0] and (part := os.read(pipe, 4096)):
            self._guardian_output += part.decode(errors="replace")


def server_environment(secrets: Secrets, passed: Collection[str]) -> dict[str, str]:
    """Return our environment without API keys, except the variables that are passed on by name.

    Left out is a variable whose name suggests a secret, that config.toml names as an API key, or that holds one of
    this run.
    """
    keys = {known.api_key_env for known in read_config().endpoints.values()}
    redact = Redactor(secrets).redact
    return {
        name: value
        for name, value in os.environ.items()
        if name in passed or not (is_secret_name(name) or name in keys or redact(value) != value)
    }


def log_redactor(secrets: Secrets, passed: Collection[str]) -> Redactor:
    """Return what redacts the output of a server: it may print the keys that it was given."""
    given = {name: os.environ[name] for name in passed if name in os.environ}
    return Redactor(Secrets(api_key=secrets.api_key, headers=secrets.headers | given))


def _marked_processes(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(_MARKER) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _exits_within(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _is_ready(client: HttpClient, url: str, timeout_s: float) -> bool:
    try:
        return client.get(url, timeout_s).status < 300
    except RequestFailed:
        return False
