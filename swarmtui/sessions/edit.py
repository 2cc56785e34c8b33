"""Change a session that has ended: its label and note, and the directory it is stored in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from swarmtui.files import MAX_JOURNAL, append_whole, make_private_directory, open_regular
from swarmtui.model.base import BadInput
from swarmtui.model.journal import DescriptionEntry, entry_encoder
from swarmtui.sessions.journal import JOURNAL, lock_file
from swarmtui.sessions.store import write_summary

_LOCK_PATIENCE_S = 0.2


def set_description(directory: Path, label: str, note: str) -> None:
    """Append label and note to the journal and rewrite the summary. BadInput: the label was not saved."""
    line = entry_encoder.encode(DescriptionEntry(label=label, note=note)) + b"\n"
    try:
        fd = open_regular(directory / JOURNAL, MAX_JOURNAL, os.O_RDWR)
        try:
            lock_file(fd, _LOCK_PATIENCE_S)
            # A journal that was interrupted may end within a line: a newline completes that line if only its end is
            # missing, and otherwise keeps it apart as one damaged line.
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            append_whole(directory / JOURNAL, line, sync=True)
        finally:
            os.close(fd)
        session = write_summary(directory).session
    except BlockingIOError:
        raise BadInput("is still being written; try again in a moment", source=directory.name) from None
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
    if (session.label, session.note) != (label, note):
        raise BadInput("the label cannot be read back from the journal", source=str(directory))


def move_session(directory: Path, root: Path) -> Path:
    """Move a session to another root under the same name. BadInput: it stays where it was."""
    target = root / directory.name
    if target == directory:
        return directory
    try:
        if target.exists():
            raise BadInput("a file or directory of that name exists", source=str(target))
        make_private_directory(root)
        shutil.copytree(directory, target)
    except OSError as error:
        # A partial copy must not be mistaken for a session.
        shutil.rmtree(target, ignore_errors=True)
        raise BadInput(f"cannot be saved there: {error.strerror or error}", source=str(root)) from None
    shutil.rmtree(directory, ignore_errors=True)
    return target
