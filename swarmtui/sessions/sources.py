"""What a comparison may be made of: saved sessions by name, and result files of other tools by path."""

from __future__ import annotations

from pathlib import Path

from swarmtui.analysis.compare.pool import pool
from swarmtui.model.session import Summary
from swarmtui.sessions.importers import read_foreign
from swarmtui.sessions.store import load, summarise


def summary_of(root: Path, which: str) -> Summary:
    """A name that ends in .json is a file; all else is looked up among the sessions; A+B+C takes them together."""
    names = [which] if Path(which).is_file() else which.split("+")
    found = [_one(root, name) for name in names]
    return found[0] if len(found) == 1 else pool(found)


def _one(root: Path, which: str) -> Summary:
    path = Path(which)
    return read_foreign(path) if path.suffix == ".json" else summarise(load(root, which))
