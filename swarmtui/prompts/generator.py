"""Generate the tasks of a session from a workload and a seed: each is a pure function of its number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.model.load import Open
from swarmtui.model.plan import AgentHeader
from swarmtui.model.workload import (
    ByLevel,
    Fixed,
    Graph,
    Length,
    Message,
    MixedWorkload,
    Prompts,
    RandomText,
    SharedPrefix,
    Task,
    Tool,
    Trace,
    Workload,
)
from swarmtui.prompts.files import PromptItem, WrittenWorkload, item_from_prompt, load_items, user_message
from swarmtui.prompts.filler_text import (
    Calibration,
    estimated_calibration,
    make_filler,
    words_for_prompt,
    words_for_tokens,
)
from swarmtui.prompts.library import WorkloadFile, trace_paths
from swarmtui.prompts.sampling import WARMUP_NONCE_START, draw_length, nonce, random_stream, shuffle_balanced
from swarmtui.prompts.traces.play import ArrivingRequests, ComposedRequest, Plays
from swarmtui.prompts.traces.reader import read_sessions
from swarmtui.prompts.traces.recordings import Recordings
from swarmtui.prompts.traces.window import Window

# Short answers are enough to warm up caches, CUDA graphs and clocks.
_WARMUP_CAP = 64
# The times in agent headers lie within a year from this one.
_HEADER_START = datetime(2026, 1, 1, tzinfo=UTC)
_YEAR_S = 365 * 86_400

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
_WARMUP_ITEMS = tuple(PromptItem(messages=(user_message(text),)) for text in _WARMUP_PROMPTS)


class TaskGenerator:
    """Generate the tasks of one session. The same arguments give the same task, in any order of calls."""

    def __init__(
        self,
        found: WorkloadFile,
        *,
        seed: int,
        calibration: Calibration | None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        salt: str = "",
        cold_extra: Mapping[str, Any] | None = None,
        agent_header: AgentHeader | None = None,
        window: Window | None = None,
    ) -> None:
        """Read the data file, if any; `max_tokens` and `temperature` override those of the workload.

        `cold_extra` are fields for requests that must not use the prefix cache. `salt` changes only the nonces: with
        the id of the session in it, a repeated plan finds nothing of the first run in the prefix cache. Without a
        calibration prompt lengths are estimates. `window` limits the requests of a trace.
        """
        workload = found.workload
        exact = workload.output_tokens if isinstance(workload, RandomText | SharedPrefix) else None
        if max_tokens is not None and isinstance(exact, ByLevel):  # a cap would make all shares equal
            shorter = msgspec.structs.replace(exact, tokens=max_tokens)
            workload, max_tokens = msgspec.structs.replace(workload, output_tokens=shorter), None
        self.workload = workload
        self._content: _GeneratedItems | _WrittenItems | _RecordedArrivals | _RecordedSessions
        if isinstance(workload, Trace):
            kind = _RecordedArrivals if isinstance(workload.load, Open) else _RecordedSessions
            self._content = kind(trace_paths(found), seed, salt, calibration or estimated_calibration(), window)
        elif isinstance(workload, RandomText | SharedPrefix):
            self._content = _GeneratedItems(workload, seed, calibration or estimated_calibration())
        else:
            items = _PositionedItems if isinstance(workload, MixedWorkload | Graph) else _WrittenItems
            self._content = items(load_items(found, workload), workload, seed)
        self._seed, self._salt = seed, salt
        self._max_tokens = max_tokens
        self._temperature = workload.temperature if temperature is None else temperature
        self._shared = isinstance(workload, SharedPrefix) or workload.cache == "shared"
        self._tools = tools_of(workload)
        self._exact = exact is not None or isinstance(workload, Trace)
        self._cold = workload.cache == "cold" and not self._shared and not isinstance(workload, Trace)
        self._extra = {"ignore_eos": True, **workload.extra} if self._exact else workload.extra
        self._cold_extra = dict(cold_extra or {})
        self._agent_header = agent_header

    @property
    def checks_answers(self) -> bool:
        items = self._content.items if isinstance(self._content, _WrittenItems) else ()
        return self.workload.check is not None or any(item.check is not None for item in items)

    @property
    def max_tokens(self) -> int | None:
        return self.workload.max_tokens if self._max_tokens is None else self._max_tokens

    @property
    def keeps_in_step(self) -> bool:
        """Whether all answers have the same length, so that streams that start together stay together."""
        lengths = getattr(self.workload, "output_tokens", None)
        return self._exact and (self._max_tokens is not None or isinstance(lengths, int | Fixed))

    def random_share(self, *parts: int) -> float:
        """Return a number from 0 to 1 that depends on the seed and on these numbers."""
        return random_stream(self._seed, "share", *parts).random()

    @property
    def prompt_tokens(self) -> int | None:
        """The length of the prompts, if all have the same."""
        lengths = getattr(self.workload, "input_tokens", None)
        return lengths.value if isinstance(lengths, Fixed) else lengths if isinstance(lengths, int) else None

    @property
    def plays(self) -> Plays:
        assert isinstance(self._content, _RecordedSessions)
        return self._content.plays

    def arrival_times(self, rate: float) -> Iterator[float]:
        """Yield the recorded arrival times of a trace, scaled to this mean rate, without end."""
        assert isinstance(self._content, _RecordedArrivals)
        return self._content.requests.arrival_times(rate)

    def replay(self, request: ComposedRequest) -> Task:
        item = _replayed_item(request)
        task = self._task(0, item, 0, self._cap(item))
        return msgspec.structs.replace(task, tools=request.tools) if request.tools else task

    def task(self, content: int, c: int, position: int, number: int | None = None) -> Task:
        """Return the request with this content, at `position` of its run at level `c`.

        `number` selects the nonce, by default `content` does: a repeated prompt gets a new nonce.
        """
        item = self._content.measured(content, c, position)
        return self._task(content, item, content if number is None else number, self._cap(item))

    def warmup(self, index: int) -> Task:
        """Return a warm-up request: a prompt that is never measured, with a short answer."""
        item = self._content.warmup(index)
        return self._task(index, item, WARMUP_NONCE_START + index, min(self._cap(item) or _WARMUP_CAP, _WARMUP_CAP))

    def _task(self, index: int, item: PromptItem, number: int, cap: int | None) -> Task:
        cold = self._cold and not item.followups  # the history of later turns is in the cache
        kind, turns = self._agent_header, range(1 + len(item.followups))
        headers = [header_messages(kind, self._seed, self._salt, number, turn) for turn in turns] if kind else []
        return Task(
            id=index,
            messages=self._messages(item, number),
            followups=item.followups,
            headers=tuple(headers),
            tools=self._tools,
            type=item.type,
            max_tokens=cap,
            exact=self._exact,
            temperature=self._temperature,
            extra=self._cold_extra | self._extra if cold else self._extra,
            check=item.check or self.workload.check,
            replayed=item.replayed,
        )

    def _cap(self, item: PromptItem) -> int | None:
        if self._max_tokens is not None:
            return self._max_tokens
        most = self.workload.max_tokens
        if item.max_tokens is None:
            return most
        return min(item.max_tokens, most) if self._exact and most is not None else item.max_tokens

    def _messages(self, item: PromptItem, number: int) -> tuple[Message, ...]:
        messages = item.messages
        if self.workload.system and messages[0].role != "system":
            messages = (Message(role="system", content=self.workload.system), *messages)
        if not self._cold and not self._shared:
            return messages
        at = next(n for n, message in enumerate(messages) if message.role != "system") if self._shared else 0
        marked = msgspec.structs.replace(
            messages[at], content=nonce(number, self._seed, self._salt) + messages[at].content
        )
        return (*messages[:at], marked, *messages[at + 1 :])


class _WrittenItems:
    """Written prompts, each once before any is repeated, in a new order each time."""

    def __init__(self, items: tuple[PromptItem, ...], workload: WrittenWorkload, seed: int) -> None:
        self.items, self._workload, self._seed = items, workload, seed
        own = workload.warmup_prompts if isinstance(workload, Prompts) else ()
        self._warmups = tuple(map(item_from_prompt, own)) or _WARMUP_ITEMS
        self._types = [item.type for item in items]
        self._cycle, self._order = -1, [0]

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        cycle, offset = divmod(index, len(self.items))
        if cycle != self._cycle:
            self._order = shuffle_balanced(self._types, random_stream(self._seed, "order", cycle))
            self._cycle = cycle
        return self.items[self._order[offset]]

    def warmup(self, index: int) -> PromptItem:
        return self._warmups[index % len(self._warmups)]


class _PositionedItems(_WrittenItems):
    """Each position of a batch has its own task: the primary and the side tasks, or the tasks of a graph."""

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        if position < len(self.items):
            return self.items[position]
        repeat_from = 1 if isinstance(self._workload, MixedWorkload) else 0
        repeated = self.items[repeat_from:]
        return repeated[(position - repeat_from) % len(repeated)]


class _RecordedSessions:
    """The sessions of a trace are played, not drawn by number; only warm-up prompts are."""

    def __init__(
        self, paths: Sequence[Path], seed: int, salt: str, calibration: Calibration, window: Window | None
    ) -> None:
        self.plays = Plays(Recordings(paths, window), seed, salt, calibration)

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        raise NotImplementedError

    def warmup(self, index: int) -> PromptItem:
        return _WARMUP_ITEMS[index % len(_WARMUP_ITEMS)]


class _RecordedArrivals(_RecordedSessions):
    """The requests of a trace in the order of their arrival; each run starts with the first."""

    def __init__(
        self, paths: Sequence[Path], seed: int, salt: str, calibration: Calibration, window: Window | None
    ) -> None:
        sessions = read_sessions(paths)
        self.requests = ArrivingRequests(map(window.fit, sessions) if window else sessions, seed, salt, calibration)

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        return _replayed_item(self.requests.compose(position, group=index - position))


def _replayed_item(found: ComposedRequest) -> PromptItem:
    return PromptItem(
        messages=found.messages or (user_message(found.prompt),),
        max_tokens=max(1, found.output_tokens),
        replayed=found.replayed,
    )


class _GeneratedItems:
    def __init__(self, workload: RandomText | SharedPrefix, seed: int, calibration: Calibration) -> None:
        self._workload, self._seed, self._calibration = workload, seed, calibration
        self._prefix: tuple[Message, ...] = ()
        self._start: tuple[int, float] = (0, 0.0)
        if isinstance(workload, SharedPrefix):
            words = words_for_tokens(workload.prefix_tokens, calibration)
            prefix = make_filler(words, random_stream(seed, "prefix"), calibration.cycle)
            text = f"{workload.system}\n\n{prefix}" if workload.system else prefix
            self._prefix = (Message(role="system", content=text),)
            # Questions do not repeat the prefix, unless the known text is too short.
            self._start = next((known for known in calibration.known if known[0] >= words), self._start)

    def measured(self, index: int, c: int, position: int) -> PromptItem:
        return self._item("task", index, c, position)

    def warmup(self, index: int) -> PromptItem:
        return self._item("warmup", index, 1, 0)

    def _item(self, use: str, index: int, c: int, position: int) -> PromptItem:
        def tokens(distribution: Length, name: str) -> int:
            return draw_length(distribution, random_stream(self._seed, use, name, index), index, c, position)

        words = words_for_prompt(tokens(self._workload.input_tokens, "input"), self._calibration, self._start)
        rng = random_stream(self._seed, use, "text", index)
        text = make_filler(words, rng, self._calibration.cycle, self._start[0])
        return PromptItem(
            messages=(*self._prefix, user_message(text)), max_tokens=tokens(self._workload.output_tokens, "output")
        )


def fill_answers(task: Task, answers: Mapping[str, str]) -> Task:
    """Replace `{id}` in the prompt by the answer of that task."""
    *before, last = task.messages
    text = last.content
    for name, answer in answers.items():
        text = text.replace(f"{{{name}}}", answer)
    return msgspec.structs.replace(task, messages=(*before, msgspec.structs.replace(last, content=text)))


def tools_of(workload: Workload) -> tuple[Tool, ...]:
    return tuple(
        Tool(
            name=tool.name,
            description=tool.description.strip(),
            parameters=msgspec.json.encode(tool.parameters or {"type": "object", "properties": {}}).decode(),
        )
        for tool in workload.tools
    )


def header_messages(kind: AgentHeader, seed: int, salt: str, number: int, turn: int) -> tuple[Message, ...]:
    """Return lines that real clients put in front of the system prompt, each a system message of its own.

    They change with every request, a known reason for prefix caches without hits. Some servers remove the billing line,
    which they recognise by its name, and none a date.

    The suffix of the version and the session stay the same in all turns of a task; the checksum and the time do not.
    """
    task = sha256(f"{seed}/{salt}/{number}".encode()).hexdigest()
    request = sha256(f"{task}/{turn}".encode()).hexdigest()
    time = _HEADER_START + timedelta(seconds=int(request[8:16], 16) % _YEAR_S)
    lines = {
        "billing": f"x-anthropic-billing-header: cc_version=2.1.0.{task[:3]}; cc_entrypoint=cli; cch={request[:5]};",
        "date": f"Session {task[8:16]}. Current date and time: {time:%Y-%m-%d %H:%M:%S} UTC.",
    }
    return tuple(Message(role="system", content=line) for name, line in lines.items() if kind in (name, "both"))
