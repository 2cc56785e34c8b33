"""The lines of `--events jsonl`: what happens in a run, one JSON object a line, for programs and coding agents."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.answer import Answer
from swarmtui.model.base import SCHEMA_VERSION, Stored
from swarmtui.model.findings import Findings
from swarmtui.model.plan import PerLevel
from swarmtui.model.telemetry import QualityLine
from swarmtui.model.tuning import Flags

EventWord = Literal[
    "kept", "missed", "unsure", "dip",
    "faster", "slower", "same", "not sure yet", "more agents", "fewer agents", "refused",
    "best", "tied", "behind", "leads so far",
]  # fmt: skip


class SessionEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="session"):
    """The first line of a session: what is measured. `slo` is empty if none is judged."""

    schema: int = SCHEMA_VERSION
    session: str
    directory: str
    endpoints: tuple[str, ...]
    model: str
    workload: str
    goal: str
    slo: str
    simulated: bool


class LevelEvent(PerLevel, frozen=True, kw_only=True, tag_field="event", tag="level"):
    """A level after another run of it: the figures of all its runs so far. Null is not measured.

    The names are those of `levels` in `--json`; `per_stream_tps` is the mean, `ttft_s` the median.
    """

    runs: int
    n: int
    ok: int
    errors: int
    error_counts: dict[str, int]
    complete: bool
    out_tps_steady: float | None
    out_tps_steady_hw: float | None
    out_tps_wall: float | None
    per_stream_tps: float | None
    ttft_s: float | None
    ttft_p90_s: float | None
    flags: Findings = ()


class VerdictEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="verdict"):
    """Something that was decided. `about` says what; `word` is null if there are too few runs for a verdict.

    slo: kept, missed, unsure, or dip (missed, although a higher level keeps it), for each level as soon as it is known.
    fail_if: kept, missed or unsure. baseline: faster, slower, same, not sure yet; of two searches more agents or fewer
    agents; refused if the sessions cannot be compared. configuration: the standing of one in a tune. tune: how the
    flags that `--auto` found compare with the command as it was given.
    """

    about: Literal["slo", "fail_if", "baseline", "configuration", "tune"]
    word: EventWord | None
    sentence: str
    c: int | None = None
    rate: float | None = None
    change: float | None = None
    flags: Flags | None = None


class WarningEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="warning"):
    """A problem, once for each code: with saving or a host (`session`), or with the measurement (`quality`)."""

    source: Literal["session", "quality"]
    code: str
    sentence: str


class ConfigurationEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="configuration"):
    """A start of a server in a tune, with the figures of its highest level `c`; `reason` says why it failed."""

    flags: Flags
    round: int
    state: Literal["done", "broken"]
    reason: str
    session: str
    c: int | None
    out_tps: float | None
    ttft_s: float | None


class AnswerEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="answer"):
    """The answer of a session, as in `--json`, and the lines of measurement quality that are not ok."""

    session: str
    answer: Answer
    quality: tuple[QualityLine, ...]


class EndEvent(Stored, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The last line: how it ended, and the exit code that follows."""

    state: Literal["done", "stopped", "unusable", "failed", "interrupted", "unsaved"]
    exit_code: int
    message: str
    directory: str


RunEvent = SessionEvent | LevelEvent | VerdictEvent | WarningEvent | ConfigurationEvent | AnswerEvent | EndEvent
