from __future__ import annotations

from collections import Counter

import jsonschema

from swarmtui.model.workload import Conversation, Prompts, RandomText, ToolTurn
from swarmtui.prompts.generator import TaskGenerator, tools_of
from swarmtui.prompts.library import find_workload


def test_coding_has_distinct_prompts_of_four_types() -> None:
    workload = find_workload("coding").workload
    assert isinstance(workload, Prompts)
    types = Counter(prompt.type for prompt in workload.prompts)
    assert set(types) == {"implement", "test", "review", "document"}
    assert len({prompt.text for prompt in workload.prompts}) == sum(types.values()) >= 64
    assert len({" ".join(prompt.text.split()[:6]) for prompt in workload.prompts}) >= 60
    assert all(40 <= len(prompt.text.split()) <= 250 for prompt in workload.prompts)
    assert all("```" in p.text for p in workload.prompts if p.type in ("test", "review", "document"))


def test_chat_has_varied_questions() -> None:
    workload = find_workload("chat").workload
    assert isinstance(workload, Prompts)
    assert len({prompt.text for prompt in workload.prompts}) == len(workload.prompts) >= 24
    assert len({prompt.type for prompt in workload.prompts}) >= 3


def test_conversations_have_three_to_five_turns() -> None:
    workload = find_workload("conversation").workload
    assert isinstance(workload, Conversation)
    assert len(workload.conversations) >= 8
    assert all(3 <= len(talk.turns) <= 5 for talk in workload.conversations)


def test_coding_agent_has_ten_long_tools_and_turns_with_results() -> None:
    workload = find_workload("coding-agent").workload
    assert isinstance(workload, Conversation)
    tools = tools_of(workload)
    assert len(tools) == 10
    # 10 to 15 thousand tokens at 3.1 (a vocabulary of 4,096) to 4.4 characters per token
    assert 44_000 <= sum(len(tool.description) + len(tool.parameters) for tool in tools) <= 47_000
    turns = [turn for talk in workload.conversations for turn in talk.turns]
    assert sum(isinstance(turn, ToolTurn) for turn in turns) >= 20
    schemas = {tool.name: tool.parameters for tool in workload.tools}
    for turn in turns:
        if isinstance(turn, ToolTurn):
            jsonschema.validate(turn.arguments, schemas[turn.tool])


def test_coding_agent_shares_its_system_prompt_and_tools_only() -> None:
    source = TaskGenerator(find_workload("coding-agent"), seed=1, calibration=None)
    a, b, warmup = source.task(0, 1, 0), source.task(6, 1, 0), source.warmup(0)
    assert a.messages[0] == b.messages[0] == warmup.messages[0]
    assert a.tools == b.tools == warmup.tools
    assert a.messages[1].role == "user"
    assert a.messages[1].content[:8] != b.messages[1].content[:8]


def test_generated_prompts_have_the_lengths_of_their_names() -> None:
    even, long = find_workload("random-1k-1k").workload, find_workload("long-prefill").workload
    assert isinstance(even, RandomText)
    assert isinstance(long, RandomText)
    assert (even.input_tokens, even.output_tokens) == (1024, 1024)
    assert (long.input_tokens, long.output_tokens) == (8192, 128)
