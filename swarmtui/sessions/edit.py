"""What may still be changed of a session that has ended: its label, its note, and where it lies."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from swarmtui.model.schema import BadInput
from swarmtui.model.session import Description, entry_encoder
from swarmtui.sessions.journal import JOURNAL
from swarmtui.sessions.store import write_summary


def describe(directory: Path, label: str, note: str) -> None:
    """Into the journal, from which all else is derived anew. BadInput: it was not taken."""
    line = entry_encoder.encode(Description(label=label, note=note)) + b"\n"
    try:
        fd = os.open(directory / JOURNAL, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, line)
        finally:
            os.close(fd)
        write_summary(directory)
    except BlockingIOError:
        raise BadInput("is still being written; try again in a moment", source=directory.name) from None
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None


def move(directory: Path, root: Path) -> Path:
    """Under another root, under the same name. BadInput: it stays where it was."""
    target = root / directory.name
    if target == directory:
        return directory
    try:
        if target.exists():
            raise BadInput("something of that name is there already", source=str(target))
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(directory, target)
    except OSError as error:
        # What came of it is not to be taken for a session.
        shutil.rmtree(target, ignore_errors=True)
        raise BadInput(f"cannot be saved there: {error.strerror or error}", source=str(root)) from None
    shutil.rmtree(directory, ignore_errors=True)
    return target
