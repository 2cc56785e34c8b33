"""Run one session: read a run request from standard input, measure, write the session to disk, and serve clients."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import time
import traceback
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from swarmtui.model import client_protocol, worker_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ending, SessionWarning
from swarmtui.model.endpoint import Endpoint, hide_urls, parse_address
from swarmtui.model.hosts import ClockOffset
from swarmtui.model.journal import ClockEntry, DescriptionEntry, Head
from swarmtui.model.redaction import Redactor
from swarmtui.model.run_request import RunRequest, decode_run_request
from swarmtui.model.session import Session, Summary
from swarmtui.processes.exits import redact_stderr
from swarmtui.processes.spawn import (
    ServerProcess,
    StartedProcess,
    error_log,
    open_file_limit,
    socket_path,
    start_worker,
)
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import find_workload, workload_digest
from swarmtui.session_process import finish, preflight
from swarmtui.session_process.clients import Client, ClientConnections
from swarmtui.session_process.goals import run_plan
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.outage import Outage, ServerEvents
from swarmtui.session_process.sampler import SampleFeed, Sampler
from swarmtui.session_process.session_head import compared_border, describe_session
from swarmtui.session_process.stages import Stages
from swarmtui.session_process.steering import Goal, run_unless, wait_unless
from swarmtui.session_process.workers import (
    WorkerPool,
    check_open_file_limit,
    unfinished,
    worker_setup,
    workers_per_host,
)
from swarmtui.sessions.index import new_session_id
from swarmtui.sessions.journal import machine_spools
from swarmtui.sessions.store import discard_session
from swarmtui.state.session_state import SessionState

if TYPE_CHECKING:
    from swarmtui.hosts.pool import HostLink, HostPool, HostWorker

# The imports of the sampler would delay the first request.
_SAMPLER_DELAY_S = 0.3
# A stop waits this long for the journal to be created, so that it can be removed again: it is, unless the disk hangs.
_CREATED_S = 0.3

Result = TypeVar("Result")


class _StoppedEarly(Exception):
    """The user stopped the session before the first request."""


class SessionProcess:
    """Connects the parts of one session: stages, workers, sampler, journal and clients."""

    def __init__(self, request: RunRequest, first_worker: StartedProcess) -> None:
        self._request = request
        self._t0 = time.perf_counter_ns()
        self._state = SessionState(self._t0)
        self._session: Session | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self._stages: Stages | None = None
        self._journal: JournalQueue | None = None
        self._events: ServerEvents | None = None
        self._save_refused: SessionWarning | None = None
        self._moving: asyncio.Task[None] | None = None
        self._simulators: list[ServerProcess] = []
        self._findings = preflight.PreflightFindings()
        self._interrupted = asyncio.Event()
        self._interruption = self._lost_host = ""
        self._early_commands: list[tuple[Client, client_protocol.ClientCommand]] = []
        self._stopped_early = asyncio.Event()
        self._load_ended = False
        self._stop_now = asyncio.Event()
        self._exit_now = asyncio.Event()
        self._clients = ClientConnections(self._state, self._hello, self._handle_command)
        started: list[StartedProcess] = []
        if request.hosts:
            first_worker.socket.close()
        else:
            (count,) = workers_per_host(request.plan, [os.cpu_count() or 2])
            started = [first_worker, *(start_worker() for _ in range(1, count))]
        self._workers = WorkerPool(started, self._interrupt)
        self._hosts: HostPool | None = None

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.accept(reader, writer)
        fault, summary = False, None
        try:
            ending, message = await self._measure()
        except _StoppedEarly:
            ending, message = "stopped", "stopped before the first request"
        except BadInput as error:
            ending, message = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - whatever our own error is, what was measured is saved
            traceback.print_exc()
            problem = Redactor(self._request.secrets).redact(f"{type(error).__name__}: {error}")
            ending, message = "failed", f"internal error, {problem}; see {error_log()}"
            fault = True
        ended = client_protocol.Ended(ending, message, "")
        if self._journal is not None:
            ended, summary = await self._save(ending, message)
        if summary is not None:
            self._state.finish(summary)
        self._state.status = "ended"
        await self._clients.close(msgspec.structs.replace(ended, fault=fault))
        for simulator in self._simulators:
            simulator.end()

    async def _start_hosts(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Start workers on other hosts instead of this one."""
        from swarmtui.hosts.pool import HostPool

        request, self._state.note = self._request, f"starting workers on hosts ({self._request.hosts})"
        hosts = self._hosts = HostPool(request.hosts, self._host_lost, self._clock_measured, self._log_host_event)
        starting = asyncio.create_task(self._start_host_workers(hosts, endpoints))
        started = await wait_unless(self._stopped_early, starting)
        starting.cancel()
        self._state.note = ""
        if not started:
            raise _StoppedEarly
        self._workers = WorkerPool(starting.result(), self._interrupt)

    async def _start_host_workers(self, hosts: HostPool, endpoints: tuple[Endpoint, ...]) -> list[HostWorker]:
        await hosts.start()
        hosts.check_addresses([parse_address(endpoint.url).host for endpoint in endpoints])
        counts = workers_per_host(self._request.plan, [link.host.cores for link in hosts.links])
        limits = [link.host.open_files for link in hosts.links if link.host.open_files is not None]
        check_open_file_limit(max(self._request.plan.load.levels), sum(counts), min(limits, default=None))
        return await hosts.start_workers(counts)

    async def _measure(self) -> tuple[Ending, str]:
        """Inspect the endpoints, write the head of the journal and run the plan; return how that ended, and why."""
        request = self._request
        if not request.hosts:
            check_open_file_limit(max(request.plan.load.levels), len(self._workers.links), open_file_limit())
        stopped = self._stopped_early
        workload = _result(await run_unless(stopped, find_workload, request.workload))
        session_id = new_session_id(datetime.now(UTC))
        directory, path = Path(request.session_root) / session_id, socket_path(session_id)
        creating = await run_unless(stopped, JournalQueue, directory)
        await asyncio.to_thread(wait, (creating,), _CREATED_S)
        try:
            self._journal = journal = _result(creating)
        except OSError as error:
            raise BadInput(f"cannot write here: {error.strerror}", key=str(directory)) from None
        journal.on_write = self._state.apply
        try:
            await self._clients.listen(path)
        except OSError as error:
            raise BadInput(f"cannot create the socket: {error.strerror or error}", key=str(path)) from None
        # Reading a large trace takes as long as the checks of the endpoints.
        digesting = asyncio.create_task(run_unless(stopped, workload_digest, workload))
        inspecting = await run_unless(
            stopped, preflight.inspect_endpoints, request, workload, self._simulators, self._findings
        )
        digested = await digesting
        try:
            endpoints, calibration = _result(inspecting)
        except preflight.EndpointUnusable as error:
            return "unusable", str(error)
        self._endpoints = endpoints
        digest = _result(digested)
        if request.hosts:
            await self._start_hosts(endpoints)
        window = self._findings.window
        generator = _result(
            await run_unless(stopped, preflight.task_generator, request, workload, calibration, endpoints, window)
        )
        self._events = events = ServerEvents(journal)
        hosts = tuple(link.host for link in self._hosts.links) if self._hosts is not None else ()
        self._session = session = describe_session(
            request, session_id, self._t0, workload, digest, endpoints, calibration, hosts
        )
        journal.write(Head(session=session, pid=os.getpid()))
        if self._findings.too_long:
            journal.log_event("too_long", self._findings.too_long)
        await asyncio.to_thread(journal.flush)
        if journal.warning is not None:
            return "failed", await asyncio.to_thread(journal.final_problem)
        if self._hosts is not None:
            for link in self._hosts.links:
                self._clock_measured(link, link.clock.newest)
        border = await asyncio.to_thread(compared_border, Path(request.session_root), session)
        return await self._run_plan(session, generator, journal, events, border)

    async def _run_plan(
        self,
        session: Session,
        generator: TaskGenerator,
        journal: JournalQueue,
        events: ServerEvents,
        border: tuple[int, ...],
    ) -> tuple[Ending, str]:
        """Apply the load until the plan is done, the user stops it, or a process fails.

        `border` has the levels at the border of the search that this one is compared with.
        """
        request, endpoints = self._request, self._endpoints
        self._stages = stages = Stages(
            request.plan,
            generator,
            self._workers,
            self._state,
            journal,
            keep_text=request.keep_text,
            previews=request.previews,
            border=border,
        )
        outage = Outage(
            self._state,
            journal,
            stages.steering,
            lambda: preflight.all_respond(request, endpoints),
            lambda: preflight.describe_changed_servers(request, self._state.servers, endpoints),
            request.restart_timeout_s,
        )
        stages.observers += [outage.add_record, events.add_record]
        setup = partial(worker_setup, request, journal.directory, endpoints)
        receiving = self._workers.start(setup, stages.handle_report)
        for client, command in self._early_commands:
            self._handle_command(client, command)
        if self._stopped_early.is_set():
            stages.steering.stop(grace_s=0.0)
        pids = [link.pid for link in self._workers.links if link.pid is not None]
        sampler = Sampler(
            endpoints,
            request,
            simulated=session.simulated,
            findings=self._findings,
            hosts=self._hosts,
            pids=pids,
            clients=self._clients.pids,
        )
        stages.read_servers, stages.servers_identified = sampler.read_now, sampler.has_identified
        asyncio.get_running_loop().call_later(_SAMPLER_DELAY_S, sampler.start)
        samples = SampleFeed(sampler, self._state, journal, events, self._update_warnings)
        sampling = asyncio.create_task(samples.run())
        # The modules stay in memory: without them collections are short, and free the garbage of a long run early.
        gc.freeze()
        running = asyncio.create_task(run_plan(stages))
        interrupted = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait((running, interrupted, sampling, receiving), return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in (sampling, receiving) if task.done() and task.exception()]
        sampling.cancel()
        if failed:
            running.cancel()
            failed[0].result()  # raises
        self._load_ended = True
        await samples.finish(self._stop_now, load_ended=running.done())
        if not running.done():
            running.cancel()
            return "interrupted", self._interruption
        if outage.failure:
            return "unusable", f"{endpoints[0].url}: {outage.failure}"
        if outage.changes:
            return "stopped", f"the server came back with other flags: {outage.changes}"
        ending = running.result()
        if ending != "unusable":
            return ending, ""
        error = stages.records.first_error
        why = f"every request failed: {error.error}: {error.error_detail}" if error else "no request was answered"
        return ending, f"{endpoints[0].url}: {why}"

    def _hello(self) -> client_protocol.Hello | None:
        if self._session is None or self._journal is None:
            return None
        return client_protocol.Hello(self._session, str(self._journal.directory), tuple(self._state.history))

    def _handle_command(self, client: Client, command: client_protocol.ClientCommand) -> None:
        """Do what a client asks; what concerns the plan waits until it runs."""
        stages, session, journal = self._stages, self._session, self._journal
        match command:
            case client_protocol.Stop(grace_s, immediate):
                self.stop(grace_s, immediate=immediate)
            case _ if stages is None or session is None or journal is None:
                self._early_commands.append((client, command))
            case client_protocol.Pause():
                stages.steering.pause()
            case client_protocol.Resume():
                stages.steering.end_pause()
            case client_protocol.NextLevel():
                stages.steering.end_run()
            case client_protocol.WatchStream(agent):
                self._state.watched.select(agent)
                self._workers.send(worker_protocol.WatchAgent(agent))
            case client_protocol.WatchTails(agents):
                client.tails = agents
                if self._request.previews:
                    watched = self._clients.watched_tails()
                    self._state.watched.select_tails(watched)
                    self._workers.send(worker_protocol.SendTails(watched))
            case client_protocol.Describe(label, note):
                self._session = msgspec.structs.replace(session, label=label, note=note)
                journal.write(DescriptionEntry(label=label, note=note))
            case client_protocol.SaveTo(directory):
                self._save_refused = None
                self._update_warnings()
                self._moving = asyncio.create_task(self._move(journal, Path(directory), self._moving))
            case _ if isinstance(command, Goal):
                stages.set_goal(command)

    def stop(self, grace_s: float = 0.0, *, immediate: bool = False) -> None:
        """Stop the load; SIGTERM does so without a grace period."""
        if immediate:
            self._exit_now.set()
        if immediate or self._load_ended:
            self._stop_now.set()
        if self._stages is not None:
            self._stages.steering.stop(grace_s)
        else:
            self._stopped_early.set()

    async def _move(self, journal: JournalQueue, root: Path, before: asyncio.Task[None] | None) -> None:
        """Move the session, after the move `before`; clients learn of it by another Hello, or by a warning."""
        if before is not None:
            await before
        try:
            await asyncio.to_thread(journal.move, root / journal.directory.name)
            self._workers.spool_to(journal.directory)
            self._clients.greet()
        except OSError as error:
            self._save_refused = SessionWarning("save_refused", f"cannot be saved to {root}: {error.strerror}")
        self._update_warnings()

    def _update_warnings(self) -> None:
        found = (
            SessionWarning("too_long", self._findings.too_long) if self._findings.too_long else None,
            *(self._hosts.warnings if self._hosts is not None else ()),
            self._journal.warning if self._journal else None,
            self._save_refused,
        )
        self._state.warnings = tuple(warning for warning in found if warning is not None)

    def _host_lost(self, host: HostLink, how: str) -> None:
        """Name what is missing, and end: without its streams the level is no longer the one that was planned."""
        links = [link for link in self._workers.links if link.host is host]
        problem = f"{host.host.name} was lost: {how}{unfinished(links)}"
        self._log_host_event("host_lost", problem)
        # The reason for workers that exited just before.
        self._interruption = self._lost_host = self._lost_host or problem
        self._interrupted.set()

    def _clock_measured(self, host: HostLink, measured: ClockOffset) -> None:
        if self._journal is not None and self._session is not None:
            self._journal.write(ClockEntry(host=host.host.name, clock=measured))
            self._workers.spool_to(self._journal.directory)
        if self._hosts is not None:
            self._state.quality.clock_bound_s = self._hosts.bound_s

    def _log_host_event(self, name: str, text: str) -> None:
        if self._journal is not None and self._session is not None:
            self._journal.log_event(name, text)

    def _interrupt(self, reason: str) -> None:
        self._interruption = self._interruption or reason
        self._interrupted.set()

    async def _save(self, ending: Ending, message: str) -> tuple[client_protocol.Ended, Summary | None]:
        assert self._journal is not None
        self._state.status = "saving"
        journal, stages = self._journal, self._stages
        if stages is not None:
            await stages.save_last_records()
        if self._moving is not None:
            await self._moving
        await asyncio.to_thread(journal.flush)
        cut_off = await self._workers.shut_down(journal.saved())
        if stages is not None:
            await stages.close()
        for name in sorted({link.host.host.name for link in cut_off if link.host is not None}):
            spools = machine_spools(journal.directory)
            self._log_host_event("hosts", f"what {name} could not send is there in {spools}: copy it to this session")
        if self._hosts is not None:
            await self._hosts.close()
        if self._session is None or not self._state.finished:
            await asyncio.to_thread(journal.close)
            await asyncio.to_thread(discard_session, journal.directory)
            return client_protocol.Ended(ending, message, ""), None
        if stages is not None and stages.steering.stop_now.is_set():
            self._stop_now.set()
        request, endpoint = self._request, self._endpoints[0]
        if stages is not None and (uncounted := stages.answers.uncounted):
            self._state.note = f"counting the tokens of {len(uncounted)} answers"
            await finish.recount(request, endpoint, uncounted, journal, self._stop_now)
            self._state.note = ""
        if stages is not None and (sample := stages.answers.sample) and self._session.prompt_tokens_by != "usage":
            self._state.quality.usage = await finish.check_usage(request, endpoint, sample, self._stop_now)
        journal.write(self._state.quality.final(self._state.levels))
        return await finish.save(
            journal, self._request.session_root, ending, message, self._state.finished, self._exit_now
        )


def _result(working: Future[Result]) -> Result:
    """Return the result of work that was done unless the user stopped the session early."""
    if not working.done():
        raise _StoppedEarly
    return working.result()


async def serve(pipe: socket.socket, first_worker: StartedProcess) -> None:
    reader, writer = await asyncio.open_connection(sock=pipe)
    size = int.from_bytes(await reader.readexactly(worker_protocol.HEADER_BYTES), "big")
    request = decode_run_request(await reader.readexactly(size))
    endpoints, secrets = hide_urls(request.endpoints, request.secrets)
    redact_stderr(secrets)
    process = SessionProcess(msgspec.structs.replace(request, endpoints=endpoints, secrets=secrets), first_worker)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop)
    await process.run(reader, writer)


def main(first_worker: StartedProcess) -> None:
    try:
        asyncio.run(serve(socket.socket(fileno=os.dup(0)), first_worker))
    except asyncio.IncompleteReadError:
        sys.exit(1)  # no request was sent: the command line was wrong, or the client is gone
    # A thread may still wait for a server that does not answer; exit without it.
    os._exit(0)
