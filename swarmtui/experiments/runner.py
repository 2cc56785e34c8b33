"""Run an experiment: start a server, measure it and stop it, again and again; each result is stored at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Protocol

import msgspec

from swarmtui.analysis.capacity.words import known_agents
from swarmtui.client.session_client import ConnectionLost, StopControl, attach, running_sessions, start_session
from swarmtui.experiments.live_knobs import LiveSettings
from swarmtui.experiments.managed_server import Interrupted, ManagedServer, ServerFailed
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.experiments.store import Kind, exclusive_lock, process_start_time, read_experiment, write_experiment
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput, SettingFailed, copy_fields
from swarmtui.model.findings import Finding
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Level, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.telemetry import Energy
from swarmtui.model.tuning import (
    POWER,
    Definition,
    Experiment,
    ExperimentStatus,
    Flags,
    LevelResult,
    LiveKnob,
    Start,
    configuration_text,
    format_flags,
)
from swarmtui.numbers import rate, significant
from swarmtui.sessions.documents import read_saved_summary

_POLL_S = 0.1
_END_TIMEOUT_S = 10.0
_STOPPED = Finding(code="stopped", text="stopped")
_NOTHING = Finding(code="nothing", text="nothing was measured")


Observer = Callable[[client_protocol.SessionMessage | Summary | Start], None]


class FrameDisplay(Protocol):
    def show(self, frame: client_protocol.Frame) -> None: ...
    def clear(self) -> None: ...


class Trial(NamedTuple):
    """The next measurement: `start` says of which configuration; without `launch` its server is already running.

    Trials with the same `server` that follow each other share one start of it; an empty one is not shared. While it
    runs, `knobs` are set to the values in the flags. `prefill` is a second run, with answers of one token.
    """

    start: Start
    title: str
    log: str
    request: RunRequest
    launch: LaunchCommand | None
    time_limit: str = ""
    server: str = ""
    knobs: tuple[LiveKnob, ...] = ()
    prefill: RunRequest | None = None


class RunningServer(NamedTuple):
    """A server that has been started; leaving `stack` restores its settings and stops it."""

    name: str
    launch: LaunchCommand
    process: ManagedServer
    settings: LiveSettings | None
    start_s: float
    stack: ExitStack


class Runner(Generic[Definition]):
    """Run one experiment, or continue it if its directory has results.

    A subclass decides from the results so far what is measured next. `observe` is told each message and the summary of
    the sessions, and each result. The sessions have a series of this `kind`, with the name of the directory.
    """

    kind: Kind
    _running: RunningServer | None = None
    # Whether it ends as if a stop had been requested; what is left can be continued.
    _halted = False

    def __init__(
        self,
        definition: Definition,
        request: RunRequest,
        directory: Path,
        report: Callable[[str], None],
        display: FrameDisplay | None = None,
        observe: Observer | None = None,
    ) -> None:
        self.request, self.report, self._directory, self._display = request, report, directory, display
        self._observe = observe
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

    def request_for(
        self, launch: LaunchCommand, flags: Flags, knobs: Sequence[LiveKnob], plan: Plan, label: str
    ) -> RunRequest:
        """Return the request that measures a server with these flags, of which `knobs` are set while it runs."""
        port = launch.url.rpartition(":")[2].partition("/")[0]
        return msgspec.structs.replace(
            self.request,
            endpoints=(launch.url,),
            plan=plan,
            label=self.request.label or label,
            tags=self.request.tags | {knob.key: str(flags[knob.key]) for knob in knobs},
            gpu_metrics_urls=tuple(address.replace("{port}", port) for address in self.request.gpu_metrics_urls),
        )

    def retry_failed(self) -> None:
        """Drop the results of failed configurations, so that they are measured again."""
        kept = tuple(start for start in self.experiment.starts if start.state == "done")
        self.experiment = msgspec.structs.replace(self.experiment, starts=kept)

    def headline_level(self, summary: Summary) -> Level | None:
        """Return the level whose figures are those of a start: the highest."""
        return max(summary.levels, key=lambda level: level.c, default=None)

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
                    begun = time.monotonic()
                    start, summary = self._measure(trial, stop)
                    if not stop.requested:
                        self.finished(msgspec.structs.replace(start, took_s=time.monotonic() - begun), summary)
                ended = "stopped" if stop.requested or self._halted else "failed" if self.experiment.problem else "done"
            finally:
                self.stop_server()
                self._show(flags=None, ended=ended)

    def add(self, start: Start, problem: str = "") -> None:
        """Store a result; it is on disk when this returns. `problem` says why the experiment cannot continue."""
        self._save(starts=(*self.experiment.starts, start), problem=problem)
        if self._observe is not None:
            self._observe(start)

    def _save(self, **fields: object) -> None:
        self.experiment = msgspec.structs.replace(self.experiment, **fields)
        write_experiment(self._directory, self.kind, self.experiment)

    def _show(self, **fields: object) -> None:
        """Change the status, from which UIs read what is running."""
        status = msgspec.structs.replace(self.experiment.status, **fields)
        if status != self.experiment.status:
            self._save(status=msgspec.structs.replace(status, since=time.time()))

    def stop_server(self) -> None:
        """Restore the settings of the server that is running, if any, and stop it."""
        running, self._running = self._running, None
        if running is not None:
            with running.stack:
                self._show(phase="stopping")

    def launch_of(self, server: str) -> LaunchCommand | None:
        """Return how the server of this name was started, if it is still running; stop any other."""
        running = self._running
        if running is not None and running.name == server and running.process.failure() is None:
            return running.launch
        self.stop_server()
        return None

    def _measure(self, trial: Trial, stop: StopControl) -> tuple[Start, Summary | None]:
        start, summary = self._measure_running(trial, stop)
        if not trial.server or start.state == "broken":
            self.stop_server()
        return start, summary

    def _measure_running(self, trial: Trial, stop: StopControl) -> tuple[Start, Summary | None]:
        log = self._directory / trial.log
        self._show(flags=trial.start.flags, round=trial.start.round, phase="starting", session="", log=str(log))
        deadline = time.monotonic() + (parse_seconds(trial.time_limit, "time limit") if trial.time_limit else inf)
        if trial.launch is not None and self._running is None:
            try:
                self._start_server(trial, trial.launch, log, stop)
            except ServerFailed as error:
                return _failed(trial.start, error.why, self._log_tail()), None
            except Interrupted:
                return _failed(trial.start, _STOPPED, self._log_tail()), None
        running = self._running
        if running is not None and running.settings is not None:
            try:
                running.settings.apply(trial.start.flags)
            except SettingFailed as error:
                return _failed(trial.start, Finding(code="setting", text=str(error)), error.output), None

        def failure() -> Finding | None:
            if time.monotonic() > deadline:
                return Finding(code="time_limit", text=f"not finished within {trial.time_limit} (cell_within)")
            return running.process.failure() if running else None

        self._show(phase="warming up")
        series = Series(kind=self.kind, name=self._directory.name, side=trial.start.side or "")

        def measure(request: RunRequest) -> tuple[Summary | None, Finding | None]:
            request = msgspec.structs.replace(request, series=series)
            summary, problem = _measure_session(request, stop, failure, self._on_message)
            if running is not None and not stop.requested:
                # The requests fail before the exit of the server is reported.
                problem = running.process.failure_if_gone() or problem
            if summary is not None and self._observe is not None:
                self._observe(summary)
            return summary, problem

        try:
            summary, problem = measure(trial.request)
            start_s = running.start_s if running else None
            level = self.headline_level(summary) if summary else None
            start = _result(trial.start, summary, level, problem, start_s, self._log_tail())
            if trial.prefill is not None and start.state == "done" and not stop.requested:
                start = add_prefill(start, summary, measure(trial.prefill)[0])
        finally:
            if self._display is not None:
                self._display.clear()
        return start, summary

    def _start_server(self, trial: Trial, launch: LaunchCommand, log: Path, stop: StopControl) -> None:
        stack, secrets = ExitStack(), self.request.secrets
        settings = LiveSettings(trial.knobs, launch, secrets) if trial.knobs else None
        process = ManagedServer(launch, log, secrets, stop, settings)
        if settings is not None:
            stack.callback(settings.close)
        stack.enter_context(process)
        if settings is not None:
            stack.callback(self._restore, settings)
        # Known from now on, so that it is stopped also if it does not become ready.
        self._running = RunningServer(trial.server, launch, process, settings, 0.0, stack)
        self._running = self._running._replace(start_s=process.start())

    def _restore(self, settings: LiveSettings) -> None:
        for line in settings.restore():
            self.report(line)

    def _log_tail(self) -> tuple[str, ...]:
        return self._running.process.log_tail() if self._running else ()

    def _on_message(self, message: client_protocol.SessionMessage) -> None:
        if self._observe is not None:
            self._observe(message)
        match message:
            case client_protocol.Hello(session=session):
                self._show(session=session.id)
            case client_protocol.Frame(status=status):
                if status not in ("starting", "warming up"):
                    self._show(phase="running")
                if self._display is not None:
                    self._display.show(message)


def _failed(start: Start, why: Finding, log: tuple[str, ...], session: str = "") -> Start:
    return msgspec.structs.replace(
        start, state="broken", reason=why.text, reason_code=why.code, log=log, session=session
    )


def _result(
    start: Start,
    summary: Summary | None,
    level: Level | None,
    problem: Finding | None,
    start_s: float | None,
    log: tuple[str, ...],
) -> Start:
    session = summary.session.id if summary else ""
    if problem or level is None or level.headline_tps is None:
        return _failed(start, problem or _NOTHING, log, session)
    energy = level.energy or Energy(seconds=0.0)
    return msgspec.structs.replace(
        start,
        **msgspec.structs.asdict(_level_result(level)),
        session=session,
        per_stream_tps=level.per_stream_tps.mean,
        runs=level.headline_by_run,
        levels=tuple(map(_level_result, summary.levels)) if summary else (),
        peak_memory=energy.peak_memory,
        simulated=energy.simulated,
        errors=level.errors,
        start_s=start_s,
    )


def _level_result(level: Level) -> LevelResult:
    energy, ttft_s = level.energy or Energy(seconds=0.0), level.ttft_s.median
    return copy_fields(LevelResult, energy, c=level.c, out_tps=level.headline_tps, ttft_s=ttft_s)


def add_prefill(start: Start, summary: Summary | None, prefill: Summary | None) -> Start:
    """Tell the energy of prompts and of answers apart, by a run with answers of one token.

    Null where a server does not count the tokens of prompts, or where prompts explain more than all the energy.
    """
    if summary is None or prefill is None or not prefill.levels or start.j_per_token is None:
        return start
    alone, share = prefill.levels[-1], next((_computed_prompt(one) for one in summary.levels if one.c == start.c), None)
    prompt = _computed_prompt(alone)
    if not prompt or share is None or alone.energy is None or alone.energy.j_per_token is None:
        return start
    per_prompt_token = alone.energy.j_per_token / prompt
    rest = start.j_per_token - share * per_prompt_token
    return msgspec.structs.replace(
        start, prefill_j_per_token=per_prompt_token, decode_j_per_token=rest if rest > 0 else None
    )


def _computed_prompt(level: Level) -> float | None:
    """Prompt tokens that were not cached, per output token."""
    if not level.tokens_in or not level.tokens_out:
        return None
    return (level.tokens_in - (level.cached_tokens or 0)) / level.tokens_out


def _measure_session(
    request: RunRequest,
    stop: StopControl,
    failure: Callable[[], Finding | None],
    on_message: Callable[[client_protocol.SessionMessage], None],
) -> tuple[Summary | None, Finding | None]:
    """Run one session; return its summary, and why its plan was not completed.

    `failure` is called ten times per second; a reason that it returns, or a stop request, ends the run at once.
    """
    client = start_session(request, client_protocol.Subscribe(hz=4.0))
    stop.attach(client)
    why: Finding | None = None
    message: client_protocol.SessionMessage | None = None
    try:
        while not isinstance(message, client_protocol.Ended):
            message = client.receive(_POLL_S)
            if message is not None:
                on_message(message)
            if stop.requested:
                why = _STOPPED
                stop.kill_if_overdue()
            elif why is None and (why := failure()) is not None:
                client.send(client_protocol.Stop(grace_s=0.0))
    except ConnectionLost:
        return None, Finding(code="process_gone", text=f"the session process {client.exit_description()}")
    finally:
        client.close()
    if why is None and message.ending != "done":
        why = Finding(code=message.ending, text=message.message or message.ending)
    return read_saved_summary(message.directory), why


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


def result_line(row: Start) -> str:
    """`--parallel 4: 123.4 tok/s at C=4, TTFT 0.210 s, ready after 1.2 s`; an automatic tune says the agents first."""
    auto = row.step is not None
    text = configuration_text(row.flags) if auto else format_flags(row.flags)
    if row.state == "broken":
        return f"{text}: failed: {row.reason}"
    parts = []
    if row.agents is not None:
        parts.append(known_agents(row.agents, row.agents_low, row.agents_high, unit=True))
    parts.append(f"{rate(row.out_tps)} tok/s at C={row.c}")
    if row.ttft_s is not None or not auto:
        parts.append(f"TTFT {significant(row.ttft_s, 3)} s")
    if (auto or POWER in row.flags) and row.j_per_token is not None:
        parts.append(f"{significant(row.j_per_token, 3)} J/token")
    if row.start_s is not None and not auto:
        parts.append(f"ready after {significant(row.start_s, 2)} s")
    if row.errors and not auto:
        parts.append(f"{row.errors} errors")
    return f"{text}: {', '.join(parts)}"
