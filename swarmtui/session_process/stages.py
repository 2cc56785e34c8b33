"""Run stages: hand out their tasks, count their requests, and end them when they are complete or the user says so."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial

from swarmtui.model import client_protocol, worker_protocol
from swarmtui.model.journal import RequestEntry, StageEnd, StageStart
from swarmtui.model.load import Closed, Load
from swarmtui.model.plan import MIN_STEERED_COMPLETIONS, LevelKey, Plan
from swarmtui.model.record import Phase, Record
from swarmtui.model.telemetry import Telemetry
from swarmtui.model.workload import Task
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.session_process.answer_checks import AnswerChecker, AnswersToCount
from swarmtui.session_process.cancellation import CancelledRequests
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.live_levels import LevelRecords, LiveLevels, RequestTimes
from swarmtui.session_process.load_modes import PlannedLoad
from swarmtui.session_process.precision import PrecisionGoal
from swarmtui.session_process.steering import Goal, Steering
from swarmtui.session_process.task_sources import RepeatedTasks, TaskFactory, TaskSource
from swarmtui.session_process.workers import ActiveStage, WorkerLink, WorkerPool
from swarmtui.state.session_state import SessionState

_POLL_S = 0.1
# What a server is, is known a moment after the start, if it answers.
_IDENTIFIED_S = 2.0
_CANCEL_IGNORED = "the server went on with requests that were cancelled: from now on levels wait for their answers"


class Stages:
    """Owns the running stage, in the event loop of the session process.

    That does not wait for disks, servers or other processes, and the figures of levels are computed in threads.
    """

    def __init__(
        self,
        plan: Plan,
        generator: TaskGenerator,
        workers: WorkerPool,
        state: SessionState,
        journal: JournalQueue,
        *,
        keep_text: bool = False,
        previews: bool = True,
        border: tuple[int, ...] = (),
    ) -> None:
        self.plan, self._workers, self.state, self.journal = plan, workers, state, journal
        self.factory = TaskFactory(generator)
        self._checker = AnswerChecker(journal, keep_text=keep_text, previews=previews)
        self.load = PlannedLoad(plan, self.factory, complete=keep_text or generator.checks_answers)
        self._stage: ActiveStage | None = None
        # The number of the latest stage.
        self.last_number = 0
        self.records = LevelRecords(plan, journal)
        self._levels = LiveLevels(self.records, state, journal)
        self.steering = Steering(plan, border)
        self._times = RequestTimes()
        # When a search is expected to end, or with a budget ends at the latest, by `clock`; None if that is not known.
        self.expected_end: float | None = None
        self._lost_s = 0.0
        # Reads the metrics of the servers and returns the latest, if there are any.
        self.read_servers: Callable[[], Telemetry] | None = None
        # Whether it is known what the servers are, as far as they tell.
        self.servers_identified: Callable[[], bool] = lambda: True
        self._cancelled: CancelledRequests | None = None
        self._cancel_ignored = False
        self.answers = AnswersToCount()
        # Each gets every finished request, as it is in the journal.
        self.observers: list[Callable[[Record], None]] = [
            self.records.add, self._times.add,
        ]  # fmt: skip

    def set_goal(self, goal: Goal) -> None:
        if not self.steering.set_goal(goal):
            return
        self.load.mode = self.load.mode.steered()
        match goal, self._stage:
            case client_protocol.SetConcurrency(c, cancel=True), ActiveStage() as stage:
                if c < stage.start.c and not stage.source.continues:
                    self._workers.start_stage(stage, c=max(1, c), cancel=True)

    # reports of workers

    def handle_report(self, link: WorkerLink, report: worker_protocol.WorkerReport) -> None:
        match report:
            case worker_protocol.Finished(record=record):
                self._finish_request(link, record)
            case worker_protocol.Returned(tasks):
                self._workers.dispatcher.returned(link.number, tasks)
                self._supply()
            case worker_protocol.WorkerFrame():
                link.frame = report
                self.state.apply_frame(link.number, report)
                self._continue_stage(report)
            case worker_protocol.Ready(stage):
                self._workers.worker_ready(link, stage)
            case worker_protocol.Failed(problem):
                self._workers.on_failure(problem)

    def _finish_request(self, link: WorkerLink, record: Record) -> None:
        """Have a record checked and saved; without waiting for that, continue the stage."""
        # Many requests end and start at the same time: let a server on this host run in between.
        os.sched_yield()
        task = self._workers.dispatcher.task(link.number, record.task)
        link.received += 1
        self.state.end_stream(record)
        self._checker.check(task, record, partial(self._save_record, link, link.received, task))
        if task is None or not record.ends_task:
            return
        self._workers.dispatcher.finished(link.number, record.task)
        stage = self._stage
        if stage is not None and record.stage == stage.start.number:
            if record.phase == stage.start.phase:
                stage.done += 1
                stage.succeeded += record.error is None
            self.state.total = stage.source.to_finish
        if stage is not None and (record.stage == stage.start.number or stage.source.continues):
            stage.source.task_finished(task, record)
            if not stage.source.preparing:
                stage.start_clock()
        self._supply()
        self.steering.changed.set()

    def _save_record(self, link: WorkerLink, number: int, task: Task | None, record: Record) -> None:
        """Write a record to the journal, then pass it to the observers."""
        self.answers.add(record)
        record = self._checker.trim_text(task, record)
        link.places[number] = self.journal.write(RequestEntry(record=record))
        for observe in self.observers:
            observe(record)
        self.steering.changed.set()

    async def save_last_records(self) -> None:
        """Wait for the verdicts on the last answers, unless the user stops immediately."""
        await self._checker.wait(self.steering.stop_now)

    async def close(self) -> None:
        """Save the records that arrived while the workers were shut down."""
        await self.save_last_records()
        await self._checker.end_process()

    def _continue_stage(self, frame: worker_protocol.WorkerFrame) -> None:
        """Acknowledge what was saved, hand out what is due and check the deadlines, with each frame of a worker."""
        self._workers.acknowledge(self.journal.saved())
        self.state.left_s, self.state.left_bound = self._time_left()
        stage = self._stage
        if stage is not None and stage.source.fills and (stage.source.preparing or not stage.source.has_more):
            for row in frame.rows:
                if row.t_sent_ns:
                    stage.source.request_sent(row.task)
                if row.ttft_s is not None:
                    stage.source.first_token(row.task)
            self._supply()
        if stage is not None and stage.scheduled:
            self._supply()
        self.steering.changed.set()

    def _supply(self) -> None:
        stage = self._stage
        if stage is not None and self.steering.state() == "run":
            self._workers.supply(stage)

    def _time_left(self) -> tuple[float | None, client_protocol.TimeBound]:
        """Estimate the time to the end of a sweep or search, and say how exact that is."""
        stage, goal, load = self._stage, self.steering.goal, self.load
        if self.steering.state() == "pause":
            return None, "exact"
        if isinstance(goal, client_protocol.FindCapacity) and self.expected_end is not None:
            left = self.expected_end - self.clock()
            return left if left > 0 else None, "about" if goal.budget_s is None else "at_most"
        if stage is None or stage.start.phase in ("warmup", "canary") or not isinstance(goal, client_protocol.Sweep):
            return None, "exact"
        start, order = stage.start, load.run_order(goal.levels, goal.runs)
        current = ((start.c, start.rate), start.run)
        next_runs = order[order.index(current) + 1 :] if current in order else []
        if load.duration_s is not None:
            here = load.duration_s if stage.until is None else max(0.0, stage.until - time.monotonic())
            return here + load.duration_s * len(next_runs), "exact"
        if load.mode.scheduled or load.mode.continuous or stage.source.to_finish is None:
            return None, "exact"
        slots = self.state.slots
        ahead = [(start.c, max(0, stage.source.to_finish - stage.done) / stage.streams)]
        ahead += [(c, load.requests_in_sequence(c)) for (c, _), _ in next_runs]
        left, at_least = 0.0, False
        for c, in_sequence in ahead:
            found = self._times.estimate(c, slots.total if slots else None)
            if found is None:
                return None, "exact"
            left += found[0] * in_sequence
            at_least = at_least or found[1]
        return left, "at_least" if at_least else "exact"

    # levels

    async def run_level(
        self,
        key: LevelKey,
        run: int,
        runs: int,
        least: int = 0,
        enough: Callable[[], bool] | None = None,
        *,
        jobs: bool = False,
    ) -> None:
        """Run a level once, then its tasks serially if the plan says so; after a pause, run it again.

        `least` is the smallest number of requests of the run, if the plan gives a number, or of `jobs`; it ends earlier
        if they are `enough`.
        """
        while True:
            started = time.monotonic()
            await self._wait_for_server()
            await self._wait_for_slots(c=key[0])
            self.factory.slots = self.state.slots.total if self.state.slots else None
            source, c = self.load.task_source(key, run, least, jobs=jobs), key[0]
            stage = await self.run_stage(
                c, run, "level", source, runs=runs, rate=key[1], duration_s=self.load.duration_s, enough=enough
            )
            if source.skipped:
                self.journal.log_event("lost", f"{source.skipped} tasks were skipped: a task they depend on failed")
            contents = self.load.serial_contents(c, source.contents)
            if self.steering.state() == "run" and stage.ended and contents:
                tasks = RepeatedTasks(self.factory, c, contents)
                stage = await self.run_stage(c, run, "serial", tasks, runs=runs, streams=1)
            self._levels.refresh()
            since = time.monotonic() if stage.ended else started
            if self.steering.state() == "pause":
                await self._wait_while_paused()
            if self.steering.state() == "next":
                self.steering.resume()
                return
            # A stage that has not ended was paused, even if the pause was over before its last answers.
            self._lost_s += time.monotonic() - since
            if stage.ended or self.steering.state() != "run":
                return

    async def _wait_for_slots(self, c: int) -> None:
        """Wait a moment for what the server says: how answers of equal length are set apart depends on its slots."""
        deadline = time.monotonic() + _IDENTIFIED_S
        needed = c > 1 and isinstance(self.load.mode, Closed) and self.factory.keeps_in_step
        while needed and not self.servers_identified():
            if time.monotonic() > deadline or self.steering.state() != "run":
                return
            await asyncio.sleep(_POLL_S)

    async def run_continuous(self, c: int, duration_s: float | None) -> bool:
        """Run a stage whose requests continue after it; return whether another stage may follow."""
        source = self.load.continuous_source(c)
        await self.run_stage(c, 1, "level", source, duration_s=duration_s, steered=True)
        self._levels.refresh()
        if self.steering.state() == "pause":
            await self.drain()
            await self._wait_while_paused()
        if self.steering.state() == "next":
            self.steering.resume()
        return self.steering.state() == "run"

    async def levels_computed(self) -> None:
        """Wait until the levels of the live state are up to date, unless that takes long and the user does not wait."""
        await self._levels.wait(self.steering.stop_now)

    async def _wait_while_paused(self) -> None:
        self.journal.log_event("paused")
        while self.steering.state() == "pause":
            await self._wait_for_change()
        self.journal.log_event("resumed")

    def clock(self) -> float:
        """Return the seconds of the monotonic clock, without pauses and the runs that were repeated after them."""
        return time.monotonic() - self._lost_s

    # stages

    async def run_stage(
        self,
        c: int,
        run: int,
        phase: Phase,
        source: TaskSource,
        *,
        runs: int = 1,
        rate: float | None = None,
        duration_s: float | None = None,
        steered: bool = False,
        streams: int | None = None,
        enough: Callable[[], bool] | None = None,
    ) -> ActiveStage:
        """Run a stage from its first request to its last answer, or until the next command.

        A closed loop also ends when what it has measured is `enough`.
        """
        await self._wait_for_server()
        self.last_number += 1
        load: Load = Closed() if phase in ("warmup", "canary") else self.load.mode
        start = StageStart(
            number=self.last_number, t_ns=time.perf_counter_ns(), c=c, run=run, phase=phase, of=source.to_finish,
            steered=steered, load=load.name, rate=rate, runs=runs, abandoned=tuple(source.abandoned),
        )  # fmt: skip
        stage = ActiveStage(start, source, duration_s=duration_s, streams=streams or source.streams)
        self._stage = stage
        self.records.starts.append(start)
        self.journal.write(start)
        goal = None
        if source.precision is not None:
            goal = PrecisionGoal(start, *source.precision, self.steering.changed.set)
            self.observers.append(goal.add)
        self._workers.start_stage(stage)
        self._supply()
        while not (ended := self._has_ended(stage, goal) or (enough is not None and source.fills and enough())):
            if self.steering.state() != "run":
                break
            await self._wait_for_change()
        stage.ended = ended
        if goal is not None:
            self.observers.remove(goal.add)
            if ended and not goal.reached:
                self.journal.log_event("precision_missed", f"C={c}: {goal.missed}")
        complete = stage.succeeded >= MIN_STEERED_COMPLETIONS * c if steered else ended
        # Under manual control the running streams continue; everything else starts without requests in flight.
        new_goal = self.steering.state() == "new_goal"
        taken_over = new_goal and isinstance(self.steering.goal, client_protocol.SetConcurrency)
        cancel = (ended and source.fills) or (new_goal and not self._cancel_ignored)
        drains = self.steering.state() == "stop" or not (steered or taken_over)
        if drains:
            await self.drain(cancel=cancel)
        elif source.fills and not source.continues:
            self._workers.drop(cancel=False)
        end = StageEnd(number=start.number, t_ns=time.perf_counter_ns(), complete=complete)
        # The levels and the answer of a search include every verdict; streams that continue bring further answers.
        accepted = self._checker.accepted
        while self._checker.is_behind(accepted) and not self.steering.stop_now.is_set():
            await self._wait_for_change()
        self.records.ends.append(end)
        self.journal.write(end)
        self._stage = None
        if cancel and (drains or ended):
            self._watch_cancelled(stage.streams, start)
        return stage

    async def end_streams(self) -> None:
        """End what manual control left in flight before another goal begins: its answers may have no limit."""
        if not self._workers.dispatcher.has_tasks:
            return
        await self.drain(cancel=not self._cancel_ignored)
        if not self._cancel_ignored:
            self._watch_cancelled(self.records.starts[-1].c, self.records.starts[-1])

    def _watch_cancelled(self, streams: int, start: StageStart) -> None:
        if self.read_servers is not None:
            self._cancelled = CancelledRequests(self.read_servers, streams, start.t_ns)

    async def _wait_for_server(self) -> None:
        """Wait until the server has noticed that requests were cancelled; if it does not, levels wait for answers."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is None:
            return
        ended = await cancelled.wait(lambda: self.steering.state() != "run")
        if not ended and not self._cancel_ignored:
            self._cancel_ignored = self.load.complete = True
            self.journal.log_event("cancel_ignored", _CANCEL_IGNORED)

    def _has_ended(self, stage: ActiveStage, goal: PrecisionGoal | None) -> bool:
        """Whether a stage has what it measures.

        A closed loop whose time is up ends with a whole cycle and an answer; if it waits for its answers, fillers
        replace the rest.
        """
        source = stage.source
        reached = goal is not None and goal.reached
        if source.may_end is not None:
            return reached or source.over or (stage.timed_out and source.may_end and stage.has_waited)
        if not reached and (not stage.complete or not source.fills or stage.until is None):
            return stage.complete
        if source.has_more:
            source.start_fillers()
            self._workers.drop(cancel=False)
            self._supply()
        return self._workers.measured_ended

    async def drain(self, *, cancel: bool = False) -> None:
        """Wait for the requests in flight, or cancel them; after a stop, cancel when its grace period is over."""
        if self._stage is not None:
            self._stage.source.close()
        if not self._workers.dispatcher.has_tasks:
            return
        self._workers.drop(cancel=cancel)
        started, cancelled = time.monotonic(), cancel
        while not self._workers.idle:
            if self.steering.state() == "stop":
                self.state.status = "stopping"
                if not cancelled and time.monotonic() - started >= self.steering.grace_s:
                    cancelled = True
                    self._workers.drop(cancel=True)
            elif not cancelled and (self._stage is None or self._stage.done < self._stage.issued):
                self.state.status = "pausing" if self.steering.state() == "pause" else "draining"
            await self._wait_for_change()
        self._workers.dispatcher.forget_tasks()

    async def _wait_for_change(self) -> None:
        """Wait for a command or a report, but not longer than the interval in which deadlines are checked."""
        self.steering.changed.clear()
        try:
            async with asyncio.timeout(_POLL_S):
                await self.steering.changed.wait()
        except TimeoutError:
            pass
