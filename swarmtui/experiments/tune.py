"""Run a tune: start a server with each configuration, measure it and stop it; finished ones are not repeated."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from swarmtui.analysis.compare.differences import option_name
from swarmtui.experiments.grid import (
    HalvingRound,
    all_configurations,
    configuration_key,
    halving_rounds,
    launch_command,
    scale_requests,
    shuffled,
    survivors,
)
from swarmtui.experiments.managed_server import (
    Interrupted,
    ManagedServer,
    PortInUse,
    ServerFailed,
    free_port,
    log_redactor,
    server_environment,
)
from swarmtui.experiments.measure import FrameDisplay, Measurement, StopRequest, measure, stop_orphaned_runs
from swarmtui.experiments.tune_status import process_start_time, remaining_configurations, rows_in_file_order
from swarmtui.experiments.tune_store import add_row, exclusive_lock, read_state, write_status, write_tune
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.plan import parse_seconds
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session_tags import Series
from swarmtui.model.tuning import Flags, TuneFile, TuneResult, TuneStatus, format_flags
from swarmtui.numbers import significant


class TuneRunner:
    """Run one tune; the endpoint, label, tags and server flags of `request` are replaced for each configuration."""

    def __init__(
        self,
        tune: TuneFile,
        request: RunRequest,
        directory: Path,
        display: FrameDisplay,
        report: Callable[[str], None],
    ) -> None:
        self._tune, self._request, self._directory = tune, request, directory
        self._display, self._report = display, report
        self._series = Series(kind="tune", name=directory.name)
        self._ready_within_s = parse_seconds(tune.ready_within, "ready_within")
        self._stop_within_s = parse_seconds(tune.stop_within, "stop_within")
        self._time_limit_s = parse_seconds(tune.cell_within, "cell_within")
        self.state = read_state(directory, tune.name)
        self._status = TuneStatus(pid=os.getpid(), born=process_start_time(os.getpid()), begun=time.time())

    def retry_failed(self) -> None:
        """Drop the rows of failed configurations, so that they are measured again."""
        kept = tuple(row for row in self.state.rows if row.state == "done")
        self.state = msgspec.structs.replace(self.state, rows=kept)

    def run(self, stop: StopRequest) -> None:
        """Run until all rounds are done, or until a stop is requested."""
        with exclusive_lock(self._directory):
            write_tune(self._directory, self._tune)
            self._publish(flags=None)
            ended = "failed"
            try:
                self._run_rounds(stop)
                ended = "stopped" if stop() else "done"
            finally:
                self._publish(flags=None, ended=ended)

    def _publish(self, **fields: object) -> None:
        """Write the status file, from which UIs read what is running."""
        status = msgspec.structs.replace(self._status, **fields)
        if status != self._status or not status.since:
            self._status = msgspec.structs.replace(status, since=time.time())
            write_status(self._directory, self._status)

    def _run_rounds(self, stop: StopRequest) -> None:
        if stop_orphaned_runs(self._series):
            self._report("stopped a run that an interrupted tune had left running")
        flag_sets: Sequence[Flags] = all_configurations(self._tune)
        for round_ in halving_rounds(self._tune):
            if round_.number:
                flag_sets = survivors(self._rows(round_.number - 1), round_.configurations, self._tune.objective)
            for flags in shuffled(flag_sets, self._tune.seed, round_.number):
                if not self._is_done(flags, round_) and not self._run_configuration(flags, round_, stop):
                    return

    def remaining(self) -> int:
        """How many configurations of the current round are still to be measured."""
        return remaining_configurations(self._tune, self.rows)

    @property
    def rows(self) -> list[TuneResult]:
        return rows_in_file_order(self._tune, self.state.rows)

    def _rows(self, number: int) -> list[TuneResult]:
        return [row for row in self.rows if row.round == number]

    def _is_done(self, flags: Flags, round_: HalvingRound) -> bool:
        return any(configuration_key(row.flags) == configuration_key(flags) for row in self._rows(round_.number))

    def _run_configuration(self, flags: Flags, round_: HalvingRound, stop: StopRequest) -> bool:
        """Measure one configuration and store its row; False if it was interrupted, and nothing was stored."""
        position = f"{len(self._rows(round_.number)) + 1}/{round_.configurations}"
        prefix = f"round {round_.number + 1}, " if self._tune.halving else ""
        self._report(f"{prefix}configuration {position}: {format_flags(flags)}")
        row = self._measure(flags, round_, stop)
        if stop():
            return False
        self.state = add_row(self._directory, self.state, row)
        self._report(result_line(row))
        return True

    def _measure(self, flags: Flags, round_: HalvingRound, stop: StopRequest) -> TuneResult:
        launch = launch_command(self._tune, flags, free_port())
        name = hashlib.sha256(configuration_key(flags).encode()).hexdigest()[:8]
        log = self._directory / f"{round_.number}-{name}.log"
        self._publish(flags=flags, round=round_.number, phase="starting", session="", log=str(log))
        deadline = time.monotonic() + self._time_limit_s
        with ManagedServer(
            launch,
            log,
            server_environment(self._request.secrets, self._tune.pass_env),
            directory=self._tune.directory,
            stop_within_s=self._stop_within_s,
            immediate=stop.immediate,
            redactor=log_redactor(self._request.secrets, self._tune.pass_env),
        ) as server:
            try:
                server.start()
                start_s = server.wait_until_ready(self._ready_within_s, stop)
            except PortInUse as error:
                # Every further configuration would meet it, or share the machine with it.
                raise BadInput(f"{error}; stop it, then run the same command again to continue") from None
            except (ServerFailed, Interrupted) as error:
                return _failed_row(flags, round_, str(error), server.log_tail())

            def abort_reason() -> str | None:
                if stop():
                    return "stopped"
                if time.monotonic() > deadline:
                    return f"not finished within {self._tune.cell_within} (cell_within)"
                return server.failure()

            self._publish(phase="warming up")
            found = measure(
                self._request_for(flags, round_, launch.url), self._display, stop, abort_reason, self._on_message
            )
            self._publish(phase="stopping")
            return _done_row(flags, round_, found, start_s, server.log_tail())

    def _on_message(self, message: client_protocol.SessionMessage) -> None:
        match message:
            case client_protocol.Hello(session=session):
                self._publish(session=session.id)
            case client_protocol.Frame(status=status) if status not in ("starting", "warming up"):
                self._publish(phase="running")

    def _request_for(self, flags: Flags, round_: HalvingRound, url: str) -> RunRequest:
        plan = self._request.plan
        plan = msgspec.structs.replace(
            plan,
            requests=scale_requests(plan.requests, round_.share),
            duration_s=None if plan.duration_s is None else plan.duration_s * round_.share,
        )
        port = url.rpartition(":")[2].partition("/")[0]
        return msgspec.structs.replace(
            self._request,
            endpoints=(url,),
            plan=plan,
            label=self._request.label or format_flags(flags),
            series=self._series,
            server_flags=format_flags({option_name(name): value for name, value in flags.items()}),
            gpu_metrics_urls=tuple(address.replace("{port}", port) for address in self._request.gpu_metrics_urls),
        )


def result_line(row: TuneResult) -> str:
    """`--parallel 4: 123.4 tok/s at C=4, TTFT 0.210 s, ready after 1.2 s`"""
    if row.state == "broken":
        return f"{format_flags(row.flags)}: failed: {row.reason}"
    parts = [f"{significant(row.out_tps)} tok/s at C={row.c}", f"TTFT {significant(row.ttft_s, 3)} s"]
    if row.start_s is not None:
        parts.append(f"ready after {significant(row.start_s, 2)} s")
    if row.errors:
        parts.append(f"{row.errors} errors")
    return f"{format_flags(row.flags)}: {', '.join(parts)}"


def _failed_row(flags: Flags, round_: HalvingRound, reason: str, log: tuple[str, ...], session: str = "") -> TuneResult:
    return TuneResult(flags=flags, round=round_.number, state="broken", reason=reason, log=log, session=session)


def _done_row(
    flags: Flags, round_: HalvingRound, found: Measurement, start_s: float, log: tuple[str, ...]
) -> TuneResult:
    summary = found.summary
    session = summary.session.id if summary else ""
    level = max(summary.levels, key=lambda level: level.c, default=None) if summary else None
    if found.problem or level is None or level.headline_tps is None:
        return _failed_row(flags, round_, found.problem or "nothing was measured", log, session)
    energy = level.energy
    return TuneResult(
        flags=flags,
        round=round_.number,
        state="done",
        session=session,
        c=level.c,
        out_tps=level.headline_tps,
        runs=level.headline_by_run,
        ttft_s=level.ttft_s.median,
        j_per_token=energy.j_per_token if energy else None,
        mean_w=energy.mean_w if energy else None,
        peak_memory=energy.peak_memory if energy else None,
        simulated=energy.simulated if energy else False,
        errors=level.errors,
        start_s=start_s,
    )
