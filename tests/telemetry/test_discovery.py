"""Servers on this host are found and recognised with GET requests only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from swarmtui.cli import run_options
from swarmtui.client import catalogue
from swarmtui.engines.generic import LiteLlm
from swarmtui.engines.llamacpp import LlamaCpp
from swarmtui.engines.registry import flags_from_command
from swarmtui.http_client import HttpClient
from swarmtui.model.base import BadInput
from swarmtui.model.telemetry import DiscoveredServer, Gpu
from swarmtui.model.worker_protocol import pack
from swarmtui.telemetry import discovery
from swarmtui.telemetry.discovery import Listener, discover, identify, process_flags, with_gpus
from swarmtui.telemetry.fingerprint import fingerprint
from tests.telemetry.text_server import Reply, TextReply, TextServer, serving

SAMPLES = Path(__file__).parent / "samples"
VLLM: dict[str, Reply] = {
    "/v1/models": (SAMPLES / "vllm-models.json").read_text(),
    "/metrics": (SAMPLES / "vllm-0.32.txt").read_text(),
    "/version": '{"version":"0.32.0"}',
}
LLAMA: dict[str, Reply] = {
    "/v1/models": TextReply(200, (SAMPLES / "llama-server-models.json").read_bytes(), {"Server": "llama.cpp"}),
    "/props": (SAMPLES / "llama-props.json").read_text(),
}
OLLAMA: dict[str, Reply] = {
    "/v1/models": '{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}',
    "/": "Ollama is running",
    "/api/version": '{"version":"0.12.0"}',
    "/api/ps": '{"models":[{"name":"qwen3:8b","size_vram":6000000000,"context_length":8192}]}',
}
SGLANG: dict[str, Reply] = {
    "/v1/models": '{"data":[{"id":"m","owned_by":"sglang","max_model_len":4096}]}',
    "/server_info": '{"version":"0.5.4","model_path":"m","max_running_requests":48,"tp_size":2,"api_key":"hidden"}',
}
TGI: dict[str, Reply] = {"/info": '{"model_id":"m","version":"3.3.0","max_total_tokens":4096}'}


def probe(replies: dict[str, Reply]) -> tuple[DiscoveredServer | None, TextServer]:
    with serving(dict(replies)) as server, HttpClient() as client:
        found = fingerprint(server.url, client=client, timeout_s=60.0)
    assert {method for method, _ in server.requests} == {"GET"}
    return found, server


def test_vllm() -> None:
    found, server = probe(VLLM)
    assert found is not None
    assert (found.url, found.engine, found.version) == (server.url, "vLLM", "0.32.0")
    assert (found.models, found.context, found.slots, found.problem) == (("tiny",), 4096, None, "")
    assert found.flags is not None and found.flags["block-size"] == "128"
    assert (found.kv_tokens, found.block_size) == (262_144, 128)


def test_llama() -> None:
    found, _ = probe(LLAMA)
    assert found is not None
    assert (found.engine, found.version, found.models) == ("llama.cpp", "b0-unknown", ("tiny",))
    assert (found.context, found.slots) == (4096, 4)
    # Its slots may share one context of 4,096 tokens: only the flags of its process say so.
    sizes = {"--parallel 4": 16_384, "--parallel 4 -kvu": 4096, "-c 4096": 4096}
    for flags, size in sizes.items():
        assert LlamaCpp().kv_tokens(found, flags_from_command(["llama-server", *flags.split()])) == size
    assert found.kv_tokens is None and found.block_size == 1
    assert LlamaCpp().kv_tokens(msgspec.structs.replace(found, slots=6), None) == 6 * 4096


@pytest.mark.parametrize(
    ("slots", "command", "size"),
    [
        # --ctx-size is that of all slots together.
        (8, "llama-server -m a.gguf -np 8 -c 65536", 65_536),
        (8, "llama-server -m a.gguf -np 8 -c 65000", 65_000),
        (8, "llama-server -m a.gguf -np 8 -c 8192 -kvu", 8192),
        (4, "llama-server -m a.gguf -c 8192", 8192),
        (4, "llama-server -m a.gguf", 8192),
        (8, "llama-server -m a.gguf -np 8 -kvu", 8192),
        (8, "llama-server -m a.gguf -np 8", 65_536),
        (1, "llama-server -m a.gguf -np 1", 8192),
        # Another program with the server inside: only the default number of slots may share one context.
        (2, "python3 serve.py 8080 a.gguf 2 8192", 16_384),
        (8, "python3 serve.py 8080 a.gguf 8 8192", 65_536),
        (4, "python3 serve.py 8080 a.gguf 4 8192", None),
    ],
)
def test_the_kv_cache_of_llama_is_the_context_of_all_slots(slots: int, command: str, size: int | None) -> None:
    found = DiscoveredServer(url="", slots=slots, context=8192, flags={"parallel": str(slots)})
    assert LlamaCpp().kv_tokens(found, flags_from_command(command.split())) == size


@pytest.mark.parametrize(
    ("slots", "context", "command", "keeps"),
    [
        (2, 8192, "llama-server -m a.gguf -np 2 -c 16384", "--ctx-size 32768"),
        (2, 8192, "llama-server -m a.gguf -np 2", "--ctx-size 32768"),
        (1, 8192, "llama-server -m a.gguf -np 1", "--ctx-size 16384"),
        # The model was trained with 8,192 tokens, and there are enough for twice the slots.
        (2, 8192, "llama-server -m a.gguf -np 2 -c 32768", ""),
        # All slots share one context, or it is not known whether they do.
        (2, 8192, "llama-server -m a.gguf -np 2 -c 8192 -kvu", ""),
        (2, 8192, "llama-server -m a.gguf -np 2 -c 32768 -kvu", ""),
        (4, 8192, "llama-server -m a.gguf", ""),
        (4, 8192, "python3 serve.py 8080 a.gguf 4 8192", ""),
        (2, None, "llama-server -m a.gguf -np 2", ""),
    ],
)
def test_twice_the_slots_of_llama_need_twice_its_context(
    slots: int, context: int | None, command: str, keeps: str
) -> None:
    flags = flags_from_command(command.split())
    found = DiscoveredServer(url="", slots=slots, context=context, flags=flags)
    found = msgspec.structs.replace(found, kv_tokens=LlamaCpp().kv_tokens(found, flags))
    assert LlamaCpp().context_flag(found, 2 * slots) == keeps


def test_llama_while_loading() -> None:
    loading = TextReply(503, b'{"error":{"code":503,"message":"Loading model"}}', {"Server": "llama.cpp"})
    found, _ = probe({"/v1/models": loading, "/props": loading})
    assert found is not None and not found.reachable and found.problem == "the model is loading"


def test_ollama_sglang_tgi() -> None:
    ollama, _ = probe(OLLAMA)
    assert ollama is not None
    assert (ollama.engine, ollama.version, ollama.context, ollama.flags) == ("Ollama", "0.12.0", 8192, None)
    sglang, _ = probe(SGLANG)
    assert sglang is not None
    assert (sglang.engine, sglang.version, sglang.slots, sglang.context) == ("SGLang", "0.5.4", 48, 4096)
    assert "hidden" not in json.dumps(sglang.flags)
    for info, size in (
        ('"max_total_num_tokens":900,"dp_size":2', 1800),
        ('"internal_states":[{"memory_usage":{"token_capacity":500}},{"memory_usage":{"token_capacity":400}}]', 900),
        ('"internal_states":[{"memory_usage":null}]', None),
    ):
        known, _ = probe({"/v1/models": SGLANG["/v1/models"], "/server_info": f"{{{info}}}"})
        assert known is not None and known.kv_tokens == size
    tgi, _ = probe(TGI)
    assert tgi is not None and (tgi.engine, tgi.models, tgi.context) == ("TGI", ("m",), 4096)


def test_open_metrics_identify_engine_behind_api_key() -> None:
    found, _ = probe({**VLLM, "/v1/models": TextReply(401, b'{"error":"Unauthorized"}', {})})
    assert found is not None
    assert (found.engine, found.version, found.models) == ("vLLM", "0.32.0", ())
    assert found.problem == "HTTP 401: it needs an API key (--api-key-env)"


def test_unknown_server_with_model_list_is_openai_compatible() -> None:
    found, _ = probe({"/v1/models": '{"data":[{"id":"mine"}]}'})
    assert found is not None and (found.engine, found.models) == ("OpenAI-compatible", ("mine",))
    empty, _ = probe({"/v1/models": '{"object":"list","data":[]}'})
    assert empty is not None and (empty.engine, empty.models) == ("OpenAI-compatible", ())


@pytest.mark.parametrize(
    "replies",
    [
        {},
        {"/v1/models": "<html>welcome</html>", "/": "<html>"},
        {"/health": "ok", "/api/tags": '{"models":[]}'},
        {"/v1/models": '{"data":7}', "/info": "[1]", "/props": "{}", "/server_info": "null"},
    ],
)
def test_other_web_servers_are_ignored(replies: dict[str, Reply]) -> None:
    assert probe(replies)[0] is None


@pytest.mark.parametrize(
    "replies",
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
def test_implausible_replies_are_survived_and_not_stored(replies: dict[str, Reply]) -> None:
    found, _ = probe(replies)
    if found is not None:
        assert (found.slots or 4, found.context) == (4, None)
        assert pack(found), "it must fit into a message"


def test_port_without_http_is_ignored() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, HttpClient() as client:
        port = other.getsockname()[1]
        other_server = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import socket,sys; s=socket.socket(fileno=0).accept()[0]; s.sendall(b'220 smtp\\r\\n')",
            ],
            stdin=other.fileno(),
        )
        assert fingerprint(f"http://127.0.0.1:{port}", client=client) is None
        assert other_server.wait(60) == 0


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
def program(folder: Path, code: str, *flags: str, name: str = "vllm") -> Iterator[tuple[str, int]]:
    """Run a process with the command line of `NAME serve tiny` that prints its URL once it listens."""
    script = folder / name
    script.write_text(code)
    command = [sys.executable, str(script), "serve", "tiny", "--samples", str(Path(__file__).parent), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        yield process.stdout.readline().strip(), process.pid
        process.stdin.close()


def test_running_server_is_found_with_process_flags_and_slots(tmp_path: Path) -> None:
    flags = ("--max-num-seqs", "6", "--data-parallel-size", "2", "--api-key", "hidden")
    with program(tmp_path, _PROGRAM, *flags) as (url, pid):
        found = {server.url: server for server in discover(timeout_s=60.0)}[url]
    assert (found.engine, found.pid, found.slots, found.models) == ("vLLM", pid, 12, ("tiny",))
    assert found.flags is not None
    assert (found.flags["max-num-seqs"], found.flags["gpu-memory-utilization"]) == ("6", "0.92")
    assert "hidden" not in json.dumps(found.flags)


_SILENT = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("timeout_s", [0.0, 0.3])
def test_silent_server_is_listed_as_unreachable(tmp_path: Path, timeout_s: float) -> None:
    with program(tmp_path, _SILENT, "--max-num-seqs", "6") as (url, pid):
        found = {server.url: server for server in discover(timeout_s)}[url]
    assert (found.engine, found.pid, found.reachable) == ("vLLM", pid, False)
    assert found.problem == "no answer in time: the server may be loading or busy"
    assert found.flags is not None and found.flags["max-num-seqs"] == "6"


def test_timeout_inside_a_probe_is_no_other_answer(tmp_path: Path) -> None:
    """The deadline may pass in the probe before the collector notices it."""
    with program(tmp_path, _SILENT) as (url, pid), HttpClient() as client:
        found = identify(url, timeout_s=0.1, client=client)
    assert found is not None and (found.pid, found.reachable) == (pid, False)


@pytest.mark.parametrize("status", [401, 500])
def test_gateway_is_named_asks_for_a_key_and_has_no_flags(tmp_path: Path, status: int) -> None:
    """LiteLLM without its database answers 500 where others answer 401."""
    replies = f"""{{"/v1/models": TextReply({status}, b"no", {{}}), "/health/liveliness": '"I\\'m alive!"'}}"""
    code = _PROGRAM.replace("dict(VLLM)", replies).replace("import serving", "import TextReply, serving")
    with program(tmp_path, code, "--max-num-seqs", "6", name="litellm") as (url, pid), HttpClient() as client:
        found = identify(url, timeout_s=30.0, client=client)
    assert found is not None
    assert (found.engine, found.pid, found.reachable, found.flags) == ("LiteLLM gateway", pid, True, None)
    assert found.problem == f"HTTP {status}: it needs an API key (--api-key-env)"


def test_reverse_proxy_is_named_unless_the_server_behind_it_is() -> None:
    headers = {"Server": "nginx/1.27.0"}
    found, _ = probe({"/v1/models": TextReply(200, b'{"object":"list","data":[{"id":"m"}]}', headers)})
    assert found is not None and (found.engine, found.models, found.problem) == ("gateway", ("m",), "")
    found, _ = probe(VLLM | {"/v1/models": TextReply(200, str(VLLM["/v1/models"]).encode(), headers)})
    assert found is not None and found.engine == "vLLM"
    assert probe({"/v1/models": TextReply(404, b"", headers)})[0] is None


def test_process_names_the_engine_that_replies_do_not(tmp_path: Path) -> None:
    code = _PROGRAM.replace("dict(VLLM)", """{"/v1/models": '{"object":"list","data":[]}'}""")
    with program(tmp_path, code, name="transformers") as (url, _), HttpClient() as client:
        found = identify(url, timeout_s=30.0, client=client)
    assert found is not None
    assert (found.engine, found.models, found.reachable) == ("transformers", ("tiny",), True)


@pytest.fixture
def server_process() -> Iterator[subprocess.Popen[bytes]]:
    """A sleeping process with settings of Ollama and llama.cpp."""
    environment = {**os.environ, "OLLAMA_NUM_PARALLEL": "3", "OLLAMA_API_KEY": "hidden", "HOME": "/nowhere"}
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "--parallel", "4", "--api-key", "hidden"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        yield process
        process.kill()


def test_flags_of_running_process(server_process: subprocess.Popen[bytes]) -> None:
    flags = process_flags(server_process.pid)
    assert flags is not None
    assert flags["parallel"] == "4" and flags["OLLAMA_NUM_PARALLEL"] == "3"
    assert "hidden" not in json.dumps(flags) and "HOME" not in flags


_FORKED = """
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
    os.write(told, b"x")
    os.wait()
"""


def test_the_process_of_a_server_is_the_one_that_started_it(tmp_path: Path) -> None:
    with program(tmp_path, _FORKED) as (child, pid):
        assert discovery.server_process(Listener("127.0.0.1", 1, int(child))) == pid
        assert discovery.server_process(Listener("127.0.0.1", 1, pid)) == pid, "not those who started it"


def test_the_server_behind_a_gateway_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "nginx").symlink_to(Path(sys.executable).resolve())
    command = [str(tmp_path / "nginx"), "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert discovery.server_process(Listener("127.0.0.1", 1, process.pid)) is None
        process.communicate(b"\n")
    assert discovery.server_process(Listener("127.0.0.1", 1, None)) is None
    assert discovery.server_process(Listener("127.0.0.1", 1, os.getpid(), LiteLlm())) is None


def test_missing_process_has_no_flags() -> None:
    assert process_flags(2**22 + 1) is None


def test_gpus_of_a_server_include_those_of_child_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert child.stdin
        gpus = (
            Gpu(uuid="GPU-child", index=0, name="", pids=(child.pid,)),
            Gpu(uuid="GPU-other", index=1, name="", pids=(1,)),
        )
        ours, remote = with_gpus((DiscoveredServer(url="a", pid=os.getpid()), DiscoveredServer(url="b")), gpus)
        child.stdin.close()
    assert (ours.gpus, remote.gpus) == (("GPU-child",), ())


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What this process opens belongs to this user."""
    # Sockets need this codec. Another user may not be allowed to read it, and it is not looked for again.
    "".encode("idna")
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can open a socket as another user")
@pytest.mark.parametrize(("uid", "user"), [(54321, "user 54321"), (998, ""), (0, "")])
def test_server_of_another_user_is_marked(uid: int, user: str) -> None:
    with ExitStack() as stack:
        with as_user(uid):
            server = stack.enter_context(serving(dict(VLLM)))
        client = stack.enter_context(HttpClient())
        found = identify(server.url, client=client)
        assert found is not None and found.user == user


def test_a_restarted_server_listens_with_another_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        address, inode = first.getsockname(), str(os.fstat(first.fileno()).st_ino)
        assert inode in discovery.listening_sockets()
    with socket.create_server(address) as second:
        listening = discovery.listening_sockets()
        assert inode not in listening and str(os.fstat(second.fileno()).st_ino) in listening


def test_servers_are_listed_by_the_number_of_their_port_the_own_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {8000: "", 11434: "", 800: "", 900: "ann"}
    listeners = [discovery.Listener("127.0.0.1", port, None, user=user) for port, user in listed.items()]

    def inspect(client: HttpClient, listener: discovery.Listener, deadline: float) -> DiscoveredServer:
        return DiscoveredServer(url=f"http://127.0.0.1:{listener.port}", user=listener.user)

    monkeypatch.setattr(discovery, "_candidates", lambda: listeners)
    monkeypatch.setattr(discovery, "_inspect", inspect)
    found = [server.url.rpartition(":")[2] for server in discovery.discover(20.0)]
    assert found == ["800", "8000", "11434", "900"]


def test_run_without_an_endpoint_never_chooses_a_server_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    other = DiscoveredServer(url="http://127.0.0.1:1", engine="vLLM", user="ann")
    own = DiscoveredServer(url="http://127.0.0.1:2", engine="vLLM")
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s: (other, own))
    assert run_options.only_endpoint() == own.url
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s: (other,))
    with pytest.raises(BadInput, match=r"name it to send load .*http://127.0.0.1:1 \(ann\)"):
        run_options.only_endpoint()
