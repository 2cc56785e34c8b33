"""A server of ours: started under a guardian, waited for, stopped; and never one that somebody else has started."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import msgspec

from swarmtui.experiments.grid import Launch
from swarmtui.experiments.server_guardian import Order
from swarmtui.text import plain

_LOOK_S = 0.1
_ASK_S = 2.0
_LOG_LINES = 5
_LOG_BYTES = 32 << 10
# The guardian needs so long beyond what the server is given.
_PATIENCE_S = 15.0
_HARD_S = 1.0


class Broken(Exception):
    """A server that could not be had: why, in a sentence."""


class Stopped(Exception):
    """Somebody does not want to wait any longer."""


class Server:
    """From `start` to `stop` there is one; use it in a `with`, so that it ends whatever happens.

    `at_once` is asked while it ends: whether somebody does not want to wait for that either.
    """

    def __init__(
        self,
        launch: Launch,
        log: Path,
        *,
        directory: str | None = None,
        stop_within_s: float = 20.0,
        at_once: Callable[[], bool] = lambda: False,
    ) -> None:
        self._launch, self._log, self._directory, self._stop_within_s = launch, log, directory, stop_within_s
        self._at_once = at_once
        self._guardian: subprocess.Popen[bytes] | None = None
        self._told = ""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if _answers(self._launch.url):
            raise Broken(f"something listens on {self._launch.url} already; it is not ours, and is left alone")
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log.write_bytes(b"")
        self._log.chmod(0o600)
        self._guardian = subprocess.Popen(
            [sys.executable, "-P", "-m", "swarmtui.experiments.server_guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        order = Order(
            words=self._launch.words,
            env=self._launch.env,
            log=str(self._log.resolve()),
            directory=self._directory,
            stop=self._launch.stop,
            stop_within_s=self._stop_within_s,
        )
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(msgspec.json.encode(order) + b"\n")
        self._guardian.stdin.flush()

    def wait_until_ready(self, within_s: float, stopped: Callable[[], bool]) -> float:
        """The seconds that it took. A command that ends by itself has failed, unless another one is to stop it."""
        begun = time.monotonic()
        with httpx2.Client(trust_env=False, timeout=_ASK_S) as client:
            while not stopped():
                if (why := self.death()) is not None:
                    raise Broken(why)
                if _is_ready(client, self._launch.ready):
                    return time.monotonic() - begun
                if time.monotonic() - begun > within_s:
                    raise Broken(f"was not ready within {within_s:g} s: no answer from {self._launch.ready}")
                time.sleep(_LOOK_S)
        raise Stopped

    def death(self) -> str | None:
        """How it ended, if it has; of a server that its command only sets going nobody tells us."""
        self._hear()
        for line in self._told.splitlines():
            word, _, rest = line.partition(" ")
            if word == "failed":
                return f"cannot be started: {rest}"
            if word == "exit" and not (self._launch.stop and rest == "0"):
                return f"was killed by signal {rest[1:]}" if rest.startswith("-") else f"ended with exit code {rest}"
        if self._guardian is not None and self._guardian.poll() is not None:
            return "its guardian is gone"
        return None

    def log_tail(self) -> tuple[str, ...]:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _LOG_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return ()
        lines = [plain(line) for line in text.splitlines()]
        return tuple([line for line in lines if line][-_LOG_LINES:])

    def stop(self) -> None:
        """In good order, then hard; back when nothing of it is left.

        At once means hard from here on; a command that stops it is left to its guardian, which outlives us.
        """
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None and guardian.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.write(b"end\n")
            guardian.stdin.flush()
        give_up = time.monotonic() + 2 * self._stop_within_s + _PATIENCE_S
        while not (gone := _gone(guardian, _LOOK_S)) and not self._at_once() and time.monotonic() < give_up:
            continue
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.close()
        if not gone and not _gone(guardian, _HARD_S) and not self._at_once():
            guardian.kill()  # its server dies with it
            guardian.wait()
        guardian.stdout.close()

    def _hear(self) -> None:
        if self._guardian is None or self._guardian.stdout is None:
            return
        pipe = self._guardian.stdout.fileno()
        while select.select([pipe], [], [], 0)[0] and (part := os.read(pipe, 4096)):
            self._told += part.decode(errors="replace")


def _gone(process: subprocess.Popen[bytes], within_s: float) -> bool:
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


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def _is_ready(client: httpx2.Client, url: str) -> bool:
    try:
        return client.get(url).status_code < 300
    except httpx2.HTTPError:
        return False
