"""Run a tune: start a server with each configuration, measure it and stop it; then restart the best, to rank them.

After an interruption it continues with the starts that are left.

As a program, run it in a process that outlives the UI that started it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from swarmtui.analysis.compare.differences import option_name
from swarmtui.client.catalogue import is_listening
from swarmtui.client.session_client import StopControl
from swarmtui.experiments.auto import AutoRunner
from swarmtui.experiments.grid import (
    TuneRound,
    configurations_in_round,
    has_one_server,
    launch_command,
    pending_configurations,
    round_title,
    scale_load,
    server_flags,
    short_digest,
    starts_in_file_order,
)
from swarmtui.experiments.managed_server import free_port, server_environment
from swarmtui.experiments.runner import Runner, Trial, result_line
from swarmtui.experiments.store import read_tune
from swarmtui.files import make_private_directory
from swarmtui.model.base import BadInput, Stored, writing
from swarmtui.model.load import Closed
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.model.tuning import Flags, Start, TuneFile, configuration_key, format_flags
from swarmtui.processes.spawn import module_command
from swarmtui.text import echo

_START_TIMEOUT_S = 20.0
_POLL_S = 0.05
# The energy counter is read twice per second.
_PREFILL = "5s"


class TuneRunner(Runner[TuneFile]):
    """Run one tune; the endpoint, label and server flags of `request` are replaced for each configuration."""

    kind = "tune"

    def remaining(self) -> int:
        """Return how many configurations of the current round are still to be measured."""
        return len(pending_configurations(self.experiment.definition, self.experiment.starts)[1])

    def next_trial(self) -> Trial | None:
        tune, starts = self.experiment.definition, self.experiment.starts
        round_, left = pending_configurations(tune, starts)
        if not left:
            return None
        flags = left[0]
        server = _server_name(tune, flags, round_)
        launch = self.launch_of(server)
        if launch is None:
            launch = launch_command(tune, flags, free_port())
            if is_listening(launch.url):
                # Every further configuration would meet it, or share the machine with it.
                raise BadInput(
                    f"another server is already listening on {launch.url}; it was left alone; "
                    "stop it, then run the same command again to continue"
                )
        own = {option_name(name): value for name, value in server_flags(tune, flags).items()}
        plan = msgspec.structs.replace(self.request.plan, load=scale_load(self.request.plan.load, round_.share))
        request = msgspec.structs.replace(
            self.request_for(launch, flags, tune.knob, plan, format_flags(flags)),
            server_flags=format_flags(own) if own else "",
            # A server that is shared has the prompts of earlier runs in its prefix cache.
            salt=f"{round_.number} {configuration_key(flags)}" if server else self.request.salt,
        )
        count = len(configurations_in_round(tune, starts, round_.number))
        number = sum(start.round == round_.number for start in starts_in_file_order(tune, starts)) + 1
        prefix = f"{title}, " if (title := round_title(tune, round_.number)) else ""
        return Trial(
            start=Start(flags=flags, round=round_.number),
            title=f"{prefix}configuration {number}/{count}: {format_flags(flags)}",
            log=f"{round_.number if not server else 'shared'}-{short_digest(server or configuration_key(flags))}.log",
            request=request,
            launch=launch,
            time_limit=tune.cell_within,
            server=server,
            knobs=tune.knob,
            prefill=prefill_request(request) if any(k.kind == "power" and k.prefill for k in tune.knob) else None,
        )

    def finished(self, start: Start, summary: Summary | None) -> None:
        self.add(start)
        self.report(result_line(start))


def _server_name(tune: TuneFile, flags: Flags, round_: TuneRound) -> str:
    """Name the start that a configuration shares with others, which differ only in what is changed while it runs."""
    if not tune.knob:
        return ""
    name = configuration_key(server_flags(tune, flags))
    return name if has_one_server(tune) else f"{round_.number} {name}"


def prefill_request(request: RunRequest) -> RunRequest | None:
    """The same requests with answers of one token at the highest level: what is left is the work on prompts."""
    load = request.plan.load
    if not isinstance(load, Closed):
        return None
    alone = Closed(levels=(max(load.levels),), duration=_PREFILL, warmup=0)
    return msgspec.structs.replace(
        request,
        plan=msgspec.structs.replace(request.plan, load=alone, max_tokens=1),
        label=f"{request.label}, prefill",
        salt=f"{request.salt}prefill",
    )


class TuneJob(Stored, frozen=True, kw_only=True):
    """Sent over a pipe, not as arguments or a file: the request may hold an API key."""

    tune: TuneFile
    request: RunRequest
    directory: str
    retry_failed: bool = False


def start_tune_process(job: TuneJob) -> None:
    """Start the process, detached from this terminal, and wait until it has written its first status."""
    directory = Path(job.directory)
    log = directory / "tune.log"
    with writing(directory):
        make_private_directory(directory)
        with log.open("wb") as out:
            log.chmod(0o600)
            process = subprocess.Popen(
                module_command("swarmtui.experiments.tune"),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=server_environment(job.request.secrets, job.tune.pass_env),
            )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(msgspec.msgpack.encode(job))
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if (found := read_tune(directory)) is not None and found.status.pid == process.pid:
            return
        time.sleep(_POLL_S)
    if process.poll() != 0:
        raise BadInput(f"the tune did not start; log: {log}")


def main() -> int:
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=TuneJob)

    def report(text: str) -> None:
        echo(text, err=True)

    try:
        kind = TuneRunner if job.tune.auto is None else AutoRunner
        runner = kind(job.tune, job.request, Path(job.directory), report)
        if job.retry_failed:
            runner.retry_failed()
        stop = StopControl()
        with stop.on_signals():
            runner.run(stop)
    except BadInput as error:
        report(f"swarmtui: {error}")
        return 2
    return 4 if stop.requested else 0


if __name__ == "__main__":
    sys.exit(main())
