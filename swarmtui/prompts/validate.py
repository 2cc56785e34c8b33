"""Validate a workload file and report all its problems at once, or describe what it sends."""

from __future__ import annotations

import copy
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swarmtui.model.base import BadInput
from swarmtui.model.parsing import convert, find_line, format_path, parse_path, parse_toml
from swarmtui.model.workload import (
    ByLevel,
    Cycle,
    Fixed,
    Length,
    Lognormal,
    Normal,
    RandomText,
    SharedPrefix,
    Trace,
    Uniform,
    Workload,
    WorkloadDescription,
)
from swarmtui.prompts.files import PromptItem, load_items, read_items
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, find_problems, is_trace, read_text, trace_paths
from swarmtui.prompts.traces.reader import reader_of, trace_files
from swarmtui.prompts.traces.recordings import check_replayable
from swarmtui.text import count_noun

# A wrong value is replaced by one of these, so that validation continues with the rest of the file.
_PLACEHOLDERS: tuple[Any, ...] = (
    "x", 1, 1.5, True, ["x"], [1], {}, {"text": "x"}, {"turns": ["x"]}, {"id": "x", "text": "x"},
    [{"text": "x"}], [{"turns": ["x"]}], [{"id": "x", "text": "x"}], {"prompt_tps": 1, "decode_tps": 1},
)  # fmt: skip
_MAX_PROBLEMS = 100
_MAX_CHECKED = 16 << 20


def validate_workload(path: str | Path) -> list[BadInput]:
    """Return all problems of a workload file and of its data file."""
    path = Path(path).expanduser()
    source = str(path)
    if is_trace(path):
        return list(_trace_problems([path]))
    try:
        text = read_text(path)
        workload: Workload = parse_toml(text, Workload, source)  # type: ignore[arg-type]
    except BadInput as first:
        # Without a readable file or a valid kind, its keys are not known.
        unknown = first.key == "kind" or (first.key == "" and first.missing in ("", "kind"))
        return [first] if unknown else _collect_problems(text, source, first)
    found = [_with_line(problem, text) for problem in find_problems(workload, source)]
    if isinstance(workload, RandomText | SharedPrefix) or any(problem.key == "prompts" for problem in found):
        return found
    file = WorkloadFile(workload=workload, source=source, base=path.parent, text=text)
    if isinstance(workload, Trace):
        try:
            return [*found, *_trace_problems(trace_paths(file))]
        except BadInput as problem:
            return [*found, problem]
    return [*found, *read_items(file, workload)[1]]


def _trace_problems(paths: Sequence[Path]) -> Iterator[BadInput]:
    """Yield the first problem of a trace; files beyond a total size are checked when they are played."""
    size = 0
    try:
        for path in trace_files(paths):
            if (size := size + path.stat().st_size) > _MAX_CHECKED and path.suffix == ".json":
                break
            for session in reader_of(path)(path):
                check_replayable(session, str(path))
    except BadInput as problem:
        yield problem


def describe_workload(found: WorkloadFile) -> WorkloadDescription:
    """Describe a workload; raises BadInput if its data file cannot be used."""
    workload = found.workload
    common: dict[str, Any] = {
        "name": workload.name,
        "description": workload.description,
        "kind": str(workload.__struct_config__.tag),
        "cap": workload.max_tokens,
        "prompts": None,
        "types": {},
    }
    tools = f" + {count_noun(len(workload.tools), 'tool')}" if workload.tools else ""
    if isinstance(workload, RandomText | SharedPrefix):
        prefix = f"{workload.prefix_tokens} shared + " if isinstance(workload, SharedPrefix) else ""
        return WorkloadDescription(
            **common,
            input=f"{prefix}{_format_length(workload.input_tokens)} tokens{tools}",
            output=f"{_format_length(workload.output_tokens)} tokens",
            cache="shared prefix" if prefix else workload.cache,
            sample=TaskGenerator(found, seed=0, calibration=None).task(0, 1, 0).messages[-1].content,
        )
    if isinstance(workload, Trace):
        sample = ", ".join(workload.paths)
        return WorkloadDescription(**common, input="as recorded", output="as recorded", cache="warm", sample=sample)
    items = load_items(found, workload)
    caps = [item.max_tokens or workload.max_tokens for item in items]
    common |= {"prompts": len(items), "types": dict(Counter(item.type for item in items if item.type))}
    return WorkloadDescription(
        **common,
        input=_format_sizes(items) + tools,
        output="no limit" if None in caps else f"at most {max(filter(None, caps))} tokens",
        cache=workload.cache,
        sample=items[0].messages[-1].content,
    )


def _collect_problems(text: str, source: str, first: BadInput) -> list[BadInput]:
    """Repair problems in a copy one by one until it can be converted, then look for semantic problems."""
    data = tomllib.loads(text)
    found: list[BadInput] = []
    problem: BadInput | None = first
    while problem is not None and len(found) < _MAX_PROBLEMS:
        found.append(problem)
        try:
            problem = _repair(data, problem, source, text)
        except (KeyError, IndexError, TypeError):  # the path of a key with a dot in its name is ambiguous
            return found
        if problem is not None and str(problem) in map(str, found):
            return found
    if problem is None:
        repaired = [known.key for known in found]
        semantic = find_problems(_convert_workload(data, source, text), source)
        found += [_with_line(p, text) for p in semantic if not any(_overlap(p.key, key) for key in repaired)]
    return sorted(found, key=lambda problem: (problem.line or 0, str(problem)))


def _repair(data: dict[str, Any], problem: BadInput, source: str, text: str) -> BadInput | None:
    """Replace the wrong value by a valid one, and return the next problem."""
    steps = parse_path(f".{problem.key}")
    if problem.missing:
        steps.append(problem.missing)
    if problem.unknown:
        del _table(data, steps)[steps[-1]]
        return _next_problem(data, source, text)
    return _replace_value(data, steps, source, text)


def _replace_value(data: dict[str, Any], steps: list[str | int], source: str, text: str) -> BadInput | None:
    """Try the placeholders, then no value, then the same for the table that contains it."""
    table, last = _table(data, steps), steps[-1]
    for placeholder in _PLACEHOLDERS:
        table[last] = copy.deepcopy(placeholder)
        following = _next_problem(data, source, text)
        if following is None or not _overlap(following.key, format_path(steps)):
            return following
    del table[last]
    following = _next_problem(data, source, text)
    if following is None or len(steps) == 1 or following.missing != last:
        return following
    return _replace_value(data, steps[:-1], source, text)


def _table(data: Any, steps: list[str | int]) -> Any:
    for step in steps[:-1]:
        data = data[step]
    return data


def _next_problem(data: dict[str, Any], source: str, text: str) -> BadInput | None:
    try:
        _convert_workload(data, source, text)
    except BadInput as problem:
        return problem
    return None


def _overlap(a: str, b: str) -> bool:
    """One of the keys is the other, or contains it."""
    return any(whole == part or part.startswith((f"{whole}.", f"{whole}[")) for whole, part in ((a, b), (b, a)))


def _with_line(problem: BadInput, text: str) -> BadInput:
    line = find_line(parse_path(f".{problem.key.partition(' ')[0]}"), text)
    return BadInput(problem.problem, source=problem.source, key=problem.key, line=line)


def _convert_workload(data: dict[str, Any], source: str, text: str) -> Workload:
    workload: Workload = convert(data, Workload, source, text)  # type: ignore[arg-type]
    return workload


def _format_length(length: Length) -> str:
    match length:
        case Fixed():
            return str(length.value)
        case Uniform():
            return f"{length.low} to {length.high}"
        case Normal():
            return f"normal {length.mean} ± {length.sd:g}"
        case Lognormal():
            return f"lognormal, median {length.median}, CV {length.cv:g}"
        case Cycle():
            return " / ".join(map(str, length.values))
        case ByLevel():
            return f"{length.tokens}, shares by level"
        case _:
            return str(length)


def _format_sizes(items: tuple[PromptItem, ...]) -> str:
    counts = [len(" ".join(message.content for message in item.messages).split()) for item in items]
    low, high = min(counts), max(counts)
    size = count_noun(low, "word") if low == high else f"{low} to {high} words"
    turns = max(len(item.followups) for item in items) + 1
    return size if turns == 1 else f"{size}, up to {turns} turns"
