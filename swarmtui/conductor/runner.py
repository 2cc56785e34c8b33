"""The plan, carried out: warm-up, levels and runs, and what people command meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec

from swarmtui.analysis.levels import level_figures
from swarmtui.conductor import cliff
from swarmtui.conductor.board import Board
from swarmtui.conductor.crew import Crew, Link
from swarmtui.conductor.ledger import Ledger
from swarmtui.model import frame as said
from swarmtui.model import wire
from swarmtui.model.plan import MAX_STREAMS, Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import Request, StretchEnd, StretchStart
from swarmtui.model.workload import Task
from swarmtui.prompts.source import Source

# Warm-up wakes caches, graphs and clocks; a short answer does that.
_WARMUP_TOKENS = 64

# A stretch that people steer becomes a level when it has so many completions for each stream.
_ENOUGH = 4

# go on; end this run; do something else; hold; end all.
Turn = Literal["go", "next", "turn", "pause", "stop"]

Movement = said.SetConcurrency | said.Sweep | said.FindCliff


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
    """Owns the present stretch. Everything here runs in the conductor's event loop; nothing blocks it.

    `uncounted` are the answers whose tokens no server counted, with their text.
    """

    def __init__(
        self, plan: Plan, source: Source, crew: Crew, board: Board, ledger: Ledger, *, keep_text: bool = False
    ) -> None:
        self._plan, self._source, self._crew, self._board, self._ledger = plan, source, crew, board, ledger
        self._keep_text = keep_text
        self._stretch: Stretch | None = None
        self._numbers = 0
        self._tasks = 0
        self._open: dict[int, Task] = {}
        self._records: list[Record] = []
        self._starts: list[StretchStart] = []
        self._ends: list[StretchEnd] = []
        self._turn: Turn = "go"
        first = plan.levels[0]
        manual = plan.mode == "manual"
        self._movement: Movement = said.SetConcurrency(first) if manual else said.Sweep(plan.levels, plan.runs)
        self._grace_s = 0.0
        self._changed = asyncio.Event()
        self._last_e2e: float | None = None
        self._ended: Stretch | None = None
        self.first_errors: list[Record] = []
        self.uncounted: list[Record] = []

    # what comes in

    def obey(self, command: said.Command) -> None:
        match command:
            case said.Stop(grace_s):
                # Asked again, there is no more waiting.
                self._grace_s = min(grace_s, self._grace_s) if self._turn == "stop" else grace_s
                self._turn = "stop"
            case said.SetConcurrency() | said.Sweep() | said.FindCliff() if self._turn != "stop":
                self._movement, self._turn = command, "turn"
                stretch = self._stretch
                if isinstance(command, said.SetConcurrency) and command.cancel and stretch and command.c < stretch.c:
                    self._tell(stretch, c=max(1, command.c), cancel=True)
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
        kept = record if self._keep_text else msgspec.structs.replace(record, text=None, reasoning=None)
        self._ledger.write(Request(record=kept))
        self._board.finish(record)
        if record.phase == "level":
            self._records.append(msgspec.structs.replace(record, text=None, reasoning=None))
            if record.ok and record.token_source == "chunks":
                self.uncounted.append(record)
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
        while True:
            if self._turn == "turn":
                self._turn = "go"
            match self._movement:
                case said.SetConcurrency(c):
                    await self._steer(min(MAX_STREAMS, max(1, c)))
                case said.Sweep(levels, runs):
                    if not await self._sweep(levels, runs):
                        return "unusable"
                case said.FindCliff(highest):
                    await self._find_cliff(highest)
            if self._asked() != "turn":
                break
        steered = isinstance(self._movement, said.SetConcurrency)
        return "stopped" if self._turn == "stop" and not steered else "done"

    async def _sweep(self, levels: tuple[int, ...], runs: int) -> bool:
        """False when not one request of the first level came back well: then there is nothing to sweep."""
        await self._drain(cancel=False)
        for c in levels:
            for run in range(1, runs + 1):
                await self._level(c, run, runs)
                if self._asked() in ("stop", "turn"):
                    return True
            if not any(record.ok for record in self._records):
                return False
        return True

    async def _find_cliff(self, highest: int) -> None:
        await self._drain(cancel=False)
        while (c := cliff.next_level(self._board.levels, highest)) is not None:
            await self._level(c, 1, 1)
            if self._asked() in ("stop", "turn"):
                return
        self._board.answer = cliff.answer(self._board.levels)
        self._ledger.note("cliff", self._board.answer)

    async def _warm_up(self) -> bool:
        """True when at least one request came back well."""
        self._board.status = "warming up"
        count = self._plan.warmup
        await self._carry_out(min(count, max(self._plan.levels)), 0, "warmup", of=count)
        return self._turn != "stop" and bool(self._ended and self._ended.succeeded)

    async def _level(self, c: int, run: int, runs: int) -> None:
        """One run of one level; a pause spoils it, so it is begun again."""
        while True:
            self._board.status, self._board.runs = "running", runs
            of = None if self._plan.duration_s else self._plan.requests.at(c)
            await self._carry_out(c, run, "level", of=of, duration_s=self._plan.duration_s)
            self._figure()
            if self._turn == "next":
                self._turn = "go"
            if self._turn != "pause" or await self._paused() != "go":
                return

    async def _steer(self, c: int) -> None:
        """People hold the wheel: no end but theirs, and streams go on from one C to the next."""
        while True:
            self._board.status, self._board.runs = "running", 1
            await self._carry_out(c, 1, "level", of=None, steered=True)
            self._figure()
            if self._asked() == "pause":
                await self._drain(cancel=False)
                await self._paused()
            if self._asked() == "next":
                self._turn = "go"
            if self._asked() != "go":
                return

    async def _paused(self) -> Turn:
        """Until somebody says what comes next."""
        self._board.status = "paused"
        self._ledger.note("paused")
        while self._turn == "pause":
            await self._change()
        self._ledger.note("resumed")
        return self._turn

    async def _carry_out(
        self, c: int, run: int, phase: Phase, *, of: int | None, duration_s: float | None = None, steered: bool = False
    ) -> None:
        """One stretch from its first request to its last answer, or to the next command."""
        self._numbers += 1
        until = None if duration_s is None else time.monotonic() + duration_s
        stretch = self._stretch = Stretch(self._numbers, c, run, phase, of, until)
        board = self._board
        board.c, board.run, board.done, board.of = c, run, 0, of
        now = time.perf_counter_ns()
        start = StretchStart(number=stretch.number, t_ns=now, c=c, run=run, phase=phase, of=of, steered=steered)
        self._starts.append(start)
        self._ledger.write(start)
        self._tell(stretch)
        for link in self._crew.links:
            self._supply(link)
        while self._turn == "go" and not stretch.complete:
            await self._change()
        complete = stretch.succeeded >= _ENOUGH * c if steered else stretch.complete
        # Whoever takes the wheel drives on with the streams that are there; all else begins on an empty road.
        taken_over = self._asked() == "turn" and isinstance(self._movement, said.SetConcurrency)
        if self._asked() == "stop" or not (steered or taken_over):
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
        self._board.levels = level_figures(self._records, self._starts, self._ends)

    def _left(self) -> float | None:
        """Seconds to the end, taking the time of the last request for the time of each to come."""
        stretch, plan, movement = self._stretch, self._plan, self._movement
        if stretch is None or stretch.phase == "warmup" or not isinstance(movement, said.Sweep):
            return None
        all_runs = [(c, run) for c in movement.levels for run in range(1, movement.runs + 1)]
        here = (stretch.c, stretch.run)
        to_come = all_runs[all_runs.index(here) + 1 :] if here in all_runs else []
        if plan.duration_s is not None:
            now = max(0.0, (stretch.until or 0.0) - time.monotonic())
            return now + plan.duration_s * len(to_come)
        if self._last_e2e is None:
            return None
        turns = sum(plan.requests.at(c) / c for c, _ in to_come)
        return self._last_e2e * (turns + (max(0, (stretch.of or 0) - stretch.done)) / stretch.c)
