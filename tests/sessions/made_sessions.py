"""Sessions on disk, made up for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Client, End, Entry, Event, Head, Request, Session, StretchEnd, StretchStart
from swarmtui.sessions.journal import JournalWriter

T0 = 5_000_000_000_000
MS = 1_000_000


def head(session_id: str = "20261115-014455-3f9a", **fields: Any) -> Head:
    made: dict[str, Any] = {
        "id": session_id,
        "created": "2026-11-15T01:44:55Z",
        "t0_ns": T0,
        "endpoints": (Endpoint(url="http://127.0.0.1:8000", model="qwen3"),),
        "workload": "coding",
        "workload_digest": "0123456789abcdef",
        "workload_spec": {"kind": "prompts", "prompts": ["say | this\n"]},
        "plan": Plan(levels=(1, 2)),
        "client": Client(version="0.1.0", python="3.11.7", host="box", cores=2),
    }
    return Head(session=Session(**(made | fields)), pid=1)


def record(task: int, *, sent: int = 0, c: int = 1, stretch: int = 1, **fields: Any) -> Record:
    """Ten tokens, the first after 50 ms, the others every 10 ms."""
    t_sent = T0 + sent * MS
    made: dict[str, Any] = {
        "task": task,
        "id": f"cmpl-{task}",
        "stretch": stretch,
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
    return Record(**(made | fields))


def whole(session_id: str = "20261115-014455-3f9a", **fields: Any) -> list[Entry]:
    """A warm-up, C=1 and C=2 with five requests a stream, and an end."""
    entries: list[Entry] = [head(session_id, **fields)]
    entries += [StretchStart(number=0, t_ns=T0, c=1, run=0, phase="warmup", of=1)]
    entries += [Request(record=record(0, stretch=0, phase="warmup")), StretchEnd(number=0, t_ns=T0, complete=True)]
    for number, c in ((1, 1), (2, 2)):
        entries.append(StretchStart(number=number, t_ns=T0 + number * 1000 * MS, c=c, run=1, phase="level", of=5 * c))
        for turn in range(5):
            for agent in range(c):
                made = record(100 * number + 10 * agent + turn, sent=1000 * number + 140 * turn, c=c, stretch=number)
                entries.append(Request(record=made))
        entries.append(StretchEnd(number=number, t_ns=T0 + (number + 1) * 1000 * MS, complete=True))
    entries.append(Event(t_ns=T0 + 1500 * MS, name="left_out", detail="the server refused stream_options"))
    return [*entries, End(t_ns=T0 + 3000 * MS, state="done")]


def open_loop(session_id: str = "20261115-014455-3f9a") -> list[Entry]:
    """Five requests at 2 a second, and five at 4 a second; never more than 512 at once."""
    entries: list[Entry] = [head(session_id, plan=Plan(levels=(512,), load="open", rates=(2.0, 4.0)))]
    for number, rate in ((1, 2.0), (2, 4.0)):
        begun = 10_000 * number
        entries.append(
            StretchStart(number=number, t_ns=T0 + begun * MS, c=512, run=1, phase="level", load="open", rate=rate)
        )
        for place in range(5):
            due = begun + int(1000 * place / rate)
            made = record(100 * number + place, sent=due, c=512, stretch=number, t_sched_ns=T0 + due * MS)
            entries.append(Request(record=made))
        entries.append(StretchEnd(number=number, t_ns=T0 + (begun + 9000) * MS, complete=True))
    return [*entries, End(t_ns=T0 + 30_000 * MS, state="done")]


def write(directory: Path, entries: Sequence[Entry]) -> Path:
    writer = JournalWriter(directory)
    for entry in entries:
        writer.append(entry)
    writer.close()
    return directory
