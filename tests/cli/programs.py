"""`swarmtui` as people start it: real processes, in an environment of their own, all of them found again by it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

TIMEOUT_S = 30.0
ROOT = Path(__file__).resolve().parent.parent.parent

# Fast and short: 20 times the real speed, a handful of tokens.
SIM = "sim:moe-tp1?speed=20"
SHORT = ("--max-tokens", "8")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def refused(self, code: int) -> str:
        """The one line that says what is wrong: the right exit code, no traceback, nothing measured on stdout."""
        assert self.code == code, self
        assert "Traceback" not in self.err + self.out, self
        told = [line for line in self.err.splitlines() if line.startswith("swarmtui: ")]
        assert len(told) == 1, self
        return told[0]


class Process(NamedTuple):
    pid: int
    words: str


class Place:
    """A home for one test: sessions, sockets and temporary files lie in it, and no other process has it as TMPDIR."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sessions = home / "sessions"
        # Names of Unix sockets are short, and those of test directories are not.
        self.runtime = Path(tempfile.mkdtemp(prefix="swarmtui-"))
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        self.environment = kept | {
            "HOME": str(home),
            "TMPDIR": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def start(self, *words: str, env: dict[str, str] | None = None, before: list[str] | None = None) -> Program:
        return Program(
            [*(before or []), sys.executable, "-m", "swarmtui", *words], self.environment | (env or {}), self.home
        )

    def run(self, *words: str, env: dict[str, str] | None = None, before: list[str] | None = None) -> Ran:
        return self.start(*words, env=env, before=before).wait()

    def measure(self, endpoint: str, *words: str, env: dict[str, str] | None = None) -> Ran:
        """`run` with sessions kept here."""
        return self.run("run", "--endpoint", endpoint, "--session-dir", str(self.sessions), *words, env=env)

    def begin(self, endpoint: str, *words: str, env: dict[str, str] | None = None) -> Program:
        return self.start("run", "--endpoint", endpoint, "--session-dir", str(self.sessions), *words, env=env)

    def listed(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json("sessions", "--json", "--session-dir", str(self.sessions))
        return rows

    def shown(self, session: str = "last") -> dict[str, Any]:
        summary: dict[str, Any] = self.json("sessions", "show", session, "--json", "--session-dir", str(self.sessions))
        return summary

    def json(self, *words: str) -> Any:
        ran = self.run(*words)
        assert ran.code == 0, ran
        return json.loads(ran.out)

    @property
    def session(self) -> Path:
        """The only one there is."""
        (found,) = self.sessions.iterdir()
        return found

    def detail(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.session / "detail.json").read_bytes())
        return document

    def processes(self, part: str = "swarmtui") -> list[Process]:
        """Those that live in this environment, with `part` in their command."""
        marker = f"TMPDIR={self.home}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if marker in (entry / "environ").read_bytes().split(b"\0"):
                        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        if part in words:
                            found.append(Process(int(entry.name), words))
                except OSError:
                    continue
        return found

    def complaints(self) -> str:
        """What conductors and workers wrote that should never happen."""
        log = self.runtime / "swarmtui" / "errors.log"
        return log.read_text() if log.is_file() else ""

    def close(self) -> None:
        """Ends what a failed test left behind."""
        for process in self.processes(""):
            with_signal(process.pid, signal.SIGKILL)
        shutil.rmtree(self.runtime, ignore_errors=True)


class Program:
    """One command under way, in a process group of its own as a shell would give it."""

    def __init__(self, words: list[str], environment: dict[str, str], home: Path) -> None:
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        self._out, self._err = bytearray(), bytearray()
        pipes = ((self.process.stdout, self._out), (self.process.stderr, self._err))
        self._readers = [threading.Thread(target=_read, args=pipe, daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """What is on stderr so far."""
        return bytes(self._err).decode(errors="replace")

    def printed(self) -> str:
        """What is on stdout so far, in whole lines."""
        return bytes(self._out).decode().rpartition("\n")[0]

    def signal_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def wait(self) -> Ran:
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not end; stderr so far: {self.said()}") from None
        for reader in self._readers:
            reader.join()
        return Ran(code, self._out.decode(), self._err.decode())


def _read(pipe: BinaryIO, into: bytearray) -> None:
    with pipe:
        while part := os.read(pipe.fileno(), 1 << 16):
            into += part


def with_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def until(condition: Callable[[], Any], what: str, patience_s: float = TIMEOUT_S) -> Any:
    """What the condition gives, once it gives something."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"never came true: {what}")


@contextmanager
def place_in(home: Path) -> Iterator[Place]:
    place = Place(home)
    try:
        yield place
        assert "Traceback" not in place.complaints(), place.complaints()
    finally:
        place.close()
