"""Run a worker process without a session process: send commands and read reports directly."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec

from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import (
    Enqueue,
    Failed,
    Finished,
    Returned,
    Setup,
    StartStage,
    Target,
    Unpacker,
    WorkerFrame,
    WorkerReport,
    decode_report,
    pack,
)
from swarmtui.model.workload import Message, Task
from tests.cli.preloaded import start_module

WORKER = "swarmtui.loadgen.worker"

# Longer than any test needs; reaching it is a failure.
TIMEOUT_S = 120.0

_DEFAULT_TIMEOUTS = Timeouts()


def task(number: int, text: str = "", **fields: Any) -> Task:
    content = text or f"question {number}"
    return Task(id=number, messages=(Message(role="user", content=content),), **fields)


class DrivenWorker:
    """A worker that ends with the block, and must then exit with code 0.

    One that is not `forked` has only memory of its own.
    """

    def __init__(
        self,
        *urls: str,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        worker: int = 0,
        workers: int = 1,
        spool: str | tuple[str, ...] = (),
        keep_text: bool = True,
        module: str = WORKER,
        forked: bool = True,
        **target: Any,
    ) -> None:
        self._module, self._forked = module, forked
        self._pipe, self._worker_end = socket.socketpair()
        self._pipe.settimeout(TIMEOUT_S)
        self._unpacker = Unpacker()
        self._reports: list[WorkerReport] = []
        targets = tuple(Target(url=url, model="m", **target) for url in urls)
        self._setup = Setup(
            worker,
            workers,
            targets,
            timeouts,
            spools=(spool,) if isinstance(spool, str) else spool,
            keep_text=keep_text,
        )

    def __enter__(self) -> DrivenWorker:
        self._process = start_module(
            self._module, streams=(self._worker_end.fileno(), 1, 2), forked=self._forked and self._module == WORKER
        )
        self._worker_end.close()
        self.send(self._setup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pipe.fileno() >= 0:
                self._pipe.shutdown(socket.SHUT_WR)
            code = self._process.wait(TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            code = self._process.wait()
        self._pipe.close()
        if kind is None:
            assert code == 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, *commands: msgspec.Struct) -> None:
        self._pipe.sendall(b"".join(map(pack, commands)))

    def start_stage(self, agents: int, number: int = 1, *, cancel: bool = False) -> None:
        self.send(StartStage(number, agents, c=agents, run=1, cancel=cancel))

    def enqueue(self, tasks: Iterable[Task]) -> None:
        self.send(Enqueue(tuple(tasks)))

    def next_report(self) -> WorkerReport:
        while not self._reports:
            data = self._pipe.recv(1 << 20)
            assert data, "the worker has ended"
            self._reports += map(decode_report, self._unpacker.feed(data))
        return self._reports.pop(0)

    def finished(self, count: int) -> list[Finished]:
        found: list[Finished] = []
        while len(found) < count:
            report = self.next_report()
            if isinstance(report, Finished):
                found.append(report)
            assert not isinstance(report, Failed), report
        return found

    def records(self, count: int) -> list[Record]:
        return [report.record for report in self.finished(count)]

    def returned(self) -> tuple[int, ...]:
        while not isinstance(report := self.next_report(), Returned):
            pass
        return report.tasks

    def wait_for_frame(self, condition: Callable[[WorkerFrame], bool]) -> WorkerFrame:
        """Return the next frame that meets the condition; records that come before it are discarded."""
        while True:
            report = self.next_report()
            if isinstance(report, WorkerFrame) and condition(report):
                return report

    def run(self, tasks: Iterable[Task], agents: int = 1) -> list[Record]:
        tasks = tuple(tasks)
        self.enqueue(tasks)
        self.start_stage(agents)
        return self.records(len(tasks))

    def close_pipe(self) -> None:
        """Close the pipe, as when the session process dies."""
        self._pipe.close()
        self._process.wait(TIMEOUT_S)
