"""Find the session that a run is compared with, and compare levels and server flags with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.base import SCHEMA_VERSION, BadInput
from swarmtui.model.client_protocol import Frame
from swarmtui.model.session import Level, Session, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.numbers import local_time
from swarmtui.text import sanitize

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a run is compared with (`summary`), and earlier sessions like it (`history`).

    `server` is the server found in `server_name`, the last session on this endpoint. `beside` is the id of the session
    that the list of sessions would compare it with.
    """

    name: str = ""
    summary: Summary | None = None
    history: tuple[Summary, ...] = ()
    server: DiscoveredServer | None = None
    server_name: str = ""
    beside: str = ""

    @property
    def levels(self) -> tuple[Level, ...]:
        return self.summary.levels if self.summary else ()

    @property
    def compared_id(self) -> str:
        """The id of the session that a run is compared with, if one asks for it; empty if there is none."""
        return self.summary.session.id if self.summary else self.beside


def find_baseline(root: Path, session: Session, servers: Sequence[DiscoveredServer] = ()) -> Baseline:
    """Return the session's chosen baseline, else the last one of its endpoint before the change, see `baseline_of`.

    `servers` are those of the session itself: the baseline is named by the flags that differ.
    """
    from swarmtui.analysis.compare.differences import comparable_flags, known_flags, parse_flags, varying_flags
    from swarmtui.sessions.documents import read_saved_summary
    from swarmtui.sessions.index import baseline_of, list_sessions, live_row, session_beside
    from swarmtui.sessions.store import earlier_sessions, read_session

    # A shared session does not tell its address, and nothing here is known to be of the same server.
    endpoint = next((one for one in session.endpoints[:1] if one.url), None)
    now = parse_flags(session.server_flags) if session.server_flags else servers[-1].flags if servers else None
    listed = list_sessions(root)
    rows = [row for row in listed if row.id < session.id and row.state not in (None, "running") and not row.shared]
    found = baseline_of(rows, live_row(session, now)) if endpoint else session.previous
    baseline = next((read_saved_summary(row.directory) for row in rows if row.id == found), None)
    if any(row.id == session.previous and row.shared and row.problem is None for row in listed):
        baseline = read_session(root, session.previous)
    chosen = baseline if session.previous and not session.repeats else None
    last = next((row for row in rows if endpoint and row.endpoint == endpoint.url), None)
    server = chosen or (read_saved_summary(last.directory) if last else None)
    differing = ""
    if baseline is not None:
        differing = varying_flags(comparable_flags([known_flags(baseline), now], (baseline.session, session)))[0]
    return Baseline(
        name=_name(baseline, differing),
        summary=baseline,
        history=tuple(earlier_sessions(root, [baseline.session, session])) if baseline else (),
        server=server.servers[-1] if server and server.servers else None,
        server_name=_name(server),
        beside=next((session_beside(listed, row) for row in listed if row.id == session.id), ""),
    )


def toggle_baseline(root: Path, session: Session) -> str:
    """Compare the next runs with this session, until another one is marked, or this one again; say which."""
    from swarmtui.sessions.marked import mark_session, marked_session

    name, was_marked = session.label or session.id, marked_session(root) == session.id
    try:
        mark_session(root, "" if was_marked else session.id)
    except BadInput as problem:
        return str(problem)
    if was_marked:
        return f"{name} is no baseline any more"
    return f"baseline: {name}; the next runs here and `swarmtui run --baseline marked` are compared with it"


def compare_levels(baseline: Baseline, session: Session, frame: Frame, saved: str = "") -> Pair | None:
    """Compare the levels so far, or the session that is `saved`, from which later comparisons are made, too.

    None if the sessions are not comparable and the user did not choose the baseline.
    """
    if baseline.summary is None or not frame.levels:
        return None
    from swarmtui.analysis.capacity.scaling import scaling
    from swarmtui.analysis.compare.sessions import compare_pair
    from swarmtui.sessions.documents import read_saved_summary

    now = (read_saved_summary(saved) if saved else None) or Summary(
        schema=SCHEMA_VERSION,
        state="running",
        message="",
        session=session,
        levels=frame.levels,
        warmup_requests=0,
        events=(),
        scaling=scaling(frame.levels, frame.slots),
        servers=frame.servers,
        quality=frame.quality,
        answer=frame.answer,
        search=frame.search,
    )
    found = compare_pair(baseline.summary, now, history=baseline.history)
    return None if found.refused and baseline.summary.session.id != session.previous else found


def changed_flags(baseline: Baseline, servers: Sequence[DiscoveredServer]) -> str:
    """Describe how the server's flags differ from the last session; empty if they do not, or are not known."""
    if baseline.server is None or not servers:
        return ""
    from swarmtui.analysis.compare.differences import describe_server_changes, server_changes

    if not server_changes(baseline.server, servers[-1]):
        return ""
    changes = describe_server_changes(baseline.server, servers[-1])
    return sanitize(f"{changes}: changed since {baseline.server_name}")


def compared_text(pair: Pair | None, notice: str, *, doubtful: bool = False, notes: bool = True) -> str:
    """Say in one sentence whether a change helped; without a pair, `notice` says how the flags differ.

    The doubts about a `doubtful` session are said beside it, and not repeated, nor is what to do next. `notes` name
    what else is beside it: the context, since when, slots that share the output, disturbed levels, and sessions that
    are left out.
    """
    if pair is None:
        return notice
    from swarmtui.experiments.baseline import describe_changes
    from swarmtui.report.verdicts import SIGNS, pair_code

    said = pair.sentence
    if (doubtful and not pair.refused) or (pair.agents and pair.agents.scatter):
        said = pair.agents.claim(doubted=True) if pair.agents else pair.throughput
    since = f" since the run of {pair.since}" if pair.since and notes else ""
    change = f"{SIGNS[pair_code(pair)]} {said} ({describe_changes(pair, context=notes)}{since})"
    beside = [note.text for note in pair.notes if note.code in ("same_output", "machine_changed", "disturbed_level")]
    return sanitize("; ".join(filter(None, (change, *beside, pair.left_out) if notes else (change,))))


def record_effect(directory: Path, baseline: str = "") -> str:
    """Compare an ended session with its baseline, or with this one, log the result and return it as a sentence."""
    from swarmtui.experiments.baseline import record_baseline_verdict

    try:
        found = record_baseline_verdict(directory.parent, directory, baseline)
    except BadInput:
        return ""
    return sanitize(f"{found.what}: {found.effect}")


def _name(summary: Summary | None, differing: str = "") -> str:
    """Name a session by its label or the flags that differ, else by its time."""
    if summary is None:
        return ""
    return summary.session.label or differing or f"the run of {local_time(summary.session.created, '%m-%d %H:%M')}"
