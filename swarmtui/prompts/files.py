"""Prompts that somebody wrote: inline, in a text file, in JSON lines, in a ShareGPT file, or as conversations."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from swarmtui.model.answer_check import AnswerCheck, wrong_with_check
from swarmtui.model.schema import BadInput, Stored, read_json
from swarmtui.model.workload import (
    Beside,
    Conversation,
    Dialogue,
    Graph,
    JsonLines,
    Message,
    Positive,
    Prompt,
    Prompts,
    ShareGpt,
)
from swarmtui.prompts.library import Found, data_path, read_text

WrittenKind = Prompts | JsonLines | ShareGpt | Conversation | Beside | Graph


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, before nonce, system message and caps."""

    messages: tuple[Message, ...]
    followups: tuple[str, ...] = ()
    type: str = ""
    max_tokens: int | None = None
    check: AnswerCheck | None = None


class _Line(Stored, frozen=True, kw_only=True):
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class _Said(Stored, frozen=True, kw_only=True):
    speaker: str = msgspec.field(name="from")
    value: str


class _Talk(Stored, frozen=True, kw_only=True):
    conversations: tuple[_Said, ...]


def read_items(found: Found, workload: WrittenKind) -> tuple[tuple[Item, ...], tuple[BadInput, ...]]:
    """All that can be used, and all that is wrong."""
    items: list[Item] = []
    problems: list[BadInput] = []
    try:
        _collect(found, workload, items, problems)
    except BadInput as problem:
        problems.append(problem)
    if not items and not problems:
        problems.append(BadInput("no prompts in it", source=str(data_path(found) or found.source)))
    return tuple(items), tuple(problems)


def load_items(found: Found, workload: WrittenKind) -> tuple[Item, ...]:
    items, problems = read_items(found, workload)
    if problems:
        raise problems[0]
    return items


def of_prompt(prompt: Prompt) -> Item:
    return Item(messages=(user(prompt.text),), type=prompt.type, max_tokens=prompt.max_tokens, check=prompt.check)


def user(text: str) -> Message:
    return Message(role="user", content=text.strip())


def _collect(found: Found, workload: WrittenKind, items: list[Item], problems: list[BadInput]) -> None:
    path = data_path(found)
    if isinstance(workload, Conversation):
        items.extend(of_dialogue(talk) for talk in workload.conversations)
    elif isinstance(workload, Beside):
        items.append(msgspec.structs.replace(of_dialogue(workload.primary), type=workload.primary.type or "primary"))
        items.extend(of_prompt(prompt) for prompt in workload.side)
    elif isinstance(workload, Graph):
        for node in workload.tasks:
            item = Item(messages=(user(node.text),), type=node.id, max_tokens=node.max_tokens, check=node.check)
            items.extend([item] * node.copies)
    elif path is None:
        items.extend(of_prompt(prompt) for prompt in getattr(workload, "prompts", ()))
    elif isinstance(workload, JsonLines):
        _collect_lines(path, items, problems)
    elif isinstance(workload, ShareGpt):
        _collect_talks(path, workload.turns, items)
    else:
        parts = re.split(r"^---[ \t]*\r?$", read_text(path), flags=re.MULTILINE)
        items.extend(Item(messages=(user(part),)) for part in parts if part.strip())


def of_dialogue(talk: Dialogue) -> Item:
    first, *later = talk.turns
    return Item(
        messages=(user(first),),
        followups=tuple(turn.strip() for turn in later),
        type=talk.type,
        max_tokens=talk.max_tokens,
        check=talk.check,
    )


def _collect_lines(path: Path, items: list[Item], problems: list[BadInput]) -> None:
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = read_json(text, _Line, str(path))
            items.append(_of_line(line))
            problems.extend(
                BadInput(problem.problem, source=str(path), key=problem.key, line=number)
                for problem in (wrong_with_check(line.check, "", "check") if line.check is not None else ())
            )
        except BadInput as problem:
            problems.append(BadInput(problem.problem, source=str(path), key=problem.key, line=number))


def _of_line(line: _Line) -> Item:
    if bool(line.prompt.strip()) == bool(line.messages):
        raise BadInput("expected either prompt or messages, with something in it")
    messages = list(line.messages) if line.messages else [user(line.prompt)]
    while messages and messages[-1].role == "assistant":  # the recorded answer: giving one is the model's work
        messages.pop()
    if not messages or messages[-1].role != "user":
        raise BadInput("no user message to answer", key="messages")
    return Item(messages=tuple(messages), type=line.type, max_tokens=line.max_tokens, check=line.check)


def _collect_talks(path: Path, turns: int, items: list[Item]) -> None:
    text = read_text(path)
    try:
        talks = msgspec.json.decode(text, type=tuple[_Talk, ...])
    except msgspec.ValidationError:
        talks = read_json(text, tuple[_Talk, ...], str(path))
    except msgspec.DecodeError as error:
        at = re.search(r"byte (\d+)", str(error))
        before = text.encode()[: int(at.group(1))] if at else text.encode()
        raise BadInput(f"not valid JSON: {error}", source=str(path), line=before.count(b"\n") + 1) from None
    for talk in talks:
        asked = [said.value for said in talk.conversations if said.speaker in ("human", "user") and said.value.strip()]
        if asked:
            items.append(of_dialogue(Dialogue(turns=tuple(asked[:turns]))))
