"""The session that the user marked as baseline, for the next runs of the app and as `marked` on the command line."""

from __future__ import annotations

from pathlib import Path

from swarmtui.model.base import BadInput

MARKED = "marked"
_FILE = ".baseline"


def marked_session(root: Path) -> str:
    """Return the id of the marked session; empty if there is none, or none any more."""
    try:
        name = (root / _FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return name if name and Path(name).name == name and (root / name).is_dir() else ""


def mark_session(root: Path, session_id: str) -> None:
    """Mark a session; an empty id removes the mark."""
    path = root / _FILE
    try:
        path.touch(mode=0o600)
        path.write_text(session_id, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the baseline is not stored: {error.strerror}", source=str(path)) from None
