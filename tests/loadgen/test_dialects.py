"""Reading recorded streams of real servers, and building request bodies, per dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmtui.cli.run import run
from swarmtui.loadgen.dialects import load_dialect
from swarmtui.loadgen.dialects.base import error_text
from swarmtui.loadgen.response import Response
from swarmtui.model.endpoint import PATHS, Dialect
from swarmtui.model.workload import Message, Task, Tool, ToolCall
from swarmtui.sim.apis import APIS
from tests.loadgen.wire import WIRES

SAMPLES = Path(__file__).parent / "samples"


def read(stream: bytes, dialect: Dialect = "chat", piece: int = 97) -> Response:
    """Read a stream in pieces that match no event; the arrival time of a payload is its number."""
    response, api = Response(), load_dialect(dialect)
    splitter = api.splitter()
    payloads = [p for at in range(0, len(stream), piece) for p in splitter.feed(stream[at : at + piece])]
    payloads += splitter.finish()
    api.read(response, payloads, list(range(len(payloads))))
    return response


def test_each_api_is_tested_simulated_and_named_in_the_help() -> None:
    assert WIRES.keys() == PATHS.keys() and APIS.keys() == {*PATHS.values()}
    (option,) = (param for param in run.params if isinstance(param, click.Option) and param.name == "api")
    assert (option.help or "").startswith(f"{', '.join(PATHS)}, or auto")


def dialect_of(name: str) -> Dialect:
    named = (dialect for dialect in ("messages", "responses") if dialect in name)
    return next(named, "ollama" if name.endswith(".ndjson") else "chat")


def sample(name: str) -> Response:
    return read((SAMPLES / name).read_bytes(), dialect_of(name))


def payload(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return payload(choices=[{"delta": fields}])


def _compact(**fields: Any) -> bytes:
    return json.dumps({"id": "a", "choices": [fields]}, separators=(",", ":")).encode()


_TEXTS = st.text(st.sampled_from('ab "\\\n,é\u2028{}[]:'), max_size=3)
_PAYLOADS = st.one_of(
    st.builds(lambda text: _compact(delta={"content": text}, finish_reason=None), _TEXTS),
    st.builds(lambda text: _compact(delta={"role": "assistant", "content": text}), _TEXTS),
    st.builds(lambda text: _compact(message={"content": text}, delta={"content": "a"}), _TEXTS),
    st.builds(lambda text: _compact(delta={"content": "a", "reasoning": text}), _TEXTS),
    st.sampled_from(
        [
            _compact(delta={"content": "a"}, finish_reason="stop"),
            _compact(delta={"content": None}),
            b'{"id":"a","choices":[{"delta":{"content":"},"finish_reason":null}]}',
            b'{"id":"a","choices":[{"delta":{"content":"a","content":"b"},"finish_reason":null}]}',
        ]
    ),
)


_TWO_TEXTS = [_compact(message={"content": text}, delta={"content": "a"}) for text in "ab"]
_NO_KEY = b'{"id":"a","choices":[{"delta":{"content":"x","y"},"finish_reason":null}]}'


@given(st.lists(_PAYLOADS, max_size=3), _PAYLOADS, st.integers(1, 4))
@example(_TWO_TEXTS[:1], _TWO_TEXTS[1], 1)
@example([_compact(delta={"content": "a"}, finish_reason=None)], _NO_KEY, 1)
def test_payloads_read_together_give_what_each_gives(some: list[bytes], repeated: bytes, times: int) -> None:
    payloads = [_compact(delta={"content": "first"}), *some, *[repeated] * times]
    together, single, api = Response(), Response(), load_dialect("chat")
    api.read(together, payloads[:1], [0])
    api.read(together, payloads[1:], list(range(1, len(payloads))))
    for t, one in enumerate(payloads):
        api.read(single, [one], [t])
    assert together.error == single.error
    if single.error is None:
        found = (together.times, "".join(together.content), together.reasoning, together.chars, together.finish_reason)
        assert found == (single.times, "".join(single.content), single.reasoning, single.chars, single.finish_reason)


def _equal_payloads(text: str) -> bytes:
    return _compact(delta={"content": text}, finish_reason=None)


@given(st.lists(_TEXTS.filter(bool), min_size=2, max_size=40))
def test_texts_of_equal_payloads(texts: list[str]) -> None:
    response, api = Response(), load_dialect("chat")
    api.read(response, [_equal_payloads("first ")], [0])
    api.read(response, list(map(_equal_payloads, texts)), list(range(1, len(texts) + 1)))
    assert "".join(response.content) == "first " + "".join(texts)
    assert list(response.times) == list(range(len(texts) + 1))


@pytest.mark.parametrize(
    ("name", "tokens_out", "source", "tokens_in", "chunks", "finish"),
    [
        ("vllm-usage.sse", 40, "usage", 19, 8, "length"),
        ("vllm-usage-each-chunk.sse", 40, "usage_chunks", 19, 11, "length"),
        ("vllm-four-a-chunk.sse", 40, "usage", 17, 11, "length"),
        ("vllm-reasoning.sse", 60, "usage_chunks", 21, 12, "length"),
        ("vllm-completions.sse", 12, "usage", 7, 12, "length"),
        ("vllm-two-choices.sse", 12, "usage", 19, 10, "length"),
        ("llama-server-usage.sse", 40, "usage", 19, 9, "length"),
        ("llama-server-no-usage.sse", 17, "engine", None, 16, "stop"),
        ("llama-server-reasoning.sse", 80, "usage", 21, 12, "length"),
        ("llama-server-keep-alive.sse", 4, "engine", None, 4, "length"),
        ("llama-server-completions.sse", 12, "usage", 7, 12, "length"),
        ("transformers.sse", 21, "usage", 19, 19, "stop"),
        ("llama-cpp-python.sse", 12, "chunks", None, 12, "stop"),
        ("ollama.ndjson", 8, "engine", 11, 5, "stop"),
        ("vllm-messages.sse", 5, "usage", 25, 4, "stop"),
        ("vllm-messages-limit.sse", 12, "usage", 25, 11, "length"),
        ("llama-server-messages.sse", 10, "usage", 27, 8, "stop"),
        ("llama-server-messages-limit.sse", 12, "usage", 27, 11, "length"),
        ("vllm-responses.sse", 7, "usage", 25, 5, "stop"),
        ("vllm-responses-limit.sse", 12, "usage", 25, 11, "length"),
        ("llama-server-responses.sse", 7, "usage", 27, 5, "completed"),
        ("llama-server-responses-limit.sse", 12, "usage", 27, 11, "completed"),
    ],
)
def test_token_count_matches_server(
    name: str, tokens_out: int, source: str, tokens_in: int | None, chunks: int, finish: str
) -> None:
    response = sample(name)
    assert response.token_count() == (tokens_out, source)
    assert response.tokens_in == tokens_in
    assert len(response.times) == chunks
    assert response.finish_reason == finish
    assert response.error is None


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.sse")), ids=lambda path: path.stem)
def test_result_does_not_depend_on_how_the_stream_is_split(path: Path) -> None:
    stream = path.read_bytes()
    dialect = dialect_of(path.name)
    whole, crumbs = read(stream, dialect, len(stream)), read(stream, dialect, 1)
    for name in ("content", "reasoning", "usage_tokens", "finish_reason", "error", "error_detail", "id", "times"):
        assert getattr(whole, name) == getattr(crumbs, name)


@pytest.mark.parametrize(
    ("name", "finished"),
    [
        ("vllm-usage.sse", True),
        ("llama-server-usage.sse", True),
        ("transformers.sse", False),
        ("ollama.ndjson", True),
        ("vllm-messages.sse", True),
        ("vllm-messages-killed.sse", False),
        ("llama-server-responses.sse", True),
    ],
)
def test_finished_only_after_done_marker(name: str, finished: bool) -> None:
    assert sample(name).finished is finished


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("vllm-usage.sse", 1),
        ("vllm-completions.sse", 0),
        ("llama-server-usage.sse", 1),
        ("transformers.sse", 1),
        ("llama-cpp-python.sse", 1),
        ("llama-server-keep-alive.sse", 1),
    ],
)
def test_role_chunk_is_an_event_but_not_a_token(name: str, first: int) -> None:
    response = sample(name)
    assert response.t_first_event == 0
    assert response.times[0] == response.t_first_content == first


def test_response_id_is_kept() -> None:
    assert sample("vllm-usage.sse").id == "chatcmpl-a05cda6d86a6912b"
    assert sample("llama-server-usage.sse").id == "chatcmpl-enXUW4OxRieMkbGPQbiQB2k4v7danyN7"


@pytest.mark.parametrize("name", ["vllm-reasoning.sse", "llama-server-reasoning.sse"])
def test_reasoning_is_separate_from_content(name: str) -> None:
    response = sample(name)
    assert (response.t_first_reasoning, response.t_first_content) == (1, 8)
    assert (len(response.reasoning), len(response.content)) == (7, 5)


def test_reasoning_and_cached_tokens_are_read() -> None:
    assert sample("vllm-reasoning.sse").reasoning_tokens == 19
    assert sample("llama-server-usage.sse").cached_tokens == 18
    assert sample("llama-server-no-usage.sse").cached_tokens == 0
    assert sample("vllm-usage.sse").cached_tokens is None


@pytest.mark.parametrize("counts", [(5, 12), (12, 5)])
def test_usage_per_choice_counts_as_its_maximum(counts: tuple[int, int]) -> None:
    """With n=2 llama.cpp sends one usage chunk per choice, of which the largest is the total."""
    response = read(
        payload(choices=[{"index": 0, "delta": {"content": "a"}}])
        + payload(choices=[{"index": 1, "delta": {"content": "b"}}])
        + b"".join(payload(choices=[], usage={"completion_tokens": count}) for count in counts)
    )
    assert response.token_count() == (12, "usage")


def test_counts_may_be_written_with_a_decimal_point() -> None:
    details = {"cached_tokens": 4.0, "reasoning_tokens": 2.0}
    counts = {"prompt_tokens": 7.0, "completion_tokens": 5.0}
    usage = counts | {"prompt_tokens_details": details, "completion_tokens_details": details}
    response = read(delta(content="a") + payload(choices=[], usage=usage, timings={"predicted_n": 5.0}))
    found = (response.usage_tokens, response.tokens_in, response.cached_tokens, response.reasoning_tokens)
    assert response.error is None
    assert (found, response.engine_tokens) == ((5, 7, 4, 2), 5)
    assert all(type(count) is int for count in found)


def test_timings_do_not_replace_cached_tokens_of_usage() -> None:
    usage = {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 18}}
    assert read(payload(choices=[], usage=usage, timings={"cache_n": 5})).cached_tokens == 18
    assert read(payload(choices=[], usage=usage) + payload(choices=[], timings={"cache_n": 5})).cached_tokens == 18
    assert read(payload(choices=[], timings={"cache_n": 5})).cached_tokens == 5


def test_llamacpp_timings_are_read() -> None:
    response = sample("llama-server-usage.sse")
    assert response.engine_decode_tps == pytest.approx(88.001, abs=0.001)
    assert response.engine_prefill_s == pytest.approx(0.011318)


def test_last_usage_of_messages_counts() -> None:
    """It is cumulative; a proxy may repeat it with each event."""
    usage = [payload(type="message_delta", usage={"input_tokens": 9, "output_tokens": n}) for n in (1, 2, 5)]
    response = read(b"".join(usage), "messages")
    assert (response.usage_tokens, response.tokens_in) == (5, 9)


def test_ollama_stream_is_read() -> None:
    response = sample("ollama.ndjson")
    assert "".join(response.reasoning) == "The sky"
    assert "".join(response.content) == "Blau – größtenteils."
    assert (response.t_first_event, response.t_first_reasoning, response.t_first_content) == (0, 0, 2)
    assert response.engine_decode_tps == pytest.approx(80.0)
    assert response.engine_prefill_s == pytest.approx(0.04)


def test_ollama_error_in_mid_stream() -> None:
    response = read(
        b'{"message":{"content":"a"},"error":null,"done":false}\n{"error":"model runner stopped"}\n', "ollama"
    )
    assert (response.error, response.error_detail) == ("error_event", "model runner stopped")
    assert len(response.times) == 1
    assert not response.finished and response.finish_reason is None


def test_ollama_tool_calls_are_output() -> None:
    call = {"function": {"name": "search", "arguments": {"query": "sky"}}}
    response = read(json.dumps({"message": {"content": "", "tool_calls": [call]}}).encode() + b"\n", "ollama")
    assert len(response.times) == 1


def test_error_event_after_status_200_is_a_failure() -> None:
    full, killed = sample("vllm-queue-full.sse"), sample("vllm-engine-killed.sse")
    assert full.error == killed.error == "error_event"
    assert full.error_detail.startswith("The engine is currently busy")
    assert killed.error_detail.startswith("EngineCore encountered an issue")
    assert not full.times
    assert len(killed.times) == 4


def test_stream_of_killed_server_is_not_finished() -> None:
    response = sample("llama-server-killed.sse")
    assert not response.finished
    assert response.finish_reason is None


def test_tool_calls_are_output() -> None:
    response = read(
        delta(role="assistant", content=None, tool_calls=[])
        + delta(tool_calls=[{"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}])
        + delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}])
        + delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}])
        + payload(choices=[{"delta": {}, "finish_reason": "tool_calls"}])
    )
    assert list(response.times) == [1, 2, 3]
    assert "".join(response.content) == 'f{"a":1}'
    assert response.finish_reason == "tool_calls"
    assert response.t_first_content is None


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("vllm-usage-each-chunk.sse", 1),  # reported by the server
        ("vllm-four-a-chunk.sse", 1),  # one token, then four per chunk
        ("transformers.sse", 1),  # two more tokens than chunks; the first chunk is still one token
        ("llama-server-no-usage.sse", 1),
        ("vllm-completions.sse", 1),
    ],
)
def test_first_chunk_tokens_of_recorded_streams(name: str, first: int) -> None:
    response = sample(name)
    total, _ = response.token_count()
    assert total is not None
    assert response.first_tokens(total) == first


@pytest.mark.parametrize(
    ("texts", "total", "first"),
    [
        (["", "", "a", "", "b"], 6, 3),
        (["a", "", "", "", "b"], 6, 1),
        (["", "a", "b"], None, 2),
    ],
    ids=["two before the first text", "three in the middle", "not counted"],
)
def test_empty_chunks_are_tokens(texts: list[str], total: int | None, first: int) -> None:
    """vLLM sends a chunk for each token, also if it is only part of a character, or the end of the sequence."""
    stream = delta(role="assistant", content="") + b"".join(delta(content=text) for text in texts)
    usage = payload(choices=[], usage={"completion_tokens": total}) if total else b""
    response = read(stream + payload(choices=[{"delta": {"content": ""}, "finish_reason": "stop"}]) + usage)
    counted, _ = response.token_count()
    assert counted == total or total is None
    assert response.first_tokens(total or 4) == first
    assert response.t_finish == 1 + len(texts)


def test_role_chunk_before_prefill_is_no_token() -> None:
    role = payload(choices=[{"delta": {"role": "assistant", "content": ""}}])
    response = read(
        role + delta(content="a") + delta(content="b") + payload(choices=[], usage={"completion_tokens": 3})
    )
    assert (response.leading_empty, response.empty_chunks) == (0, 0)


@pytest.mark.parametrize(("texts", "first"), [(["a", "b"], 2), (["a", "b", "c"], 1)], ids=["held back", "shown"])
def test_role_chunk_of_llamacpp_may_stand_for_the_first_token(texts: list[str], first: int) -> None:
    end = payload(choices=[], usage={"completion_tokens": 3}, timings={"predicted_n": 3, "predicted_per_second": 900.0})
    response = read(delta(role="assistant", content=None) + b"".join(delta(content=text) for text in texts) + end)
    assert response.first_tokens(3) == first


@pytest.mark.parametrize(
    ("texts", "total", "first"),
    [
        (["x" * 32] * 10, 80, 8),
        (["x" * 300], 80, 80),
        (["long text at first", "a", "b", "c"], 4, 1),
        (["a", "b", "c"], 2, 1),
    ],
    ids=["eight each", "all at once", "one each", "fewer than chunks"],
)
def test_first_chunk_tokens_by_share_of_text(texts: list[str], total: int, first: int) -> None:
    response = read(b"".join(delta(content=text) for text in texts))
    assert response.first_tokens(total) == first


def test_tokens_per_chunk_add_up_to_total() -> None:
    for name in ("vllm-usage-each-chunk.sse", "vllm-reasoning.sse"):
        response = sample(name)
        tokens = response.chunk_tokens()
        assert tokens is not None
        assert len(tokens) == len(response.times)
        assert sum(tokens) == response.usage_tokens
    assert sample("vllm-usage.sse").chunk_tokens() is None


def test_tokens_reported_after_the_last_chunk_count_with_it() -> None:
    chunks = [
        payload(choices=[{"delta": {"content": text}}], usage={"completion_tokens": count})
        for text, count in (("a", 1), ("b", 3))
    ]
    response = read(b"".join(chunks) + payload(choices=[], usage={"completion_tokens": 4}))
    assert (response.chunk_tokens(), response.token_count()) == ((1, 3), (4, "usage_chunks"))


def test_coalesced_chunks_are_counted() -> None:
    response = Response()
    for t in (5, 5, 5, 9, 9, 12):
        response.add_output(t, "x", None, "")
    assert response.coalesced_chunks == 3


@pytest.mark.parametrize(
    ("texts", "finish", "exact", "degenerate"),
    [
        ([], "stop", False, True),
        (["the"] * 16, "length", False, True),
        (["the"] * 15, "length", False, False),
        (["a", "b"] * 8, "length", False, False),
        (["o", "k"], "stop", False, True),
        (["o", "k"], "stop", True, False),
        (["o", "k", "!"], "stop", False, False),
    ],
    ids=["empty", "one word repeated", "repeated less often", "two words", "too short", "exact length", "short"],
)
def test_degenerate_output_is_flagged(texts: list[str], finish: str, exact: bool, degenerate: bool) -> None:
    stream = b"".join(delta(content=text) for text in texts)
    response = read(stream + payload(choices=[{"delta": {}, "finish_reason": finish}]))
    total, _ = response.token_count()
    assert response.degenerate(total, exact) is degenerate


@pytest.mark.parametrize(("tokens", "degenerate"), [(9, True), (10, False), (11, False)])
def test_fewer_tokens_than_half_the_chunks_are_degenerate(tokens: int, degenerate: bool) -> None:
    stream = b"".join(delta(content=f"word{n}") for n in range(20))
    response = read(stream + payload(choices=[{"delta": {}, "finish_reason": "length"}]))
    assert response.degenerate(tokens, exact=False) is degenerate


@pytest.mark.parametrize(
    "text",
    [
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b'{"choices":[{"delta":{"content":"cut',
        b'{"choices":7}',
        b"<html>",
        b'{"x":' + b"[" * 100_000,
        b'{"usage":{"completion_tokens":99999999999999999999999999}}',
        b'{"usage":{"completion_tokens":-1}}',
        b'{"usage":{"completion_tokens":5.5}}',
    ],
    ids=["not UTF-8", "cut short", "wrong type", "HTML", "nested", "huge count", "negative count", "fraction"],
)
def test_invalid_chunk_is_bad_json(text: bytes) -> None:
    assert read(b"data: " + text + b"\n\n").error == "bad_json"


def test_empty_events_and_padded_done_are_accepted() -> None:
    response = read(b"data:\n\ndata: \n\n" + delta(content="a") + b"data:  [DONE] \n\n")
    assert (response.error, response.finished, len(response.times)) == (None, True, 1)


@given(st.binary(max_size=80), st.sampled_from(list(PATHS)))
def test_arbitrary_bytes_do_not_crash_the_reader(data: bytes, dialect: Dialect) -> None:
    read(data, dialect)
    read(b'data: {"choices":[{"delta":{"content":"' + data + b'"}}]}\n\n', dialect)
    error_text(data)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"The model `nope` does not exist.","code":404}}', "The model `nope` does not exist."),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"detail":"Server is pinned"}', "Server is pinned"),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"detail":[{"loc":["body","ignore_eos"],"msg":"extra"}]}', '[{"loc":["body","ignore_eos"],"msg":"extra"}]'),
        (b'{"error":{"code":500}}', '{"code":500}'),
        (b"Internal Server Error", "Internal Server Error"),
        (b"", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'"\xff"', '"\ufffd"'),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_error_text_is_extracted(body: bytes, text: str) -> None:
    assert error_text(body) == text


TASK = Task(
    id=1,
    messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
    max_tokens=16,
    temperature=0.5,
    extra={"ignore_eos": True, "top_k": 1},
)


def test_request_bodies() -> None:
    chat = json.loads(load_dialect("chat").body("m", TASK, TASK.messages))
    assert chat == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 16,
        "temperature": 0.5,
        "ignore_eos": True,
        "top_k": 1,
    }
    completions = json.loads(load_dialect("completions").body("m", TASK, TASK.messages))
    assert completions["prompt"] == "Be brief.\n\nHi"
    assert "messages" not in completions
    ollama = json.loads(load_dialect("ollama").body("m", TASK, TASK.messages))
    assert ollama["options"] == {"num_predict": 16, "temperature": 0.5}
    assert "stream_options" not in ollama
    assert "ignore_eos" not in ollama


def body_with_tools(dialect: Dialect, *omit: str) -> Any:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    calls = tuple(ToolCall(id=f"c{n}", name="read", arguments=f'{{"path":"{n}"}}') for n in (1, 2))
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="Hi"),
        Message(role="assistant", content="I look.", tool_calls=calls[:1]),
        Message(role="tool", content="one", tool_call_id="c1"),
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="one", tool_call_id="c1"),
        Message(role="tool", content="two", tool_call_id="c2"),
    )
    tool = Tool(name="read", description="Read a file.", parameters=json.dumps(schema))
    task = Task(id=1, messages=messages, tools=(tool,))
    return json.loads(load_dialect(dialect).body("m", task, messages, omit))


FUNCTION = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def test_tools_of_chat_and_ollama() -> None:
    chat, ollama = body_with_tools("chat"), body_with_tools("ollama")
    assert chat["tools"] == ollama["tools"] == [{"type": "function", "function": FUNCTION}]
    assert (chat["tool_choice"], "tool_choice" in ollama) == ("auto", False)
    one = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"1"}'}}
    assert chat["messages"][2] == {"role": "assistant", "content": "I look.", "tool_calls": [one]}
    assert chat["messages"][3] == {"role": "tool", "content": "one", "tool_call_id": "c1"}
    called = {"function": {"name": "read", "arguments": {"path": "1"}}}
    assert ollama["messages"][2] == {"role": "assistant", "content": "I look.", "tool_calls": [called]}
    assert ollama["messages"][3] == {"role": "tool", "content": "one", "tool_name": "read"}


def test_tools_of_messages() -> None:
    body = body_with_tools("messages")
    schema = {"input_schema": FUNCTION["parameters"]}
    assert body["tools"] == [{"name": "read", "description": "Read a file."} | schema]
    assert body["tool_choice"] == {"type": "auto"}
    _, first, result, second, results = body["messages"]
    uses = [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": str(n)}} for n in (1, 2)]
    assert first == {"role": "assistant", "content": [{"type": "text", "text": "I look."}, uses[0]]}
    assert second == {"role": "assistant", "content": uses}
    found = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": text} for n, text in ((1, "one"), (2, "two"))]
    assert (result, results) == ({"role": "user", "content": found[:1]}, {"role": "user", "content": found})


def test_tools_of_responses() -> None:
    body = body_with_tools("responses")
    assert (body["tools"], body["tool_choice"]) == ([{"type": "function"} | FUNCTION], "auto")
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": f'{{"path":"{n}"}}'} for n in (1, 2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"c{n}", "output": text} for n, text in ((1, "one"), (2, "two"))
    ]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    assert body["input"][1:] == [said, calls[0], outputs[0], *calls, *outputs]


def test_header_is_a_block_of_its_own_or_joined() -> None:
    task = Task(id=1, messages=(Message(role="system", content="billing"), *TASK.messages))
    system = "billing\n\nBe brief."
    bodies = {name: json.loads(load_dialect(name).body("m", task, task.messages)) for name in PATHS}
    assert bodies["messages"]["system"] == [{"type": "text", "text": text} for text in ("billing", "Be brief.")]
    assert bodies["responses"]["instructions"] == system
    for name in ("chat", "ollama"):
        assert bodies[name]["messages"] == [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]


def test_tools_stay_in_the_prompt_if_calls_are_rejected() -> None:
    for dialect, choice in (("chat", "none"), ("messages", {"type": "none"}), ("responses", "none")):
        body = body_with_tools(dialect, "tool_choice")
        assert (body["tool_choice"], len(body["tools"])) == (choice, 1)


def test_rejected_fields_are_omitted() -> None:
    without = json.loads(load_dialect("chat").body("m", TASK, TASK.messages, {"stream_options", "top_k"}))
    assert "stream_options" not in without
    assert "top_k" not in without
    assert without["ignore_eos"] is True


def test_no_max_tokens_unless_task_has_it() -> None:
    task = Task(id=1, messages=TASK.messages)
    for dialect in ("chat", "completions"):
        assert "max_tokens" not in json.loads(load_dialect(dialect).body("m", task, task.messages))
    assert json.loads(load_dialect("ollama").body("m", task, task.messages))["options"] == {}


def test_optional_fields_are_those_sent() -> None:
    assert load_dialect("chat").optional_fields(TASK) == ("stream_options", "ignore_eos", "top_k")
    assert load_dialect("ollama").optional_fields(TASK) == ("top_k",)


def typed(type: str, **fields: Any) -> bytes:
    return f"event: {type}\n".encode() + payload(type=type, **fields)


def test_parts_of_input_tokens_are_added() -> None:
    """The Messages API reports input tokens without those read from the cache or written to it."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 30, "output_tokens": 1}
    start = typed(type="message_start", message={"id": "m1", "usage": usage})
    response = read(start + typed(type="message_delta", delta={}, usage={"output_tokens": 3}), "messages")
    assert (response.id, response.tokens_in, response.usage_tokens) == ("m1", 125, 3)
    assert (response.cached_tokens, response.cache_write_tokens) == (90, 30)
    assert sample("llama-server-messages.sse").cached_tokens == 26
    assert sample("llama-server-responses.sse").cached_tokens == 26
    assert sample("llama-server-responses.sse").engine_prefill_s is not None


def test_messages_thinking_text_and_tool_calls() -> None:
    def delta_event(**fields: Any) -> bytes:
        return typed(type="content_block_delta", index=0, delta=fields)

    response = read(
        typed(type="ping")
        + typed(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""})
        + delta_event(type="thinking_delta", thinking="hm")
        + delta_event(type="signature_delta", signature="x")
        + delta_event(type="text_delta", text="ok")
        + typed(type="content_block_start", index=2, content_block={"type": "tool_use", "name": "f", "input": {}})
        + delta_event(type="input_json_delta", partial_json="")
        + delta_event(type="input_json_delta", partial_json="{}")
        + typed(type="message_delta", delta={"stop_reason": "tool_use"})
        + typed(type="message_stop"),
        "messages",
    )
    assert (response.reasoning, response.content) == (["hm"], ["ok", "f", "{}"])
    assert (response.t_first_event, list(response.times)) == (0, [2, 4, 5, 7])
    assert (response.finish_reason, response.finished, response.t_finish) == ("tool_calls", True, 8)


def test_responses_reasoning_text_and_tool_calls() -> None:
    response = read(
        typed(type="response.created", response={"id": "r1", "status": "in_progress"})
        + typed(type="response.reasoning_summary_text.delta", delta="hm")
        + typed(type="response.output_text.delta", delta="ok")
        + typed(type="response.output_item.added", item={"type": "function_call", "name": "f", "arguments": ""})
        + typed(type="response.function_call_arguments.delta", delta="{}")
        + typed(type="response.function_call_arguments.done", arguments="{}")
        + typed(
            type="response.completed",
            response={
                "status": "completed",
                "incomplete_details": None,
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 5,
                    "input_tokens_details": {"cached_tokens": 4},
                    "output_tokens_details": {"reasoning_tokens": 2},
                },
            },
        ),
        "responses",
    )
    assert (response.id, response.reasoning, response.content) == ("r1", ["hm"], ["ok", "f", "{}"])
    assert (list(response.times), response.finish_reason) == ([1, 2, 3, 4], "stop")
    assert (response.tokens_in, response.usage_tokens) == (9, 5)
    assert (response.cached_tokens, response.reasoning_tokens) == (4, 2)


@pytest.mark.parametrize(
    ("dialect", "stream", "detail"),
    [
        ("messages", typed(type="error", error={"type": "overloaded_error", "message": "Overloaded"}), "Overloaded"),
        ("messages", payload(type="error", error={"message": "Overloaded"}), "Overloaded"),
        ("responses", typed(type="error", code="x", message="too busy"), "too busy"),
        ("responses", payload(type="error", message="too busy"), "too busy"),
        (
            "responses",
            typed(type="response.failed", response={"status": "failed", "error": {"code": "x", "message": "died"}}),
            "died",
        ),
    ],
)
def test_error_events_of_typed_streams(dialect: Dialect, stream: bytes, detail: str) -> None:
    response = read(stream, dialect)
    assert (response.error, response.error_detail) == ("error_event", detail)


def test_error_event_of_a_killed_engine() -> None:
    killed = sample("vllm-messages-killed.sse")
    assert (killed.error, len(killed.times)) == ("error_event", 22)
    assert "En...am" in killed.error_detail


@pytest.mark.parametrize(("total", "reason"), [(7, "stop"), (12, "length"), (None, "stop")])
def test_answer_that_reached_its_limit_was_cut(total: int | None, reason: str) -> None:
    """llama.cpp's Responses API reports every answer as completed."""
    assert sample("llama-server-responses.sse").final_reason(total, 12) == reason


def test_bodies_of_messages_and_responses() -> None:
    messages = json.loads(load_dialect("messages").body("m", TASK, TASK.messages))
    assert messages == {
        "model": "m",
        "stream": True,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 16,
        "temperature": 0.5,
        "ignore_eos": True,
        "top_k": 1,
    }
    responses = json.loads(load_dialect("responses").body("m", TASK, TASK.messages))
    assert responses == {
        "model": "m",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "max_output_tokens": 16,
        "temperature": 0.5,
        "ignore_eos": True,
        "top_k": 1,
    }
    assert load_dialect("responses").optional_fields(TASK) == ("store", "ignore_eos", "top_k")


def test_messages_always_have_a_limit() -> None:
    body = json.loads(load_dialect("messages").body("m", Task(id=1, messages=TASK.messages), TASK.messages))
    assert body["max_tokens"] == 4096


def test_key_is_sent_as_the_api_wants_it() -> None:
    assert load_dialect("messages").auth_headers("k") == {
        "anthropic-version": "2023-06-01",
        "x-api-key": "k",
        "Authorization": "Bearer k",
    }
    assert load_dialect("messages").auth_headers(None) == {"anthropic-version": "2023-06-01"}
    for dialect in ("chat", "completions", "responses", "ollama"):
        assert load_dialect(dialect).auth_headers("k") == {"Authorization": "Bearer k"}
        assert load_dialect(dialect).auth_headers(None) == {}
