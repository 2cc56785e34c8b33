"""Run `swarmtui` as real processes in an isolated environment, by which they can be found again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.preloaded import start_in_fork

TIMEOUT_S = 150.0
ROOT = Path(__file__).resolve().parent.parent.parent

# Fast and short: 20 times the real speed, a handful of tokens.
SIM = "sim:moe-tp1?speed=20"
SHORT = ("--max-tokens", "8")


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    def error_line(self, code: int) -> str:
        """The single error line; asserts the exit code and that there is no traceback."""
        assert self.code == code, self
        assert "Traceback" not in self.err + self.out, self
        errors = [line for line in self.err.splitlines() if line.startswith("swarmtui: ")]
        assert len(errors) == 1, self
        return errors[0]


class FoundProcess(NamedTuple):
    pid: int
    command_line: str


class Sandbox:
    """The environment of one test: sessions, sockets and temporary files; its TMPDIR identifies its processes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sessions = home / "sessions"
        # Paths of Unix sockets are limited in length; those of test directories are too long.
        self.runtime = Path(tempfile.mkdtemp(prefix="swarmtui-"))
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        self.environment = kept | {
            "HOME": str(home),
            "TMPDIR": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PYTHONPATH": str(ROOT),
        }

    def start(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        before: list[str] | None = None,
        forked: bool = True,
    ) -> Program:
        """Start a command, where possible in a fork of a process that has imported its modules."""
        command = [*(before or []), sys.executable, "-m", "swarmtui", *arguments]
        return Program(command, self.environment | (env or {}), self.home, forked=forked and before is None)

    def run(self, *arguments: str, env: dict[str, str] | None = None, before: list[str] | None = None) -> CommandResult:
        return self.start(*arguments, env=env, before=before).wait()

    def run_each(self, *commands: tuple[str, ...]) -> list[CommandResult]:
        return [self.run(*words) for words in commands]

    def run_benchmark(self, endpoint: str, *arguments: str, env: dict[str, str] | None = None) -> CommandResult:
        """`swarmtui run` with sessions saved in this sandbox."""
        return self.run("run", "--endpoint", endpoint, "--session-dir", str(self.sessions), *arguments, env=env)

    def start_benchmark(
        self, endpoint: str, *arguments: str, env: dict[str, str] | None = None, forked: bool = True
    ) -> Program:
        words = ("run", "--endpoint", endpoint, "--session-dir", str(self.sessions), *arguments)
        return self.start(*words, env=env, forked=forked)

    def list_sessions(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json("sessions", "--json", "--session-dir", str(self.sessions))
        return rows

    def show_session(self, session: str = "last") -> dict[str, Any]:
        summary: dict[str, Any] = self.json("sessions", "show", session, "--json", "--session-dir", str(self.sessions))
        return summary

    def json(self, *arguments: str) -> Any:
        ran = self.run(*arguments)
        assert ran.code == 0, ran
        return json.loads(ran.out)

    @property
    def session(self) -> Path:
        """The directory of the only session."""
        (found,) = self.sessions.iterdir()
        return found

    def detail(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.session / "detail.json").read_bytes())
        return document

    def processes(self, part: str = "swarmtui") -> list[FoundProcess]:
        """Processes with this environment and `part` in their command line."""
        return find_processes(f"TMPDIR={self.home}", part)

    def error_log(self) -> str:
        """Unexpected errors of session processes and workers."""
        log = self.runtime / "swarmtui" / "errors.log"
        return log.read_text() if log.is_file() else ""

    def close(self) -> None:
        """Kill the processes that a failed test left behind."""
        for process in self.processes(""):
            send_signal(process.pid, signal.SIGKILL)
        shutil.rmtree(self.runtime, ignore_errors=True)


class Program:
    """A running command, in its own process group as a shell would start it."""

    def __init__(self, command: list[str], environment: dict[str, str], home: Path, *, forked: bool = False) -> None:
        self._out, self._err = bytearray(), bytearray()
        self._readers, streams = [], [os.open(os.devnull, os.O_RDONLY)]
        for into in (self._out, self._err):
            read, write = os.pipe()
            self._readers.append(threading.Thread(target=_read_all, args=(read, into), daemon=True))
            streams.append(write)
        process = start_in_fork(command, environment, home, streams) if forked else None
        # Under nohup, or in the background of a shell, the test run itself ignores these signals.
        self.process = process or subprocess.Popen(
            ["env", "--default-signal=HUP,INT", *command],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        for stream in streams:
            os.close(stream)
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def stderr_so_far(self) -> str:
        return bytes(self._err).decode(errors="replace")

    def stdout_so_far(self) -> str:
        """The complete lines on stdout so far."""
        return bytes(self._out).decode().rpartition("\n")[0]

    def signal_group(self, number: int) -> None:
        """Signal all of its processes; a fork that has ended is gone, where a child would still wait for us."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait(self) -> CommandResult:
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not exit; stderr so far: {self.stderr_so_far()}") from None
        for reader in self._readers:
            reader.join()
        return CommandResult(code, self._out.decode(), self._err.decode())


def _read_all(pipe: int, into: bytearray) -> None:
    while part := os.read(pipe, 1 << 16):
        into += part
    os.close(pipe)


class TerminalProgram:
    """A command on a pseudo-terminal, whose screen a terminal emulator keeps up to date."""

    def __init__(
        self, sandbox: Sandbox, *arguments: str, columns: int = 80, rows: int = 24, before: tuple[str, ...] = ()
    ) -> None:
        import pyte

        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._master, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (rows, columns))
        self.process = subprocess.Popen(
            [
                "env",
                "--default-signal=HUP,INT",
                "setsid",
                "--ctty",
                *before,
                sys.executable,
                "-m",
                "swarmtui",
                *arguments,
            ],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=sandbox.environment | {"TERM": "xterm-256color"},
            cwd=sandbox.home,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._screen.display)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        os.close(self._master)
        return code

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the last process with this terminal has ended
                return
            with self._lock:
                self._stream.feed(data)


def find_processes(variable: str, part: str = "") -> list[FoundProcess]:
    """Return the other processes with this variable and value in their environment; those that have ended have none."""
    marker, found = variable.encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    command_line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if part in command_line:
                        found.append(FoundProcess(int(entry.name), command_line))
            except OSError:
                continue
    return found


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], Any], description: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Wait until the condition is true, and return its value; what it takes to look is a small part of the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        before = time.thread_time()
        if found := condition():
            return found
        time.sleep(max(0.01, 20 * (time.thread_time() - before)))
    raise AssertionError(f"timed out: {description}")


@contextmanager
def open_sandbox(home: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(home)
    try:
        yield sandbox
        assert "Traceback" not in sandbox.error_log(), sandbox.error_log()
    finally:
        sandbox.close()
