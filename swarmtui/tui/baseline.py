"""The session before this one: what the curve is compared with, and what the server was started with then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.schema import SCHEMA_VERSION, BadInput
from swarmtui.model.session import Level, Session, Summary
from swarmtui.model.telemetry import Discovered
from swarmtui.text import plain

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """`ghost` is what is drawn behind the run; `server` is as it was found in `server_name`, the last session on this
    endpoint."""

    name: str = ""
    ghost: Summary | None = None
    server: Discovered | None = None
    server_name: str = ""

    @property
    def levels(self) -> tuple[Level, ...]:
        return self.ghost.levels if self.ghost else ()


def find_before(root: Path, session: Session) -> Before:
    """The session that this one is held against, else the newest with the same model and workload."""
    from swarmtui.sessions.index import list_sessions

    endpoint = session.endpoints[0] if session.endpoints else None
    rows = [row for row in list_sessions(root) if row.id < session.id and row.state not in (None, "running")]
    ghost = next((found for row in rows if row.id == session.previous and (found := _summary(row.directory))), None)
    server = ghost
    for row in rows:
        if ghost is None and endpoint and row.model == endpoint.model and row.workload == session.workload:
            ghost = _summary(row.directory) if len(row.levels) > 1 else None
        if server is None and endpoint and row.endpoint == endpoint.url:
            server = _summary(row.directory)
    return Before(
        name=_name(ghost),
        ghost=ghost,
        server=server.servers[-1] if server and server.servers else None,
        server_name=_name(server),
    )


def held_against(before: Before, session: Session, levels: tuple[Level, ...]) -> Pair | None:
    """The levels so far beside those of the ghost; nothing where nobody asked for it and no ratio could be made."""
    if before.ghost is None or not levels:
        return None
    from swarmtui.analysis.compare.sessions import compare_pair

    now = Summary(
        schema=SCHEMA_VERSION, state="running", message="", session=session, levels=levels, warmup_requests=0, events=()
    )
    found = compare_pair(before.ghost, now)
    return None if found.refused and before.ghost.session.id != session.previous else found


def changed_flags(before: Before, now: Sequence[Discovered]) -> str:
    """What differs in how the server was started; nothing where that is the same, or not known."""
    if before.server is None or not now:
        return ""
    from swarmtui.experiments.answer import server_change

    told = server_change(before.server, now[-1])
    return plain(f"flags changed since {before.server_name}: {told}") if told else ""


def what_it_gave(directory: Path, previous: str) -> str:
    """This session held against the one before it, in a sentence; a row of the tuning log, too."""
    from swarmtui.experiments.answer import NOTHING_KNOWN, answer, change_of
    from swarmtui.experiments.tune_store import add_change
    from swarmtui.sessions.sources import summary_of

    root = directory.parent
    try:
        found = answer(summary_of(root, previous), summary_of(root, directory.name))
        add_change(root, change_of(found, previous, directory.name, datetime.now(UTC).isoformat(timespec="seconds")))
    except BadInput:
        return ""
    return plain(found.sentence if found.what == NOTHING_KNOWN else f"{found.what} gave {found.sentence}")


def _name(summary: Summary | None) -> str:
    return (summary.session.label or summary.session.id) if summary else ""


def _summary(directory: str) -> Summary | None:
    try:
        return msgspec.json.decode((Path(directory) / "detail.json").read_bytes(), type=Summary)
    except (OSError, msgspec.DecodeError):
        return None
