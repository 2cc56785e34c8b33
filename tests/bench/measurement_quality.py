"""Count how often healthy sweeps are graded ok, and how often each fault of the measurement is noticed.

python -m tests.bench.measurement_quality [REPEATS [SCENARIO …]]
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.real.proxy import Proxy

SPEC = "moe-tp1?output.median=60"
SCENARIOS = (
    "healthy", "healthy_agent", "healthy_trace", "freeze", "freeze_alone", "restart", "other_client", "proxy",
    "halved_usage", "slow_client", "busy_host", "clock_step",
)  # fmt: skip
HEALTHY = ("healthy", "healthy_agent", "healthy_trace")
# A run that is doubtful only for these is not judged: it would have to be repeated on a quiet machine.
BUSY = ("host_pressure", "host_steal")
SWEEP = ("--workload", "chat", "--levels", "1,2,4", "--requests", "4C", "--warmup", "2")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_simulator(port: int, spec: str = SPEC) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "swarmtui.sim", spec, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline(), "the simulator did not start"
    return process


def start_run(url: str, *options: str, python: str = sys.executable) -> subprocess.Popen[str]:
    command = [python, "-m", "swarmtui", "run", "--endpoint", url, *(options or SWEEP), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def doubtful(run: subprocess.Popen[str]) -> tuple[list[str], list[str]]:
    """Return the doubtful lines of a run, and the flags of its levels."""
    found: dict[str, Any] = json.loads(run.communicate(timeout=180)[0])
    lines = [f"{line['code']} ({line['value']})" for line in found["quality"] if line["state"] not in ("ok", "note")]
    return lines, [f"C={level['c']} {flag['code']}" for level in found["levels"] for flag in level["flags"]]


def post(port: int, tokens: int) -> bytes:
    """Send a request as another client would, and read the answer."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(head.encode() + body)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


@contextmanager
def in_background(work: Callable[[], object], pause_s: float = 0.0) -> Iterator[None]:
    """Repeat work in a thread until the end of the block."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            with suppress(OSError):
                work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


class FlushingProxy:
    """A TCP proxy that passes answers on every 200 ms only."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._forward, args=(client, server, 0.0), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, 0.2), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, pause_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                target.sendall(data)
                time.sleep(pause_s)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def workers(run: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the worker processes below a run."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(stat.name)] = int((stat / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(stat.name)] = (stat / "cmdline").read_text()

    def below(pid: int) -> bool:
        while pid in parents and pid != run.pid:
            pid = parents[pid]
        return pid == run.pid

    return [pid for pid in names if "swarmtui.loadgen.worker" in names[pid] and below(pid)]


# Shifts the wall clock and the kernel's stamps as soon as a file exists.
_STEPPED_CLOCK = """
import os, time
from swarmtui.loadgen import clock

def shift_s():
    return 3 if os.path.exists({path!r}) else 0

true_ns, unpack = time.time_ns, clock.unpack_timespec
time.time_ns = lambda: true_ns() + 1_000_000_000 * shift_s()

def unpack_timespec(data):
    seconds, nanoseconds = unpack(data)
    return seconds + shift_s(), nanoseconds

clock.unpack_timespec = unpack_timespec
"""


def python_with_stepped_clock(folder: Path, stepped: Path) -> str:
    """Make a Python in which all processes see the clock set by 3 s when the file `stepped` appears."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "stepped_clock.py").write_text(_STEPPED_CLOCK.format(path=str(stepped)))
    paths = [path for path in (str(Path.cwd()), *sys.path) if Path(path).is_dir()]
    (packages / "stepped_clock.pth").write_text("\n".join([*paths, "import stepped_clock"]))
    return str(folder / "bin/python")


def is_at_level(port: int, running: int) -> bool:
    """Whether the simulator has this many requests at once."""
    with suppress(OSError):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            page = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
        counts = [line.rsplit(" ", 1)[1] for line in page.splitlines() if line.startswith("vllm:num_requests_running{")]
        return sum(map(float, counts)) >= running
    return False


def wait_for_level(run: subprocess.Popen[str], port: int, running: int) -> None:
    while run.poll() is None and not is_at_level(port, running):
        time.sleep(0.05)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy twice."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def scenario(name: str) -> tuple[list[str], list[str]]:
    port = free_port()
    # Real servers keep the prompts of agents in a prefix cache.
    server = start_simulator(port, f"{SPEC}&prefix_cache=true" if name in ("healthy_agent", "healthy_trace") else SPEC)
    url = f"http://127.0.0.1:{port}"
    try:
        match name:
            case "healthy_agent":
                return doubtful(start_run(url, "--workload", "coding-agent", "--levels", "1,4", "--max-tokens", "60"))
            case "healthy_trace":
                trace = ("--workload", "agents", "--levels", "2", "--duration", "10s", "--max-gap", "300ms")
                return doubtful(start_run(url, *trace))
            case "freeze" | "freeze_alone":
                run = start_run(url, *SWEEP, *(("--levels", "1", "--requests", "20") if name == "freeze_alone" else ()))
                wait_for_level(run, port, 1 if name == "freeze_alone" else 4)
                time.sleep(2.0)
                server.send_signal(signal.SIGSTOP)
                time.sleep(3.0)
                server.send_signal(signal.SIGCONT)
                return doubtful(run)
            case "halved_usage":
                with Proxy(url, "halve") as proxy:
                    return doubtful(start_run(proxy.url))
            case "busy_host":
                with busy_cores():
                    return doubtful(start_run(url))
            case "restart":
                run = start_run(url)
                wait_for_level(run, port, 4)
                server.kill()
                server.wait()
                server = start_simulator(port)
                return doubtful(run)
            case "other_client":
                with in_background(lambda: post(port, 60)):
                    return doubtful(start_run(url, *SWEEP, "--levels", "4"))
            case "proxy":
                return doubtful(start_run(f"http://127.0.0.1:{FlushingProxy(port).port}"))
            case "slow_client":
                run = start_run(url)
                wait_for_level(run, port, 1)
                stopped = workers(run)

                def hold() -> None:
                    for number, pause_s in ((signal.SIGSTOP, 0.075), (signal.SIGCONT, 0.025)):
                        for pid in stopped:
                            with suppress(ProcessLookupError):
                                os.kill(pid, number)
                        time.sleep(pause_s)

                with in_background(hold):
                    return doubtful(run)
            case "clock_step":
                with tempfile.TemporaryDirectory() as folder:
                    stepped = Path(folder) / "stepped"
                    run = start_run(url, *SWEEP, python=python_with_stepped_clock(Path(folder) / "venv", stepped))
                    wait_for_level(run, port, 4)
                    stepped.touch()
                    return doubtful(run)
            case _:
                return doubtful(start_run(url))
    finally:
        server.kill()
        server.wait()


def main(repeats: int, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"XDG_STATE_HOME": state, "XDG_DATA_HOME": state}
        for name in names or SCENARIOS:
            noticed = busy = 0
            for _ in range(repeats):
                lines, flags = scenario(name)
                judged = [line for line in lines if not line.startswith(BUSY) or name == "busy_host"]
                noticed, busy = noticed + bool(judged), busy + (bool(lines) and not judged)
                print(f"{name:14} {'; '.join(lines) or 'ok'}   {'; '.join(flags)}", flush=True)
            expected = "none expected" if name in HEALTHY else "all expected"
            print(f"{name:14} doubtful in {noticed} of {repeats} ({expected}), only a busy host in {busy}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:])
