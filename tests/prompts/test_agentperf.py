"""Replays of agentperf-local: which files are read, what is sent, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swarmtui.analysis.trace_stats import trace_stats
from swarmtui.loadgen.dialects import load_dialect
from swarmtui.model.base import BadInput
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import find_workload
from swarmtui.prompts.traces.play import SharedBlocks
from swarmtui.prompts.traces.reader import read_sessions
from swarmtui.session_process.task_sources import TaskFactory

SYSTEM = {"role": "system", "content": "Sort the parcels of the depot. " * 40}
CALL = {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": '{"parcel":7}'}}
TURNS: list[list[dict[str, Any]]] = [
    [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "How heavy is parcel 7?"}]}],
    [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "12 kg"},
    ],
]
TOOL = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}


def row(turn: int, **more: Any) -> dict[str, Any]:
    messages = [message for part in TURNS[: turn + 1] for message in part]
    return {
        "version": 1, "turn_id": f"t:{turn}", "task_id": "t", "conversation_id": "t", "conversation_idx": turn,
        "messages": messages, "tools": [TOOL], "target_output_tokens": 20 + turn, "recorded_prompt_tokens": 320 + turn,
        "recorded_model_duration_ms": 3000.0, "simulated_tool_delay_ms_after": 500.0, **more,
    }  # fmt: skip


def write_replay(folder: Path, rows: list[dict[str, Any]], trace: str = "traces/t.jsonl") -> Path:
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "t.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "instances.jsonl").write_text('{"instance_id": "not a trace"}\n')
    manifest = {"version": 1, "mode": "single_user_agentic_replay", "name": "n", "tasks": [{"trace": trace}]}
    (folder / "manifest-x86_64.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("name", ["", "manifest-x86_64.json", "traces/t.jsonl"])
def test_lengths_times_and_reuse_are_read(tmp_path: Path, name: str) -> None:
    path = write_replay(tmp_path / "replay", [row(0), row(1)]) / name
    (session,) = read_sessions([path])
    first, second = session.requests
    assert (session.id, session.arrival_s) == ("t", None)
    assert (first.input_tokens, first.output_tokens, second.output_tokens) == (320, 20, 21)
    assert (second.think_s, second.at_s, second.took_s) == (0.5, 3.5, 3.0)
    assert first.blocks and second.blocks[: len(first.blocks) - 1] == first.blocks[:-1]
    assert trace_stats([session]).hit_rate == pytest.approx(0.5, abs=0.01)


def test_recorded_messages_and_tools_are_sent_with_a_salt(tmp_path: Path) -> None:
    found = find_workload(str(write_replay(tmp_path / "replay", [row(0), row(1)])))
    generator = TaskGenerator(found, seed=1, calibration=None, salt="s")
    play = generator.plays.start(4, 0, 0.0, SharedBlocks(0), max_gap_s=10.0, time_scale=1.0)
    tasks = [TaskFactory(generator).replay(play.compose(position), 0, "level") for position in (0, 1)]
    first, second = (json.loads(load_dialect("chat").body("m", task, task.messages)) for task in tasks)
    salted = second["messages"][0]["content"]
    assert salted.endswith(SYSTEM["content"]) and salted != SYSTEM["content"]
    assert second["messages"][0] == first["messages"][0]
    assert first["messages"][1]["content"] == "How heavy is parcel 7?"
    assert second["messages"][2]["tool_calls"] == [CALL]
    assert second["messages"][3] == {"role": "tool", "content": "12 kg", "tool_call_id": "c1"}
    assert second["tools"][0]["function"]["name"] == "weigh"
    assert (second["max_tokens"], second["ignore_eos"]) == (21, True)
    assert tasks[1].replayed is not None and 0 < tasks[1].replayed.reusable_tokens <= 320


def test_tokens_that_were_not_recorded_are_estimated(tmp_path: Path) -> None:
    unknown = {"recorded_prompt_tokens": None, "target_output_tokens": None}
    path = write_replay(tmp_path / "replay", [row(0, **unknown, max_output_tokens=64)])
    (session,) = read_sessions([path])
    assert session.requests[0].output_tokens == 64
    assert session.requests[0].input_tokens == pytest.approx(1500 / 4, abs=50)


@pytest.mark.parametrize(
    ("second", "trace", "problem"),
    [
        (row(1, target_output_tokens=None), "traces/t.jsonl", "t.jsonl:2: the length of the answer is missing"),
        (row(1, version=2), "traces/t.jsonl", "t.jsonl:2: not a valid record"),
        (row(1, messages=[]), "traces/t.jsonl", "t.jsonl:2: not a valid record"),
        (row(1, messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "traces/t.jsonl", "t.jsonl:2: not"),
        (row(1), "../t.jsonl", "manifest-x86_64.json: tasks: ../t.jsonl is not below the directory"),
        (row(1), "traces/other.jsonl", "other.jsonl: no such file"),
    ],
)
def test_damage_is_named(tmp_path: Path, second: dict[str, Any], trace: str, problem: str) -> None:
    path = write_replay(tmp_path / "replay", [row(0), second], trace)
    with pytest.raises(BadInput) as found:
        list(read_sessions([path]))
    assert problem in str(found.value)
