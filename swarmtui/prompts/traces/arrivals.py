"""Read traces of requests with arrival times: Mooncake and Bailian JSON lines, Azure and BurstGPT CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from swarmtui.files import MAX_DATA, read_lines
from swarmtui.model.base import BadInput, Stored, reading
from swarmtui.model.trace import TraceRequest, TraceSession
from swarmtui.prompts.traces.weka import BlockId, Tokens

T = TypeVar("T")
MOONCAKE_BLOCK, BAILIAN_BLOCK = 512, 16
# Larger sets do not fit in memory; nobody replays them whole.
MAX_REQUESTS = 1_000_000
_MAX_LINE = 4 << 20
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


class _Mooncake(Stored, frozen=True, kw_only=True):
    """`timestamp` is in milliseconds."""

    timestamp: Annotated[float, Meta(ge=0.0)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[BlockId, ...] = ()


class _Bailian(_Mooncake, frozen=True, kw_only=True):
    """`timestamp` is in seconds; turns of a conversation refer to the turn before them."""

    chat_id: int
    parent_chat_id: int = -1


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers."""
    with reading(path):
        for number, line in enumerate(read_lines(path, MAX_DATA, _MAX_LINE), 1):
            if line is None:
                raise BadInput(f"longer than {_MAX_LINE >> 20} MB", source=str(path), line=number)
            if number > MAX_REQUESTS:
                raise BadInput(f"more than {MAX_REQUESTS:,} lines; use a part of the file", source=str(path))
            if line.strip():
                yield number, line


def records_of(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    """Yield what the lines of a file hold, with their numbers."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in lines_of(path):
        try:
            found = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"not a valid record: {error}", source=str(path), line=number) from None
        yield number, found


def read_mooncake(path: Path) -> Iterator[TraceSession]:
    """Yield each request as a session of its own: the format does not say which belong together."""
    for number, found in records_of(path, _Mooncake):
        yield TraceSession(
            id=f"{path.stem}:{number}",
            requests=(_to_request(found),),
            block_size=MOONCAKE_BLOCK,
            arrival_s=found.timestamp / 1000.0,
            shared_blocks=True,
        )


def read_bailian(path: Path) -> Iterator[TraceSession]:
    chats: dict[int, list[_Bailian]] = {}
    first_of: dict[int, int] = {}
    for _, found in records_of(path, _Bailian):
        first = first_of.get(found.parent_chat_id, found.chat_id)
        first_of[found.chat_id] = first
        chats.setdefault(first, []).append(found)
    for first, turns in chats.items():
        start = turns[0].timestamp
        yield TraceSession(
            id=f"{path.stem}:{first}",
            requests=tuple(_to_request(turn, turn.timestamp - start) for turn in turns),
            block_size=BAILIAN_BLOCK,
            arrival_s=start,
            shared_blocks=True,
        )


def _to_request(found: _Mooncake, at_s: float = 0.0) -> TraceRequest:
    return TraceRequest(
        input_tokens=found.input_length, output_tokens=found.output_length, at_s=max(0.0, at_s), blocks=found.hash_ids
    )


def read_csv(path: Path) -> Iterator[TraceSession]:
    """Read Azure's and BurstGPT's files; neither has block ids, only BurstGPT may have sessions."""
    lines = lines_of(path)
    _, header = next(lines, (0, b""))
    columns = _split(header, path, 1)
    azure = all(name in columns for name in AZURE_COLUMNS)
    if not azure and not all(name in columns for name in BURSTGPT_COLUMNS):
        expected = f"{','.join(AZURE_COLUMNS)} or {','.join(BURSTGPT_COLUMNS)}"
        raise BadInput(f"unknown columns; expected {expected}", source=str(path), line=1)
    names = AZURE_COLUMNS if azure else BURSTGPT_COLUMNS
    at, prompt, answer = (columns.index(name) for name in names)
    session_column = columns.index("Session ID") if "Session ID" in columns else None
    start: float | None = None
    sessions: dict[str, list[TraceRequest]] = {}
    arrivals: dict[str, float] = {}
    for number, line in lines:
        fields = _split(line, path, number)
        try:
            seconds = _parse_time(fields[at]) if azure else float(fields[at])
            tokens = int(float(fields[prompt])), int(float(fields[answer]))
            session = fields[session_column] if session_column is not None else ""
        except (ValueError, IndexError, OverflowError) as error:
            raise BadInput(f"not a valid row: {error}", source=str(path), line=number) from None
        if min(tokens) < 0:
            raise BadInput("a number of tokens is negative", source=str(path), line=number)
        start = seconds if start is None else start
        key = session or f"line {number}"
        arrivals.setdefault(key, max(0.0, seconds - start))
        requests = sessions.setdefault(key, [])
        at_s = max(0.0, seconds - start - arrivals[key])
        requests.append(TraceRequest(input_tokens=tokens[0], output_tokens=tokens[1], at_s=at_s))
    for key, requests in sessions.items():
        yield TraceSession(id=f"{path.stem}:{key}", requests=tuple(requests), arrival_s=arrivals[key])


def _split(line: bytes, path: Path, number: int) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"not a valid row: {error}", source=str(path), line=number) from None


def _parse_time(text: str) -> float:
    """Parse Azure's times, which have seven digits after the seconds."""
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp() + float(f"0.{fraction or 0}")
