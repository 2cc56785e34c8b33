"""Servers on this host are found, told apart, and asked nothing but GET."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarmtui.model.telemetry import Discovered, Gpu, GpuProcess
from swarmtui.model.worker_protocol import pack
from swarmtui.telemetry.discovery import discover, with_gpus
from swarmtui.telemetry.fingerprint import fingerprint
from tests.telemetry.text_server import Answer, TextServer, Told, serving

SAMPLES = Path(__file__).parent / "samples"
VLLM: dict[str, Answer] = {
    "/v1/models": (SAMPLES / "vllm-models.json").read_text(),
    "/metrics": (SAMPLES / "vllm-0.32.txt").read_text(),
    "/version": '{"version":"0.32.0"}',
}
LLAMA: dict[str, Answer] = {
    "/v1/models": Told(200, (SAMPLES / "llama-server-models.json").read_bytes(), {"Server": "llama.cpp"}),
    "/props": (SAMPLES / "llama-props.json").read_text(),
}
OLLAMA: dict[str, Answer] = {
    "/v1/models": '{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}',
    "/": "Ollama is running",
    "/api/version": '{"version":"0.12.0"}',
    "/api/ps": '{"models":[{"name":"qwen3:8b","size_vram":6000000000,"context_length":8192}]}',
}
SGLANG: dict[str, Answer] = {
    "/v1/models": '{"data":[{"id":"m","owned_by":"sglang","max_model_len":4096}]}',
    "/server_info": '{"version":"0.5.4","model_path":"m","max_running_requests":48,"tp_size":2,"api_key":"hidden"}',
}
TGI: dict[str, Answer] = {"/info": '{"model_id":"m","version":"3.3.0","max_total_tokens":4096}'}


def look(answers: dict[str, Answer]) -> tuple[Discovered | None, TextServer]:
    with serving(dict(answers)) as server:
        found = fingerprint(server.url)
    assert {method for method, _ in server.asked} == {"GET"}
    return found, server


def test_vllm() -> None:
    found, server = look(VLLM)
    assert found is not None
    assert (found.url, found.engine, found.version) == (server.url, "vLLM", "0.32.0")
    assert (found.models, found.context, found.seats, found.problem) == (("tiny",), 4096, None, "")
    assert found.flags is not None and found.flags["block-size"] == "128"


def test_llama() -> None:
    found, _ = look(LLAMA)
    assert found is not None
    assert (found.engine, found.version, found.models) == ("llama.cpp", "b0-unknown", ("tiny",))
    assert (found.context, found.seats) == (4096, 4)


def test_llama_that_is_loading() -> None:
    loading = Told(503, b'{"error":{"code":503,"message":"Loading model"}}', {"Server": "llama.cpp"})
    found, _ = look({"/v1/models": loading, "/props": loading})
    assert found is not None and not found.reachable and found.problem == "it is loading its model"


def test_ollama_sglang_tgi() -> None:
    ollama, _ = look(OLLAMA)
    assert ollama is not None
    assert (ollama.engine, ollama.version, ollama.context) == ("Ollama", "0.12.0", 8192)
    sglang, _ = look(SGLANG)
    assert sglang is not None
    assert (sglang.engine, sglang.version, sglang.seats, sglang.context) == ("SGLang", "0.5.4", 48, 4096)
    assert "hidden" not in json.dumps(sglang.flags)
    tgi, _ = look(TGI)
    assert tgi is not None and (tgi.engine, tgi.models, tgi.context) == ("TGI", ("m",), 4096)


def test_behind_a_key_the_open_metrics_still_tell_the_engine() -> None:
    found, _ = look({**VLLM, "/v1/models": Told(401, b'{"error":"Unauthorized"}', {})})
    assert found is not None
    assert (found.engine, found.version, found.models) == ("vLLM", "0.32.0", ())
    assert found.problem == "HTTP 401: it wants a key, --api-key-env"


def test_a_server_that_nobody_knows_is_compatible_if_it_lists_models_even_none() -> None:
    found, _ = look({"/v1/models": '{"data":[{"id":"mine"}]}'})
    assert found is not None and (found.engine, found.models) == ("OpenAI-compatible", ("mine",))
    empty, _ = look({"/v1/models": '{"object":"list","data":[]}'})
    assert empty is not None and (empty.engine, empty.models) == ("OpenAI-compatible", ())


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": "<html>welcome</html>", "/": "<html>"},
        {"/health": "ok", "/api/tags": '{"models":[]}'},
        {"/v1/models": '{"data":7}', "/info": "[1]", "/props": "{}", "/server_info": "null"},
    ],
)
def test_other_web_servers_are_not_servers_of_models(answers: dict[str, Answer]) -> None:
    assert look(answers)[0] is None


@pytest.mark.parametrize(
    "answers",
    [
        {"/v1/models": '{"data":' + 50_000 * "["},
        {"/v1/models": '{"data":[{"id":"m","owned_by":["vllm"]}]}'},
        {"/v1/models": '{"data":[]}', "/": "Ollama is running", "/api/ps": '{"models":7}'},
        {"/server_info": '{"internal_states":7,"version":7}'},
        {"/props": '{"total_slots":4,"default_generation_settings":{"n_ctx":"²"}}'},
        {"/props": '{"total_slots":%s,"default_generation_settings":{"n_ctx":%s}}' % (2 * ("9" * 30,))},
        {"/server_info": '{"max_running_requests":%s,"context_length":%s}' % (2 * ("9" * 30,))},
    ],
)
def test_no_answer_that_makes_no_sense_stops_the_search_or_what_is_told_of_it(answers: dict[str, Answer]) -> None:
    found, _ = look(answers)
    if found is not None:
        assert (found.seats or 4, found.context) == (4, None)
        assert pack(found), "it must be fit to be told to faces"


def test_a_port_that_speaks_something_else_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        speaking = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import socket,sys; s=socket.socket(fileno=0).accept()[0]; s.sendall(b'220 smtp\\r\\n')",
            ],
            stdin=other.fileno(),
        )
        assert fingerprint(f"http://127.0.0.1:{port}") is None
        assert speaking.wait(10) == 0


_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[sys.argv.index("--samples") + 1])
from test_discovery import VLLM
from tests.telemetry.text_server import serving
with serving(dict(VLLM)) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def program(folder: Path, code: str, *flags: str) -> Iterator[tuple[str, int]]:
    """A process whose command line is that of `vllm serve`; prints its URL when it listens."""
    script = folder / "vllm"
    script.write_text(code)
    command = [sys.executable, str(script), "serve", "tiny", "--samples", str(Path(__file__).parent), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        yield process.stdout.readline().strip(), process.pid
        process.stdin.close()


def test_a_running_server_is_found_with_its_process_flags_and_seats(tmp_path: Path) -> None:
    flags = ("--max-num-seqs", "6", "--data-parallel-size", "2", "--api-key", "hidden")
    with program(tmp_path, _PROGRAM, *flags) as (url, pid):
        found = {server.url: server for server in discover(timeout_s=5.0)}[url]
    assert (found.engine, found.pid, found.seats, found.models) == ("vLLM", pid, 12, ("tiny",))
    assert found.flags is not None
    assert (found.flags["max-num-seqs"], found.flags["gpu-memory-utilization"]) == ("6", "0.92")
    assert "hidden" not in json.dumps(found.flags)


_SILENT = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    sys.stdin.read()
"""


def test_a_server_that_does_not_answer_is_listed_as_such(tmp_path: Path) -> None:
    with program(tmp_path, _SILENT, "--max-num-seqs", "6") as (url, pid):
        found = {server.url: server for server in discover(timeout_s=0.3)}[url]
    assert (found.pid, found.reachable) == (pid, False)
    assert found.problem == "no answer within 0.3 s: is it loading, or busy?"
    assert found.flags is not None and found.flags["max-num-seqs"] == "6"


def test_gpus_of_a_server_are_those_of_its_whole_family() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert child.stdin
        gpus = (
            Gpu(uuid="GPU-child", index=0, name="", processes=(GpuProcess(pid=child.pid),)),
            Gpu(uuid="GPU-other", index=1, name="", processes=(GpuProcess(pid=1),)),
        )
        ours, remote = with_gpus((Discovered(url="a", pid=os.getpid()), Discovered(url="b")), gpus)
        child.stdin.close()
    assert (ours.gpus, remote.gpus) == (("GPU-child",), ())
