"""What agents ask: the workload file, by kind, and one task made of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from swarmtui.model.schema import BadInput, Given, Stored, read_toml

Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]


class Fixed(Given, frozen=True, kw_only=True, tag_field="dist", tag="fixed"):
    value: Positive


class Uniform(Given, frozen=True, kw_only=True, tag_field="dist", tag="uniform"):
    low: Positive
    high: Positive


class Normal(Given, frozen=True, kw_only=True, tag_field="dist", tag="normal"):
    mean: Positive
    sd: Annotated[float, Meta(ge=0.0)]
    low: Positive = 1
    high: Positive | None = None


class Lognormal(Given, frozen=True, kw_only=True, tag_field="dist", tag="lognormal"):
    """`median` tokens; `cv` is the standard deviation over the mean."""

    median: Positive
    cv: Annotated[float, Meta(ge=0.0)]
    low: Positive = 1
    high: Positive | None = None


class Cycle(Given, frozen=True, kw_only=True, tag_field="dist", tag="cycle"):
    """The values in turn, request by request."""

    values: Annotated[tuple[Positive, ...], Meta(min_length=1)]


class ByLevel(Given, frozen=True, kw_only=True, tag_field="dist", tag="by_level"):
    """Relative lengths of the C tasks of a level, as shares of `tokens`: C=2 takes the row named "2"."""

    tokens: Positive
    shares: dict[str, Annotated[tuple[Share, ...], Meta(min_length=1)]]


Length = Positive | Fixed | Uniform | Normal | Lognormal | Cycle | ByLevel


class Prompt(Given, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1)]
    type: str = ""
    max_tokens: Positive | None = None


class Dialogue(Given, frozen=True, kw_only=True):
    turns: Annotated[tuple[str, ...], Meta(min_length=1)]
    type: str = ""


class _Common(Given, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    system: str = ""
    max_tokens: Positive | None = None
    temperature: Annotated[float, Meta(ge=0.0)] | None = None
    cache: Literal["cold", "warm"] = "cold"
    extra: dict[str, Any] = {}


class Prompts(_Common, frozen=True, kw_only=True, tag_field="kind", tag="prompts"):
    """Written prompts, inline or in a text file, separated by lines of three dashes."""

    prompts: tuple[Prompt, ...] = ()
    file: str | None = None
    warmup_prompts: tuple[Prompt, ...] = ()


class RandomText(_Common, frozen=True, kw_only=True, tag_field="kind", tag="random"):
    """Words without sense: so many tokens in, so many out."""

    input_tokens: Length
    output_tokens: Length


class JsonLines(_Common, frozen=True, kw_only=True, tag_field="kind", tag="jsonl"):
    """One JSON object a line, with `prompt` or `messages`, and perhaps `max_tokens` and `type`."""

    file: str


class ShareGpt(_Common, frozen=True, kw_only=True, tag_field="kind", tag="sharegpt"):
    """A ShareGPT file: `turns` human turns of each conversation, the model's own answers between them."""

    file: str
    turns: Positive = 1


class Conversation(_Common, frozen=True, kw_only=True, tag_field="kind", tag="conversation"):
    """Several turns, the model's own answers fed back."""

    conversations: Annotated[tuple[Dialogue, ...], Meta(min_length=1)]


class SharedPrefix(_Common, frozen=True, kw_only=True, tag_field="kind", tag="shared_prefix"):
    """One long system prompt common to all, and a random question behind it."""

    prefix_tokens: Positive
    input_tokens: Length
    output_tokens: Length


Workload = Prompts | RandomText | JsonLines | ShareGpt | Conversation | SharedPrefix


class Message(Stored, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Task(Stored, frozen=True, kw_only=True):
    """What one agent is given: the first request, and the user turns that follow it.

    `exact` says that `max_tokens` is the length wanted, not a cap: reaching it is then no cap hit.
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


def read_workload(text: str, source: str) -> Workload:
    workload: Workload = read_toml(text, Workload, source)  # type: ignore[arg-type]
    _check(workload, source)
    return workload


def _check(workload: Workload, source: str) -> None:
    """What types cannot say."""
    if isinstance(workload, Prompts) and bool(workload.prompts) == bool(workload.file):
        raise BadInput("give either [[prompts]] or file, one of the two", source=source, key="prompts")
    for key in ("input_tokens", "output_tokens"):
        length = getattr(workload, key, None)
        if isinstance(length, Uniform) and length.low > length.high:
            raise BadInput("low is above high", source=source, key=key)
        if isinstance(length, Normal | Lognormal) and length.high is not None and length.low > length.high:
            raise BadInput("low is above high", source=source, key=key)
        if isinstance(length, ByLevel):
            for level, shares in length.shares.items():
                if not level.isdigit() or len(shares) != int(level):
                    raise BadInput(
                        f'the row "{level}" must be a level with as many shares', source=source, key=f"{key}.shares"
                    )
