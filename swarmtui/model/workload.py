"""The structs of a workload file, by kind, and the tasks generated from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from swarmtui.model import load as loads
from swarmtui.model.answer_check import AnswerCheck
from swarmtui.model.base import InputStruct, Stored
from swarmtui.model.load import Load
from swarmtui.model.record import Phase
from swarmtui.model.trace import ReplayedRequest

# More tokens, turns or agents than this are a typo, and would fill the memory.
Positive = Annotated[int, Meta(ge=1, le=10_000_000)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]


class Fixed(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="fixed"):
    value: Positive


class Uniform(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="uniform"):
    low: Positive
    high: Positive


class Normal(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="normal"):
    mean: Positive
    sd: Annotated[float, Meta(ge=0.0)]
    low: Positive = 1
    high: Positive | None = None


class Lognormal(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="lognormal"):
    """A lognormal distribution with this median; `cv` is the standard deviation over the mean."""

    median: Positive
    cv: Annotated[float, Meta(ge=0.0)]
    low: Positive = 1
    high: Positive | None = None


class Cycle(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="cycle"):
    """The values in rotation, one per request."""

    values: Annotated[tuple[Positive, ...], Meta(min_length=1)]


class ByLevel(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="by_level"):
    """Relative lengths of the C tasks of a level, as shares of `tokens`: C=2 uses the row named "2"."""

    tokens: Positive
    shares: dict[str, Annotated[tuple[Share, ...], Meta(min_length=1)]]


Length = Positive | Fixed | Uniform | Normal | Lognormal | Cycle | ByLevel


class Prompt(InputStruct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1)]
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class ToolDefinition(InputStruct, frozen=True, kw_only=True):
    """A tool that the model may call; `parameters` is the JSON Schema of its arguments."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolTurn(InputStruct, frozen=True, kw_only=True):
    """A turn in which an agent called a tool: the call is added to the model's answer, whatever that was."""

    tool: str
    arguments: dict[str, Any] = {}
    result: str


class Dialogue(InputStruct, frozen=True, kw_only=True):
    """A conversation of several turns; `check` applies to the last answer, `max_tokens` to each."""

    turns: Annotated[tuple[str | ToolTurn, ...], Meta(min_length=1)]
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class Node(InputStruct, frozen=True, kw_only=True):
    """A task of a graph, run `copies` times. `{id}` in the text is replaced by the answer of a task in `after`."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    text: Annotated[str, Meta(min_length=1)]
    after: tuple[str, ...] = ()
    copies: Positive = 1
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class _WorkloadBase(InputStruct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    system: str = ""
    max_tokens: Positive | None = None
    temperature: Annotated[float, Meta(ge=0.0)] | None = None
    cache: Literal["cold", "warm", "shared"] = "cold"
    tools: tuple[ToolDefinition, ...] = ()
    extra: dict[str, Any] = {}
    check: AnswerCheck | None = None
    slo: str = ""
    load: Load | None = None


class Prompts(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="prompts"):
    """Written prompts, inline or in a text file, separated by lines of three dashes."""

    prompts: tuple[Prompt, ...] = ()
    file: str | None = None
    warmup_prompts: tuple[Prompt, ...] = ()


class RandomText(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="random"):
    """Prose and code in random variants, with given numbers of input and output tokens."""

    input_tokens: Length
    output_tokens: Length


class JsonLines(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="jsonl"):
    """One JSON object per line, with `prompt` or `messages`, and optionally `max_tokens`, `type` and `check`."""

    file: str


class ShareGpt(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="sharegpt"):
    """A ShareGPT file: the first `turns` human turns of each conversation, with the model's own answers in between."""

    file: str
    turns: Positive = 1


class Conversation(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="conversation"):
    """Conversations of several turns, in which the model's own answers are sent back."""

    conversations: Annotated[tuple[Dialogue, ...], Meta(min_length=1)]


class SharedPrefix(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="shared_prefix"):
    """A long system prompt that all requests share, followed by a random question."""

    prefix_tokens: Positive
    input_tokens: Length
    output_tokens: Length


class MixedWorkload(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="mixed"):
    """A primary conversation, and side tasks that run concurrently."""

    primary: Dialogue
    side: Annotated[tuple[Prompt, ...], Meta(min_length=1)]


class Graph(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="dag"):
    """Tasks that depend on the answers of other tasks."""

    tasks: Annotated[tuple[Node, ...], Meta(min_length=1)]

    @property
    def size(self) -> int:
        return sum(node.copies for node in self.tasks)


class Trace(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """Recorded agent sessions or requests: trace files, or directories of them."""

    files: Annotated[str, Meta(min_length=1)] | Annotated[tuple[str, ...], Meta(min_length=1)]

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.files,) if isinstance(self.files, str) else self.files


# Their tasks are jobs of several requests.
KINDS_WITH_JOBS = ("sharegpt", "conversation", "mixed", "trace")

Workload = Prompts | RandomText | JsonLines | ShareGpt | Conversation | SharedPrefix | MixedWorkload | Graph | Trace


class WorkloadDescription(Stored, frozen=True, kw_only=True):
    """A short description with a sample. `prompts` is null if they are generated."""

    name: str
    description: str
    kind: str
    prompts: int | None
    types: dict[str, int]
    input: str
    output: str
    cap: int | None
    cache: Literal["cold", "warm", "shared", "shared prefix"]
    sample: str


class Tool(Stored, frozen=True, kw_only=True):
    """A tool definition as it is sent: `parameters` is JSON, so that it is encoded once and not for each request."""

    name: str
    description: str
    parameters: str


class ToolCall(Stored, frozen=True, kw_only=True):
    """A call of a tool by the assistant; `arguments` is JSON."""

    id: str
    name: str
    arguments: str


class Message(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a conversation. One of the role `tool` is the result of the call `tool_call_id`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class ToolExchange(Stored, frozen=True, kw_only=True):
    """A call to add to the answer of the model, and the result to send back."""

    call: ToolCall
    result: str


Followup = str | ToolExchange


class Task(Stored, frozen=True, kw_only=True):
    """The work of one agent: the first request, and the turns that follow it, of the user or of a tool.

    `exact`: `max_tokens` is the intended length, so reaching it is not a cap hit. `at_ns` is when to send it, by
    the monotonic clock; null is as soon as an agent is free. `with_text`: include the answer in the record.
    `phase` is that of its requests in a stage of a level; all requests of other stages have the phase of the stage.
    `headers` are messages in front of all others, for each turn.
    """

    id: int
    messages: tuple[Message, ...]
    followups: tuple[Followup, ...] = ()
    headers: tuple[tuple[Message, ...], ...] = ()
    tools: tuple[Tool, ...] = ()
    type: str = ""
    max_tokens: int | None = None
    exact: bool = False
    temperature: float | None = None
    extra: dict[str, Any] = {}
    check: AnswerCheck | None = None
    at_ns: int | None = None
    with_text: bool = False
    phase: Phase = "level"
    replayed: ReplayedRequest | None = None


def effective_load(workload: Workload) -> Load:
    """Return the load of the workload, or the default of its kind."""
    load = workload.load
    if isinstance(workload, Graph) and (load is None or isinstance(load, loads.Dag)):
        return structs.replace(load or loads.Dag(), size=workload.size)
    if load is not None:
        return load
    if isinstance(workload, MixedWorkload):
        return loads.Mixed(levels=tuple(range(1, len(workload.side) + 2)))
    return loads.Sessions() if isinstance(workload, Trace) else loads.Closed()


def iter_checks(workload: Workload) -> Iterator[tuple[str, AnswerCheck]]:
    """Yield every check with its key."""
    tables: list[tuple[str, Any]] = [("", workload), ("primary", getattr(workload, "primary", None))]
    for name in ("prompts", "conversations", "side", "tasks"):
        tables += [(f"{name}[{index}]", part) for index, part in enumerate(getattr(workload, name, ()))]
    for name, part in tables:
        if part is not None and part.check is not None:
            yield f"{name}.check".lstrip("."), part.check
