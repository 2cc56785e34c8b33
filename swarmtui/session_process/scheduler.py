"""The plan, carried out: warm-up, levels and runs, stretch by stretch, and the tasks that workers get for them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from swarmtui.analysis.capacity.cliff import next_level
from swarmtui.analysis.capacity.scaling import search_answer
from swarmtui.model import client_protocol as said
from swarmtui.model import worker_protocol
from swarmtui.model.findings import Seats
from swarmtui.model.level_key import Place
from swarmtui.model.plan import MAX_STREAMS, STEERED_ENOUGH, Mode, Plan
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.session import Request, StretchEnd, StretchStart
from swarmtui.model.workload import Task
from swarmtui.prompts.generator import Source
from swarmtui.session_process.answer_checks import Judge
from swarmtui.session_process.figures import Figures
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.session_process.layout import Layout
from swarmtui.session_process.live_levels import Measured
from swarmtui.session_process.live_state import Board
from swarmtui.session_process.load_modes import Again, Asker, Feed, Fresh, Waiting, Warmups
from swarmtui.session_process.stage import Stretch
from swarmtui.session_process.steering import Turn, Wheel
from swarmtui.session_process.workers import Crew, Link

# How many connections an open loop opens before its first request.
_CONNECTIONS_AHEAD = 64

# Answers to be counted at the end are kept up to so many characters; a minute of counting takes no more.
_MOST_UNCOUNTED = 2 << 20
_PER_ANSWER = 1_000


class Runner:
    """Owns the present stretch. Everything here runs in the conductor's event loop; nothing blocks it.

    `uncounted` are the answers whose tokens no server counted, with their text.
    """

    def __init__(
        self,
        plan: Plan,
        source: Source,
        crew: Crew,
        board: Board,
        ledger: Ledger,
        *,
        keep_text: bool = False,
        previews: bool = True,
        seats: Callable[[], Seats | None] = lambda: None,
    ) -> None:
        self._plan, self._crew, self._board, self._ledger = plan, crew, board, ledger
        self._seats = seats
        self._asker = Asker(source)
        self._judge = Judge(ledger, keep_text=keep_text, previews=previews)
        self._layout = Layout(plan, self._asker)
        self._stretch: Stretch | None = None
        self._numbers = 0
        self._open: dict[int, Task] = {}
        self._measured = Measured(plan, ledger)
        self._figures = Figures(self._measured, board)
        self._wheel = Wheel(plan)
        self._changed = asyncio.Event()
        self._last_e2e: float | None = None
        self._ended: Stretch | None = None
        self.first_errors: list[Record] = []
        self.uncounted: list[Record] = []
        self._uncounted_text = 0

    # what comes in

    def obey(self, command: said.Command) -> None:
        if isinstance(command, said.WatchStream):
            self._board.watching.choose(command.agent)
            self._crew.watch(command.agent)
        elif not self._wheel.obey(command):
            return
        elif self._wheel.turn == "turn":
            self._layout.load = "closed"
            stretch = self._stretch
            if isinstance(command, said.SetConcurrency) and command.cancel and stretch and command.c < stretch.c:
                self._tell(stretch, c=max(1, command.c), cancel=True)
        self._changed.set()

    @property
    def hurry(self) -> asyncio.Event:
        return self._wheel.hurry

    def finish(self, link: Link, record: Record) -> None:
        """A record from a worker: on disk first, then in the figures."""
        # Many end at once, and many begin: a server on this host gets its turn between two of them.
        os.sched_yield()
        link.last_record += 1
        task = self._open.get(record.task)
        record = self._judge.judged(task, record)
        kept = self._judge.kept(task, record)
        self._ledger.write(Request(record=kept))
        self._board.finish(kept)
        if record.phase != "warmup":
            self._measured.add(record)
            if record.ok and record.token_source == "chunks" and self._uncounted_text < _MOST_UNCOUNTED:
                self._uncounted_text += len(record.text or "") + len(record.reasoning or "") + _PER_ANSWER
                self.uncounted.append(msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None))
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
            stretch.feed.over(task, record)
            self._board.done, self._board.of = stretch.done, stretch.feed.of
        self._supply_all(link)
        self._changed.set()

    def hear(self, link: Link, frame: worker_protocol.WorkerFrame) -> None:
        link.frame = frame
        self._board.hear(link.number, frame)
        self._crew.acknowledge()
        self._board.left_s = self._layout.left_s(self._stretch, self._wheel.movement, self._last_e2e)
        if self._stretch is not None and self._stretch.load == "open":
            self._supply_all(link)
        self._changed.set()

    # the plan

    async def run(self) -> Literal["done", "stopped", "unusable"]:
        if self._plan.warmup and not await self._warm_up():
            return "stopped" if self._wheel.turn == "stop" else "unusable"
        while True:
            if self._wheel.asked() == "turn":
                self._wheel.go_on()
            match self._wheel.movement:
                case said.SetConcurrency(c):
                    await self._steer(min(MAX_STREAMS, max(1, c)))
                case said.Sweep(levels, runs):
                    if not await self._sweep(levels, runs):
                        return "unusable"
                case said.FindCliff(highest):
                    await self._find_cliff(highest)
            if self._wheel.asked() != "turn":
                break
        await self._figures.settled(self.hurry)
        steered = isinstance(self._wheel.movement, said.SetConcurrency)
        return "stopped" if self._wheel.turn == "stop" and not steered else "done"

    async def _sweep(self, levels: tuple[int, ...], runs: int) -> bool:
        """False when not one request of the first level came back well: then there is nothing to sweep."""
        await self._drain(cancel=False)
        if self._layout.load == "ramp":
            await self._ramp(levels)
            return self._measured.answered
        order = self._layout.order(levels, runs)
        for number, (place, run) in enumerate(order, 1):
            await self._level(place, run, runs)
            if self._wheel.asked() in ("stop", "turn"):
                return True
            last_of_place = number == len(order) or order[number][0] != place
            if last_of_place and not self._measured.answered:
                return False
        return True

    async def _ramp(self, levels: tuple[int, ...]) -> None:
        """From one C to the next while requests go on; each is a level when enough of them ended in its time."""
        for c in levels:
            if not await self._steered(c, self._plan.every_s):
                return
        await self._drain(cancel=False)

    async def _find_cliff(self, highest: int) -> None:
        await self._drain(cancel=False)
        while (c := next_level(self._board.levels, highest, self._seats())) is not None:
            await self._level((c, None), 1, 1)
            await self._figures.settled(self.hurry)
            if self._wheel.asked() in ("stop", "turn"):
                return
        self._board.answer = search_answer(self._board.levels, self._seats())
        self._ledger.note("cliff", self._board.answer)

    async def _warm_up(self) -> bool:
        """True when at least one request came back well."""
        self._board.status = "warming up"
        count = self._plan.warmup
        await self._carry_out(min(count, max(self._plan.levels)), 0, "warmup", Warmups(self._asker, count))
        return self._wheel.turn != "stop" and bool(self._ended and self._ended.succeeded)

    async def _level(self, place: Place, run: int, runs: int) -> None:
        """One run of one level, and its tasks one by one where the plan wants that; a pause spoils either."""
        while True:
            self._board.status, self._board.runs, self._board.note = "running", runs, ""
            feed, c = self._layout.feed(place, run), place[0]
            await self._carry_out(c, run, "level", feed, rate=place[1], duration_s=self._layout.duration_s)
            if isinstance(feed, Waiting) and feed.lost:
                self._ledger.note("lost", f"{feed.lost} tasks waited for one that failed, and were not asked")
            if (
                self._wheel.asked() == "go"
                and isinstance(feed, Fresh)
                and (alone := self._layout.alone(c, feed.contents))
            ):
                self._board.note = "the same tasks one by one"
                await self._carry_out(c, run, "serial", Again(self._asker, c, alone), streams=1)
            self._figures.refresh()
            if self._wheel.turn == "next":
                self._wheel.go_on()
            if self._wheel.turn != "pause" or await self._paused() != "go":
                return

    async def _steer(self, c: int) -> None:
        """People hold the wheel: no end but theirs, and streams go on from one C to the next."""
        while await self._steered(c, None):
            pass

    async def _steered(self, c: int, duration_s: float | None) -> bool:
        """One stretch that ends while its requests go on; whether another one is to follow it."""
        self._board.status, self._board.runs = "running", 1
        await self._carry_out(c, 1, "level", Fresh(self._asker, c, None), duration_s=duration_s, steered=True)
        self._figures.refresh()
        if self._wheel.asked() == "pause":
            await self._drain(cancel=False)
            await self._paused()
        if self._wheel.asked() == "next":
            self._wheel.go_on()
        return self._wheel.asked() == "go"

    async def _paused(self) -> Turn:
        """Until somebody says what comes next."""
        self._board.status = "paused"
        self._ledger.note("paused")
        while self._wheel.turn == "pause":
            await self._change()
        self._ledger.note("resumed")
        return self._wheel.turn

    async def _carry_out(
        self,
        c: int,
        run: int,
        phase: Phase,
        feed: Feed,
        *,
        rate: float | None = None,
        duration_s: float | None = None,
        steered: bool = False,
        streams: int | None = None,
    ) -> None:
        """One stretch from its first request to its last answer, or to the next command."""
        self._numbers += 1
        load: Mode = "closed" if phase == "warmup" else self._layout.load
        stretch = Stretch(
            self._numbers, c, run, phase, feed, load=load, rate=rate, duration_s=duration_s, streams=streams
        )
        self._stretch = stretch
        board = self._board
        board.c, board.run, board.done, board.of = stretch.streams, run, 0, feed.of
        board.load, board.rate, board.steered = load, rate, steered
        start = StretchStart(
            number=stretch.number,
            t_ns=time.perf_counter_ns(),
            c=c,
            run=run,
            phase=phase,
            of=feed.of,
            steered=steered,
            load=load,
            rate=rate,
        )
        self._measured.begin(start)
        self._ledger.write(start)
        self._tell(stretch)
        self._supply_all(self._crew.links[0])
        while self._wheel.turn == "go" and not stretch.complete:
            await self._change()
        complete = stretch.succeeded >= STEERED_ENOUGH * c if steered else stretch.complete
        # Whoever takes the wheel drives on with the streams that are there; all else begins on an empty road.
        taken_over = self._wheel.asked() == "turn" and isinstance(self._wheel.movement, said.SetConcurrency)
        if self._wheel.asked() == "stop" or not (steered or taken_over):
            await self._drain(cancel=False)
        end = StretchEnd(number=stretch.number, t_ns=time.perf_counter_ns(), complete=complete)
        self._measured.end(end)
        self._ledger.write(end)
        self._ended, self._stretch = stretch, None

    def _tell(self, stretch: Stretch, *, c: int | None = None, cancel: bool = False) -> None:
        ahead = _CONNECTIONS_AHEAD if stretch.load == "open" else None
        streams = c or stretch.streams
        self._crew.stretch(
            stretch.number, streams, stretch.run, stretch.phase, c=c or stretch.c, cancel=cancel, ahead=ahead
        )

    async def _drain(self, cancel: bool) -> None:
        """Lets what is in flight come to its end; a stop waits only for its grace."""
        if self._stretch is not None:
            self._stretch.feed.close()
        if not any(link.outstanding for link in self._crew.links):
            return
        self._crew.drop(cancel)
        begun = time.monotonic()
        while not self._crew.idle:
            if self._wheel.turn == "stop":
                self._board.status = "stopping"
                if not cancel and time.monotonic() - begun >= self._wheel.grace_s:
                    cancel = True
                    self._crew.drop(cancel=True)
            elif self._stretch is not None and self._stretch.done < self._stretch.issued:
                self._board.status = "draining"
            await self._change()
        self._open.clear()
        for link in self._crew.links:
            link.outstanding = 0

    async def _change(self) -> None:
        """Until something happened, and not longer than a clock needs to be looked at."""
        self._changed.clear()
        try:
            async with asyncio.timeout(0.1):
                await self._changed.wait()
        except TimeoutError:
            pass

    # tasks

    def _supply_all(self, first: Link) -> None:
        """The worker that has just become free goes first."""
        links, stretch = self._crew.links, self._stretch
        if stretch is not None and stretch.load == "open":
            self._supply_arrivals(stretch)
            return
        for link in (first, *(link for link in links if link is not first)) if len(links) > 1 else (first,):
            self._supply(link)

    def _supply(self, link: Link) -> None:
        stretch = self._stretch
        if stretch is None or self._wheel.turn != "go":
            return
        tasks: list[Task] = []
        room = self._crew.room(link, stretch.depth)
        while room > len(tasks) and (task := stretch.next()) is not None:
            self._open[task.id] = task
            tasks.append(task)
        if tasks:
            self._crew.give(link, tuple(tasks))

    def _supply_arrivals(self, stretch: Stretch) -> None:
        """In turn to each worker, whatever it still has to do: nobody asks whether there is room."""
        while self._wheel.turn == "go" and (task := stretch.next()) is not None:
            self._open[task.id] = task
            self._crew.give(self._crew.links[stretch.issued % len(self._crew.links)], (task,))
