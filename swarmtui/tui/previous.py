"""The session before this one: what the curve is compared with, and what the server was started with then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from swarmtui.model.schema import BadInput
from swarmtui.model.session import Level, Session, Summary
from swarmtui.model.telemetry import Discovered
from swarmtui.text import plain


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """`levels` are the ghost line; `server` is as it was found in `server_name`, the last session on this endpoint."""

    name: str = ""
    levels: tuple[Level, ...] = ()
    server: Discovered | None = None
    server_name: str = ""


def find_before(root: Path, session: Session) -> Before:
    """The session that this one is held against, else the newest with the same model and workload."""
    from swarmtui.sessions.listing import list_sessions

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
        levels=ghost.levels if ghost else (),
        server=server.servers[-1] if server and server.servers else None,
        server_name=_name(server),
    )


def changed_flags(before: Before, now: Sequence[Discovered]) -> str:
    """What differs in how the server was started; nothing where that is the same, or not known."""
    if before.server is None or not now:
        return ""
    from swarmtui.tuning.answer import flag_change

    told = flag_change(before.server, now[-1])
    if told in ("the same flags", "flags not known"):
        return ""
    return plain(f"flags changed since {before.server_name}: {told}")


def what_it_gave(directory: Path, previous: str) -> str:
    """This session held against the one before it, in a sentence."""
    from swarmtui.sessions.sources import summary_of
    from swarmtui.tuning.answer import NOTHING_KNOWN, answer

    root = directory.parent
    try:
        found = answer(summary_of(root, previous), summary_of(root, directory.name))
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
