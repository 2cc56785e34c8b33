"""Generate JSON Schema for the documents that swarmtui reads and writes."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.model.answer import Answer
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.config import Config
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.events import RunEvent
from swarmtui.model.findings import Capacity, Check, Goodput, Scaling
from swarmtui.model.hosts import Host
from swarmtui.model.journal import Entry
from swarmtui.model.parsing import suggest
from swarmtui.model.plan import Plan
from swarmtui.model.record import JOURNAL_ONLY_FIELDS, Record
from swarmtui.model.session import ClientInfo, Level, SessionState, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.shared import SharedFile
from swarmtui.model.speed_of_light import SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.workload import Workload

DOCUMENTS = {
    "journal": "one line of journal.jsonl",
    "detail": "detail.json; without `requests` also the output of `run --json`",
    "summary": "summary.toml; null and empty values are left out",
    "workload": "a workload file, in TOML",
    "config": "config.toml",
    "events": "one line of `--events jsonl`",
    "shared": "a shared file (.swarm.json.gz), unpacked",
}


class WorkloadName(Stored, frozen=True, kw_only=True):
    name: str
    digest: str
    prompt_tokens_by: str


class TimedEvent(Stored, frozen=True, kw_only=True):
    """An event of the journal; `at_s` counts from the start of the session."""

    at_s: float
    name: str
    detail: str


class SummaryFile(Stored, frozen=True, kw_only=True):
    """The figures of a session for human readers, with six significant digits."""

    schema: int
    id: str
    created: str
    state: SessionState
    message: str
    label: str
    note: str
    server_flags: str
    previous: str
    simulated: bool
    answer: Answer | None
    gpus: tuple[str, ...]
    warmup_requests: int
    warnings: tuple[str, ...]
    tags: dict[str, str]
    series: Series
    workload: WorkloadName
    plan: Plan
    client: ClientInfo
    hosts: tuple[Host, ...]
    endpoints: tuple[Endpoint, ...]
    servers: tuple[DiscoveredServer, ...]
    levels: tuple[Level, ...]
    scaling: Scaling
    goodput: tuple[Goodput, ...]
    capacity: Capacity | None
    speed_of_light: SpeedOfLight | None
    checks: tuple[Check, ...]
    events: tuple[TimedEvent, ...]


# The first type of each document is its schema; the others are defined in it.
_TYPES: dict[str, tuple[Any, ...]] = {
    "journal": (Entry,), "detail": (Summary, Record), "summary": (SummaryFile,), "workload": (Workload,),
    "config": (Config,), "events": (RunEvent,), "shared": (SharedFile,),
}  # fmt: skip


def json_schema(name: str) -> dict[str, Any]:
    if name not in _TYPES:
        hint = suggest(name, list(DOCUMENTS), "; ") or f"; known are {', '.join(DOCUMENTS)}"
        raise BadInput(f"no schema named {name!r}{hint}")
    schemas, components = msgspec.json.schema_components(_TYPES[name], ref_template="#/$defs/{name}")
    if name == "detail":
        record, summary = components["Record"], components["Summary"]
        for journal_only in JOURNAL_ONLY_FIELDS:
            del record["properties"][journal_only]
        url = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "its URL"}
        record["properties"]["endpoint"] = url
        summary["properties"]["requests"] = {"type": "array", "items": {"$ref": "#/$defs/Record"}}
    if name == "summary":
        del components["Level"]["properties"]["by_run"]
        for component in components.values():
            component.pop("required", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"swarmtui {name}",
        "description": DOCUMENTS[name],
        **schemas[0],
        "$defs": dict(sorted(components.items())),
    }
