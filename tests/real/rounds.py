"""One run of swarmtui against a server, with or without a fault, and what it says about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.client.session_client import ConnectionLost, SessionClient, attach, running_sessions
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended, Frame, Subscribe

_ROOT = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S = 600.0
_FRAMES_PER_S = 20.0


class Round(NamedTuple):
    """Holds what a run reported: exit code, codes of doubtful lines, of the flags of levels and of events."""

    exit_code: int
    doubtful: tuple[str, ...]
    flags: tuple[str, ...]
    events: tuple[str, ...]
    values: dict[str, str]
    directory: Path

    @property
    def codes(self) -> set[str]:
        return {*self.doubtful, *self.flags, *self.events}

    def streams_at(self, t_ns: int) -> set[str]:
        """Return what the requests in flight at a time were doing: waiting for their first token, or decoding."""
        return {
            "waiting" if request["t_first_ns"] is None or request["t_first_ns"] > t_ns else "decoding"
            for request in self._requests()
            if request["t_sent_ns"] and request["t_sent_ns"] < t_ns < (request["t_done_ns"] or t_ns)
        }

    def measured_after(self, t_ns: int) -> bool:
        """Whether a measured request ended after a time: before, it was within what is measured."""
        return any(request["phase"] == "level" and (request["t_done_ns"] or 0) > t_ns for request in self._requests())

    def _requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.directory / "detail.json").read_bytes())["requests"]
        return found


class Running:
    """A run that has been started: waits for a moment of it, and for its result."""

    def __init__(self, process: subprocess.Popen[str], sessions: Path, before: set[str]) -> None:
        self._process, self._sessions, self._before = process, sessions, before
        self._client: SessionClient | None = None

    def wait_for(self, moment: Callable[[Frame], bool]) -> bool:
        """Wait until a frame of the session shows the moment; return False if the session ends before."""
        client = self._client = self._client or self._join()
        while client is not None:
            try:
                message = client.receive(_TIMEOUT_S)
            except ConnectionLost:
                return False
            if message is None or isinstance(message, Ended):
                return False
            if isinstance(message, Frame) and moment(message):
                return True
        return False

    def _join(self) -> SessionClient | None:
        while self._process.poll() is None:
            for name in running_sessions():
                try:
                    return attach(name, Subscribe(hz=_FRAMES_PER_S))
                except BadInput:
                    continue
            time.sleep(0.05)
        return None

    def result(self) -> Round:
        if self._client is not None:
            self._client.close()
        out, _ = self._process.communicate(timeout=_TIMEOUT_S)
        summary: dict[str, Any] = json.loads(out) if out.strip() else {}
        lines = [line for line in summary.get("quality", ()) if line["state"] == "doubtful"]
        levels = summary.get("levels", ())
        made = sorted({path.name for path in self._sessions.iterdir()} - self._before)
        return Round(
            self._process.returncode,
            tuple(line["code"] for line in lines),
            tuple(sorted({flag["code"] for level in levels for flag in level["flags"]})),
            tuple(sorted({event["name"] for event in summary.get("events", ())})),
            {line["code"]: line["value"] for line in lines},
            self._sessions / (made[-1] if made else ""),
        )


@contextmanager
def open_run(url: str, sessions: Path, seed: int, *words: str) -> Iterator[Running]:
    """Start `swarmtui run`; its files and sockets are in a directory of their own."""
    sessions.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in sessions.iterdir()}
    command = [sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--session-dir", str(sessions)]
    with (sessions.parent / "run.log").open("a") as log:
        process = subprocess.Popen(
            [*command, "--seed", str(seed), "--no-gpu", "--json", "--quiet", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=_ROOT,
            env=dict(os.environ),
        )
    try:
        yield Running(process, sessions, before)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
