"""Recorded traces: every format is read, damage is named, and no text leaves the logs of a coding agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.trace_stats import trace_stats
from swarmtui.cli.options import commands
from swarmtui.model.base import BadInput
from swarmtui.model.trace import SubAgent, TraceRequest, TraceSession, requests_of
from swarmtui.prompts.traces.agent_logs import record_sessions
from swarmtui.prompts.traces.reader import read_sessions
from swarmtui.prompts.traces.weka import read_weka, weka_json

WEKA = {
    "id": "made_up", "models": ["some"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 12,
    "requests": [
        {"t": 0.0, "type": "n", "model": "some", "in": 130, "out": 10, "hash_ids": [1, 2], "think_time": 0.0},
        {"t": 3.0, "type": "subagent", "agent_id": "a", "status": "completed", "requests": [
            {"t": 0.0, "type": "s", "in": 64, "out": 5, "hash_ids": [9], "think_time": 0.0}]},
        {"t": 9.0, "type": "s", "in": 200, "out": 20, "hash_ids": [1, 2, 3], "think_time": 4.5},
    ],
}  # fmt: skip


def sessions_of(path: Path) -> list[TraceSession]:
    return list(read_sessions([path]))


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_weka_session_with_a_subagent(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(WEKA))
    (session,) = sessions_of(tmp_path)
    first, second = session.requests
    assert (first.input_tokens, first.output_tokens, first.blocks) == (130, 10, (1, 2))
    assert (second.at_s, second.think_s) == (9.0, 4.5)
    assert second.subagents[0].at_s == 3.0 and len(second.subagents[0].requests) == 1
    stats = trace_stats([session])
    assert (stats.requests, stats.subagents, stats.fan_out, stats.input_tokens) == (3, 1, 1, 394)
    # Of all prompts only the first two blocks of the last one were sent before.
    assert stats.hit_rate == pytest.approx(128 / 394)


def test_mooncake_blocks_are_shared_between_requests(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]},
        {"timestamp": 2500, "input_length": 600, "output_length": 6, "hash_ids": [7, 9]},
        {"timestamp": 2600, "input_length": 600, "output_length": 6, "hash_ids": [7, 9]},
    ]
    sessions = sessions_of(write_lines(tmp_path / "m.jsonl", rows))
    assert [session.arrival_s for session in sessions] == [0.0, 2.5, 2.6]
    # The last block of a prompt may be shorter than the others.
    assert trace_stats(sessions).hit_rate == pytest.approx((512 + 600) / 2200)


def test_bailian_turns_form_sessions(tmp_path: Path) -> None:
    common = {"output_length": 5, "type": "text"}
    rows = [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 10.0, "input_length": 32, "hash_ids": [1, 2], **common},
        {"chat_id": 2, "parent_chat_id": -1, "timestamp": 11.0, "input_length": 16, "hash_ids": [5], **common},
        {"chat_id": 3, "parent_chat_id": 1, "timestamp": 14.0, "input_length": 48, "hash_ids": [1, 2, 3], **common},
    ]
    first, second = sessions_of(write_lines(tmp_path / "b.jsonl", rows))
    assert [request.at_s for request in first.requests] == [0.0, 4.0] and len(second.requests) == 1
    assert (first.block_size, first.arrival_s, second.arrival_s) == (16, 10.0, 11.0)


def test_csv_traces(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.4799600,110,27\n"
    )
    assert [session.arrival_s for session in sessions_of(azure)] == pytest.approx([0.0, 1.5])
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,a,1.0,ChatGPT,472,18,490,Conversation log\n45,a,1.0,ChatGPT,500,20,520,Conversation log\n"
        "50,,1.0,GPT-4,9,1,10,API log\n"
    )
    first, second = sessions_of(burst)
    assert [request.at_s for request in first.requests] == [0.0, 40.0]
    assert (second.arrival_s, second.requests[0].input_tokens) == (45.0, 9)


def span(start: int, end: int, tokens: tuple[int, int] | None, agent: str = "main") -> dict[str, Any]:
    attributes: list[dict[str, Any]] = [{"key": "gen_ai.agent.id", "value": {"stringValue": agent}}]
    if tokens:
        attributes.append({"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(tokens[0])}})
        attributes.append({"key": "gen_ai.usage.output_tokens", "value": {"intValue": tokens[1]}})
    times = {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str(end * 10**9)}
    return {"traceId": "t1", "spanId": "s", "name": "chat", "attributes": attributes, **times}


def test_spans_of_otlp_and_of_sdks(tmp_path: Path) -> None:
    spans = [span(100, 104, (50, 5)), span(105, 106, None), span(104, 107, (9, 2), "helper"), span(110, 111, (70, 6))]
    batch = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    (session,) = sessions_of(write_lines(tmp_path / "otlp.jsonl", [batch]))
    first, second = session.requests
    assert (first.input_tokens, second.think_s, second.at_s) == (50, 6.0, 10.0)
    helper = TraceRequest(input_tokens=9, output_tokens=2, took_s=3.0)
    assert second.subagents == (SubAgent(at_s=4.0, requests=(helper,)),)
    printed = {
        "name": "chat", "context": {"trace_id": "0x1", "span_id": "0x2"}, "start_time": "2026-01-01T00:00:00.000000Z",
        "end_time": "2026-01-01T00:00:02.000000Z",
        "attributes": {"gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 3},
    }  # fmt: skip
    (session,) = sessions_of(write_lines(tmp_path / "sdk.jsonl", [printed]))
    assert (session.requests[0].input_tokens, session.requests[0].output_tokens) == (11, 3)


def test_longer_prompt_of_a_span_continues_the_one_before(tmp_path: Path) -> None:
    batch = {"resourceSpans": [{"scopeSpans": [{"spans": [span(100, 104, (640, 5)), span(110, 111, (704, 6))]}]}]}
    (session,) = sessions_of(write_lines(tmp_path / "otlp.jsonl", [batch]))
    first, second = session.requests
    assert second.blocks[:10] == first.blocks and len(second.blocks) == 11


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", "{\n", "a.json:2: not valid JSON"),
        ("a.json", '{"id": "s",\n"id" 5}', "a.json:2: not valid JSON"),
        ("a.json", '{"x": ' + "[" * 100_000, "a.json: not valid JSON: nested too deeply"),
        ("a.json", json.dumps({**WEKA, "requests": [{"type": "s", "in": 5, "out": 1}]}), "the key t is missing"),
        ("a.json", json.dumps(WEKA).replace("130", "-1"), "requests[0].in"),
        ("a.json", json.dumps(WEKA).replace("130", "64"), "requests[0].hash_ids: 2 blocks of 64 are more than"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 4, "output_length": 1}\n{"timest', "a.jsonl:2: not a"),
        ("a.jsonl", "hello\n", "a.jsonl:1: not a trace of a known format"),
        ("a.csv", "a,b\n1,2\n", "a.csv:1: unknown columns"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnever,1,2\n", "a.csv:2: not a valid row"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1e999,2\n", "a.csv:2: not a valid row"),
        ("a.jsonl", '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 5}]}]}]}', "a.jsonl:1: not a"),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_place(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadInput) as found:
        sessions_of(path)
    assert problem in str(found.value)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv"])
@given(data=st.binary(max_size=200))
def test_no_content_causes_another_error(tmp_path_factory: pytest.TempPathFactory, suffix: str, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed{suffix}"
    path.write_bytes(data)
    try:
        sessions_of(path)
    except BadInput as problem:
        assert str(path) in str(problem)


requests = st.builds(
    TraceRequest,
    input_tokens=st.integers(1000, 2000),
    output_tokens=st.integers(1, 100),
    at_s=st.integers(0, 1000).map(float),
    think_s=st.none() | st.integers(0, 100).map(float),
    blocks=st.lists(st.integers(0, 50), max_size=10).map(tuple),
)


@given(st.lists(requests, min_size=1, max_size=5), st.lists(requests, min_size=1, max_size=3))
def test_written_session_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, own: list[Any], sub: list[Any]
) -> None:
    agents = (SubAgent(at_s=1.0, requests=tuple(sub)),)
    session = TraceSession(id="s", requests=tuple(own), subagents=agents)
    path = tmp_path_factory.getbasetemp() / "written.json"
    path.write_bytes(weka_json(session))
    assert list(read_weka(path)) == [session]


SECRET = "PRIVATE-TEXT"


def claude_event(second: int, kind: str, **more: Any) -> dict[str, Any]:
    common = {"sessionId": "s1", "cwd": f"/home/{SECRET}", "gitBranch": SECRET, "isSidechain": False}
    return {**common, "type": kind, "timestamp": f"2026-01-01T00:00:{second:02}.000Z", **more}


def claude_answer(second: int, message: str, read: int, new: int, out: int, **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 2,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": new,
        "output_tokens": out,
    }
    content = [{"type": "text", "text": SECRET}]
    return claude_event(second, "assistant", message={"id": message, "content": content, "usage": usage}, **more)


def claude_log(folder: Path) -> None:
    user = {"role": "user", "content": SECRET}
    rows = [
        {"type": "summary", "summary": SECRET},
        claude_event(0, "user", uuid="u0", message=user),
        claude_answer(3, "m1", 0, 638, 1, uuid="u1", parentUuid="u0"),
        claude_answer(4, "m1", 0, 638, 40, uuid="u2", parentUuid="u1"),
        claude_event(5, "user", uuid="x0", isSidechain=True, message=user),
        claude_answer(6, "m2", 0, 126, 7, uuid="x1", parentUuid="x0", isSidechain=True),
        claude_event(10, "user", uuid="u3", parentUuid="u2", message=user),
        claude_answer(12, "m3", 640, 254, 50, uuid="u4", parentUuid="u3"),
    ]
    torn = '{"type": "assistant", "message": {"content": "' + SECRET
    write_lines(folder / f"{SECRET}.jsonl", rows).open("a").write(torn)


def codex_count(second: int, tokens: int) -> dict[str, Any]:
    def usage(tokens: int) -> dict[str, int]:
        return {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": 9}

    info = {"last_token_usage": usage(tokens), "total_token_usage": usage(10 * tokens)}
    return {
        "timestamp": f"2026-01-01T00:00:{second:02}Z",
        "type": "event_msg",
        "payload": {"type": "token_count", "info": info},
    }


def codex_thread(folder: Path, name: str, thread: str, parent: str | None, seconds: Iterable[int]) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": parent}}} if parent else "cli"
    meta = {"type": "session_meta", "timestamp": "2026-01-01T00:00:00Z", "payload": {"id": thread, "source": spawn}}
    write_lines(folder / f"{name}.jsonl", [meta, *(codex_count(second, 640 + second) for second in seconds)])


def codex_log(folder: Path) -> None:
    count = codex_count

    def said(second: int, kind: str) -> dict[str, Any]:
        payload = {"type": kind, "message": SECRET, "output": SECRET}
        return {"timestamp": f"2026-01-01T00:00:{second:02}Z", "type": "event_msg", "payload": payload}

    meta = {
        "type": "session_meta",
        "timestamp": "2026-01-01T00:00:00Z",
        "payload": {"id": "t1", "cwd": SECRET, "source": "cli"},
    }
    rows = [
        meta,
        said(0, "user_message"),
        count(4, 640),
        count(4, 640),
        said(10, "function_call_output"),
        count(12, 896),
    ]
    write_lines(folder / "rollout.jsonl", rows)
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "t1", "depth": 1}}}
    child = {**meta, "payload": {"id": "t2", "source": spawn, "agent_nickname": SECRET}}
    write_lines(folder / "rollout-child.jsonl", [child, said(5, "user_message"), count(6, 128)])


@pytest.mark.parametrize(("agent", "make"), [("claude-code", claude_log), ("codex", codex_log)])
def test_recording_keeps_lengths_times_and_subagents_but_no_text(tmp_path: Path, agent: Any, make: Any) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    make(logs)
    (session,) = record_sessions(agent, logs, pytest.fail)
    first, second = session.requests
    assert (first.input_tokens, second.input_tokens) == (640, 896)
    assert (second.at_s, second.think_s) == (10.0, 6.0)
    assert second.blocks[:10] == first.blocks and len(second.blocks) == 14
    (agent_,) = second.subagents
    assert agent_.at_s == 5.0 and agent_.requests[0].input_tokens == 128
    assert not set(agent_.requests[0].blocks) & set(second.blocks)
    if agent == "claude-code":
        assert first.output_tokens == 40  # the last of several events of one answer
    done = CliRunner().invoke(
        commands, ["traces", "record", "--from", agent, str(logs), "--output", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "out").iterdir()
    assert SECRET not in written.read_text() + written.name + done.output.replace(str(tmp_path), "")
    (again,) = sessions_of(written)
    assert list(requests_of(again)) == list(requests_of(session))


@pytest.mark.parametrize(
    "threads",
    [
        [("a", None, (1, 2, 3)), ("b", "a", (4, 5, 6)), ("c", "b", (7, 8, 9))],
        [("a", None, (1, 2, 3)), ("a", None, (3, 4, 5, 6, 7, 8, 9))],
        [("a", "b", (1, 2, 3)), ("b", "a", (4, 5, 6)), ("c", "b", (7, 8, 9))],
        [("a", "a", (1, 2, 3, 4, 5, 6, 7, 8, 9))],
        [("a", None, ()), ("b", "a", (1, 2, 3, 4)), ("c", "a", (5, 6, 7, 8, 9))],
        [("a", "elsewhere", (1, 2, 3, 4)), ("b", "a", (5, 6, 7, 8, 9))],
    ],
)
def test_no_call_of_a_codex_log_is_lost(tmp_path: Path, threads: list[tuple[str, str | None, tuple[int, ...]]]) -> None:
    for number, (thread, parent, seconds) in enumerate(threads):
        codex_thread(tmp_path, f"rollout-{number}", thread, parent, seconds)
    (session,) = record_sessions("codex", tmp_path, pytest.fail)
    assert sorted(request.input_tokens for request in requests_of(session)) == [640 + n for n in range(1, 10)]
    assert session.requests[0].input_tokens == 641


@pytest.mark.parametrize("agent", ["codex", "claude-code"])
@pytest.mark.parametrize("tokens", [2_000_001, 10**9, 10**10, 10**18])
def test_call_with_an_impossible_token_count_is_left_out_and_named(tmp_path: Path, agent: str, tokens: int) -> None:
    log = tmp_path / "log.jsonl"
    usage = {"input_tokens": tokens, "output_tokens": 1}
    said = {"type": "assistant", "timestamp": "2026-01-01T00:00:03Z", "message": {"id": "m", "usage": usage}}
    good = said | {"message": {"id": "n", "usage": {"input_tokens": 640, "output_tokens": 1}}}
    codex = [codex_count(1, 640), codex_count(2, tokens)]
    write_lines(log, codex if agent == "codex" else [good, said])
    done = CliRunner().invoke(commands, ["traces", "record", "--from", agent, str(log), "--output", f"{tmp_path}/out"])
    assert done.exit_code == 0, done.output
    assert f"left out: {log}, line 2: a call of {tokens:,} tokens" in done.output
    (session,) = sessions_of(tmp_path / "out")
    assert [request.input_tokens for request in requests_of(session)] == [640]


def test_session_that_could_not_be_read_again_is_left_out(tmp_path: Path) -> None:
    rows = [codex_count(1, 640), codex_count(2, 641) | {"timestamp": "9998-01-01T00:00:00Z"}]
    write_lines(tmp_path / "log.jsonl", rows)
    arguments = ["traces", "record", "--from", "codex", str(tmp_path), "--output", f"{tmp_path}/out"]
    done = CliRunner().invoke(commands, arguments)
    assert isinstance(done.exception, BadInput) and "left out: a session of 2 calls" in done.output
    assert not (tmp_path / "out").exists()


def test_shown_as_text_and_json(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(WEKA))
    shown = CliRunner().invoke(commands, ["traces", "show", str(tmp_path)])
    assert shown.exit_code == 0
    assert "1 session, 3 requests, 1 sub-agent (up to 1 between two requests)" in shown.output
    as_json = CliRunner().invoke(commands, ["traces", "show", str(tmp_path), "--json"])
    assert json.loads(as_json.output)["requests"] == 3
    (tmp_path / "mine.toml").write_text('kind = "trace"\nname = "mine"\nfiles = "one.json"\n')
    by_workload = CliRunner().invoke(commands, ["traces", "show", str(tmp_path / "mine.toml")])
    assert by_workload.output == shown.output
    assert "24 sessions" in CliRunner().invoke(commands, ["traces", "agents"]).output
    for wrong, problem in (("chat", "chat does not replay a trace"), ("agent", "did you mean agents?")):
        refused = CliRunner().invoke(commands, ["traces", "show", wrong])
        assert isinstance(refused.exception, BadInput) and problem in str(refused.exception)


def test_damage_far_inside_a_large_file_is_named_without_filling_the_memory(tmp_path: Path) -> None:
    request = b'{"t": 1, "type": "s", "in": 2560000, "out": 1, "hash_ids": [%s]},\n' % b",".join(
        b"%d" % (1_000_000 + block) for block in range(40_000)
    )
    path = tmp_path / "large.json"
    path.write_bytes(b'{"id": "s", "requests": [\n' + 55 * request + b'{"t": nonsense}]}')
    assert path.stat().st_size > 16 << 20
    # The limit is set in the process itself: what its parent had in memory counts in its maximum otherwise.
    limited = (
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))\n"
        "sys.argv = ['swarmtui', 'traces', 'show', sys.argv[1]]\n"
        "runpy.run_module('swarmtui', run_name='__main__')"
    )
    shown = subprocess.run([sys.executable, "-c", limited, str(path)], capture_output=True, text=True, check=False)
    assert shown.returncode == 2 and f"{path}:57: not valid JSON" in shown.stderr, shown.stderr


def test_without_logs_recording_names_the_agents_that_come_with_it(tmp_path: Path) -> None:
    for logs in (tmp_path / "nothing", tmp_path):
        arguments = ["traces", "record", "--from", "codex", str(logs), "--output", f"{tmp_path}/out"]
        done = CliRunner().invoke(commands, arguments)
        assert isinstance(done.exception, BadInput)
        assert "--workload agents" in str(done.exception) and str(logs) in str(done.exception)
        assert not (tmp_path / "out").exists()  # the same command can be given again


def test_traces_that_were_not_recorded_yet_say_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, ["traces", "show", "traces"])
    assert isinstance(done.exception, BadInput)
    assert "traces record" in str(done.exception) and "traces show agents" in str(done.exception)
