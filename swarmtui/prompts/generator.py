"""Generate the tasks of a session from a workload and a seed: each is a pure function of its number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from swarmtui.model.workload import (
    ByLevel,
    Graph,
    Length,
    Message,
    MixedWorkload,
    Prompts,
    RandomText,
    SharedPrefix,
    Task,
    Workload,
)
from swarmtui.prompts.files import PromptItem, WrittenWorkload, item_from_prompt, load_items, user_message
from swarmtui.prompts.filler_text import Calibration, make_filler, words_for_tokens
from swarmtui.prompts.library import WorkloadFile
from swarmtui.prompts.sampling import WARMUP_NONCE_START, draw_length, nonce, random_stream, shuffle_balanced

WARMUP_CAP = 256

_DEFAULT_CALIBRATION = Calibration(overhead=16.0, tokens_per_word=1.0, by="usage")

_WARMUP_PROMPTS = (
    "Which day comes after Tuesday? Answer in one sentence.",
    "Count from one to twenty in words.",
    "Name five colours and one thing that has each of them.",
    "Describe a plain wooden table in two sentences.",
    "List the months of the year, separated by commas.",
    "What is the opposite of cold? Give three words.",
    "Write one sentence about rain.",
    "Name four animals that live on farms.",
)


class _ItemSource(Protocol):
    def measured(self, index: int, c: int, position: int) -> PromptItem: ...

    def warmup(self, index: int) -> PromptItem: ...


class TaskGenerator:
    """Generate the tasks of one session. The same arguments give the same task, in any order of calls."""

    def __init__(
        self,
        workload: Workload,
        content: _ItemSource,
        *,
        seed: int,
        salt: str,
        max_tokens: int | None,
        temperature: float | None,
        cold_extra: Mapping[str, Any],
    ) -> None:
        self._workload = workload
        self._content = content
        self._seed, self._salt = seed, salt
        self._max_tokens = max_tokens
        self._temperature = workload.temperature if temperature is None else temperature
        self._shared = isinstance(workload, SharedPrefix)
        self._exact = isinstance(workload, RandomText | SharedPrefix)
        self._cold = workload.cache == "cold" and not self._shared
        self._extra = {"ignore_eos": True, **workload.extra} if self._exact else workload.extra
        self._cold_extra = dict(cold_extra)

    @property
    def workload(self) -> Workload:
        return self._workload

    def task(self, index: int, c: int, position: int, content: int | None = None) -> Task:
        """Return request number `index` of the session, at `position` of its run at level `c`.

        `content` selects the prompt, by default `index` does: a repeated prompt gets a new nonce.
        """
        item = self._content.measured(index if content is None else content, c, position)
        return self._task(index, item, index, self._cap(item))

    def warmup(self, index: int) -> Task:
        """Return a warm-up request: a prompt that is never measured, with a short answer."""
        item = self._content.warmup(index)
        return self._task(index, item, WARMUP_NONCE_START + index, min(self._cap(item) or WARMUP_CAP, WARMUP_CAP))

    def _task(self, index: int, item: PromptItem, number: int, cap: int | None) -> Task:
        cold = self._cold and not item.followups  # the history of later turns is in the cache
        return Task(
            id=index,
            messages=self._messages(item, number),
            followups=item.followups,
            type=item.type,
            max_tokens=cap,
            exact=self._exact,
            temperature=self._temperature,
            cold=cold,
            extra=self._cold_extra | self._extra if cold else self._extra,
            check=item.check or self._workload.check,
        )

    def _cap(self, item: PromptItem) -> int | None:
        if self._max_tokens is not None:
            return self._max_tokens
        most = self._workload.max_tokens
        if item.max_tokens is None:
            return most
        return min(item.max_tokens, most) if self._exact and most is not None else item.max_tokens

    def _messages(self, item: PromptItem, number: int) -> tuple[Message, ...]:
        messages = item.messages
        if self._workload.system and messages[0].role != "system":
            messages = (Message(role="system", content=self._workload.system), *messages)
        if not self._cold and not self._shared:
            return messages
        at = len(messages) - 1 if self._shared else 0
        marked = Message(role=messages[at].role, content=nonce(number, self._seed, self._salt) + messages[at].content)
        return (*messages[:at], marked, *messages[at + 1 :])


class _WrittenItems:
    """Written prompts, each once before any is repeated, in a new order each time."""

    def __init__(self, items: tuple[PromptItem, ...], warmups: tuple[PromptItem, ...], seed: int) -> None:
        self._items, self._warmups, self._seed = items, warmups, seed
        self._types = [item.type for item in items]
        self._cycle, self._order = -1, [0]

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        cycle, offset = divmod(index, len(self._items))
        if cycle != self._cycle:
            self._order = shuffle_balanced(self._types, random_stream(self._seed, "order", cycle))
            self._cycle = cycle
        return self._items[self._order[offset]]

    def warmup(self, index: int) -> PromptItem:
        return self._warmups[index % len(self._warmups)]


class _PositionedItems:
    """Each position of a batch has its own task: the primary and the side tasks, or the tasks of a graph."""

    def __init__(self, items: tuple[PromptItem, ...], repeat_from: int, warmups: tuple[PromptItem, ...]) -> None:
        self._items, self._repeat_from, self._warmups = items, repeat_from, warmups

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        if position < len(self._items):
            return self._items[position]
        repeated = self._items[self._repeat_from :]
        return repeated[(position - self._repeat_from) % len(repeated)]

    def warmup(self, index: int) -> PromptItem:
        return self._warmups[index % len(self._warmups)]


class _GeneratedItems:
    """Random text of the given lengths."""

    def __init__(self, workload: RandomText | SharedPrefix, seed: int, calibration: Calibration) -> None:
        self._workload, self._seed, self._calibration = workload, seed, calibration
        self._prefix: tuple[Message, ...] = ()
        if isinstance(workload, SharedPrefix):
            words = max(1, round(workload.prefix_tokens / calibration.tokens_per_word))
            prefix = make_filler(words, random_stream(seed, "prefix"))
            text = f"{workload.system}\n\n{prefix}" if workload.system else prefix
            self._prefix = (Message(role="system", content=text),)

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        return self._item("task", index, c, position)

    def warmup(self, index: int) -> PromptItem:
        return self._item("warmup", index, 1, 0)

    def _item(self, use: str, index: int, c: int, position: int) -> PromptItem:
        def tokens(distribution: Length, name: str) -> int:
            return draw_length(distribution, random_stream(self._seed, use, name, index), index, c, position)

        words = words_for_tokens(tokens(self._workload.input_tokens, "input"), self._calibration)
        text = make_filler(words, random_stream(self._seed, use, "text", index))
        return PromptItem(
            messages=(*self._prefix, user_message(text)), max_tokens=tokens(self._workload.output_tokens, "output")
        )


def open_generator(
    found: WorkloadFile,
    *,
    seed: int,
    calibration: Calibration | None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    salt: str = "",
    cold_extra: Mapping[str, Any] | None = None,
) -> TaskGenerator:
    """Read the data file, if any; `max_tokens` and `temperature` override those of the workload.

    `cold_extra` are fields for requests that must not use the prefix cache. `salt` changes only the nonces: with the id
    of the session in it, a repeated plan finds nothing of the first run in the prefix cache. Without a calibration
    prompt lengths are estimates.
    """
    workload = found.workload
    exact = workload.output_tokens if isinstance(workload, RandomText | SharedPrefix) else None
    if max_tokens is not None and isinstance(exact, ByLevel):  # a cap would make all shares equal
        shorter = msgspec.structs.replace(exact, tokens=max_tokens)
        workload, max_tokens = msgspec.structs.replace(workload, output_tokens=shorter), None
    content: _ItemSource
    if isinstance(workload, RandomText | SharedPrefix):
        content = _GeneratedItems(workload, seed, calibration or _DEFAULT_CALIBRATION)
    elif isinstance(workload, MixedWorkload | Graph):
        items = load_items(found, workload)
        content = _PositionedItems(items, 1 if isinstance(workload, MixedWorkload) else 0, _warmups(workload))
    else:
        content = _WrittenItems(load_items(found, workload), _warmups(workload), seed)
    return TaskGenerator(
        workload,
        content,
        seed=seed,
        salt=salt,
        max_tokens=max_tokens,
        temperature=temperature,
        cold_extra=cold_extra or {},
    )


def fill_answers(task: Task, answers: Mapping[str, str]) -> Task:
    """Replace `{id}` in the prompt by the answer of that task."""
    *before, last = task.messages
    text = last.content
    for name, answer in answers.items():
        text = text.replace(f"{{{name}}}", answer)
    return msgspec.structs.replace(task, messages=(*before, Message(role=last.role, content=text)))


def _warmups(workload: WrittenWorkload) -> tuple[PromptItem, ...]:
    if isinstance(workload, Prompts) and workload.warmup_prompts:
        return tuple(item_from_prompt(prompt) for prompt in workload.warmup_prompts)
    return tuple(PromptItem(messages=(user_message(text),)) for text in _WARMUP_PROMPTS)
