"""Encode a summary as TOML or JSON, and read it back. The same session always gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.files import MAX_DATA, read_file
from swarmtui.model.base import DECODE_ERRORS, SCHEMA_VERSION
from swarmtui.model.json_schema import SummaryFile
from swarmtui.model.record import JOURNAL_ONLY_FIELDS, Record
from swarmtui.model.session import Level, Summary

_NOT_IN_TOML = ("by_run",)
_DIGITS = 6
_summary_decoder = msgspec.json.Decoder(Summary)


def summary_json(summary: Summary) -> bytes:
    """Encode what `run --json` prints: `detail.json` without the requests."""
    return msgspec.json.encode(summary, order="deterministic") + b"\n"


def unsaved_json(state: str, message: str, levels: Sequence[Level]) -> bytes:
    """Encode what `run --json` prints if there is no summary: nothing was measured, or it could not be saved."""
    document = {"schema": SCHEMA_VERSION, "state": state, "message": message, "session": None, "levels": levels}
    return msgspec.json.encode(document, order="deterministic") + b"\n"


def detail_json(summary: Summary, records: Sequence[Record]) -> Iterator[bytes]:
    """Yield the summary and one line per request, in parts: an hour's session takes tens of megabytes.

    The times of single chunks are only in the journal.
    """
    encode = msgspec.json.Encoder(order="deterministic").encode
    urls = dict(enumerate(endpoint.url for endpoint in summary.session.endpoints))
    yield encode(summary)[:-1] + b',"requests":[\n'
    for number, record in enumerate(records):
        fields = _fields(record, JOURNAL_ONLY_FIELDS) | {"endpoint": urls.get(record.endpoint)}
        yield (b",\n" if number else b"") + encode(fields)
    yield b"\n]}\n"


def read_saved_summary(directory: str) -> Summary | None:
    """Read `detail.json` without the requests; None if it is missing, damaged or of another schema."""
    if not directory:
        return None
    try:
        summary = _summary_decoder.decode(read_file(Path(directory) / "detail.json", MAX_DATA))
    except (OSError, *DECODE_ERRORS):
        return None
    return summary if summary.schema == SCHEMA_VERSION else None


def summary_toml(summary: Summary) -> bytes:
    import tomli_w  # lazily: only saving needs it

    session = summary.session
    derived = {
        "warnings": [f"{level.name}: {flag}" for level in summary.levels for flag in level.flags],
        "workload": {
            "name": session.workload,
            "digest": session.workload_digest,
            "prompt_tokens_by": session.prompt_tokens_by,
        },
        "levels": [_fields(level, _NOT_IN_TOML) for level in summary.levels],
        "events": [
            {"at_s": (event.t_ns - session.t0_ns) / 1e9, "name": event.name, "detail": event.detail}
            for event in summary.events
        ],
    }
    known = msgspec.structs.asdict(session) | msgspec.structs.asdict(summary) | derived
    document = {name: known[name] for name in SummaryFile.__struct_fields__}
    text: str = tomli_w.dumps(_trimmed(msgspec.to_builtins(document)), multiline_strings=False)
    return text.encode()


def _fields(struct: msgspec.Struct, excluded: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if name not in excluded}


def _trimmed(value: Any) -> Any:
    """Drop null and empty values, and round floats."""
    if isinstance(value, dict):
        kept = {key: _trimmed(part) for key, part in value.items() if part is not None}
        return {key: part for key, part in kept.items() if part not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [_trimmed(part) for part in value if part is not None]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
