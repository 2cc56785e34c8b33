"""Check answers against their expected content, and decide how much of their text is kept."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import msgspec

from swarmtui.model.answer_check import AnswerCheck, AnswerVerdict
from swarmtui.model.record import Record
from swarmtui.model.workload import Task
from swarmtui.processes.spawn import child_environment, module_command
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.steering import wait_unless
from swarmtui.sessions.check_answers import CHECK_LIMIT_S, HEADER_BYTES, CheckedAnswer

# Characters that are kept of a checked answer if previews are on.
PREVIEW_CHARS = 400
# A process that does not answer for this long is replaced; one that computes for too long ends by itself.
_HANG_S = 30.0
_ATTEMPTS = 2
# Limit on the text kept for counting tokens at the end; more could not be counted within a minute.
_MAX_UNCOUNTED_CHARS = 2 << 20
_CHARS_PER_ANSWER = 1_000
# Answers whose tokens are counted once more, at most, and no longer than this.
_MAX_SAMPLED, _MAX_SAMPLED_CHARS = 10, 100_000
_VERDICTS: dict[bytes, AnswerVerdict] = {f"{verdict}\n".encode(): verdict for verdict in get_args(AnswerVerdict)}


class AnswerChecker:
    """Checks answers in a child process, one after another: a check that takes long delays only the later ones."""

    def __init__(self, journal: JournalQueue, *, keep_text: bool, previews: bool) -> None:
        self._journal, self._keep_text, self._previews = journal, keep_text, previews
        self._unchecked: deque[tuple[AnswerCheck, Record, Callable[[Record], None]]] = deque()
        self._checking: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._logged: set[str] = set()
        self.accepted = self._checked = 0
        self._stopped = False

    @property
    def busy(self) -> bool:
        return self._checking is not None and not self._checking.done()

    def is_behind(self, accepted: int) -> bool:
        return self.busy and self._checked < accepted

    def check(self, task: Task | None, record: Record, done: Callable[[Record], None]) -> None:
        """Call `done` with the record: immediately, or later with its verdict if it is the answer of a last turn."""
        if task is None or task.check is None or record.cancelled:
            done(record)
        elif not record.ok:
            done(msgspec.structs.replace(record, verdict="error"))
        elif not record.ends_task:
            done(record)
        else:
            self._unchecked.append((task.check, record, done))
            self.accepted += 1
            if not self.busy:
                if self._checking is not None:
                    self._checking.result()  # raises what `done` has raised
                self._checking = asyncio.create_task(self._check_all())

    async def wait(self, stop_now: asyncio.Event) -> None:
        """Wait for all verdicts; once `stop_now` is set, pass on the records that are left without one."""
        # Other answers may arrive meanwhile.
        while self._checking is not None and not self._checking.done():
            if not await wait_unless(stop_now, self._checking):
                self._stopped = True
                await self.end_process()
                await asyncio.wait((self._checking,))
        self._stopped = False
        while self._unchecked:
            _, record, done = self._unchecked.popleft()
            done(record)

    async def end_process(self) -> int | None:
        """End the process, if it has not ended, and return its exit status; None if there is none."""
        process, self._process = self._process, None
        if process is None:
            return None
        # Its own kill() may collect the exit status of a process that has just ended, which is then lost.
        with suppress(ProcessLookupError):
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
        return await process.wait()

    async def _check_all(self) -> None:
        while self._unchecked:
            check, record, done = self._unchecked[0]
            cut = record.finish_reason == "length"
            answer = CheckedAnswer(check, record.text or "", record.reasoning or "", cut)
            verdict = None if self._stopped else await self._verdict(answer)
            self._unchecked.popleft()
            self._checked += 1
            done(msgspec.structs.replace(record, verdict=verdict))

    async def _verdict(self, answer: CheckedAnswer) -> AnswerVerdict | None:
        """Return the verdict; None if the process fails for another reason than the time it takes."""
        for _ in range(_ATTEMPTS):
            try:
                self._process = self._process or await _start_process()
            except OSError:
                break
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_HANG_S):
                    if not self._stopped and (verdict := await _ask(self._process, answer)):
                        return verdict
            if await self.end_process() == -signal.SIGVTALRM:
                self._log_once(f"a check took more than {CHECK_LIMIT_S:g} s: counted as not found")
                return "fail"
            if self._stopped:
                return None
        self._log_once("the process that checks answers failed: some answers have no verdict")
        return None

    def _log_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._journal.log_event("check", text)

    def trim_text(self, task: Task | None, record: Record) -> Record:
        if self._keep_text:
            return record
        if self._previews and task is not None and task.check is not None:
            return msgspec.structs.replace(record, text=_preview(record.text), reasoning=_preview(record.reasoning))
        return msgspec.structs.replace(record, text=None, reasoning=None)


async def _start_process() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *module_command("swarmtui.sessions.check_answers"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=child_environment(),
    )  # fmt: skip


async def _ask(process: asyncio.subprocess.Process, answer: CheckedAnswer) -> AnswerVerdict | None:
    assert process.stdin is not None and process.stdout is not None
    message = msgspec.msgpack.encode(answer)
    process.stdin.write(len(message).to_bytes(HEADER_BYTES, "big") + message)
    return _VERDICTS.get(await process.stdout.readline())


class AnswersToCount:
    """Answers whose tokens are counted at the end, with their text: those `uncounted` by the server.

    A `sample` of those that it counted is compared with its tokenizer: a few whole answers of each stage.
    """

    def __init__(self) -> None:
        self.uncounted: list[Record] = []
        self.sample: list[Record] = []
        self._chars = 0

    def add(self, record: Record) -> None:
        if not record.ok or record.phase == "warmup":
            return
        text = (record.reasoning or "") + (record.text or "")
        if record.token_source == "chunks" and self._chars < _MAX_UNCOUNTED_CHARS:
            self._chars += len(text) + _CHARS_PER_ANSWER
            self.uncounted.append(msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None))
        if (
            record.phase == "level"
            and record.token_source in ("usage", "usage_chunks")
            and record.finish_reason != "tool_calls"
            and 0 < len(text) <= _MAX_SAMPLED_CHARS
            # Half a character became this one: the text is not what was generated.
            and "\ufffd" not in text
            and len(self.sample) < _MAX_SAMPLED
        ):
            self.sample.append(msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None))


def _preview(text: str | None) -> str | None:
    return text[:PREVIEW_CHARS] if text else None
