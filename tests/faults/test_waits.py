"""Every wait for a server ends: by itself at a time limit, and within moments after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from swarmtui.client.plan_builder import parse_timeouts
from swarmtui.client.session_client import StopControl
from swarmtui.experiments.managed_server import Interrupted, ManagedServer, ServerFailed, free_port
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.model.plan import Timeouts
from swarmtui.model.redaction import Secrets
from tests.cli.programs import SIM, TIMEOUT_S, Sandbox, wait_until
from tests.loadgen.raw_server import DONE, ROLE, RawCall, RawServer, delta


def drip_header(call: RawCall) -> None:
    """Send a header that never ends, until the client closes the connection."""
    call.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        call.send(b"x")
        time.sleep(0.02)


def drip_continue(call: RawCall) -> None:
    while True:
        call.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)


class DrippingServer(RawServer):
    """Drips at requests of one path; `dripping` is set when it does. Other requests are answered, without usage."""

    def __init__(self, path: str, drip: Callable[[RawCall], None] = drip_header) -> None:
        super().__init__(self._respond)
        self._path, self._drip = path, drip
        self.dripping = threading.Event()

    def __enter__(self) -> DrippingServer:
        super().__enter__()
        return self

    def _respond(self, call: RawCall) -> None:
        path = call.request_line.split()[1]
        if path == self._path:
            self.dripping.set()
            self._drip(call)
        elif path == "/v1/models":
            call.reply("200 OK", json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}))
        elif path == "/v1/chat/completions":
            call.stream(ROLE, delta(content="one two "), delta(content="three four"), delta("stop"), DONE)
        else:
            call.reply("404 Not Found", "{}")


RUN = ("--levels", "1", "--requests", "3", "--warmup", "none", "--no-gpu")


@pytest.mark.parametrize("drip", [drip_header, drip_continue])
@pytest.mark.parametrize(
    ("path", "workload"),
    [("/v1/models", "coding"), ("/tokenize", "random-1k-1k"), ("/version", "coding")],
    ids=["model list", "calibration", "fingerprint"],
)
def test_ctrl_c_ends_a_run_that_waits_before_the_load(
    sandbox: Sandbox, path: str, workload: str, drip: Callable[[RawCall], None]
) -> None:
    with DrippingServer(path, drip) as server:
        command = sandbox.start_benchmark(server.url, *RUN, "--workload", workload)
        assert server.dripping.wait(60)
        command.signal_group(signal.SIGINT)
        ran = command.wait()
    assert "stopped before the first request" in ran.error_line(4)


def test_run_ends_by_itself_if_the_model_list_drips(sandbox: Sandbox) -> None:
    with DrippingServer("/v1/models") as server:
        ran = sandbox.run_benchmark(server.url, *RUN)
    assert f"{server.url}/v1/models: no answer within 10 s" in ran.error_line(3)


def test_ctrl_c_while_tokens_are_counted_saves_at_once(sandbox: Sandbox) -> None:
    """Answers whose tokens are not counted yet keep the number of their chunks."""
    counted: list[float] = []

    def count(call: RawCall) -> None:
        counted.append(time.monotonic())
        time.sleep(0.05)
        call.reply("200 OK", '{"count": 4}')

    with DrippingServer("/tokenize", count) as server:
        command = sandbox.start_benchmark(server.url, *RUN, "--requests", "400")
        assert server.dripping.wait(60)
        command.signal_group(signal.SIGINT)
        ran = command.wait()
    assert ran.code == 0, ran
    assert len(counted) < 400
    assert sandbox.show_session()["levels"][0]["ok"] == 400


def test_run_is_saved_although_counting_tokens_drips(sandbox: Sandbox) -> None:
    with DrippingServer("/tokenize") as server:
        ran = sandbox.run_benchmark(server.url, *RUN)
    assert ran.code == 0, ran
    assert sandbox.show_session()["levels"][0]["ok"] == 3


def test_help_names_the_limit_of_the_first_token(sandbox: Sandbox) -> None:
    text = " ".join(sandbox.run("run", "--help").out.split())
    assert f"first token must come within {Timeouts().first_token:g}s" in text
    assert parse_timeouts("300s", "30s").first_token == 300.0


def test_ctrl_c_ends_doctor(sandbox: Sandbox) -> None:
    with DrippingServer("/v1/models") as server:
        command = sandbox.start("doctor", "--endpoint", server.url)
        assert server.dripping.wait(60)
        command.signal_group(signal.SIGINT)
        ran = command.wait()
    assert ran.code == 4, ran


def launch(server: DrippingServer, ready_within_s: float) -> LaunchCommand:
    """A server that runs, and of which the ready URL drips."""
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    url = f"http://127.0.0.1:{free_port()}"
    return LaunchCommand(command=command, url=url, ready=f"{server.url}/health", ready_within_s=ready_within_s)


def test_dripping_ready_url_is_not_ready(tmp_path: Path) -> None:
    with (
        DrippingServer("/health") as server,
        ManagedServer(launch(server, 0.5), tmp_path / "log", Secrets(), StopControl()) as managed,
        pytest.raises(ServerFailed, match=r"not ready within 0\.5 s"),
    ):
        managed.start()


def test_stop_ends_the_wait_for_a_dripping_ready_url(tmp_path: Path) -> None:
    class StopWhileDripping(StopControl):
        @property
        def requested(self) -> bool:
            return server.dripping.is_set()

    with (
        DrippingServer("/health") as server,
        ManagedServer(launch(server, 3600.0), tmp_path / "log", Secrets(), StopWhileDripping()) as managed,
        pytest.raises(Interrupted),
    ):
        managed.start()


# a full pipe that nobody reads


class StuckProgram:
    """A command one of whose outputs is a full pipe."""

    def __init__(self, sandbox: Sandbox, output: int, *words: str) -> None:
        self._output = output
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        with suppress(BlockingIOError):
            while os.write(write_end, bytes(4096)):
                pass
        os.set_blocking(write_end, True)
        outputs = {1: subprocess.DEVNULL, 2: subprocess.DEVNULL, output: write_end}
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-m", "swarmtui", *words],
            stdin=subprocess.DEVNULL, stdout=outputs[1], stderr=outputs[2],
            env=sandbox.environment, cwd=sandbox.home,
        )  # fmt: skip
        os.close(write_end)

    def is_stuck(self) -> bool:
        """Return whether it is in the system call that writes to the pipe."""
        call = Path(f"/proc/{self.process.pid}/syscall").read_text().split()
        return call[0] in ("1", "64") and call[1] == hex(self._output)

    def stop(self, signals: int) -> int:
        wait_until(self.is_stuck, "it is stuck")
        for _ in range(signals):
            time.sleep(0.05)  # two signals at the same moment count as one
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            os.close(self._read_end)


def test_ctrl_c_ends_a_command_whose_output_nobody_reads(sandbox: Sandbox) -> None:
    assert StuckProgram(sandbox, 1, "schema", "journal").stop(1) == 4
    short = ("--levels", "1", "--requests", "2", "--warmup", "none", "--no-gpu", "--max-tokens", "4")
    run = ("run", "--endpoint", SIM, "--session-dir", str(sandbox.sessions))
    assert StuckProgram(sandbox, 1, *run, *short, "--json").stop(1) == 4
    assert (sandbox.session / "detail.json").exists()
    assert StuckProgram(sandbox, 2, *run, "--requests", "100000").stop(2) == 4
    wait_until(lambda: not sandbox.processes(), "all processes have ended")
