"""Presets of simulated machines, their settings, and the parser for `moe-tp1?speed=10&slots=8`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from swarmtui.model.base import BadInput, InputStruct
from swarmtui.model.parsing import convert, parse_toml, suggest

T = TypeVar("T", bound=msgspec.Struct)

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Meta(ge=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/@+-]+$")]
Positive = Annotated[float, Meta(gt=0.0)]


class StepTime(InputStruct, frozen=True, kw_only=True):
    """t(b) in milliseconds: a + c·b, or linear interpolation between the points of `at`."""

    a: NonNegative = 0.0
    c: NonNegative = 0.0
    at: dict[str, Positive] = msgspec.field(default_factory=dict)


class Output(InputStruct, frozen=True, kw_only=True):
    """The natural length of an answer, lognormal; `cv` is the standard deviation over the mean.

    `echo`: the answer repeats the words of the prompt, so that answer checks can pass.
    """

    median: Count = 256
    cv: NonNegative = 0.5
    echo: bool = False


class Speculative(InputStruct, frozen=True, kw_only=True):
    """Drafted tokens per step; the first rejected one ends the draft."""

    tokens: Annotated[int, Meta(ge=0)] = 0
    acceptance: Share = 0.7


class Reasoning(InputStruct, frozen=True, kw_only=True):
    """Reasoning tokens before the content: a share of the answer, or a number."""

    share: Share = 0.0
    tokens: Annotated[int, Meta(ge=0)] = 0
    field: Literal["reasoning", "reasoning_content"] = "reasoning"


class Failures(InputStruct, frozen=True, kw_only=True):
    """Shares of all requests, by kind of failure; a stall lasts `stall_s` of the engine's time."""

    http_500: Share = 0.0
    http_503: Share = 0.0
    reset: Share = 0.0
    cut: Share = 0.0
    error_event: Share = 0.0
    stall: Share = 0.0
    stall_s: NonNegative = 30.0


class Noise(InputStruct, frozen=True, kw_only=True):
    """Coefficients of variation of the step time: for each step, and for each busy period."""

    step_cv: NonNegative = 0.0
    run_cv: NonNegative = 0.0


class Card(InputStruct, frozen=True, kw_only=True):
    """The GPUs of one replica."""

    name: str = "GPU"
    count: Count = 1
    memory_gib: Positive = 24.0
    weights_gib: NonNegative = 12.0
    idle_w: NonNegative = 25.0
    max_w: Positive = 350.0


class Preset(InputStruct, frozen=True, kw_only=True):
    """A simulated machine; presets.toml documents the keys."""

    name: str
    model: Name
    step_ms: StepTime
    prefill_tps: Positive
    description: str = ""
    source: str = ""
    slots: Count = 4
    replicas: Count = 1
    budget: Count = 2048
    waiting_factor: Positive = 1.0
    together_factor: Positive = 1.0
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
    """Settings that do not depend on the preset."""

    speed: Positive = 1.0
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
    hint = suggest(name, list(known), "; ") or f"; known are {', '.join(known)}"
    raise BadInput(f"no such preset{hint}", key=f"sim:{name}")


def parse_spec(text: str) -> tuple[Preset, Settings]:
    """Parse `PRESET` or `PRESET?key=value&…`; keys are speed, seed and those of a preset, dotted for tables."""
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


# Keys that are told by themselves, or by nobody.
_TOLD = ("name", "slots", "replicas", "api_key")


def changed_settings(preset: Preset) -> dict[str, str]:
    """Return the settings that are not those of the preset of this name, as `parse_spec` reads them."""
    known = {one.name: one for one in list_presets()}.get(preset.name)
    before, after = (_flat(msgspec.to_builtins(one)) if one else {} for one in (known, preset))
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in after.items()
        if before and key not in _TOLD and before.get(key) != value
    }


def _flat(table: dict[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{start}{key}.") if isinstance(value, dict) else {f"{start}{key}": value}
    return flat


def override(given: T, pairs: list[tuple[str, str]], *, source: str) -> T:
    """Return a copy with other values; a value that is not valid JSON is a string."""
    data: dict[str, Any] = msgspec.to_builtins(given)
    for key, value in pairs:
        *tables, last = key.split(".")
        table = data
        for name in tables:
            inner = table.get(name)
            if not isinstance(inner, dict):
                raise BadInput("no table of this name", source=source, key=key)
            table = inner
        table[last] = _value(value)
    return convert(data, type(given), source)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def validate_preset(preset: Preset, source: str) -> None:
    """Raise BadInput for what the types do not exclude."""

    def refuse(key: str, problem: str) -> None:
        raise BadInput(f"{preset.name}: {problem}", source=source, key=key)

    step, failures = preset.step_ms, preset.failures
    if bool(step.at) == bool(step.a or step.c):
        refuse("step_ms", "give either a and c, or at")
    if any(not b.isdigit() or int(b) < 1 for b in step.at):
        refuse("step_ms.at", "the keys must be numbers of requests: 1, 2, 4 …")
    if preset.kv_tokens is not None and preset.kv_tokens < preset.max_model_len:
        refuse("kv_tokens", "must be at least max_model_len")
    if preset.budget <= preset.slots * preset.speculative.tokens + preset.slots:
        refuse("budget", "must be above slots × (1 + speculative.tokens), or no budget is left for prefill")
    if sum(getattr(failures, fault) for fault in _FAULTS) > 1.0:
        refuse("failures", "the shares add up to more than 1")


Fault = Literal["http_500", "http_503", "reset", "cut", "error_event", "stall"]

_FAULTS: tuple[Fault, ...] = get_args(Fault)
_GOLDEN = 0.6180339887498949


def fault_for(number: int, failures: Failures, seed: int) -> Fault | None:
    """Multiples of the golden ratio are evenly spread over 0 to 1: of n successive requests about share × n fail."""
    position = ((number + 1) * _GOLDEN + seed * 0.7548776662466927) % 1.0
    for fault in _FAULTS:
        share: float = getattr(failures, fault)
        if position < share:
            return fault
        position -= share
    return None
