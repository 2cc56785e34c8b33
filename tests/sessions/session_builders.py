"""Build sessions for tests and write them to disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import End, Entry, Head, RequestEntry, StageEnd, StageStart, entry_encoder
from swarmtui.model.load import Closed, Open
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import ClientInfo, Event, Session
from swarmtui.sessions.journal import JournalWriter

T0 = 5_000_000_000_000
MS = 1_000_000

_WRITER = """
import sys
from pathlib import Path
from swarmtui.sessions.journal import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
for line in sys.stdin.buffer:
    if line == b"\\n":
        break
    writer.append(line.rstrip(b"\\n"))
print("written", flush=True)
sys.stdin.buffer.read()
"""


def head(session_id: str = "20261115-014455-3f9a", **fields: Any) -> Head:
    defaults: dict[str, Any] = {
        "id": session_id,
        "created": "2026-11-15T01:44:55Z",
        "t0_ns": T0,
        "endpoints": (Endpoint(url="http://127.0.0.1:8000", model="qwen3"),),
        "workload": "coding",
        "workload_digest": "0123456789abcdef",
        "workload_spec": {"kind": "prompts", "prompts": ["say | this\n"]},
        "plan": Plan(load=Closed(levels=(1, 2))),
        "client": ClientInfo(version="0.1.0", python="3.11.7", host="box", cores=2),
    }
    return Head(session=Session(**(defaults | fields)), pid=1)


def record(task: int, *, sent: int = 0, c: int = 1, stage: int = 1, **fields: Any) -> Record:
    """Ten tokens: the first after 50 ms, then one every 10 ms."""
    t_sent = T0 + sent * MS
    defaults: dict[str, Any] = {
        "task": task,
        "id": f"cmpl-{task}",
        "stage": stage,
        "c": c,
        "run": 1,
        "stamp": "kernel",
        "t_sent_ns": t_sent,
        "t_first_ns": t_sent + 50 * MS,
        "t_last_ns": t_sent + 140 * MS,
        "t_done_ns": t_sent + 141 * MS,
        "chunks": 10,
        "chunk_us": (0, *[10_000] * 9),
        "first_tokens": 1,
        "tokens_in": 7,
        "tokens_out": 10,
        "token_source": "usage",
        "finish_reason": "stop",
    }
    return Record(**(defaults | fields))


def full_session(session_id: str = "20261115-014455-3f9a", **fields: Any) -> list[Entry]:
    """A warm-up, C=1 and C=2 with five requests per stream, and an end."""
    entries: list[Entry] = [head(session_id, **fields)]
    entries += [StageStart(number=0, t_ns=T0, c=1, run=0, phase="warmup", of=1)]
    entries += [RequestEntry(record=record(0, stage=0, phase="warmup")), StageEnd(number=0, t_ns=T0, complete=True)]
    for number, c in ((1, 1), (2, 2)):
        entries.append(StageStart(number=number, t_ns=T0 + number * 1000 * MS, c=c, run=1, phase="level", of=5 * c))
        for turn in range(5):
            for agent in range(c):
                request = record(100 * number + 10 * agent + turn, sent=1000 * number + 140 * turn, c=c, stage=number)
                entries.append(RequestEntry(record=request))
        entries.append(StageEnd(number=number, t_ns=T0 + (number + 1) * 1000 * MS, complete=True))
    entries.append(Event(t_ns=T0 + 1500 * MS, name="left_out", detail="the server refused stream_options"))
    return [*entries, End(t_ns=T0 + 3000 * MS, state="done")]


def open_loop_session(session_id: str = "20261115-014455-3f9a") -> list[Entry]:
    """Five requests at 2/s and five at 4/s, with at most 512 in flight."""
    entries: list[Entry] = [head(session_id, plan=Plan(load=Open(streams=512, rate=(2.0, 4.0))))]
    for number, rate in ((1, 2.0), (2, 4.0)):
        start = 10_000 * number
        entries.append(
            StageStart(number=number, t_ns=T0 + start * MS, c=512, run=1, phase="level", load="open", rate=rate)
        )
        for index in range(5):
            due = start + int(1000 * index / rate)
            request = record(100 * number + index, sent=due, c=512, stage=number, t_sched_ns=T0 + due * MS)
            entries.append(RequestEntry(record=request))
        entries.append(StageEnd(number=number, t_ns=T0 + (start + 9000) * MS, complete=True))
    return [*entries, End(t_ns=T0 + 30_000 * MS, state="done")]


def write_session(directory: Path, entries: Sequence[Entry]) -> Path:
    writer = JournalWriter(directory)
    for entry in entries:
        writer.append(entry_encoder.encode(entry))
    writer.close()
    return directory


@contextmanager
def journal_writer(directory: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """Write the first `count` entries of a session in another process, which keeps the journal locked."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin and child.stdout
        for entry in full_session(directory.name)[:count]:
            child.stdin.write(entry_encoder.encode(entry) + b"\n")
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"written\n"
        try:
            yield child
        finally:
            child.kill()
