"""What `run --baseline` says at its end, and writes into the tuning log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from swarmtui.experiments.answer import Answer, answer, change_of
from swarmtui.experiments.tune_store import add_change
from swarmtui.sessions.sources import summary_of


def against(root: Path, baseline: str, session: Path) -> Answer:
    """The answer, written down: the chain of sessions and their changes is the tuning log.

    `session` is a directory: where the disk was full it may lie elsewhere.
    """
    found = answer(summary_of(root, baseline), summary_of(session.parent, session.name))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    add_change(root, change_of(found, baseline, session.name, created))
    return found
