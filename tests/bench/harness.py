"""Drive a worker without a session process, so that it alone is measured."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from swarmtui.model.endpoint import Dialect
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import (
    Ack,
    Enqueue,
    Finished,
    Setup,
    StartStage,
    Target,
    Unpacker,
    WorkerFrame,
    decode_report,
    pack,
)
from swarmtui.model.workload import Message, Task


class LoadResult(NamedTuple):
    records: list[Record]
    cpu_s: float
    wall_s: float


def tasks(count: int, max_tokens: int) -> tuple[Task, ...]:
    return tuple(
        Task(id=i, messages=(Message(role="user", content=f"[{i:08x}] say something"),), max_tokens=max_tokens)
        for i in range(count)
    )


def drive(
    url: str, c: int, jobs: Iterable[Task], *, ca_file: str | None = None, dialect: Dialect = "chat"
) -> LoadResult:
    """Run all jobs with C streams; the CPU time is that of the worker, from the first request to the last."""
    jobs = tuple(jobs)
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen([sys.executable, "-m", "swarmtui.loadgen.worker"], stdin=theirs.fileno()) as process:
        theirs.close()
        unpacker = Unpacker()
        records: list[Record] = []
        target = Target(url=url, model="truth", dialect=dialect, ca_file=ca_file)
        ours.sendall(pack(Setup(0, 1, (target,), Timeouts())) + pack(Enqueue(jobs)))
        cpu_before, cpu_after, started = None, 0.0, time.perf_counter()
        while len(records) < len(jobs) or cpu_after <= (cpu_before or 0.0):
            for body in unpacker.feed(ours.recv(1 << 20)):
                match decode_report(body):
                    case WorkerFrame(queued=queued) if queued < len(jobs) and cpu_before is None:
                        pass  # it still reads the jobs
                    case WorkerFrame(cpu_ns=int(cpu_ns)) if cpu_before is None:
                        cpu_before, started = cpu_ns / 1e9, time.perf_counter()
                        ours.sendall(pack(StartStage(1, c, c)))
                    case WorkerFrame(cpu_ns=int(cpu_ns)):
                        cpu_after = cpu_ns / 1e9 if len(records) == len(jobs) else 0.0
                    case Finished(number=number, record=record):
                        records.append(record)
                        ours.sendall(pack(Ack(number)))
        wall = time.perf_counter() - started
        ours.shutdown(socket.SHUT_WR)
        process.wait(10)
    return LoadResult(records, cpu_after - (cpu_before or 0.0), wall)
