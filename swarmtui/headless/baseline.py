"""What `run --baseline` says at its end, and writes into the tuning log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from swarmtui.sessions.sources import summary_of
from swarmtui.tuning.answer import Answer, answer, change_of
from swarmtui.tuning.kept import add_change


def against(root: Path, baseline: str, session: str) -> Answer:
    """The answer, written down: the chain of sessions and their changes is the tuning log."""
    found = answer(summary_of(root, baseline), summary_of(root, session))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    add_change(root, change_of(found, baseline, session, created))
    return found
