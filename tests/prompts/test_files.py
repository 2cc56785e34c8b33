"""Reading of data files, and errors for damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.model.base import BadInput
from swarmtui.model.workload import Task, ToolCall
from swarmtui.prompts.files import read_items
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, parse_workload

Write = Callable[[str], WorkloadFile]

JSONL = 'kind = "jsonl"\nname = "j"\nfile = "data.jsonl"\ncache = "warm"\n'
SHAREGPT = 'kind = "sharegpt"\nname = "s"\nfile = "data.json"\ncache = "warm"\nturns = 2\n'


def tasks(found: WorkloadFile, count: int) -> list[Task]:
    source = TaskGenerator(found, seed=0, calibration=None)
    return sorted((source.task(i, 1, i) for i in range(count)), key=lambda task: task.messages[-1].content)


def test_json_lines_are_read(written: Write, tmp_path: Path) -> None:
    def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in turns]

    lines: list[dict[str, object]] = [
        {"prompt": "a", "type": "short", "max_tokens": 5, "id": "ignored"},
        {"messages": said(("user", "x"), ("assistant", "y"), ("user", "b"))},
        {"messages": said(("system", "own"), ("user", "c"), ("assistant", "recorded"))},
    ]
    (tmp_path / "data.jsonl").write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    a, b, c = tasks(written(JSONL + 'system = "common"\n'), 3)
    assert (a.type, a.max_tokens, b.max_tokens) == ("short", 5, None)
    assert [(m.role, m.content) for m in a.messages] == [("system", "common"), ("user", "a")]
    assert [m.role for m in b.messages] == ["system", "user", "assistant", "user"]
    assert [(m.role, m.content) for m in c.messages] == [("system", "own"), ("user", "c")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"prompt": "a"', "not valid JSON"),
        ("[1, 2]", "expected a table, got a list"),
        ('{"prompt": 7}', "prompt: expected text, got a whole number"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens: expected a whole number >= 1"),
        ("{}", "expected either prompt or messages"),
        ('{"prompt": "  "}', "expected either prompt or messages"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "expected either prompt or messages"),
        ('{"messages": [{"role": "robot", "content": "b"}]}', "messages[0].role: invalid value 'robot'; expected one"),
        ('{"messages": [{"role": "tool", "content": "b"}]}', "messages: a result without the call"),
        ('{"messages": [{"role": "system", "content": "b"}]}', "messages: no user message to answer"),
    ],
)
def test_bad_line_is_reported_with_file_and_number(written: Write, tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        TaskGenerator(written(JSONL), seed=0, calibration=None)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert says in str(caught.value)


def test_invalid_utf8_is_reported_with_its_line(written: Write, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"prompt": "good"}\n{"prompt": "\xe9"}\n')
    with pytest.raises(BadInput) as caught:
        TaskGenerator(written(JSONL), seed=0, calibration=None)
    assert str(caught.value) == f"{path}:2: not UTF-8 text"


@pytest.mark.parametrize("toml", [JSONL, SHAREGPT, 'kind = "prompts"\nname = "p"\nfile = "data.txt"\n'])
def test_missing_or_empty_file_is_reported(written: Write, tmp_path: Path, toml: str) -> None:
    name = toml.split('file = "')[1].split('"')[0]
    found = written(toml)
    with pytest.raises(BadInput) as caught:
        TaskGenerator(found, seed=0, calibration=None)
    assert str(caught.value) == f"{found.source}:3: file: no such file: {tmp_path / name}"
    (tmp_path / name).write_text("[]" if name == "data.json" else "\n", encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        TaskGenerator(found, seed=0, calibration=None)
    assert str(caught.value) == f"{tmp_path / name}: contains no prompts"


def test_byte_order_mark_is_skipped(written: Write, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n')
    assert tasks(written(JSONL), 1)[0].messages[0].content == "a"


def test_tool_calls_of_chat_messages_are_read(written: Write, tmp_path: Path) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    spoken = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "r", "tool_call_id": "x"},
    ]
    lines = [{"messages": spoken}, {"messages": [{"role": "user", "content": "v"}]}]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = written(JSONL + '[[tools]]\nname = "read"\n')
    asked = next(task for task in tasks(found, 2) if len(task.messages) == 3)
    assert asked.messages[1].tool_calls == (ToolCall(id="x", name="read", arguments='{"path":"a"}'),)
    assert (asked.messages[2].role, asked.messages[2].tool_call_id) == ("tool", "x")
    assert [tool.name for tool in asked.tools] == ["read"]
    with pytest.raises(BadInput, match=r"data.jsonl:1: tool_calls: no \[\[tools\]\] table .* named read"):
        tasks(written(JSONL), 1)


def test_sharegpt_takes_the_first_human_turns(written: Write, tmp_path: Path) -> None:
    talk = [("system", "s"), ("human", "a1"), ("gpt", "-"), ("user", "a2"), ("gpt", "-"), ("human", "a3")]
    short, silent = [("human", "b1"), ("gpt", "-")], [("gpt", "-")]
    data = [
        {"id": "x", "conversations": [{"from": who, "value": what} for who, what in said]}
        for said in (talk, short, silent)
    ]
    (tmp_path / "data.json").write_text(json.dumps(data), encoding="utf-8")
    a, b = tasks(written(SHAREGPT), 2)
    assert (a.messages[0].content, a.followups) == ("a1", ("a2",))
    assert (b.messages[0].content, b.followups) == ("b1", ())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ('[\n{"conversations": [\n}]', ":3: not valid JSON"),
        ('[\n{"conversations": [', ":2: not valid JSON"),
        ('{"conversations": []}', ": expected a list, got a table"),
        ('[{"conversations": [{"from": "human", "value": 3}]}]', ": [0].conversations[0].value: expected text"),
        ('[{"items": []}]', ": [0]: the key conversations is missing"),
    ],
)
def test_damaged_sharegpt_file_is_reported_with_the_position(
    written: Write, tmp_path: Path, data: str, says: str
) -> None:
    path = tmp_path / "data.json"
    path.write_text(data, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        TaskGenerator(written(SHAREGPT), seed=0, calibration=None)
    assert str(caught.value).startswith(f"{path}{says}")


@given(content=st.text(max_size=80) | st.binary(max_size=80), kind=st.sampled_from([JSONL, SHAREGPT]))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: str | bytes, kind: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    workload = parse_workload(kind.replace("data.", "fuzz."), "made")
    assert workload.__struct_config__.tag in ("jsonl", "sharegpt")
    name = "fuzz.jsonl" if kind is JSONL else "fuzz.json"
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    (folder / name).write_bytes(data)
    items, problems = read_items(WorkloadFile(workload=workload, source="made", base=folder, text=kind), workload)  # type: ignore[arg-type]
    assert items or problems
