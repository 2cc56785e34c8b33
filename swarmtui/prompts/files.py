"""Read written prompts: inline, from a text file, JSON lines or a ShareGPT file, or from conversations."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from swarmtui.model.answer_check import AnswerCheck, find_check_problems
from swarmtui.model.schema import BadInput, Stored, parse_json
from swarmtui.model.trace import ReplayedRequest
from swarmtui.model.workload import (
    Conversation,
    Dialogue,
    Graph,
    JsonLines,
    Message,
    MixedWorkload,
    Positive,
    Prompt,
    Prompts,
    ShareGpt,
)
from swarmtui.prompts.library import WorkloadFile, data_path, read_text

WrittenWorkload = Prompts | JsonLines | ShareGpt | Conversation | MixedWorkload | Graph


class PromptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt before the nonce, system message and caps are added."""

    messages: tuple[Message, ...]
    followups: tuple[str, ...] = ()
    type: str = ""
    max_tokens: int | None = None
    check: AnswerCheck | None = None
    replayed: ReplayedRequest | None = None


class _JsonLine(Stored, frozen=True, kw_only=True):
    prompt: str = ""
    messages: tuple[Message, ...] = ()
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
        _collect_lines(path, items, problems)
    elif isinstance(workload, ShareGpt):
        _collect_conversations(path, workload.turns, items)
    else:
        parts = re.split(r"^---[ \t]*\r?$", read_text(path), flags=re.MULTILINE)
        items.extend(PromptItem(messages=(user_message(part),)) for part in parts if part.strip())


def item_from_dialogue(dialogue: Dialogue) -> PromptItem:
    first, *later = dialogue.turns
    return PromptItem(
        messages=(user_message(first),),
        followups=tuple(turn.strip() for turn in later),
        type=dialogue.type,
        max_tokens=dialogue.max_tokens,
        check=dialogue.check,
    )


def _collect_lines(path: Path, items: list[PromptItem], problems: list[BadInput]) -> None:
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = parse_json(text, _JsonLine, str(path))
            items.append(_item_from_line(line))
            problems.extend(
                BadInput(problem.problem, source=str(path), key=problem.key, line=number)
                for problem in (find_check_problems(line.check, "", "check") if line.check is not None else ())
            )
        except BadInput as problem:
            problems.append(BadInput(problem.problem, source=str(path), key=problem.key, line=number))


def _item_from_line(line: _JsonLine) -> PromptItem:
    if bool(line.prompt.strip()) == bool(line.messages):
        raise BadInput("expected either prompt or messages, not empty")
    messages = list(line.messages) if line.messages else [user_message(line.prompt)]
    while messages and messages[-1].role == "assistant":  # a recorded answer, which the model is to generate
        messages.pop()
    if not messages or messages[-1].role != "user":
        raise BadInput("no user message to answer", key="messages")
    return PromptItem(messages=tuple(messages), type=line.type, max_tokens=line.max_tokens, check=line.check)


def _collect_conversations(path: Path, turns: int, items: list[PromptItem]) -> None:
    text = read_text(path)
    try:
        conversations = msgspec.json.decode(text, type=tuple[_ShareGptConversation, ...])
    except msgspec.ValidationError:
        conversations = parse_json(text, tuple[_ShareGptConversation, ...], str(path))
    except RecursionError:
        raise BadInput("nested too deeply", source=str(path)) from None
    except msgspec.DecodeError as error:
        at = re.search(r"byte (\d+)", str(error))
        before = text.encode()[: int(at.group(1))] if at else text.encode()
        raise BadInput(f"not valid JSON: {error}", source=str(path), line=before.count(b"\n") + 1) from None
    for conversation in conversations:
        spoken = conversation.conversations
        asked = [turn.value for turn in spoken if turn.speaker in ("human", "user") and turn.value.strip()]
        if asked:
            items.append(item_from_dialogue(Dialogue(turns=tuple(asked[:turns]))))
