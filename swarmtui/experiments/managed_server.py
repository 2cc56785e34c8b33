"""Start a server under a guardian process, wait until it is ready, and stop it. Running servers are left alone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from swarmtui.client.catalogue import is_listening
from swarmtui.client.config_file import read_config
from swarmtui.client.held_settings import HeldSettings, last_lines
from swarmtui.client.session_client import StopControl
from swarmtui.engines.command_line import redact_flags
from swarmtui.experiments.server_guardian import GUARDIAN_SIGNALS, LaunchCommand
from swarmtui.files import make_private_directory, write_file
from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.findings import Finding
from swarmtui.model.redaction import Redactor, Secrets, is_secret_name
from swarmtui.processes.spawn import module_command

_POLL_S = 0.1
_READY_TIMEOUT_S = 2.0
# Lines, and bytes that are searched for them.
_TAIL = 5, 32 << 10
# How long the guardian may take beyond the time limits of the server.
_GUARDIAN_EXTRA_S = 15.0
_KILL_TIMEOUT_S = 1.0
# How long the guardian may take to report the exit of a server that no longer listens.
_EXIT_REPORT_S = 5.0


# What ends a server from outside: somebody, or the kernel.
_KILLING = (signal.SIGKILL, signal.SIGTERM)


class ServerFailed(Exception):
    """The server could not be started or did not become ready; `why` has a code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.why = Finding(code=code, text=text)


class Interrupted(Exception):
    """A stop was requested while waiting."""


class ManagedServer:
    """A server process; use it in a `with` block, so that it is always stopped.

    A second stop signal while it stops kills the server without further waiting. `secrets` are those of the run: they
    are neither passed on to the server nor shown if it prints them. `held` are the settings that the guardian restores.
    """

    def __init__(
        self, launch: LaunchCommand, log: Path, secrets: Secrets, stop: StopControl, held: HeldSettings | None = None
    ) -> None:
        self._launch, self._log, self._secrets, self._stop, self._held = launch, log, secrets, stop, held
        self._guardian: subprocess.Popen[bytes] | None = None
        self._guardian_output = ""

    def __enter__(self) -> ManagedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> float:
        """Start the server and return the seconds until it was ready."""
        if is_listening(self._launch.url):
            text = f"another server is already listening on {self._launch.url}; it was left alone"
            raise ServerFailed("address_taken", text)
        make_private_directory(self._log.parent)
        self._log.unlink(missing_ok=True)
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        # Ctrl-C must not kill a guardian that has not left our process group yet; it unblocks the signals itself.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, GUARDIAN_SIGNALS)
        try:
            self._guardian = subprocess.Popen(
                module_command("swarmtui.experiments.server_guardian") + ([str(self._held.path)] if self._held else []),
                # With the file it inherits the lock: that is free only when all who can restore are gone.
                pass_fds=(self._held.fd,) if self._held else (),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=server_environment(self._secrets, self._launch.pass_env),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(log)
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(msgspec.json.encode(self._launch) + b"\n")
        self._guardian.stdin.flush()
        return self._wait_until_ready()

    def _wait_until_ready(self) -> float:
        """A command that exits has failed, unless there is a stop command."""
        started, within_s = time.monotonic(), self._launch.ready_within_s
        deadline = started + within_s
        with HttpClient(stopped=lambda: self._stop.requested) as client:
            while not self._stop.requested:
                if (why := self.failure()) is not None:
                    raise ServerFailed(why.code, why.text)
                with contextlib.suppress(RequestFailed):
                    if client.get(self._launch.ready, min(_READY_TIMEOUT_S, deadline - time.monotonic())).status < 300:
                        return time.monotonic() - started
                if time.monotonic() > deadline:
                    text = f"not ready within {within_s:g} s: no response from {self._launch.ready}"
                    raise ServerFailed("not_ready", text)
                time.sleep(_POLL_S)
        raise Interrupted

    def failure(self) -> Finding | None:
        """Say how the server exited, or None; one that its command starts in the background cannot be observed."""
        if self._guardian is not None and self._guardian.stdout is not None:
            pipe = self._guardian.stdout.fileno()
            while select.select([pipe], [], [], 0)[0] and (part := os.read(pipe, 4096)):
                self._guardian_output += part.decode(errors="replace")
        for line in self._guardian_output.splitlines():
            event, _, rest = line.partition(" ")
            if event == "failed":
                return Finding(code="not_started", text=f"could not be started: {redact_flags(rest)}")
            if event == "exit" and not (self._launch.stop and rest == "0"):
                number = -int(rest)
                code = "killed" if number in _KILLING else "exited"
                return Finding(
                    code=code, text=f"was killed by signal {number}" if number > 0 else f"exited with code {rest}"
                )
        if "guardian died" in self._guardian_output or (self._guardian and self._guardian.poll() is not None):
            return Finding(code="guardian_died", text="its guardian process died")
        return None

    def failure_if_gone(self) -> Finding | None:
        """Like `failure()`, but wait for the report if the server no longer listens: its clients may notice first."""
        deadline = time.monotonic() + _EXIT_REPORT_S
        while (why := self.failure()) is None and not is_listening(self._launch.url):
            if time.monotonic() > deadline or self._stop.requested:
                return None
            time.sleep(_POLL_S)
        return why

    def log_tail(self) -> tuple[str, ...]:
        try:
            with self._log.open("rb") as log:
                return last_lines(log, *_TAIL, self._redactor().redact)
        except OSError:
            return ()

    def _redactor(self) -> Redactor:
        """The server may print the keys that it was given, or that requests contain."""
        given = {name: os.environ[name] for name in self._launch.pass_env if name in os.environ}
        return Redactor(msgspec.structs.replace(self._secrets, headers=self._secrets.headers | given))

    def _redact_log(self) -> None:
        redact = self._redactor().redact
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="surrogateescape").splitlines(keepends=True)
            shown = [redact(line) for line in lines]
            if shown != lines:
                write_file(self._log, "".join(shown).encode(errors="surrogateescape"))

    def stop(self) -> None:
        """Terminate the server, then kill it; return when all its processes are gone.

        After a second signal it is killed; a stop command is left to the guardian, which outlives us.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None and guardian.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.write(b"end\n")
            guardian.stdin.flush()
        deadline = time.monotonic() + 2 * self._launch.stop_within_s + _GUARDIAN_EXTRA_S
        while (
            not (exited := _exits_within(guardian, _POLL_S))
            and not self._stop.immediate
            and time.monotonic() < deadline
        ):
            continue
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.close()
        if not exited and not _exits_within(guardian, _KILL_TIMEOUT_S) and not self._stop.immediate:
            guardian.kill()
            guardian.wait()
        # If one of its two processes was killed, the other one stops what is left, and then closes the pipe.
        while guardian.returncode and not self._stop.immediate and time.monotonic() < deadline:
            if select.select([guardian.stdout], [], [], _POLL_S)[0] and not os.read(guardian.stdout.fileno(), 4096):
                break
        guardian.stdout.close()
        self._redact_log()


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
