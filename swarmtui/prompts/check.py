"""A workload looked at before it is used: everything that is wrong with it, and what it would ask."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from swarmtui.model.schema import BadInput, convert, read_toml
from swarmtui.model.workload import (
    ByLevel,
    Cycle,
    Fixed,
    Length,
    Lognormal,
    Normal,
    RandomText,
    SharedPrefix,
    Uniform,
    Workload,
    wrong_with,
)
from swarmtui.prompts.library import Found, read_text
from swarmtui.prompts.source import open_source
from swarmtui.prompts.written import Item, load_items, read_items

_PROMPT: dict[str, Any] = {"text": "x"}
_DIALOGUE: dict[str, Any] = {"turns": ["x"]}
_NODE: dict[str, Any] = {"id": "x", "text": "x"}
_TABLES: dict[str, dict[str, Any]] = {
    "prompts": _PROMPT,
    "warmup_prompts": _PROMPT,
    "conversations": _DIALOGUE,
    "side": _PROMPT,
    "tasks": _NODE,
}
_LENGTHS = {"input_tokens": 1, "output_tokens": 1}

_SMALLEST: dict[str, dict[str, Any]] = {
    "prompts": {},
    "random": _LENGTHS,
    "jsonl": {"file": "x"},
    "sharegpt": {"file": "x"},
    "conversation": {"conversations": [_DIALOGUE]},
    "shared_prefix": {"prefix_tokens": 1, **_LENGTHS},
    "mixed": {"primary": _DIALOGUE, "side": [_PROMPT]},
    "dag": {"tasks": [_NODE]},
}
_SMALLEST_LOAD: dict[str, dict[str, Any]] = {"swarm": {"agents": 1}, "open": {"rate": 1.0}, "ramp": {"to": 1}}
"""What each kind cannot be without. One doubtful part at a time is put into it, so that no mistake hides another."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A workload in one line and a sample. `prompts` is null where they are made as they are needed."""

    name: str
    description: str
    kind: str
    prompts: int | None
    types: dict[str, int]
    input: str
    output: str
    cap: int | None
    cache: Literal["cold", "warm", "shared prefix"]
    sample: str


def problems(path: str | Path) -> list[BadInput]:
    """Everything wrong with a workload file and the data file it names; empty when it can be used."""
    path = Path(path).expanduser()
    source = str(path)
    try:
        text = read_text(path)
        workload: Workload = read_toml(text, Workload, source)  # type: ignore[arg-type]
    except BadInput as first:
        return [first] if first.key == "" else _all_of(text, source, first)
    found = list(wrong_with(workload, source))
    if isinstance(workload, RandomText | SharedPrefix) or any(problem.key == "prompts" for problem in found):
        return found
    items = read_items(Found(workload=workload, source=source, base=path.parent, text=text), workload)
    return [*found, *items[1]]


def describe(found: Found) -> Description:
    """Raises BadInput where the data file cannot be used."""
    workload = found.workload
    common: dict[str, Any] = {
        "name": workload.name,
        "description": workload.description,
        "kind": str(workload.__struct_config__.tag),
        "cap": workload.max_tokens,
    }
    if isinstance(workload, RandomText | SharedPrefix):
        prefix = f"{workload.prefix_tokens} shared + " if isinstance(workload, SharedPrefix) else ""
        return Description(
            **common,
            prompts=None,
            types={},
            input=f"{prefix}{_words(workload.input_tokens)} tokens",
            output=f"{_words(workload.output_tokens)} tokens",
            cache="shared prefix" if prefix else workload.cache,
            sample=open_source(found, seed=0, calibration=None).task(0, 1, 0).messages[-1].content,
        )
    items = load_items(found, workload)
    return Description(
        **common,
        prompts=len(items),
        types=dict(Counter(item.type for item in items if item.type)),
        input=_sizes(items),
        output="as long as the answer" if workload.max_tokens is None else f"at most {workload.max_tokens} tokens",
        cache=workload.cache,
        sample=items[0].messages[-1].content,
    )


def _all_of(text: str, source: str, first: BadInput) -> list[BadInput]:
    data = tomllib.loads(text)
    smallest = _SMALLEST.get(data["kind"]) if isinstance(data.get("kind"), str) else None
    if smallest is None:
        return [first]
    whole = {"kind": data["kind"], "name": "x", **smallest}
    usual = {str(problem) for problem in wrong_with(_workload(whole, source, text), source)}
    found: dict[str, BadInput] = {}
    for part in _parts(data, whole):
        try:
            wrong = list(wrong_with(_workload(part, source, text), source))
        except BadInput as problem:
            wrong = [problem]
        found |= {str(problem): problem for problem in wrong if str(problem) not in usual | found.keys()}
    return sorted(found.values(), key=lambda problem: (problem.line or 0, str(problem))) or [first]


def _workload(data: dict[str, Any], source: str, text: str) -> Workload:
    workload: Workload = convert(data, Workload, source, text)  # type: ignore[arg-type]
    return workload


def _parts(data: dict[str, Any], whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The smallest workload of its kind with one thing of `data` in it, or with one thing left out that data lacks."""
    for key in whole.keys() - data.keys():
        yield {k: v for k, v in whole.items() if k != key}
    for key, value in data.items():
        if key == "load" and isinstance(value, dict):
            good = {"mode": value.get("mode", "closed")}
            good |= _SMALLEST_LOAD.get(str(good["mode"]), {})
            yield from ({**whole, key: variant} for variant in _variants(value, good))
            continue
        if key == "primary":
            yield from ({**whole, key: variant} for variant in _variants(value, _DIALOGUE))
            continue
        if key not in _TABLES or not isinstance(value, list):
            yield {**whole, key: value}
            continue
        good = _TABLES[key]
        if not value:
            yield {**whole, key: value}
        for place, element in enumerate(value):
            for variant in _variants(element, good):
                yield {**whole, key: [good] * place + [variant]}


def _variants(element: Any, good: dict[str, Any]) -> Iterator[Any]:
    if not isinstance(element, dict):
        yield element
        return
    if good.keys() - element.keys():
        yield {}
    for key, value in element.items():
        yield {**good, key: value}


def _words(wanted: Length) -> str:
    match wanted:
        case Fixed():
            return str(wanted.value)
        case Uniform():
            return f"{wanted.low} to {wanted.high}"
        case Normal():
            return f"normal {wanted.mean} ± {wanted.sd:g}"
        case Lognormal():
            return f"lognormal, median {wanted.median}, CV {wanted.cv:g}"
        case Cycle():
            return " / ".join(map(str, wanted.values))
        case ByLevel():
            return f"{wanted.tokens}, shares by level"
        case _:
            return str(wanted)


def _sizes(items: tuple[Item, ...]) -> str:
    counts = [len(" ".join(message.content for message in item.messages).split()) for item in items]
    low, high = min(counts), max(counts)
    size = f"{low} words" if low == high else f"{low} to {high} words"
    turns = max(len(item.followups) for item in items) + 1
    return size if turns == 1 else f"{size}, up to {turns} turns"
