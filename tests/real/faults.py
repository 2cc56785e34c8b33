"""The faults: how each is caused, and by which codes a run names it; and the healthy runs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from swarmtui.model.client_protocol import Frame
from tests.real.proxy import Change, Proxy
from tests.real.rounds import Round, open_run
from tests.real.servers import CONTEXT, SLOTS, Server

_FREEZE_S = 3.0
_DURATION = "8s"
# How long the first prompt of a batch should take: frames show a moment ago.
_PREFILL_S = 0.12

# A host that is busy, or a virtual machine whose host is; then these lines, about delays of the client, are no wonder.
HOST = frozenset({"host_pressure", "host_steal"})
_DELAYS = {
    *HOST,
    "in_flight",
    "turnaround",
    "send_delay",
    "client_lag",
    "first_reads",
    "coalesced_chunks",
    "decode_rate",
}


def only_the_host(doubtful: Collection[str]) -> bool:
    """Whether a busy host explains all doubtful lines of a run."""
    return bool(HOST.intersection(doubtful)) and _DELAYS.issuperset(doubtful)


class NotCaused(Exception):
    """The moment for the fault did not come."""


class Case(NamedTuple):
    """A fault or, without codes, a healthy run. `run` takes the server, a directory and a seed."""

    name: str
    codes: frozenset[str]
    run: Callable[[Server, Path, int], Round]
    needs_pid: bool = False
    needs_restart: bool = False


def _load(folder: Path, name: str) -> tuple[str, ...]:
    return ("--workload", str(folder / "workloads" / name), "--levels", str(SLOTS), "--duration", _DURATION)


def write_workloads(server: Server, folder: Path) -> None:
    """Long answers, answers of different lengths, and a trace of agents; answers take a second or two here."""
    folder.mkdir(parents=True, exist_ok=True)
    ask(server.url, "Are you ready?", 32)
    started = time.monotonic()
    ask(server.url, "Tell me a story.", 60)
    length = int(min(max(40, 60 / (time.monotonic() - started)), 240))
    varied = f'{{ dist = "lognormal", median = {length // 2}, cv = 0.5, high = {2 * length} }}'
    texts = {
        "decode": f"input_tokens = 64\noutput_tokens = {length}",
        "mixed": f"input_tokens = 200\noutput_tokens = {varied}",
    }
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(f'kind = "random"\nname = "{name}"\n{text}\n')
    (folder / "trace").mkdir(exist_ok=True)
    for number in range(8):
        lengths = [300 + 70 * number + 180 * turn for turn in range(6)]
        requests = [
            {
                "t": 2.0 * turn, "type": "s", "in": length, "out": 40 + 7 * (number + turn) % 60,
                "hash_ids": list(range(length // 64)), "think_time": 0.2 if turn else 0.0, "api_time": 1.0,
            }
            for turn, length in enumerate(lengths)
        ]  # fmt: skip
        session = {"id": f"agent-{number}", "block_size": 64, "hash_id_scope": "local", "requests": requests}
        (folder / "trace" / f"agent-{number}.json").write_text(json.dumps(session))


def _write_batches(server: Server, folder: Path) -> str:
    """Write a workload of batches whose prompts are long enough to be seen waiting on this machine, and name it."""
    words = " ".join(random.choices(("alpha", "beta", "gamma", "delta"), k=1500))
    started = time.monotonic()
    tokens = ask(server.url, words, 1)["usage"]["prompt_tokens"]
    length = int(min(max(200, _PREFILL_S * tokens / (time.monotonic() - started)), CONTEXT // 4))
    lengths = f"input_tokens = {length}\noutput_tokens = 8"
    load = f'mode = "barrier"\nlevels = [{SLOTS}]\nserial = "none"\nruns = 4'
    path = folder / "workloads" / "batches.toml"
    path.write_text(f'kind = "random"\nname = "batches"\n{lengths}\n\n[load]\n{load}\n')
    return str(path)


def _decoding(frame: Frame) -> bool:
    return frame.status == "running" and frame.done > 0 and frame.in_flight == SLOTS and frame.waiting == 0


def _all_waiting(frame: Frame) -> bool:
    return frame.status == "running" and frame.run > 1 and frame.in_flight == frame.waiting == SLOTS


def _freeze(moment: Callable[[Frame], bool]) -> Callable[[Server, Path, int], Round]:
    def run(server: Server, folder: Path, seed: int) -> Round:
        waiting = moment is _all_waiting
        words = ("--workload", _write_batches(server, folder)) if waiting else _load(folder, "decode.toml")
        with open_run(server.url, folder / "sessions", seed, *words) as running:
            if not running.wait_for(moment):
                raise NotCaused
            server.signal(signal.SIGSTOP)
            stopped_ns = time.perf_counter_ns()
            try:
                time.sleep(_FREEZE_S)
            finally:
                server.signal(signal.SIGCONT)
            found = running.result()
        # Frames are a little late: the streams may have been elsewhere, or the level may have ended meanwhile.
        if found.streams_at(stopped_ns) != {"waiting" if waiting else "decoding"} or not found.measured_after(
            stopped_ns
        ):
            raise NotCaused
        return found

    return run


def _kill(server: Server, folder: Path, seed: int) -> Round:
    with open_run(
        server.url, folder / "sessions", seed, *_load(folder, "decode.toml"), "--on-restart", "300s"
    ) as running:
        if not running.wait_for(_decoding):
            raise NotCaused
        server.restart()
        return running.result()


def _second_client(server: Server, folder: Path, seed: int) -> Round:
    with open_run(server.url, folder / "sessions", seed, *_load(folder, "mixed.toml")) as running:
        if not running.wait_for(lambda frame: frame.status == "running" and frame.done > 0):
            raise NotCaused
        with _other_client(server.url):
            return running.result()


def ask(url: str, text: str, max_tokens: int) -> Any:
    """Ask a server, without a stream."""
    body = {"model": _model(url), "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60.0) as reply:
        return json.load(reply)


@cache
def _model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60.0) as reply:
        return str(json.load(reply)["data"][0]["id"])


@contextmanager
def _other_client(url: str) -> Iterator[None]:
    """Another program that asks one question after the other."""
    ended = threading.Event()

    def ask_always() -> None:
        while not ended.is_set():
            with suppress(OSError):
                ask(url, "Tell me a story.", 60)

    thread = threading.Thread(target=ask_always)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _behind_proxy(change: Change) -> Callable[[Server, Path, int], Round]:
    def run(server: Server, folder: Path, seed: int) -> Round:
        with (
            Proxy(server.url, change) as proxy,
            open_run(proxy.url, folder / "sessions", seed, *_load(folder, "mixed.toml")) as running,
        ):
            return running.result()

    return run


def _hog(server: Server, folder: Path, seed: int) -> Round:
    """Keep every core busy twice."""
    with open_run(server.url, folder / "sessions", seed, *_load(folder, "mixed.toml")) as running:
        if not running.wait_for(lambda frame: frame.status == "running"):
            raise NotCaused
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
        try:
            return running.result()
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()


def _healthy(*words: str, workload: str = "", levels: str = "1,2,4") -> Callable[[Server, Path, int], Round]:
    def run(server: Server, folder: Path, seed: int) -> Round:
        chosen = workload if workload == "coding-agent" else str(folder / "workloads" / workload)
        with open_run(
            server.url, folder / "sessions", seed, "--workload", chosen, "--levels", levels, *words
        ) as running:
            return running.result()

    return run


CASES = (
    Case("freeze-decode", frozenset({"server_stall"}), _freeze(_decoding), needs_pid=True),
    Case("all-waiting", frozenset({"server_stall"}), _freeze(_all_waiting), needs_pid=True),
    Case("kill-restart", frozenset({"server_restart"}), _kill, needs_restart=True),
    Case("second-client", frozenset({"other_clients"}), _second_client),
    Case("buffering-proxy", frozenset({"coalesced_chunks", "decode_rate"}), _behind_proxy("buffer")),
    Case("halved-usage", frozenset({"token_counts"}), _behind_proxy("halve")),
    Case("cpu-hog", HOST, _hog),
    Case("healthy", frozenset(), _healthy("--duration", "3s", workload="mixed.toml")),
    Case("healthy-requests", frozenset(), _healthy(workload="mixed.toml")),
    Case(
        "healthy-messages",
        frozenset(),
        _healthy("--api", "messages", "--duration", "4s", "--max-tokens", "48", workload="coding-agent", levels="2"),
    ),
    Case(
        "healthy-trace",
        frozenset(),
        _healthy("--duration", "4s", "--max-gap", "300ms", workload="trace", levels="1,3"),
    ),
)
