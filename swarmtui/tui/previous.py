"""The session before this one: what the curve is compared with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.model.session import Level, Session, Summary


def previous_levels(root: Path, session: Session) -> tuple[str, tuple[Level, ...]]:
    """Name and levels of the newest other session with the same model and workload; nothing where there is none."""
    from swarmtui.sessions.listing import list_sessions

    model = session.endpoints[0].model if session.endpoints else ""
    for row in list_sessions(root):
        same = row.model == model and row.workload == session.workload and len(row.levels) > 1
        if same and row.id < session.id and row.state in ("done", "stopped"):
            try:
                detail = (Path(row.directory) / "detail.json").read_bytes()
                return row.label or row.id, msgspec.json.decode(detail, type=Summary).levels
            except (OSError, msgspec.DecodeError):
                continue
    return "", ()
