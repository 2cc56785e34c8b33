"""A summary as documents: TOML for people, JSON for programs. The same session always gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from swarmtui.model.record import Record
from swarmtui.model.session import Level, Session, Summary

_KEPT_IN_JOURNAL = ("chunk_us", "chunk_tokens")
_LEFT_OUT_OF_TOML = ("by_run",)
_DIGITS = 6


def summary_json(summary: Summary) -> bytes:
    """What `run --json` prints: `detail.json` without the requests."""
    return msgspec.json.encode(summary, order="deterministic") + b"\n"


def detail_json(summary: Summary, records: Sequence[Record]) -> Iterator[bytes]:
    """The summary, and one line for each request; where its chunks came is in the journal alone.

    In parts: of an hour's session it is tens of megabytes.
    """
    encode = msgspec.json.Encoder(order="deterministic").encode
    yield encode(summary)[:-1] + b',"requests":[\n'
    for number, record in enumerate(records):
        yield (b",\n" if number else b"") + encode(_request(record, summary.session))
    yield b"\n]}\n"


def summary_toml(summary: Summary) -> bytes:
    import tomli_w  # only the one who saves needs it

    session = summary.session
    document = {
        "schema": summary.schema,
        "id": session.id,
        "created": session.created,
        "state": summary.state,
        "message": summary.message,
        "label": session.label,
        "note": session.note,
        "server_flags": session.server_flags,
        "previous": session.previous,
        "simulated": session.simulated,
        "gpus": summary.gpus,
        "warmup_requests": summary.warmup_requests,
        "warnings": [f"{level.name}: {flag}" for level in summary.levels for flag in level.flags],
        "tags": session.tags,
        "workload": {
            "name": session.workload,
            "digest": session.workload_digest,
            "prompt_tokens_by": session.prompt_tokens_by,
        },
        "plan": session.plan,
        "client": session.client,
        "endpoints": session.endpoints,
        "servers": summary.servers,
        "levels": [_main_figures(level) for level in summary.levels],
        "scaling": summary.scaling,
        "goodput": summary.goodput,
        "bandwidth": summary.bandwidth,
        "checks": summary.checks,
        "events": [
            {"at_s": (event.t_ns - session.t0_ns) / 1e9, "name": event.name, "detail": event.detail}
            for event in summary.events
        ],
    }
    text: str = tomli_w.dumps(_for_people(msgspec.to_builtins(document)), multiline_strings=False)
    return text.encode()


def _request(record: Record, session: Session) -> dict[str, Any]:
    fields = _encoded_fields(record, _KEPT_IN_JOURNAL)
    known = 0 <= record.endpoint < len(session.endpoints)
    return fields | {"endpoint": session.endpoints[record.endpoint].url if known else None}


def _main_figures(level: Level) -> dict[str, Any]:
    return _encoded_fields(level, _LEFT_OUT_OF_TOML)


def _encoded_fields(struct: msgspec.Struct, left_out: tuple[str, ...]) -> dict[str, Any]:
    """Map the names that fields have in files to their values."""
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return {stored: getattr(struct, name) for stored, name in names if stored not in left_out}


def _for_people(value: Any) -> Any:
    """Without what is null or says nothing, and with no more digits than mean anything."""
    if isinstance(value, dict):
        kept = {key: _for_people(part) for key, part in value.items() if part is not None}
        return {key: part for key, part in kept.items() if part not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [_for_people(part) for part in value if part is not None]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
