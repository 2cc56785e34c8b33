"""Find workloads, built-in ones by name, others by path, and parse them."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from swarmtui.files import MAX_DATA, open_regular, read_file
from swarmtui.model import load as loads
from swarmtui.model.answer_check import find_check_problems
from swarmtui.model.base import BadInput, reading
from swarmtui.model.parsing import find_line, parse_toml, suggest
from swarmtui.model.workload import (
    ByLevel,
    Graph,
    JsonLines,
    Length,
    Lognormal,
    MixedWorkload,
    Normal,
    Prompts,
    ShareGpt,
    ToolTurn,
    Trace,
    Uniform,
    Workload,
    effective_load,
    iter_checks,
)
from swarmtui.prompts.traces.play import recorded_load
from swarmtui.prompts.traces.reader import TRACE_SUFFIXES, trace_files

_PACKAGE = Path(__file__).resolve().parent.parent
# The built-in workloads that reproduce published benchmarks are in this directory.
_REPRODUCTIONS = "reproductions"


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with its file: `source` is its name in messages, data files are relative to `base`.

    `builtin`: it comes with swarmtui; as a `reproduction` of a published benchmark.
    """

    workload: Workload
    source: str
    base: Path
    text: str
    builtin: bool = False
    reproduction: bool = False


def find_workload(name_or_path: str) -> WorkloadFile:
    names = _builtin_paths()
    path = names.get(name_or_path, Path(name_or_path).expanduser())
    if path.absolute() in names.values():
        return _read_builtin(path)
    if path.exists():
        return _trace_workload(path) if is_trace(path) else _read(path)
    if path.suffix == ".toml" or len(path.parts) > 1:
        hint = f"; the built-in workload is called {path.stem}" if path.stem in names else ""
        raise BadInput(f"no such file{hint}", source=name_or_path)
    hint = suggest(name_or_path, list(names), "; ") or ";"
    raise BadInput(f"no workload or file named {name_or_path!r}{hint} built-in: {', '.join(names)}")


def find_traces(name_or_path: str) -> tuple[Path, ...]:
    """Return the trace files and directories of a path, or of a workload that replays a trace."""
    path = Path(name_or_path).expanduser()
    if is_trace(path) and name_or_path not in _builtin_paths():
        return (path,)
    if name_or_path not in _builtin_paths() and not path.exists():
        guess = suggest(name_or_path, list(_builtin_paths()), "; ") or ";"
        raise BadInput(
            f"no file, directory or workload of this name{guess} `swarmtui traces record` makes traces from the logs "
            "of your coding agent, and `swarmtui traces show agents` describes the agents that come with swarmtui",
            key=name_or_path,
        )
    found = find_workload(name_or_path)
    if not isinstance(found.workload, Trace):
        raise BadInput(f"workload {found.workload.name} does not replay a trace", source=found.source)
    return trace_paths(found)


def builtin_workloads() -> tuple[WorkloadFile, ...]:
    """Return the built-in workloads, those that reproduce published benchmarks last."""
    return tuple(map(_read_builtin, _builtin_paths().values()))


def workload_digest(found: WorkloadFile) -> str:
    """Hash the parsed file and its data, so that equal digests mean equal requests; comments do not count."""
    content = tomllib.loads(found.text)
    content.pop("description", None)
    paths: Iterable[Path] = ()
    if isinstance(found.workload, Trace):
        paths = trace_files(trace_paths(found))
        # The same trace under another name is the same work.
        content = {key: value for key, value in content.items() if key not in ("files", "name")}
    elif path := data_path(found):
        paths = (path,)
    digested = hashlib.sha256(msgspec.json.encode(content, order="deterministic"))
    for path in paths:
        with reading(path), os.fdopen(open_regular(path, MAX_DATA), "rb") as file:
            digested.update(hashlib.file_digest(file, "sha256").digest())
    return digested.hexdigest()[:16]


def is_trace(path: Path) -> bool:
    return path.is_dir() or path.suffix in TRACE_SUFFIXES


def _trace_workload(path: Path) -> WorkloadFile:
    name = msgspec.json.encode(path.resolve().name).decode()
    text = f'kind = "trace"\nname = {name}\nfiles = {name}\n'
    workload = parse_workload(text, str(path))
    return _with_recorded_load(WorkloadFile(workload=workload, source=str(path), base=path.resolve().parent, text=text))


def trace_paths(found: WorkloadFile) -> tuple[Path, ...]:
    if not isinstance(found.workload, Trace):
        return ()
    paths = tuple(found.base / Path(path).expanduser() for path in found.workload.paths)
    for path in paths:
        if not path.exists():
            line = find_line(["files"], found.text)
            raise BadInput(f"no such file or directory: {path}", source=found.source, key="files", line=line)
    return paths


def data_path(found: WorkloadFile) -> Path | None:
    workload = found.workload
    if not isinstance(workload, Prompts | JsonLines | ShareGpt) or not workload.file:
        return None
    path = found.base / Path(workload.file).expanduser()
    if not path.exists():
        line = find_line(["file"], found.text)
        raise BadInput(f"no such file: {path}", source=found.source, key="file", line=line)
    return path


def read_text(path: Path) -> str:
    """Read UTF-8 text, with or without a byte order mark; BadInput names the line that is not UTF-8."""
    with reading(path):
        data = read_file(path, MAX_DATA)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("not UTF-8 text", source=str(path), line=line) from None


def _read(path: Path) -> WorkloadFile:
    text = read_text(path)
    workload = parse_workload(text, str(path))
    return _with_recorded_load(WorkloadFile(workload=workload, source=str(path), base=path.parent, text=text))


def _with_recorded_load(found: WorkloadFile) -> WorkloadFile:
    """Replay a trace of single requests by their arrival times, unless the workload says otherwise."""
    if not isinstance(found.workload, Trace) or found.workload.load is not None:
        return found
    return msgspec.structs.replace(
        found, workload=msgspec.structs.replace(found.workload, load=recorded_load(trace_paths(found)))
    )


def _read_builtin(path: Path) -> WorkloadFile:
    return msgspec.structs.replace(_read(path), builtin=True, reproduction=path.parent.name == _REPRODUCTIONS)


def _builtin_paths() -> dict[str, Path]:
    folders = (_folder(), _folder() / _REPRODUCTIONS)
    found = (path for folder in folders for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem))
    return {path.stem: path for path in found}


def _folder() -> Path:
    """In a wheel the workloads are inside the package, in a checkout at the root of the repository."""
    installed = _PACKAGE / "workloads"
    return installed if installed.is_dir() else _PACKAGE.parent / "workloads"


def parse_workload(text: str, source: str) -> Workload:
    workload: Workload = parse_toml(text, Workload, source)  # type: ignore[arg-type]
    for problem in find_problems(workload, source):
        raise problem
    return workload


# what the types of a workload do not exclude


def find_problems(workload: Workload, source: str) -> Iterator[BadInput]:
    if isinstance(workload, Prompts) and bool(workload.prompts) == bool(workload.file):
        yield BadInput("give either [[prompts]] or file", source=source, key="prompts")
    for key in ("input_tokens", "output_tokens"):
        yield from _length_problems(getattr(workload, key, None), source, key)
    for key, check in iter_checks(workload):
        yield from find_check_problems(check, source, key)
    yield from _tool_problems(workload, source)
    yield from _load_problems(workload, source)
    if isinstance(workload, Graph):
        yield from _graph_problems(workload, source)


def _tool_problems(workload: Workload, source: str) -> Iterator[BadInput]:
    names = [tool.name for tool in workload.tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield BadInput(f"there are two tools named {name}", source=source, key=f"tools[{index}].name")
    dialogues = [(f"conversations[{n}]", one) for n, one in enumerate(getattr(workload, "conversations", ()))]
    if isinstance(workload, MixedWorkload):
        dialogues.append(("primary", workload.primary))
    for key, dialogue in dialogues:
        if isinstance(dialogue.turns[0], ToolTurn):
            yield BadInput("the first turn must be a message of the user", source=source, key=f"{key}.turns[0]")
        for at, turn in enumerate(dialogue.turns):
            if isinstance(turn, ToolTurn) and turn.tool not in names:
                yield BadInput(f"no [[tools]] table is named {turn.tool}", source=source, key=f"{key}.turns[{at}].tool")


def _length_problems(length: Length | None, source: str, key: str) -> Iterator[BadInput]:
    if isinstance(length, Uniform) and length.low > length.high:
        yield BadInput("low is above high", source=source, key=key)
    if isinstance(length, Normal | Lognormal) and length.high is not None and length.low > length.high:
        yield BadInput("low is above high", source=source, key=key)
    if isinstance(length, ByLevel):
        for level, shares in length.shares.items():
            if not level.isdigit() or len(shares) != int(level):
                problem = f'row "{level}" must be named after a level C, and have C shares'
                yield BadInput(problem, source=source, key=f"{key}.shares")


def _load_problems(workload: Workload, source: str) -> Iterator[BadInput]:
    load = effective_load(workload)
    try:
        load.find_problem()
    except BadInput as problem:
        yield BadInput(problem.problem, source=source, key=f"load.{problem.key}")
    kind, key = str(workload.__struct_config__.tag), f"load.mode {load.name}"
    if isinstance(workload, MixedWorkload) != load.primary or isinstance(workload, Graph) != isinstance(
        load, loads.Dag
    ):
        yield BadInput(f"not possible with kind {kind}", source=source, key=key)
        return
    if isinstance(workload, Trace) != load.follows_trace:
        text = "needs kind trace" if load.follows_trace else "a trace needs sessions, or open with recorded arrivals"
        yield BadInput(text, source=source, key=key)
        return
    if isinstance(workload, MixedWorkload) and isinstance(load, loads.Mixed) and not load.loop:
        most = len(workload.side) + 1
        if max(load.levels) > most:
            text = f"level {max(load.levels)} needs more side tasks than there are ({len(workload.side)})"
            yield BadInput(text, source=source, key="load.levels")


def _graph_problems(graph: Graph, source: str) -> Iterator[BadInput]:
    known = [node.id for node in graph.tasks]
    for index, node in enumerate(graph.tasks):
        key = f"tasks[{index}].after"
        if node.id in known[:index]:
            yield BadInput("duplicate id; use copies to repeat a task", source=source, key=f"tasks[{index}].id")
        for name in node.after:
            if name not in known:
                yield BadInput(f"no task named {name}", source=source, key=key)
        unlisted = [name for name in dict.fromkeys(known) if f"{{{name}}}" in node.text and name not in node.after]
        for name in unlisted:
            yield BadInput(f"uses {{{name}}} but does not list it in after", source=source, key=f"tasks[{index}].text")
    cycle = _find_cycle({node.id: [name for name in node.after if name in known] for node in graph.tasks})
    if cycle:
        yield BadInput(f"tasks depend on each other: {' → '.join(cycle)}", source=source, key="tasks.after")


def _find_cycle(after: dict[str, list[str]]) -> list[str]:
    """Return tasks that depend on each other, with the first one repeated at the end; empty if there are none."""
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
