"""The process: an order comes in over standard input, a session goes to disk, faces look on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.capacity.slots import seats_of
from swarmtui.client.sockets import error_log, socket_path
from swarmtui.client.spawn import Started
from swarmtui.model import client_protocol as said
from swarmtui.model import worker_protocol
from swarmtui.model.run_request import Order, decode_order
from swarmtui.model.schema import BadInput
from swarmtui.model.session import Description, Head, Sample, ServerFound, Session
from swarmtui.prompts.library import find
from swarmtui.session_process import finish, opening
from swarmtui.session_process.clients import Faces
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.session_process.live_state import Board
from swarmtui.session_process.outage import Absence
from swarmtui.session_process.patience import unless
from swarmtui.session_process.quality_monitor import Doubts
from swarmtui.session_process.sampler import Seen, Watch
from swarmtui.session_process.scheduler import Runner
from swarmtui.session_process.waits import Waits
from swarmtui.session_process.workers import Crew, Link, Simulator, check_files, workers_for
from swarmtui.sessions.paths import new_id
from swarmtui.sessions.store import discard

Ending = said.Ending

_POINT_S = 0.25
_WATCH_AFTER_S = 0.3
_SAMPLE_NS = 900_000_000


class Conductor:
    """Puts the parts of one session together, and takes them apart again."""

    def __init__(self, order: Order, first_worker: Started) -> None:
        self._order = order
        self._t0 = time.perf_counter_ns()
        self._board = Board(self._t0)
        self._session: Session | None = None
        self._runner: Runner | None = None
        self._ledger: Ledger | None = None
        self._absence: Absence | None = None
        self._refusal = ""
        self._simulators: list[Simulator] = []
        self._doubts = Doubts(cold_promised=True)
        self._waits = Waits()
        self._seen = Seen()
        self._died = asyncio.Event()
        self._death = ""
        self._early: list[said.Command] = []
        self._stopped = asyncio.Event()
        self._leaving = asyncio.Event()
        self._faces = Faces(self._hello, self._board.frame, self._obey)
        streams = max(order.plan.levels)
        self._crew = Crew(order.plan.workers or workers_for(streams), first_worker, self._hear, self._lost)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._faces.welcome(reader, writer)
        directory = ""
        try:
            ending, message = await self._conduct()
        except BadInput as error:
            ending, message = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours, whatever it is: what was measured is saved
            traceback.print_exc()
            ending, message = "failed", f"a fault of swarmtui, {type(error).__name__}: {error}; see {error_log()}"
        if self._ledger is not None:
            ending, message, directory = await self._save(ending, message)
        self._board.status = "ended"
        await self._faces.close(said.Ended(ending, message, directory), self._board.frame(False))
        for simulator in self._simulators:
            simulator.end()

    async def _conduct(self) -> tuple[Ending, str]:
        order = self._order
        check_files(max(order.plan.levels), len(self._crew.links))
        found = find(order.workload)
        identity = new_id(datetime.now(UTC))
        directory = Path(order.session_root) / identity
        try:
            self._ledger = Ledger(directory)
        except OSError as error:
            raise BadInput(f"cannot write here: {error.strerror}", key=str(directory)) from None
        meeting = socket_path(identity)
        try:
            await self._faces.open(meeting)
        except OSError as error:
            raise BadInput(f"no place for sockets: {error.strerror or error}", key=str(meeting)) from None
        from swarmtui.session_process.preflight import Unusable

        looking = await unless(self._stopped, opening.look, order, found, self._simulators, self._seen)
        if not looking.done():
            return "stopped", "stopped before the first request"
        try:
            endpoints, calibration = looking.result()
        except Unusable as error:
            return "unusable", str(error)
        source = opening.source_for(order, found, calibration, endpoints)
        self._doubts = Doubts(cold_promised=source.task(0, 1, 0).cold)
        self._session = session = opening.describe(order, identity, self._t0, found, endpoints, calibration)
        self._ledger.write(Head(session=self._session, pid=os.getpid()))
        if self._ledger.problem:
            return "failed", self._ledger.loss
        self._runner = Runner(
            order.plan,
            source,
            self._crew,
            self._board,
            self._ledger,
            keep_text=order.keep_text,
            previews=order.previews,
            seats=lambda: seats_of(session, self._board.servers),
        )
        self._absence = Absence(
            self._board,
            self._ledger,
            self._runner.obey,
            lambda: opening.answers(order, endpoints),
            lambda: opening.differences(self._board.servers, endpoints),
            order.restart_s,
        )
        following = self._crew.start(partial(opening.setup, order, directory, endpoints))
        for command in self._early:
            self._obey(command)
        watch = Watch(
            endpoints,
            order.secrets,
            simulated=self._session.simulated,
            gpus=order.gpus,
            metrics_urls=order.metrics_urls,
            gpu_metrics_urls=order.gpu_metrics_urls,
            seen=self._seen,
        )
        # Its imports are not to come between the command and the first request.
        asyncio.get_running_loop().call_later(_WATCH_AFTER_S, watch.start)
        marking = asyncio.create_task(self._mark(watch))
        running = asyncio.create_task(self._runner.run())
        dying = asyncio.create_task(self._died.wait())
        await asyncio.wait((running, dying, marking, following), return_when=asyncio.FIRST_COMPLETED)
        faults = [beside for beside in (marking, following) if beside.done() and beside.exception()]
        marking.cancel()
        if faults:
            running.cancel()
            faults[0].result()  # no run waits for who is no longer there
        await unless(self._leaving, watch.finish)
        self._board.telemetry = watch.latest()
        self._doubts.look(watch.latest(), 0)
        self._ledger.write(Sample(telemetry=watch.sample()))
        if not running.done():
            running.cancel()
            return "interrupted", self._death
        if self._absence.verdict:
            return "unusable", f"{endpoints[0].url}: {self._absence.verdict}"
        if self._absence.changed:
            return "stopped", f"the server came back with other flags: {self._absence.changed}"
        ending: Literal["done", "stopped", "unusable"] = running.result()
        return ending, self._blame() if ending == "unusable" else ""

    async def _mark(self, watch: Watch) -> None:
        """Four times a second a point of the history; once a second what the machine says, into the journal."""
        assert self._ledger is not None
        written = 0
        while True:
            seen = self._board.telemetry = watch.latest()
            self._doubts.look(seen, self._board.in_flight)
            if self._absence is not None:
                self._absence.look(seen)
                self._doubts.restarted = self._absence.restarted
            self._board.trust = self._doubts.lines(self._board.levels)
            self._waits.look(seen)
            self._board.ttft_split = self._waits.split(seen.t_ns, self._board.c, self._board.levels)
            self._board.mark()
            while not watch.before.empty():
                before = watch.before.get()
                self._doubts.before(before)
                self._ledger.write(Sample(telemetry=before))
            while not watch.found.empty():
                number, server = watch.found.get()
                self._board.servers += (server,)
                self._ledger.write(ServerFound(endpoint=number, server=server))
            sample = watch.sample()
            if sample.t_ns - written >= _SAMPLE_NS and (sample.gpus or sample.servers):
                written = sample.t_ns
                self._ledger.write(Sample(telemetry=sample))
            await asyncio.sleep(_POINT_S)

    def _hello(self) -> said.Hello | None:
        if self._session is None or self._ledger is None:
            return None
        return said.Hello(self._session, str(self._ledger.directory), tuple(self._board.history))

    def _obey(self, command: said.Command) -> None:
        if isinstance(command, said.Stop) and command.at_once:
            self._leaving.set()
        if isinstance(command, said.Describe) and self._session is not None and self._ledger is not None:
            self._session = msgspec.structs.replace(self._session, label=command.label, note=command.note)
            self._ledger.write(Description(label=command.label, note=command.note))
        elif isinstance(command, said.SaveTo) and self._session is not None and self._ledger is not None:
            self._move(self._ledger, Path(command.directory))
        elif self._runner is not None:
            self._runner.obey(command)
        else:
            self._early.append(command)
            if isinstance(command, said.Stop):
                self._stopped.set()

    def _move(self, ledger: Ledger, root: Path) -> None:
        self._refusal = ""
        try:
            ledger.move(root / ledger.directory.name)
            self._crew.spool_to(ledger.directory)
        except OSError as error:
            self._refusal = f"{said.REFUSED}{root}: {error.strerror}"
        self._warn()

    def _warn(self) -> None:
        problem = self._ledger.problem if self._ledger else ""
        self._board.warnings = tuple(filter(None, [problem, self._refusal]))

    def _hear(self, link: Link, report: worker_protocol.Report) -> None:
        runner = self._runner
        match report:
            case worker_protocol.Finished(record=record) if runner is not None:
                runner.finish(link, record)
                self._doubts.finish(record)
                self._waits.finish(record)
                if self._absence is not None:
                    self._absence.finish(record)
            case worker_protocol.WorkerFrame() if runner is not None:
                runner.hear(link, report)
                self._doubts.hear(report)
                self._warn()
            case worker_protocol.Failed(problem):
                self._end_by(problem)

    def _lost(self, link: Link, how: str) -> None:
        self._end_by(f"worker {link.number} ended {how}; what it had finished is saved")

    def _end_by(self, death: str) -> None:
        self._death = self._death or death
        self._died.set()

    def stop(self) -> None:
        """SIGTERM: as a person's stop, without grace."""
        self._obey(said.Stop(grace_s=0.0))

    def _blame(self) -> str:
        assert self._runner is not None and self._session is not None
        where = self._session.endpoints[0].url
        if not self._runner.first_errors:
            return f"{where}: no request came back"
        record = self._runner.first_errors[0]
        return f"{where}: every request failed: {record.error}: {record.error_detail}"

    async def _save(self, ending: Ending, message: str) -> tuple[Ending, str, str]:
        assert self._ledger is not None
        self._board.status = "saving"
        await self._crew.end()
        ledger = self._ledger
        if self._session is None or not self._board.finished:
            ledger.close()
            discard(ledger.directory)
            return ending, message, ""
        runner = self._runner
        if runner is not None and runner.uncounted:
            await finish.recount(
                self._order, self._session.endpoints[0], runner.uncounted, self._board, ledger, runner.hurry
            )
        ledger.write(self._doubts.verdict(self._board.levels))
        return await finish.save(ledger, self._order.session_root, ending, message, self._leaving)


async def conduct(pipe: socket.socket, first_worker: Started) -> None:
    reader, writer = await asyncio.open_connection(sock=pipe)
    size = int.from_bytes(await reader.readexactly(worker_protocol.HEADER_BYTES), "big")
    conductor = Conductor(decode_order(await reader.readexactly(size)), first_worker)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, conductor.stop)
    await conductor.run(reader, writer)


def main(first_worker: Started) -> None:
    try:
        asyncio.run(conduct(socket.socket(fileno=os.dup(0)), first_worker))
    except asyncio.IncompleteReadError:
        sys.exit(1)  # no order came: a mistake in the words of the command, or its face is gone
    # A look at a server that does not answer may still be under way in its thread; nobody waits for it.
    os._exit(0)
