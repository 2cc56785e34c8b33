"""Run a tune in a process of its own, which outlives the UI that started it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from swarmtui.client.session_client import StopControl
from swarmtui.experiments.managed_server import server_environment
from swarmtui.experiments.store import read_tune
from swarmtui.experiments.tune import TuneRunner
from swarmtui.files import make_private_directory
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.run_request import RunRequest
from swarmtui.model.tuning import TuneFile
from swarmtui.processes.spawn import module_command
from swarmtui.text import echo

_START_TIMEOUT_S = 20.0
_POLL_S = 0.05


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
    try:
        make_private_directory(directory)
        with log.open("wb") as out:
            log.chmod(0o600)
            process = subprocess.Popen(
                module_command("swarmtui.experiments.tune_process"),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=server_environment(job.request.secrets, job.tune.pass_env),
            )
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
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
        runner = TuneRunner(job.tune, job.request, Path(job.directory), report)
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
