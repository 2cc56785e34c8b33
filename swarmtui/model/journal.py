"""The entries of a journal, one per line: what happened in a session, in order, from which all figures are derived."""

from __future__ import annotations

from typing import Literal

import msgspec

from swarmtui.model.base import SCHEMA_VERSION, Stored
from swarmtui.model.findings import SearchState
from swarmtui.model.hosts import ClockOffset
from swarmtui.model.record import Phase, Record
from swarmtui.model.session import Event, Session
from swarmtui.model.telemetry import DiscoveredServer, QualityFacts, QualityLine, Telemetry


class Head(Stored, frozen=True, kw_only=True, tag_field="kind", tag="session"):
    """The first line of a journal."""

    session: Session
    pid: int
    schema: int = SCHEMA_VERSION


class StageStart(Stored, frozen=True, kw_only=True, tag_field="kind", tag="stage"):
    """The start of a stage with `c` streams; `of` is the planned number of requests, if there is one.

    `steered`: C was set by manual control or a ramp; the level is complete only if the stage lasted long enough. `rate`
    is that of an open loop, in requests per second; the level is then the rate, and `c` the maximum in flight.
    `runs` are planned for the level. `abandoned` are plays of a trace that ended before because C was lowered.
    """

    number: int
    t_ns: int
    c: int
    run: int
    phase: Phase
    of: int | None = None
    steered: bool = False
    load: str = "closed"
    rate: float | None = None
    runs: int = 1
    abandoned: tuple[int, ...] = ()


class StageEnd(Stored, frozen=True, kw_only=True, tag_field="kind", tag="stage_end"):
    """The end of a stage; `complete`: it ran as planned."""

    number: int
    t_ns: int
    complete: bool


class RequestEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="request"):
    record: Record


class CapacitySearch(Stored, frozen=True, kw_only=True, tag_field="kind", tag="capacity_search"):
    """The start of a search for the capacity; written again when the mean tokens in the context of an agent are known.

    `alpha` is the error of the bounds that decide a level.
    """

    t_ns: int
    slo: str
    alpha: float
    context_tokens: float | None = None


class SearchEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="search"):
    """A search for the cliff or the capacity writes what it knows before each of its runs, and at its end."""

    t_ns: int
    search: SearchState


class SweepEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="sweep"):
    """A sweep that the user started, instead of what the plan says."""

    t_ns: int
    levels: tuple[int, ...]


class DescriptionEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="description"):
    """A label and note that replace those of the head."""

    label: str
    note: str


class TelemetryEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="telemetry"):
    """A reading of GPUs and servers, about once per second."""

    telemetry: Telemetry


class TokenCount(Stored, frozen=True, kw_only=True, tag_field="kind", tag="tokens"):
    """The tokens of an answer by the server's /tokenize; replaces the count of chunks in its record."""

    task: int
    turn: int
    stage: int
    tokens_out: int


class ServerEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="server"):
    """The server of an endpoint: engine, version, flags, slots."""

    endpoint: int
    server: DiscoveredServer


class ClockEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="clock"):
    """The clock of a host, measured at the start and every two seconds; times in records are already converted."""

    host: str
    clock: ClockOffset


class QualityEntry(Stored, frozen=True, kw_only=True, tag_field="kind", tag="quality"):
    """The measurement quality at the end of a session, and the `facts` that it was judged from."""

    lines: tuple[QualityLine, ...]
    facts: QualityFacts


class End(Stored, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    t_ns: int
    state: Literal["done", "stopped", "unusable", "failed", "interrupted"]
    message: str = ""


Entry = (
    Head | StageStart | StageEnd | RequestEntry | Event | CapacitySearch | SearchEntry | SweepEntry | DescriptionEntry
    | TelemetryEntry | TokenCount | ServerEntry | ClockEntry | QualityEntry | End
)  # fmt: skip

entry_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
entry_encoder = msgspec.json.Encoder()
