"""What agents ask: the workload file, by kind, and one task made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from swarmtui.model import load as loads
from swarmtui.model.answer_check import AnswerCheck, find_check_problems
from swarmtui.model.load import Load
from swarmtui.model.schema import BadInput, InputStruct, Stored, parse_toml

# More tokens, turns or agents than this are a slip of the pen, and would fill the memory.
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
    """`median` tokens; `cv` is the standard deviation over the mean."""

    median: Positive
    cv: Annotated[float, Meta(ge=0.0)]
    low: Positive = 1
    high: Positive | None = None


class Cycle(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="cycle"):
    """The values in turn, request by request."""

    values: Annotated[tuple[Positive, ...], Meta(min_length=1)]


class ByLevel(InputStruct, frozen=True, kw_only=True, tag_field="dist", tag="by_level"):
    """Relative lengths of the C tasks of a level, as shares of `tokens`: C=2 takes the row named "2"."""

    tokens: Positive
    shares: dict[str, Annotated[tuple[Share, ...], Meta(min_length=1)]]


Length = Positive | Fixed | Uniform | Normal | Lognormal | Cycle | ByLevel


class Prompt(InputStruct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1)]
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class Dialogue(InputStruct, frozen=True, kw_only=True):
    """`check` is of the last answer, `max_tokens` of each."""

    turns: Annotated[tuple[str, ...], Meta(min_length=1)]
    type: str = ""
    max_tokens: Positive | None = None
    check: AnswerCheck | None = None


class Node(InputStruct, frozen=True, kw_only=True):
    """A task of a graph, `copies` of it. `{id}` in the text stands for the answer of a task that it waits for."""

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
    cache: Literal["cold", "warm"] = "cold"
    extra: dict[str, Any] = {}
    check: AnswerCheck | None = None
    load: Load | None = None


class Prompts(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="prompts"):
    """Written prompts, inline or in a text file, separated by lines of three dashes."""

    prompts: tuple[Prompt, ...] = ()
    file: str | None = None
    warmup_prompts: tuple[Prompt, ...] = ()


class RandomText(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="random"):
    """Words without sense: so many tokens in, so many out."""

    input_tokens: Length
    output_tokens: Length


class JsonLines(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="jsonl"):
    """One JSON object a line, with `prompt` or `messages`, and perhaps `max_tokens` and `type`."""

    file: str


class ShareGpt(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="sharegpt"):
    """A ShareGPT file: `turns` human turns of each conversation, the model's own answers between them."""

    file: str
    turns: Positive = 1


class Conversation(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="conversation"):
    """Several turns, the model's own answers fed back."""

    conversations: Annotated[tuple[Dialogue, ...], Meta(min_length=1)]


class SharedPrefix(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="shared_prefix"):
    """One long system prompt common to all, and a random question behind it."""

    prefix_tokens: Positive
    input_tokens: Length
    output_tokens: Length


class MixedWorkload(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="mixed"):
    """A primary conversation, and the side tasks that may run beside it."""

    primary: Dialogue
    side: Annotated[tuple[Prompt, ...], Meta(min_length=1)]


class Graph(_WorkloadBase, frozen=True, kw_only=True, tag_field="kind", tag="dag"):
    """Tasks that wait for each other's answers."""

    tasks: Annotated[tuple[Node, ...], Meta(min_length=1)]

    @property
    def size(self) -> int:
        return sum(node.copies for node in self.tasks)


Workload = Prompts | RandomText | JsonLines | ShareGpt | Conversation | SharedPrefix | MixedWorkload | Graph


class Message(Stored, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Task(Stored, frozen=True, kw_only=True):
    """What one agent is given: the first request, and the user turns that follow it.

    `exact` says that `max_tokens` is the length wanted, not a cap: reaching it is then no cap hit.
    `at_ns` is when it is to be sent, counted from the beginning of its stretch; without it, when an agent is free.
    `with_text`: the text of the answer is wanted with its record.
    """

    id: int
    messages: tuple[Message, ...]
    followups: tuple[str, ...] = ()
    type: str = ""
    max_tokens: int | None = None
    exact: bool = False
    temperature: float | None = None
    cold: bool = True
    extra: dict[str, Any] = {}
    check: AnswerCheck | None = None
    at_ns: int | None = None
    with_text: bool = False


def effective_load(workload: Workload) -> Load:
    """The workload's own, else what its kind asks for."""
    if workload.load is not None:
        return workload.load
    if isinstance(workload, MixedWorkload):
        return loads.Mixed(levels=tuple(range(1, len(workload.side) + 2)))
    return loads.Dag() if isinstance(workload, Graph) else loads.Closed()


def task_count(workload: Workload) -> int:
    return workload.size if isinstance(workload, Graph) else 1


def parse_workload(text: str, source: str) -> Workload:
    workload: Workload = parse_toml(text, Workload, source)  # type: ignore[arg-type]
    for problem in find_problems(workload, source):
        raise problem
    return workload


def find_problems(workload: Workload, source: str) -> Iterator[BadInput]:
    """What types cannot say."""
    if isinstance(workload, Prompts) and bool(workload.prompts) == bool(workload.file):
        yield BadInput("give either [[prompts]] or file, one of the two", source=source, key="prompts")
    for key in ("input_tokens", "output_tokens"):
        yield from _wrong_length(getattr(workload, key, None), source, key)
    for key, check in iter_checks(workload):
        yield from find_check_problems(check, source, key)
    yield from _wrong_load(workload, source)
    if isinstance(workload, Graph):
        yield from _wrong_graph(workload, source)


def iter_checks(workload: Workload) -> Iterator[tuple[str, AnswerCheck]]:
    """Every check, with the key under which it stands."""
    tables: list[tuple[str, Any]] = [("", workload), ("primary", getattr(workload, "primary", None))]
    for name in ("prompts", "conversations", "side", "tasks"):
        tables += [(f"{name}[{place}]", part) for place, part in enumerate(getattr(workload, name, ()))]
    for name, part in tables:
        if part is not None and part.check is not None:
            yield f"{name}.check".lstrip("."), part.check


def _wrong_length(length: Length | None, source: str, key: str) -> Iterator[BadInput]:
    if isinstance(length, Uniform) and length.low > length.high:
        yield BadInput("low is above high", source=source, key=key)
    if isinstance(length, Normal | Lognormal) and length.high is not None and length.low > length.high:
        yield BadInput("low is above high", source=source, key=key)
    if isinstance(length, ByLevel):
        for level, shares in length.shares.items():
            if not level.isdigit() or len(shares) != int(level):
                problem = f'the row "{level}" must be a level with as many shares'
                yield BadInput(problem, source=source, key=f"{key}.shares")


def _wrong_load(workload: Workload, source: str) -> Iterator[BadInput]:
    load = effective_load(workload)
    try:
        loads.validate_load(load, source)
    except BadInput as problem:
        yield problem
    kind, mode = str(workload.__struct_config__.tag), loads.mode_of(load)
    for special in ("mixed", "dag"):
        if (kind == special) != (mode == special):
            yield BadInput(f"kind {kind} cannot be asked that way", source=source, key=f"load.mode {mode}")
            return
    if isinstance(workload, MixedWorkload) and isinstance(load, loads.Mixed) and not load.loop:
        most = len(workload.side) + 1
        if max(load.levels) > most:
            said = f"level {max(load.levels)} needs more side tasks than there are ({len(workload.side)})"
            yield BadInput(said, source=source, key="load.levels")


def _wrong_graph(graph: Graph, source: str) -> Iterator[BadInput]:
    known = {node.id: node for node in graph.tasks}
    if len(known) < len(graph.tasks):
        yield BadInput("an id stands twice; copies repeats a task", source=source, key="tasks.id")
    for place, node in enumerate(graph.tasks):
        key = f"tasks[{place}].after"
        for name in node.after:
            if name not in known:
                yield BadInput(f"there is no task {name}", source=source, key=key)
        strange = [name for name in known if f"{{{name}}}" in node.text and name not in node.after]
        for name in strange:
            yield BadInput(f"quotes {{{name}}} but does not wait for it", source=source, key=f"tasks[{place}].text")
    circle = _circle({node.id: [name for name in node.after if name in known] for node in graph.tasks})
    if circle:
        yield BadInput(f"tasks wait for each other: {' → '.join(circle)}", source=source, key="tasks.after")


def _circle(after: dict[str, list[str]]) -> list[str]:
    """Tasks that wait for each other, the first one named again at the end; empty when there are none."""
    left = dict(after)
    while free := [name for name, waits in left.items() if not any(other in left for other in waits)]:
        for name in free:
            del left[name]
    if not left:
        return []
    path = [next(iter(left))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in left[path[-1]] if name in left))
    return path[path.index(path[-1]) :]
