"""Run an experiment: start a server, measure it and stop it, again and again; each result is stored at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Protocol

import msgspec

from swarmtui.client.session_client import ConnectionLost, StopControl, attach, running_sessions, start_session
from swarmtui.experiments.managed_server import Interrupted, ManagedServer, ServerFailed
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.experiments.store import (
    Kind,
    exclusive_lock,
    process_start_time,
    read_experiment,
    write_experiment,
)
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.tuning import Definition, Experiment, ExperimentStatus, Start
from swarmtui.sessions.documents import read_saved_summary

_POLL_S = 0.1
_END_TIMEOUT_S = 10.0


class FrameDisplay(Protocol):
    """Shows the frames of a running measurement."""

    def show(self, frame: client_protocol.Frame) -> None: ...
    def clear(self) -> None: ...


class Trial(NamedTuple):
    """The next measurement: `start` says of which configuration; without `launch` its server is already running."""

    start: Start
    title: str
    log: str
    request: RunRequest
    launch: LaunchCommand | None
    time_limit: str = ""


class Runner(Generic[Definition]):
    """Run one experiment, or continue it if its directory has results.

    A subclass decides from the results so far what is measured next. The sessions have a series of this `kind`, with
    the name of the directory.
    """

    kind: Kind

    def __init__(
        self,
        definition: Definition,
        request: RunRequest,
        directory: Path,
        report: Callable[[str], None],
        display: FrameDisplay | None = None,
    ) -> None:
        self.request, self.report, self._directory, self._display = request, report, directory, display
        now, pid = time.time(), os.getpid()
        self.experiment: Experiment[Definition] = Experiment(
            definition=definition,
            starts=found.starts if (found := read_experiment(directory, self.kind)) else (),
            status=ExperimentStatus(pid=pid, born=process_start_time(pid), begun=now, since=now),
        )

    def next_trial(self) -> Trial | None:
        """Return what to measure next; None if the experiment is done."""
        raise NotImplementedError

    def finished(self, start: Start, summary: Summary | None) -> None:
        """Call `add` with a result, and report it."""
        raise NotImplementedError

    def run(self, stop: StopControl) -> None:
        """Measure until nothing is left, or until a stop is requested; what that interrupts is not stored."""
        ended: Literal["done", "stopped", "failed"] = "failed"
        with exclusive_lock(self._directory, self.kind):
            self._save()
            try:
                if _stop_orphaned_runs(self.kind, self._directory.name):
                    self.report(f"stopped a run that an interrupted {self.kind} had left running")
                while not stop.requested and (trial := self.next_trial()) is not None:
                    self.report(trial.title)
                    start, summary = self._measure(trial, stop)
                    if not stop.requested:
                        self.finished(start, summary)
                ended = "stopped" if stop.requested else "failed" if self.experiment.problem else "done"
            finally:
                self._show(flags=None, ended=ended)

    def add(self, start: Start, problem: str = "") -> None:
        """Store a result; it is on disk when this returns. `problem` says why the experiment cannot continue."""
        self._save(starts=(*self.experiment.starts, start), problem=problem)

    def _save(self, **fields: object) -> None:
        self.experiment = msgspec.structs.replace(self.experiment, **fields)
        write_experiment(self._directory, self.kind, self.experiment)

    def _show(self, **fields: object) -> None:
        """Change the status, from which UIs read what is running."""
        status = msgspec.structs.replace(self.experiment.status, **fields)
        if status != self.experiment.status:
            self._save(status=msgspec.structs.replace(status, since=time.time()))

    def _measure(self, trial: Trial, stop: StopControl) -> tuple[Start, Summary | None]:
        log, server, start_s = self._directory / trial.log, None, None
        self._show(flags=trial.start.flags, round=trial.start.round, phase="starting", session="", log=str(log))
        deadline = time.monotonic() + (parse_seconds(trial.time_limit, "time limit") if trial.time_limit else inf)
        with ExitStack() as stack:
            if trial.launch is not None:
                server = stack.enter_context(ManagedServer(trial.launch, log, self.request.secrets, stop))
                try:
                    start_s = server.start()
                except (ServerFailed, Interrupted) as error:
                    return _failed(trial.start, str(error), server.log_tail()), None

            def failure() -> str | None:
                if time.monotonic() > deadline:
                    return f"not finished within {trial.time_limit} (cell_within)"
                return server.failure() if server else None

            self._show(phase="warming up")
            if self._display is not None:
                stack.callback(self._display.clear)
            series = Series(kind=self.kind, name=self._directory.name, side=trial.start.side or "")
            request = msgspec.structs.replace(trial.request, series=series)
            summary, problem = _measure_session(request, stop, failure, self._on_message)
            self._show(phase="stopping")
            return _result(trial.start, summary, problem, start_s, server.log_tail() if server else ()), summary

    def _on_message(self, message: client_protocol.SessionMessage) -> None:
        match message:
            case client_protocol.Hello(session=session):
                self._show(session=session.id)
            case client_protocol.Frame(status=status):
                if status not in ("starting", "warming up"):
                    self._show(phase="running")
                if self._display is not None:
                    self._display.show(message)


def _failed(start: Start, reason: str, log: tuple[str, ...], session: str = "") -> Start:
    return msgspec.structs.replace(start, state="broken", reason=reason, log=log, session=session)


def _result(start: Start, summary: Summary | None, problem: str, start_s: float | None, log: tuple[str, ...]) -> Start:
    """Return the figures of the highest level."""
    session = summary.session.id if summary else ""
    level = max(summary.levels, key=lambda level: level.c, default=None) if summary else None
    if problem or level is None or level.headline_tps is None:
        return _failed(start, problem or "nothing was measured", log, session)
    energy = level.energy
    return msgspec.structs.replace(
        start,
        session=session,
        c=level.c,
        out_tps=level.headline_tps,
        per_stream_tps=level.per_stream_tps.mean,
        runs=level.headline_by_run,
        ttft_s=level.ttft_s.median,
        j_per_token=energy.j_per_token if energy else None,
        mean_w=energy.mean_w if energy else None,
        peak_memory=energy.peak_memory if energy else None,
        simulated=energy.simulated if energy else False,
        errors=level.errors,
        start_s=start_s,
    )


def _measure_session(
    request: RunRequest,
    stop: StopControl,
    failure: Callable[[], str | None],
    on_message: Callable[[client_protocol.SessionMessage], None],
) -> tuple[Summary | None, str]:
    """Run one session; return its summary, and why its plan was not completed.

    `failure` is called ten times per second; a reason that it returns, or a stop request, ends the run at once.
    """
    client = start_session(request, client_protocol.Subscribe(hz=4.0))
    stop.attach(client)
    reason, message = "", None
    try:
        while not isinstance(message, client_protocol.Ended):
            message = client.receive(_POLL_S)
            if message is not None:
                on_message(message)
            if stop.requested:
                reason = "stopped"
                stop.kill_if_overdue()
            elif not reason and (reason := failure() or ""):
                client.send(client_protocol.Stop(grace_s=0.0))
    except ConnectionLost:
        return None, f"the session process {client.exit_description()}"
    finally:
        client.close()
    problem = "" if message.ending == "done" else message.message or message.ending
    return read_saved_summary(message.directory), reason or problem


def _stop_orphaned_runs(kind: str, name: str) -> int:
    """Stop sessions of this series that an interrupted experiment left running; return how many there were."""
    ended = 0
    for session in running_sessions():
        try:
            client = attach(session, client_protocol.Subscribe(hz=1.0))
        except BadInput:
            continue
        try:
            hello = client.receive(1.0)
            series = hello.session.series if isinstance(hello, client_protocol.Hello) else None
            if series is not None and (series.kind, series.name) == (kind, name):
                client.send(client_protocol.Stop(grace_s=0.0))
                deadline = time.monotonic() + _END_TIMEOUT_S
                while time.monotonic() < deadline and not isinstance(client.receive(_POLL_S), client_protocol.Ended):
                    continue
                ended += 1
        except ConnectionLost:
            continue
        finally:
            client.close()
    return ended
