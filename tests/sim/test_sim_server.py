"""The simulator over real sockets, compared with the protocols of vLLM and Ollama."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from swarmtui.loadgen.dialects import load_dialect
from swarmtui.loadgen.dialects.base import error_text
from swarmtui.loadgen.response import Response
from swarmtui.model.endpoint import PATHS, Dialect
from swarmtui.model.workload import Message, Task, Tool
from swarmtui.sim import tokens
from tests.sim.sim_process import TIMEOUT_S, Sim, events_of, simulator

CHAT, COMPLETIONS, OLLAMA = "/v1/chat/completions", "/v1/completions", "/api/chat"


@pytest.fixture(scope="module")
def sim() -> Iterator[Sim]:
    with simulator("moe-tp1?speed=50") as sim:
        yield sim


def deltas(events: list[Any], field: str = "content") -> list[str]:
    return [c["delta"][field] for e in events for c in e["choices"] if c["delta"].get(field)]


def test_chat_stream_has_the_format_of_vllm(sim: Sim) -> None:
    body = sim.chat(max_tokens=12, ignore_eos=True, stream_options={"include_usage": True})
    events = sim.stream(CHAT, body)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(deltas(events)) == 12
    assert [e["choices"][0]["finish_reason"] for e in events[:-1]] == [None] * 12 + ["length"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 12
    assert {e["object"] for e in events} == {"chat.completion.chunk"}
    assert len({e["id"] for e in events}) == 1
    assert {e["model"] for e in events} == {sim.model}


def test_usage_only_if_requested(sim: Sim) -> None:
    assert all("usage" not in event for event in sim.stream(CHAT, sim.chat(max_tokens=3)))


def test_usage_with_every_chunk(sim: Sim) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = sim.stream(CHAT, sim.chat(max_tokens=5, ignore_eos=True, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in events] == [0, 1, 2, 3, 4, 5, 5]


def test_completions_stream(sim: Sim) -> None:
    events = sim.stream(COMPLETIONS, {"model": sim.model, "prompt": "Once upon a time", "max_tokens": 7})
    assert [event["object"] for event in events] == ["text_completion"] * 7
    assert all(event["choices"][0]["text"] for event in events)
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_unstreamed_answer_equals_the_streamed_one(sim: Sim) -> None:
    streamed = "".join(deltas(sim.stream(CHAT, sim.chat(max_tokens=20))))
    whole = sim.post(CHAT, sim.chat(max_tokens=20))
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": streamed, "reasoning": None}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 20


def test_usage_counts_the_tokens_of_the_text(sim: Sim) -> None:
    whole = sim.post(CHAT, sim.chat(max_tokens=500, ignore_eos=True))
    text = whole["choices"][0]["message"]["content"]
    assert sim.post("/tokenize", {"model": sim.model, "prompt": text})["count"] == 500


def test_natural_answer_length_depends_on_the_prompt(sim: Sim) -> None:
    def answer(text: str) -> tuple[int, str]:
        whole = sim.post(CHAT, sim.chat(text))
        return whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]

    lengths = [answer(f"question {number}") for number in range(12)]
    assert {reason for _, reason in lengths} == {"stop"}
    assert len({length for length, _ in lengths}) > 8
    assert answer("question 0") == lengths[0]
    assert 100 < sorted(length for length, _ in lengths)[6] < 600


def test_max_completion_tokens_is_a_cap_too(sim: Sim) -> None:
    whole = sim.post(CHAT, sim.chat(max_completion_tokens=4))
    assert (whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]) == (4, "length")


@pytest.mark.parametrize(
    "content", ["short", "many words, 12345 of them: internationalisation\n\n日本語 _x_", "a b " * 900]
)
def test_tokenize_agrees_with_usage(sim: Sim, content: str) -> None:
    body = sim.chat(content, max_tokens=1)
    counted = sim.post("/tokenize", {"model": sim.model, "messages": body["messages"]})
    assert counted["count"] == len(counted["tokens"]) == sim.post(CHAT, body)["usage"]["prompt_tokens"]
    plain = sim.post("/tokenize", {"prompt": content})["count"]
    assert plain == sim.post(COMPLETIONS, {"prompt": content, "max_tokens": 1})["usage"]["prompt_tokens"]


def test_content_in_parts(sim: Sim) -> None:
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "world"}]
    whole = sim.post(CHAT, {"messages": [{"role": "user", "content": parts}], "max_tokens": 1})
    assert (
        whole["usage"]["prompt_tokens"]
        == sim.post(CHAT, sim.chat("Hello world", max_tokens=1))["usage"]["prompt_tokens"]
    )


def test_ollama_stream(sim: Sim) -> None:
    body = {"model": sim.model, "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 6}}
    status, text, headers = sim.call("POST", OLLAMA, body)
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["done"] for line in lines] == [False] * 6 + [True]
    assert all(line["message"]["content"] for line in lines[:-1])
    last = lines[-1]
    assert (last["eval_count"], last["done_reason"]) == (6, "length")
    assert last["prompt_eval_count"] == sim.post("/tokenize", {"messages": body["messages"]})["count"]
    assert last["total_duration"] >= last["prompt_eval_duration"] + last["eval_duration"] - 2
    whole = sim.post(OLLAMA, {**body, "stream": False})
    assert whole["message"]["content"] == "".join(line["message"]["content"] for line in lines)


def read_stream(sim: Sim, dialect: Dialect, task: Task) -> Response:
    """Read the answer to a task as a worker does; the arrival time of an event is its number."""
    api, response = load_dialect(dialect), Response()
    status, text, headers = sim.call("POST", PATHS[dialect], api.body(sim.model, task, task.messages))
    assert (status, headers["content-type"].partition(";")[0]) == (200, api.accept), text
    splitter = api.splitter()
    payloads = [*splitter.feed(text.encode()), *splitter.finish()]
    api.read(response, payloads, list(range(len(payloads))))
    assert (response.error, response.finished) == (None, True)
    return response


@pytest.mark.parametrize("dialect", ["messages", "responses", "ollama"])
@pytest.mark.parametrize("preset", ["", "&reasoning.tokens=5"])
def test_every_api_gives_the_same_answer(dialect: Dialect, preset: str) -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="Tell me of APIs." * 20))
    task = Task(id=0, messages=messages, max_tokens=12)
    tool = Tool(name="read", description="Read a file. " * 20, parameters='{"type":"object"}')
    with simulator(f"moe-tp1?speed=50&prefix_cache=true{preset}") as sim:
        with_tool = read_stream(sim, dialect, msgspec.structs.replace(task, tools=(tool,)))
        chat, first, second = (read_stream(sim, name, task) for name in ("chat", dialect, dialect))
        api = load_dialect(dialect)
        fields = api.prompt_fields(messages) | api.sampling_fields(task)
        whole = sim.post(PATHS[dialect], msgspec.to_builtins({"model": sim.model, "stream": False} | fields))
    for response in (first, second):
        for name in ("content", "reasoning", "tokens_in", "finish_reason"):
            assert getattr(response, name) == getattr(chat, name), name
        assert response.token_count()[0] == chat.token_count()[0] == 12
    assert api.prompt_tokens(whole) == chat.tokens_in
    assert with_tool.tokens_in and chat.tokens_in and 80 < with_tool.tokens_in - chat.tokens_in < 140
    assert "".join(chat.content) in json.dumps(whole)
    if dialect != "ollama":
        assert second.cached_tokens and second.cache_write_tokens == 0
    assert len(chat.reasoning) == (5 if preset else 0)


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_error_in_mid_stream_and_bad_request(sim: Sim, dialect: Dialect) -> None:
    status, text, _ = sim.call("POST", PATHS[dialect], {"model": "nope"})
    assert status == 400 and "missing required field" in error_text(text.encode())
    with simulator("moe-tp1?speed=50&failures.error_event=1") as failing:
        api, response = load_dialect(dialect), Response()
        task = Task(id=0, messages=(Message(role="user", content="Hi"),), max_tokens=8)
        _, text, _ = failing.call("POST", PATHS[dialect], api.body(failing.model, task, task.messages))
        payloads = api.splitter().feed(text.encode())
        api.read(response, payloads, [0] * len(payloads))
    assert (response.error, len(response.times)) == ("error_event", 4)
    assert "EngineCore" in response.error_detail


def test_ollama_error_for_an_unknown_model(sim: Sim) -> None:
    status, text, _ = sim.call("POST", OLLAMA, {"model": "nope", "messages": []})
    assert (status, json.loads(text)) == (404, {"error": "model 'nope' not found"})


@pytest.mark.parametrize("speed", [20, 50])
def test_speed_divides_every_time(speed: int) -> None:
    """Ollama's durations are those of the engine, so they do not depend on the load of this machine."""
    with simulator(f"dense-tp1?speed={speed}") as sim:
        body = {"model": sim.model, "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 30}}
        last = sim.post(OLLAMA, {**body, "stream": False})
    assert last["eval_count"] / last["eval_duration"] * 1e9 == pytest.approx(speed * 1000 / (25.10 + 0.54), rel=1e-3)


def test_model_list(sim: Sim) -> None:
    (model,) = sim.get("/v1/models")["data"]
    assert (model["id"], model["owned_by"]) == ("qwen3-coder-30b-a3b", "swarmtui-sim")
    assert model["max_model_len"] == 16384
    assert sim.get("/api/tags") == {"models": [{"name": model["id"]}]}


def test_health_and_version(sim: Sim) -> None:
    assert sim.get("/health") is None
    assert sim.get("/version")["version"].startswith("sim")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (CHAT, b'{"model":', 400, "JSON decode error"),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": "x"}, 400, "max_tokens"),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, 400, "max_tokens"),
        (CHAT, {"messages": []}, 400, "messages"),
        (CHAT, {"model": "nope", "messages": [{"role": "user", "content": "x"}]}, 404, "`nope` does not exist"),
        (COMPLETIONS, {"prompt": "x", "max_tokens": 99999}, 400, "max_model_len=16384"),
        (COMPLETIONS, {"prompt": "x " * 17000}, 400, "maximum context length is 16384"),
        (COMPLETIONS, {"prompt": ""}, 400, "empty"),
        ("/tokenize", {"model": "nope", "prompt": "x"}, 404, "`nope` does not exist"),
    ],
)
def test_bad_requests_get_the_errors_of_vllm(sim: Sim, path: str, body: Any, status: int, words: str) -> None:
    seen, text, headers = sim.call("POST", path, body)
    error = json.loads(text)["error"]
    assert (seen, error["code"], headers["content-type"]) == (status, status, "application/json")
    assert words in error["message"]


def test_unknown_paths_and_methods(sim: Sim) -> None:
    assert sim.call("GET", "/api/show")[:2] == (404, '{"detail":"Not Found"}')
    assert sim.call("GET", CHAT)[0] == 405
    assert sim.call("POST", "/metrics", b"")[0] == 405


def test_api_key_is_required_if_set() -> None:
    with simulator("moe-tp1?speed=50&api_key=secret", api_key="secret") as sim:
        body = sim.chat(max_tokens=1)
        assert sim.call("POST", CHAT, body)[:2] == (401, '{"error":"Unauthorized"}')
        assert sim.call("POST", CHAT, body, {"authorization": "Bearer wrong"})[0] == 401
        assert sim.call("POST", CHAT, body, {"authorization": "Bearer secret"})[0] == 200
        assert sim.call("POST", "/v1/messages", body, {"x-api-key": "secret"})[0] == 200
        assert sim.call("GET", "/metrics")[0] == 200


def test_keep_alive_and_pipelining(sim: Sim) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", sim.port, timeout=TIMEOUT_S)
    for _ in range(3):
        connection.request("POST", CHAT, json.dumps(sim.chat(max_tokens=2, stream=True)))
        assert events_of(connection.getresponse().read().decode())[-1] == "[DONE]"
    connection.close()
    with sim.open(CHAT, sim.chat(max_tokens=2)) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n")
        received = b"".join(iter(lambda: sock.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b"chat.completion") < received.index(b'"version"')


def test_invalid_http_gets_400(sim: Sim) -> None:
    with socket.create_connection(("127.0.0.1", sim.port), timeout=TIMEOUT_S) as sock:
        sock.sendall(b"hello\r\n\r\n")
        assert b"".join(iter(lambda: sock.recv(65536), b"")).startswith(b"HTTP/1.1 400 ")


def test_listens_on_loopback_only(sim: Sim) -> None:
    assert sim.url == f"http://127.0.0.1:{sim.port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", sim.port), timeout=TIMEOUT_S)


def test_speculative_chunks_contain_several_tokens() -> None:
    with simulator("moe-tp1?speed=50&speculative.tokens=3&speculative.acceptance=0.8") as sim:
        body = sim.chat(max_tokens=100, ignore_eos=True, stream_options={"include_usage": True})
        events = sim.stream(CHAT, body)
        chunks = deltas(events)
        assert events[-1]["usage"]["completion_tokens"] == 100
        assert len(chunks) < 60
        assert sim.post("/tokenize", {"prompt": "".join(chunks)})["count"] == 100
        seen = sim.metrics()
    assert seen["vllm:spec_decode_num_accepted_tokens_total"] == 100 - len(chunks)
    assert seen["vllm:spec_decode_num_draft_tokens_total"] == 3 * seen["vllm:spec_decode_num_drafts_total"]


def test_reasoning_precedes_content_in_its_own_field() -> None:
    with simulator("gpt-oss-20b-5slot?speed=50") as sim:
        events = sim.stream(CHAT, sim.chat(max_tokens=20, ignore_eos=True, stream_options={"include_usage": True}))
        ollama = {"model": sim.model, "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 5}}
        lines = [json.loads(line)["message"] for line in sim.call("POST", OLLAMA, ollama)[1].splitlines()]
    kinds = [next(iter(e["choices"][0]["delta"])) for e in events[1:-1]]
    assert kinds == ["reasoning_content"] * 8 + ["content"] * 12
    assert events[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 8}
    assert [bool(line.get("thinking")) for line in lines] == [True, True, False, False, False, False]


def test_prefix_cache_needs_equal_beginnings() -> None:
    def cached(sim: Sim, text: str) -> int:
        usage = sim.post(COMPLETIONS, {"prompt": text, "max_tokens": 1})["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    common = "word " * 100
    with simulator("moe-tp1?speed=50&prefix_cache=true") as sim:
        assert cached(sim, f"{common}first") == 0
        assert cached(sim, f"{common}second") == 96
        assert cached(sim, f"nonce {common}") == 0
        seen = sim.metrics()
    assert seen["vllm:prefix_cache_hits_total"] == 96 == seen["vllm:prompt_tokens_cached_total"]
    assert seen["vllm:prefix_cache_queries_total"] == seen["vllm:prompt_tokens_total"]


def test_long_text_has_the_same_tokens_in_chunks() -> None:
    text = "".join(f"word{number}  and_more,\n \tnext " for number in range(4000)) + "x" * 9000
    assert tokens.pieces(text) == tokens._PIECES.findall(text)
    assert tokens.pieces(text[:50_000])[:9000] == tokens.pieces(text)[:9000]


def test_no_cache_usage_without_a_cache(sim: Sim) -> None:
    for _ in range(2):
        usage = sim.post(COMPLETIONS, {"prompt": "word " * 100, "max_tokens": 1})["usage"]
        assert "prompt_tokens_details" not in usage


def test_sigterm_ends_it_and_only_the_url_is_printed() -> None:
    command = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--port", "0", "--slots", "2", "--speed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moe-tp11"], "sim:moe-tp11: no such preset; did you mean moe-tp1?"),
        (["moe-tp1?slot=3"], "sim:moe-tp1: slot: unknown key, did you mean slots?"),
        (["moe-tp1?slots=2", "--speed", "fast"], "sim:moe-tp1: speed: expected a number, got text"),
        (["moe-tp1?slots"], "sim:moe-tp1: slots: expected key=value"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    assert_refused(arguments, message)


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(["moe-tp1", "--port", str(port)], f"port {port}: cannot listen on 127.0.0.1")


def assert_refused(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "swarmtui.sim", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"swarmtui: {message}") and done.stderr.count("\n") == 1
