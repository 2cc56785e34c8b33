"""Answers are checked in another process, which may hang or be killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.model.answer_check import AnswerCheck
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.workload import Task
from swarmtui.session_process import answer_checks
from swarmtui.session_process.answer_checks import AnswerChecker
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.sessions.journal import read_journal
from tests.sessions.session_builders import head, record

CATASTROPHIC = AnswerCheck(regex=(r"(a+)+$",))
WORDS = AnswerCheck(all=("index",))
SLOW_ANSWER = "a" * 60 + "b"


class Checks:
    """A checker, and the records that it has passed on."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.journal = directory, JournalQueue(directory)
        self.journal.write(head())
        self.checker = AnswerChecker(self.journal, keep_text=False, previews=True)
        self.passed: list[Record] = []

    def add(self, check: AnswerCheck | None, number: int, *, followups: int = 0, **fields: Any) -> None:
        task = Task(id=number, messages=(), check=check, followups=("go on",) * followups)
        self.checker.check(task, record(number, turns=1 + followups, **fields), self.passed.append)

    async def wait(self) -> None:
        await self.checker.wait(asyncio.Event())

    async def end(self) -> list[str]:
        """Return what was logged."""
        await self.checker.end_process()
        self.journal.close()
        return [event.detail for event in read_journal(self.directory).events]

    @property
    def verdicts(self) -> dict[int, str | None]:
        return {one.task: one.verdict for one in self.passed}


def test_last_turns_get_a_verdict_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks = Checks(tmp_path / "s")
        checks.add(WORDS, 1, text="the INDEX")
        checks.add(WORDS, 2, text="no", reasoning="index")
        checks.add(WORDS, 3, text="ind", finish_reason="length")
        checks.add(AnswerCheck(python=True), 4, text="def f(:")
        await checks.wait()
        assert checks.verdicts == {1: "pass", 2: "pass in reasoning", 3: "truncated", 4: "fail"}
        assert [one.task for one in checks.passed] == [1, 2, 3, 4]
        assert await checks.end() == []

    asyncio.run(scenario())


def test_records_that_need_no_process_are_passed_on_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks = Checks(tmp_path / "s")
        checks.add(None, 1, text="index")
        checks.add(WORDS, 2, text="index", error=CANCELLED)
        checks.add(WORDS, 3, text="index", error="reset")
        checks.add(WORDS, 4, text="index", followups=1)
        assert checks.verdicts == {1: None, 2: None, 3: "error", 4: None}
        assert not checks.checker.busy
        await checks.end()

    asyncio.run(scenario())


def test_event_loop_runs_while_a_check_hangs_and_the_next_answers_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_checks, "_HANG_S", 600.0)  # a busy machine may take long to start a process

    async def scenario() -> None:
        checks, ticks = Checks(tmp_path / "s"), 0
        checks.add(CATASTROPHIC, 1, text=SLOW_ANSWER)
        checks.add(WORDS, 3, text="index")
        checks.add(None, 4)
        assert checks.verdicts == {4: None}
        while checks.checker.busy:
            await asyncio.sleep(0.001)
            ticks += 1
        assert checks.verdicts == {4: None, 1: "fail", 3: "pass"}
        assert ticks > 20
        assert await checks.end() == ["a check took more than 1 s: counted as not found"]

    asyncio.run(scenario())


def test_killed_process_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks = Checks(tmp_path / "s")
        checks.add(WORDS, 1, text="index")
        await checks.wait()
        assert checks.checker._process is not None
        os.kill(checks.checker._process.pid, signal.SIGKILL)
        checks.add(WORDS, 2, text="index")
        await checks.wait()
        assert checks.verdicts == {1: "pass", 2: "pass"}
        assert await checks.end() == []

    asyncio.run(scenario())


def test_process_that_does_not_answer_leaves_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped each time before it can answer."""
    monkeypatch.setattr(answer_checks, "_HANG_S", 0.01)
    monkeypatch.setattr(answer_checks, "module_command", lambda module: ["sleep", "1000"])

    async def scenario() -> None:
        checks = Checks(tmp_path / "s")
        checks.add(WORDS, 1, text="index")
        await checks.wait()
        assert checks.verdicts == {1: None}
        (event,) = await checks.end()
        assert "some answers have no verdict" in event

    asyncio.run(scenario())


def test_immediate_stop_passes_records_on_without_a_verdict(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks, stop_now = Checks(tmp_path / "s"), asyncio.Event()
        checks.add(CATASTROPHIC, 1, text=SLOW_ANSWER)
        checks.add(WORDS, 2, text="index")
        stop_now.set()
        await checks.checker.wait(stop_now)
        assert checks.verdicts == {1: None, 2: None}
        checks.add(WORDS, 3, text="index")
        await checks.wait()
        assert checks.verdicts[3] == "pass"
        await checks.end()

    asyncio.run(scenario())


def test_answers_that_arrive_while_the_last_ones_are_checked_get_a_verdict(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks = Checks(tmp_path / "s")
        checks.add(WORDS, 1, text="index")
        first = checks.checker._checking
        assert first is not None
        # Called when the first check is done, before the one who waits for it continues.
        first.add_done_callback(lambda _: checks.add(WORDS, 2, text="index"))
        await checks.wait()
        assert checks.verdicts == {1: "pass", 2: "pass"}
        await checks.end()

    asyncio.run(scenario())


def test_answer_that_arrives_during_an_immediate_stop_is_passed_on_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks, stop_now = Checks(tmp_path / "s"), asyncio.Event()
        checks.add(CATASTROPHIC, 1, text=SLOW_ANSWER)
        first = checks.checker._checking
        assert first is not None
        first.add_done_callback(lambda _: checks.add(WORDS, 2, text="index"))
        stop_now.set()
        await checks.checker.wait(stop_now)
        assert [(one.task, one.verdict) for one in checks.passed] == [(1, None), (2, None)]
        assert await checks.end() == []

    asyncio.run(scenario())


def test_stage_does_not_wait_for_answers_that_arrive_after_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        checks, stop_now = Checks(tmp_path / "s"), asyncio.Event()
        checks.add(WORDS, 1, text="index")
        accepted = checks.checker.accepted
        checks.add(CATASTROPHIC, 2, text=SLOW_ANSWER)
        while checks.checker.is_behind(accepted):
            await asyncio.sleep(0.001)
        assert checks.verdicts == {1: "pass"}
        stop_now.set()
        await checks.checker.wait(stop_now)
        await checks.end()

    asyncio.run(scenario())


@pytest.mark.parametrize(("keep_text", "previews", "kept"), [(True, False, 500), (False, True, 400), (False, False, 0)])
def test_text_is_kept_as_far_as_the_user_wants(tmp_path: Path, keep_text: bool, previews: bool, kept: int) -> None:
    journal = JournalQueue(tmp_path / "s")
    checker = AnswerChecker(journal, keep_text=keep_text, previews=previews)
    task = Task(id=1, messages=(), check=WORDS)
    found = checker.trim_text(task, record(1, text="x" * 500, reasoning="y" * 500))
    assert (len(found.text or ""), len(found.reasoning or "")) == (kept, kept)
    unchecked = checker.trim_text(msgspec.structs.replace(task, check=None), record(1, text="x" * 500))
    assert unchecked.text == ("x" * 500 if keep_text else None)
    journal.close()
