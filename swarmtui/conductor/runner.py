"""The plan, carried out: warm-up, levels and runs, and what people command meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec

from swarmtui.analysis.levels import level_figures
from swarmtui.conductor.board import Board
from swarmtui.conductor.crew import Crew, Link
from swarmtui.conductor.ledger import Ledger
from swarmtui.model import frame as said
from swarmtui.model import wire
from swarmtui.model.plan import Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import Request, StretchEnd, StretchStart
from swarmtui.model.workload import Task
from swarmtui.prompts.source import Source

# Warm-up wakes caches, graphs and clocks; a short answer does that.
_WARMUP_TOKENS = 64

# A stretch that people steer becomes a level when it has so many completions for each stream.
_ENOUGH = 4

Turn = Literal["go", "next", "steer", "pause", "stop"]


class Stretch:
    """What is under way: one C, one run, so many tasks."""

    def __init__(self, number: int, c: int, run: int, phase: Phase, of: int | None, until: float | None) -> None:
        self.number, self.c, self.run, self.phase = number, c, run, phase
        self.of, self.until = of, until
        self.issued = self.done = self.succeeded = 0
        self.begun = time.monotonic()

    @property
    def wants_more(self) -> bool:
        if self.until is not None and time.monotonic() >= self.until:
            return False
        return self.of is None or self.issued < self.of

    @property
    def complete(self) -> bool:
        if self.of is not None:
            return self.done >= self.of
        return self.until is not None and time.monotonic() >= self.until


class Runner:
    """Owns the present stretch. Everything here runs in the conductor's event loop; nothing blocks it."""

    def __init__(self, plan: Plan, source: Source, crew: Crew, board: Board, ledger: Ledger) -> None:
        self._plan, self._source, self._crew, self._board, self._ledger = plan, source, crew, board, ledger
        self._stretch: Stretch | None = None
        self._numbers = 0
        self._tasks = 0
        self._open: dict[int, Task] = {}
        self._records: list[Record] = []
        self._starts: list[StretchStart] = []
        self._ends: list[StretchEnd] = []
        self._turn: Turn = "go"
        self._steered = 0
        self._grace_s = 0.0
        self._changed = asyncio.Event()
        self._last_e2e: float | None = None
        self._ended: Stretch | None = None
        self.first_errors: list[Record] = []

    # what comes in

    def obey(self, command: said.Command) -> None:
        match command:
            case said.Stop(grace_s):
                # Asked again, there is no more waiting.
                self._grace_s = min(grace_s, self._grace_s) if self._turn == "stop" else grace_s
                self._turn = "stop"
            case said.SetConcurrency(c, cancel):
                self._steered = max(1, c)
                self._turn = self._turn if self._turn == "stop" else "steer"
                if cancel and self._stretch is not None and self._steered < self._stretch.c:
                    self._tell(self._stretch, c=self._steered, cancel=True)
            case said.NextLevel() if self._turn != "stop":
                self._turn = "next"
            case said.Pause() if self._turn == "go":
                self._turn = "pause"
            case said.Resume() if self._turn == "pause":
                self._turn = "go"
            case said.WatchStream(agent):
                self._crew.watch(agent)
            case _:
                return
        self._changed.set()

    def finish(self, link: Link, record: Record) -> None:
        """A record from a worker: on disk first, then in the figures."""
        link.last_record += 1
        task = self._open.get(record.task)
        self._ledger.write(Request(record=msgspec.structs.replace(record, text=None, reasoning=None)))
        self._board.finish(record)
        if record.phase == "level":
            self._records.append(record)
        if record.error is None:
            self._last_e2e = record.e2e_s
        elif record.error != CANCELLED:
            self.first_errors = self.first_errors or [record]
        stretch = self._stretch
        if task is None or (record.error is None and record.turn < len(task.followups)):
            return
        del self._open[record.task]
        link.outstanding -= 1
        if stretch is not None and record.stretch == stretch.number:
            stretch.done += 1
            stretch.succeeded += record.error is None
            self._board.done = stretch.done
        self._supply(link)
        self._changed.set()

    def hear(self, link: Link, frame: wire.WorkerFrame) -> None:
        link.frame = frame
        self._board.hear(link.number, frame)
        self._crew.acknowledge()
        self._board.left_s = self._left()
        self._changed.set()

    # the plan

    async def run(self) -> Literal["done", "stopped", "unusable"]:
        if self._plan.warmup and not await self._warm_up():
            return "stopped" if self._turn == "stop" else "unusable"
        if self._plan.mode == "manual":
            self._steered, self._turn = self._plan.levels[0], "steer"
        else:
            for c in self._plan.levels:
                for run in range(1, self._plan.runs + 1):
                    await self._level(c, run)
                    if self._turn in ("stop", "steer"):
                        break
                if self._turn in ("stop", "steer"):
                    break
                if not any(record.ok for record in self._records):
                    return "unusable"
        while self._turn == "steer":
            self._turn = "go"
            await self._steer()
        return "stopped" if self._turn == "stop" and self._plan.mode == "sweep" else "done"

    async def _warm_up(self) -> bool:
        """True when at least one request came back well."""
        self._board.status = "warming up"
        count = self._plan.warmup
        await self._carry_out(min(count, max(self._plan.levels)), 0, "warmup", of=count)
        return self._turn != "stop" and bool(self._ended and self._ended.succeeded)

    async def _level(self, c: int, run: int) -> None:
        """One run of one level; a pause spoils it, so it is begun again."""
        while True:
            self._board.status = "running"
            of = None if self._plan.duration_s else self._plan.requests.at(c)
            await self._carry_out(c, run, "level", of=of, duration_s=self._plan.duration_s)
            self._figure()
            if self._turn == "next":
                self._turn = "go"
            if self._turn != "pause" or await self._paused() != "go":
                return

    async def _steer(self) -> None:
        """People hold the wheel: no end but theirs."""
        while self._turn == "go":
            self._board.status = "running"
            await self._carry_out(self._steered, 1, "level", of=None, drain=False)
            self._figure()
            match self._asked():
                case "steer" | "next":
                    self._turn = "go"
                case "pause":
                    await self._drain(cancel=False)
                    await self._paused()

    async def _paused(self) -> Turn:
        """Until somebody says what comes next."""
        self._board.status = "paused"
        self._ledger.note("paused")
        while self._turn == "pause":
            await self._change()
        self._ledger.note("resumed")
        return self._turn

    async def _carry_out(
        self, c: int, run: int, phase: Phase, *, of: int | None, duration_s: float | None = None, drain: bool = True
    ) -> None:
        """One stretch from its first request to its last answer, or to the next command."""
        self._numbers += 1
        until = None if duration_s is None else time.monotonic() + duration_s
        stretch = self._stretch = Stretch(self._numbers, c, run, phase, of, until)
        board = self._board
        board.c, board.run, board.runs, board.done, board.of = c, run, self._plan.runs, 0, of
        start = StretchStart(number=stretch.number, t_ns=time.perf_counter_ns(), c=c, run=run, phase=phase, of=of)
        self._starts.append(start)
        self._ledger.write(start)
        self._tell(stretch)
        for link in self._crew.links:
            self._supply(link)
        while self._turn == "go" and not stretch.complete:
            await self._change()
        complete = stretch.complete if of is not None or until is not None else stretch.succeeded >= _ENOUGH * c
        if self._turn == "stop" or drain:
            await self._drain(cancel=False)
        end = StretchEnd(number=stretch.number, t_ns=time.perf_counter_ns(), complete=complete)
        self._ends.append(end)
        self._ledger.write(end)
        self._ended, self._stretch = stretch, None

    def _tell(self, stretch: Stretch, *, c: int | None = None, cancel: bool = False) -> None:
        self._crew.stretch(stretch.number, c or stretch.c, stretch.run, stretch.phase, cancel=cancel)

    async def _drain(self, cancel: bool) -> None:
        """Lets what is in flight come to its end; a stop waits only for its grace."""
        if self._stretch is not None:
            self._stretch.of = self._stretch.issued
        if not any(link.outstanding for link in self._crew.links):
            return
        self._crew.drop(cancel)
        begun = time.monotonic()
        while not self._crew.idle:
            if self._turn == "stop":
                self._board.status = "stopping"
                if not cancel and time.monotonic() - begun >= self._grace_s:
                    cancel = True
                    self._crew.drop(cancel=True)
            elif self._stretch is not None and self._stretch.done < self._stretch.issued:
                self._board.status = "draining"
            await self._change()
        self._open.clear()
        for link in self._crew.links:
            link.outstanding = 0

    def _asked(self) -> Turn:
        """Commands come in while we wait: what was true before an await need not be true behind it."""
        return self._turn

    async def _change(self) -> None:
        """Until something happened, and not longer than a clock needs to be looked at."""
        self._changed.clear()
        try:
            async with asyncio.timeout(0.1):
                await self._changed.wait()
        except TimeoutError:
            pass

    # tasks and figures

    def _supply(self, link: Link) -> None:
        stretch, room = self._stretch, self._crew.room(link)
        if stretch is None or self._turn != "go":
            return
        tasks: list[Task] = []
        while room > len(tasks) and stretch.wants_more:
            tasks.append(self._task(stretch))
            stretch.issued += 1
        if tasks:
            self._crew.give(link, tuple(tasks))

    def _task(self, stretch: Stretch) -> Task:
        number, self._tasks = self._tasks, self._tasks + 1
        if stretch.phase == "warmup":
            task = self._source.warmup(number)
            cap = min(_WARMUP_TOKENS, task.max_tokens or _WARMUP_TOKENS)
            task = msgspec.structs.replace(task, id=number, max_tokens=cap)
        else:
            task = msgspec.structs.replace(self._source.task(number, stretch.c, stretch.issued), id=number)
        self._open[number] = task
        return task

    def _figure(self) -> None:
        self._board.levels = level_figures(self._records, self._starts, self._ends, self._mode)

    @property
    def _mode(self) -> Literal["sweep", "manual"]:
        return "manual" if self._steered else "sweep"

    def _left(self) -> float | None:
        """Seconds to the end, taking the time of the last request for the time of each to come."""
        stretch, plan = self._stretch, self._plan
        if stretch is None or stretch.phase == "warmup" or self._steered:
            return None
        here = [c for c in plan.levels for _ in range(plan.runs)]
        position = plan.levels.index(stretch.c) * plan.runs + stretch.run if stretch.c in plan.levels else len(here)
        if plan.duration_s is not None:
            now = max(0.0, (stretch.until or 0.0) - time.monotonic())
            return now + plan.duration_s * len(here[position:])
        if self._last_e2e is None:
            return None
        turns = sum(plan.requests.at(c) / c for c in here[position:])
        return self._last_e2e * (turns + (max(0, (stretch.of or 0) - stretch.done)) / stretch.c)
