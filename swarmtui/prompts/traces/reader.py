"""Read recorded traces: find the files, recognise their format, and yield their sessions one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from swarmtui.files import MAX_DATA, read_lines
from swarmtui.model.base import BadInput, reading
from swarmtui.model.trace import TraceSession
from swarmtui.prompts.traces.agentperf import manifest_files, read_agentperf
from swarmtui.prompts.traces.arrivals import read_bailian, read_csv, read_mooncake
from swarmtui.prompts.traces.spans import read_spans
from swarmtui.prompts.traces.weka import read_weka

TRACE_SUFFIXES = (".json", ".jsonl", ".csv")
_FORMATS = "Weka .json, Mooncake, Bailian, agentperf or OpenTelemetry .jsonl, Azure or BurstGPT .csv"
MAX_FILES = 100_000
# The first line decides the format; the longest prompts have a few hundred thousand block ids.
_HEAD = 4 << 20

Reader = Callable[[Path], Iterator[TraceSession]]


def trace_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the trace files: those named, and those below the directories named, in order of their names.

    A manifest of agentperf-local, or the directory that has one, stands for the files that it names.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadInput("no such file or directory", source=str(path))
        inside: Sequence[Path] = manifest_files(path) or [path]
        if path.is_dir() and inside == [path]:
            inside = sorted(file for file in path.rglob("*") if file.suffix in TRACE_SUFFIXES)
        if not inside:
            raise BadInput(f"contains no trace files ({_FORMATS})", source=str(path))
        found += inside
        if len(found) > MAX_FILES:
            raise BadInput(f"more than {MAX_FILES:,} files", source=str(path))
    return tuple(found)


def read_sessions(paths: Iterable[Path]) -> Iterator[TraceSession]:
    """Yield the sessions of all trace files; only one file is in memory at a time."""
    for path in trace_files(paths):
        yield from reader_of(path)(path)


def reader_of(path: Path) -> Reader:
    """Recognise the format by the suffix and the first line."""
    if path.suffix == ".csv":
        return read_csv
    if path.suffix == ".json":
        return read_weka
    with reading(path):
        head = next((line for line in read_lines(path, MAX_DATA, _HEAD) if line is None or line.strip()), b"")
    if head is None:
        raise BadInput(f"longer than {_HEAD >> 20} MB", source=str(path), line=1)
    if b'"chat_id"' in head:
        return read_bailian
    if b'"input_length"' in head:
        return read_mooncake
    if b'"turn_id"' in head and b'"messages"' in head:
        return read_agentperf
    if b'"resourceSpans"' in head or b'"attributes"' in head:
        return read_spans
    raise BadInput(f"not a trace of a known format; expected {_FORMATS}", source=str(path), line=1)
