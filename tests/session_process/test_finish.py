"""The end of a session: counting the tokens that the server did not count."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import RequestEntry
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.session_process import finish, preflight
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.steering import run_unless
from swarmtui.sessions.journal import read_journal
from tests.sessions.session_builders import head, record

LIMIT_S = 60.0


class Tokenizer:
    """Counts words; each takes `seconds` of a simulated clock, and the server has no endpoint for it after `limit`."""

    def __init__(self, seconds: float = 0.0, limit: int = 1000) -> None:
        self.now, self._seconds, self._limit = 0.0, seconds, limit

    def count_tokens(self, model: str, text: str) -> int | None:
        self.now += self._seconds
        self._limit -= 1
        return len(text.split()) if self._limit >= 0 else None


def counted(directory: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> list[int | None]:
    """Return the tokens of four answers whose chunks were counted, after the end of the session."""

    @contextmanager
    def inspector(*args: object) -> Iterator[Tokenizer]:
        yield tokenizer

    monkeypatch.setattr(preflight, "open_inspector", inspector)
    monkeypatch.setattr(finish, "time", SimpleNamespace(monotonic=lambda: tokenizer.now))
    records = [record(n, text="two words", reasoning="one ", token_source="chunks", tokens_out=9) for n in range(4)]
    journal = JournalQueue(directory)
    journal.write(head())
    for one in records:
        journal.write(RequestEntry(record=one))
    request = RunRequest(endpoints=("u",), workload="chat", plan=Plan(), session_root=str(directory))
    asyncio.run(finish.recount(request, Endpoint(url="u", model="m"), records, journal, asyncio.Event()))
    journal.close()
    return [one.tokens_out for one in read_journal(directory).records]


def test_answers_are_counted_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(tmp_path / "s", monkeypatch, Tokenizer()) == [3, 3, 3, 3]


def test_counting_ends_when_the_server_cannot_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(tmp_path / "s", monkeypatch, Tokenizer(limit=2)) == [3, 3, 9, 9]


def test_counting_takes_a_minute_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(tmp_path / "s", monkeypatch, Tokenizer(seconds=LIMIT_S / 2)) == [3, 3, 9, 9]


def test_abandoned_work_that_fails_as_the_loop_ends_is_not_logged() -> None:
    logged: list[object] = []
    released = threading.Event()

    def work() -> None:
        released.wait()
        raise OSError("too late")

    async def abandon() -> Future[None]:
        interrupt = asyncio.Event()
        interrupt.set()
        return await run_unless(interrupt, work)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    working = loop.run_until_complete(abandon())
    assert not working.done()
    released.set()
    assert isinstance(working.exception(), OSError)
    # One more iteration, in which the loop learns of it, but none for what follows from that.
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    del working
    gc.collect()
    assert logged == []
