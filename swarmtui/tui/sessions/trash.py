"""Sessions that were deleted, until the screen is left: so long they can be brought back."""

from __future__ import annotations

import shutil
from pathlib import Path

from swarmtui.model.schema import BadInput
from swarmtui.sessions.journal import JOURNAL, is_running

_PREFIX = ".deleted-"


class Trash:
    """Renames within the folder of sessions; names that begin with a dot are no sessions."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: list[str] = []

    def take(self, name: str) -> None:
        directory = self._root / name
        try:
            if (directory / JOURNAL).exists() and is_running(directory):
                raise BadInput("is running; stop it first", key=name)
            directory.rename(self._root / f"{_PREFIX}{name}")
        except OSError as error:
            raise BadInput(f"cannot be removed: {error.strerror}", key=name) from None
        self._names.append(name)

    def give_back(self) -> str:
        """The name of the session that is back; empty when there was none."""
        if not self._names:
            return ""
        name = self._names.pop()
        try:
            (self._root / f"{_PREFIX}{name}").rename(self._root / name)
        except OSError as error:
            raise BadInput(f"cannot be brought back: {error.strerror}", key=name) from None
        return name

    def empty(self) -> None:
        for name in self._names:
            shutil.rmtree(self._root / f"{_PREFIX}{name}", ignore_errors=True)
        self._names.clear()
