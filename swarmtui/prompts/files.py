"""Read written prompts: inline, from a text file, JSON lines or a ShareGPT file, or from conversations."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from swarmtui.model.answer_check import AnswerCheck, find_check_problems
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.parsing import decode_json, parse_json
from swarmtui.model.trace import ReplayedRequest
from swarmtui.model.workload import (
    Conversation,
    Dialogue,
    Followup,
    Graph,
    JsonLines,
    Message,
    MixedWorkload,
    Positive,
    Prompt,
    Prompts,
    ShareGpt,
    ToolCall,
    ToolExchange,
    ToolTurn,
)
from swarmtui.prompts.library import WorkloadFile, data_path, read_text
from swarmtui.prompts.traces.agentperf import RecordedMessage, to_message

WrittenWorkload = Prompts | JsonLines | ShareGpt | Conversation | MixedWorkload | Graph


class PromptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt before the nonce, system message and caps are added."""

    messages: tuple[Message, ...]
    followups: tuple[Followup, ...] = ()
    type: str = ""
    max_tokens: int | None = None
    check: AnswerCheck | None = None
    replayed: ReplayedRequest | None = None


class _JsonLine(Stored, frozen=True, kw_only=True):
    prompt: str = ""
    messages: tuple[RecordedMessage, ...] = ()
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class _ShareGptTurn(Stored, frozen=True, kw_only=True):
    speaker: str = msgspec.field(name="from")
    value: str


class _ShareGptConversation(Stored, frozen=True, kw_only=True):
    conversations: tuple[_ShareGptTurn, ...]


def read_items(found: WorkloadFile, workload: WrittenWorkload) -> tuple[tuple[PromptItem, ...], tuple[BadInput, ...]]:
    """Return the usable prompts, and all problems."""
    items: list[PromptItem] = []
    problems: list[BadInput] = []
    try:
        _collect(found, workload, items, problems)
    except BadInput as problem:
        problems.append(problem)
    if not items and not problems:
        problems.append(BadInput("contains no prompts", source=str(data_path(found) or found.source)))
    return tuple(items), tuple(problems)


def load_items(found: WorkloadFile, workload: WrittenWorkload) -> tuple[PromptItem, ...]:
    items, problems = read_items(found, workload)
    if problems:
        raise problems[0]
    return items


def item_from_prompt(prompt: Prompt) -> PromptItem:
    return PromptItem(
        messages=(user_message(prompt.text),), type=prompt.type, max_tokens=prompt.max_tokens, check=prompt.check
    )


def user_message(text: str) -> Message:
    return Message(role="user", content=text.strip())


def _collect(found: WorkloadFile, workload: WrittenWorkload, items: list[PromptItem], problems: list[BadInput]) -> None:
    path = data_path(found)
    if isinstance(workload, Conversation):
        items.extend(map(item_from_dialogue, workload.conversations))
    elif isinstance(workload, MixedWorkload):
        items.append(
            msgspec.structs.replace(item_from_dialogue(workload.primary), type=workload.primary.type or "primary")
        )
        items.extend(item_from_prompt(prompt) for prompt in workload.side)
    elif isinstance(workload, Graph):
        for node in workload.tasks:
            item = PromptItem(
                messages=(user_message(node.text),), type=node.id, max_tokens=node.max_tokens, check=node.check
            )
            items.extend([item] * node.copies)
    elif path is None:
        items.extend(item_from_prompt(prompt) for prompt in getattr(workload, "prompts", ()))
    elif isinstance(workload, JsonLines):
        _collect_lines(path, {tool.name for tool in workload.tools}, items, problems)
    elif isinstance(workload, ShareGpt):
        _collect_conversations(path, workload.turns, items)
    else:
        parts = re.split(r"^---[ \t]*\r?$", read_text(path), flags=re.MULTILINE)
        items.extend(PromptItem(messages=(user_message(part),)) for part in parts if part.strip())


def item_from_dialogue(dialogue: Dialogue) -> PromptItem:
    first, *later = dialogue.turns
    return PromptItem(
        messages=(user_message(str(first)),),
        followups=tuple(_followup(turn, number) for number, turn in enumerate(later, 1)),
        type=dialogue.type,
        max_tokens=dialogue.max_tokens,
        check=dialogue.check,
    )


def _followup(turn: str | ToolTurn, number: int) -> Followup:
    """Return a later turn. The id of a call has nine letters and digits, which is what some chat templates require."""
    if isinstance(turn, str):
        return turn.strip()
    arguments = msgspec.json.encode(turn.arguments).decode()
    return ToolExchange(
        call=ToolCall(id=f"call{number:05}", name=turn.tool, arguments=arguments), result=turn.result.strip()
    )


def _collect_lines(path: Path, tools: set[str], items: list[PromptItem], problems: list[BadInput]) -> None:
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = parse_json(text, _JsonLine, str(path))
            items.append(_item_from_line(line, tools))
            problems.extend(
                BadInput(problem.problem, source=str(path), key=problem.key, line=number)
                for problem in (find_check_problems(line.check, "", "check") if line.check is not None else ())
            )
        except BadInput as problem:
            problems.append(BadInput(problem.problem, source=str(path), key=problem.key, line=number))


def _item_from_line(line: _JsonLine, tools: set[str]) -> PromptItem:
    if bool(line.prompt.strip()) == bool(line.messages):
        raise BadInput("expected either prompt or messages, not empty")
    messages = [_message(message, tools) for message in line.messages] or [user_message(line.prompt)]
    called = {call.id for message in messages for call in message.tool_calls}
    if any(message.role == "tool" and message.tool_call_id not in called for message in messages):
        raise BadInput("a result without the call that it belongs to (tool_call_id)", key="messages")
    while messages and messages[-1].role == "assistant":  # a recorded answer, which the model is to generate
        messages.pop()
    if not messages or messages[-1].role not in ("user", "tool"):
        raise BadInput("no user message to answer", key="messages")
    return PromptItem(messages=tuple(messages), type=line.type, max_tokens=line.max_tokens, check=line.check)


def _message(found: RecordedMessage, tools: set[str]) -> Message:
    message = to_message(found)
    for call in message.tool_calls:
        if call.name not in tools:
            raise BadInput(f"no [[tools]] table of the workload is named {call.name}", key="tool_calls")
        try:
            parsed = msgspec.json.decode(call.arguments)
        except msgspec.DecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            raise BadInput("arguments are not a JSON object in a string", key="tool_calls")
        if not call.id:
            raise BadInput("a call needs an id", key="tool_calls")
    if found.content is None and not message.tool_calls:
        raise BadInput("a message needs content", key="messages")
    return message


def _collect_conversations(path: Path, turns: int, items: list[PromptItem]) -> None:
    conversations: tuple[_ShareGptConversation, ...] = decode_json(
        read_text(path), tuple[_ShareGptConversation, ...], str(path)
    )
    for conversation in conversations:
        spoken = conversation.conversations
        asked = [turn.value for turn in spoken if turn.speaker in ("human", "user") and turn.value.strip()]
        if asked:
            items.append(item_from_dialogue(Dialogue(turns=tuple(asked[:turns]))))
