"""Which machine is simulated: the presets, their knobs, and the text that names one (`moe-tp1?speed=10&seats=8`)."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from swarmtui.model.schema import BadInput, InputStruct, convert, parse_toml, suggest

T = TypeVar("T", bound=msgspec.Struct)

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Least0 = Annotated[float, Meta(ge=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/@+-]+$")]
Above0 = Annotated[float, Meta(gt=0.0)]


class StepTime(InputStruct, frozen=True, kw_only=True):
    """t(b) in milliseconds: a + c·b, or straight lines through the points of `at`."""

    a: Least0 = 0.0
    c: Least0 = 0.0
    at: dict[str, Above0] = msgspec.field(default_factory=dict)


class Output(InputStruct, frozen=True, kw_only=True):
    """How long an answer is when nothing cuts it: lognormal; `cv` is the standard deviation over the mean.

    `echo`: it says the words of the prompt again, so that checks of answers have something to find.
    """

    median: Count = 256
    cv: Least0 = 0.5
    echo: bool = False


class Speculative(InputStruct, frozen=True, kw_only=True):
    """Drafted tokens a step; the first that is not accepted ends the draft."""

    tokens: Annotated[int, Meta(ge=0)] = 0
    acceptance: Share = 0.7


class Reasoning(InputStruct, frozen=True, kw_only=True):
    """Tokens before the content: a share of the answer, or a number."""

    share: Share = 0.0
    tokens: Annotated[int, Meta(ge=0)] = 0
    field: Literal["reasoning", "reasoning_content"] = "reasoning"


class Failures(InputStruct, frozen=True, kw_only=True):
    """Shares of all requests that fail, by how; a stall lasts `stall_s` of the engine's time."""

    http_500: Share = 0.0
    http_503: Share = 0.0
    reset: Share = 0.0
    cut: Share = 0.0
    error_event: Share = 0.0
    stall: Share = 0.0
    stall_s: Least0 = 30.0


class Noise(InputStruct, frozen=True, kw_only=True):
    """Spread of the step time: of each step, and of each stretch of work that begins after an idle moment."""

    step_cv: Least0 = 0.0
    run_cv: Least0 = 0.0


class Card(InputStruct, frozen=True, kw_only=True):
    """The cards of one replica."""

    name: str = "GPU"
    count: Count = 1
    memory_gib: Above0 = 24.0
    weights_gib: Least0 = 12.0
    idle_w: Least0 = 25.0
    max_w: Above0 = 350.0


class Preset(InputStruct, frozen=True, kw_only=True):
    """A simulated machine; presets.toml says what each key means."""

    name: str
    model: Name
    step_ms: StepTime
    prefill_tps: Above0
    description: str = ""
    source: str = ""
    slots: Count = msgspec.field(default=4, name="seats")
    replicas: Count = 1
    budget: Count = 2048
    waiting_factor: Above0 = 1.0
    together_factor: Above0 = 1.0
    max_model_len: Count = 32768
    kv_tokens: Count | None = None
    prefix_cache: bool = False
    block_size: Count = 16
    api_key: str | None = None
    output: Output = Output()
    speculative: Speculative = Speculative()
    reasoning: Reasoning = Reasoning()
    failures: Failures = Failures()
    noise: Noise = Noise()
    gpu: Card = Card()


class PresetFile(InputStruct, frozen=True, kw_only=True):
    preset: tuple[Preset, ...]


class Settings(InputStruct, frozen=True, kw_only=True):
    """How a simulator runs, whatever it simulates."""

    speed: Above0 = 1.0
    seed: int = 0


@cache
def list_presets() -> tuple[Preset, ...]:
    source = "presets.toml"
    text = Path(__file__).with_name(source).read_text(encoding="utf-8")
    presets = parse_toml(text, PresetFile, source).preset
    for preset in presets:
        validate_preset(preset, source)
    return presets


def find_preset(name: str) -> Preset:
    known = {preset.name: preset for preset in list_presets()}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    raise BadInput(f"no such preset; {hint}", key=f"sim:{name}")


def parse_spec(text: str) -> tuple[Preset, Settings]:
    """`PRESET` or `PRESET?key=value&…`: speed, seed, and any key of a preset, dotted where it is in a table."""
    name, _, query = text.partition("?")
    pairs: list[tuple[str, str]] = []
    for part in query.split("&") if query else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise BadInput("expected key=value", source=f"sim:{name}", key=part)
        pairs.append((key, value))
    settings = Settings()
    overrides: list[tuple[str, str]] = []
    for key, value in pairs:
        if key in Settings.__struct_fields__:
            settings = override(settings, [(key, value)], source=f"sim:{name}")
        elif "." in key or key in Preset.__struct_encode_fields__:
            overrides.append((key, value))
        else:
            known = (*Settings.__struct_fields__, *Preset.__struct_encode_fields__)
            raise BadInput(f"unknown key{suggest(key, list(known), ', ')}", source=f"sim:{name}", key=key)
    preset = override(find_preset(name), overrides, source=f"sim:{name}")
    validate_preset(preset, f"sim:{name}")
    return preset, settings


def override(given: T, pairs: list[tuple[str, str]], *, source: str) -> T:
    """The same with other values; a value is read as JSON where it is JSON, else as text."""
    data: dict[str, Any] = msgspec.to_builtins(given)
    for key, value in pairs:
        *tables, last = key.split(".")
        table = data
        for name in tables:
            inner = table.get(name)
            if not isinstance(inner, dict):
                raise BadInput("no such table of knobs", source=source, key=key)
            table = inner
        table[last] = _value(value)
    return convert(data, type(given), source)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def validate_preset(preset: Preset, source: str) -> None:
    """What types cannot say."""

    def refuse(key: str, problem: str) -> None:
        raise BadInput(f"{preset.name}: {problem}", source=source, key=key)

    step, failures = preset.step_ms, preset.failures
    if bool(step.at) == bool(step.a or step.c):
        refuse("step_ms", "give either a and c, or at")
    if any(not b.isdigit() or int(b) < 1 for b in step.at):
        refuse("step_ms.at", "the points are numbers of requests: 1, 2, 4 …")
    if preset.kv_tokens is not None and preset.kv_tokens < preset.max_model_len:
        refuse("kv_tokens", "must hold at least one request of max_model_len")
    if preset.budget <= preset.slots * preset.speculative.tokens + preset.slots:
        refuse("budget", "must be above seats × (1 + speculative.tokens), or no prompt is ever read")
    shares = (failures.http_500, failures.http_503, failures.reset, failures.cut, failures.error_event, failures.stall)
    if sum(shares) > 1.0:
        refuse("failures", "the shares add up to more than 1")
