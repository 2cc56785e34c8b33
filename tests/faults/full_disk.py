"""A disk that a test can fill at any moment: writing below some directories then fails in all processes of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.cli.programs import Sandbox

# Imported by every Python process of the run.
_HOOK = """\
import errno, os

_flag, _roots, _write, _open = {flag!r}, {roots!r}, os.write, os.open


def _check(path):
    if str(path).startswith(_roots) and os.path.exists(_flag):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def write(fd, data):
    _check(os.readlink(f"/proc/self/fd/{{fd}}"))
    return _write(fd, data)


def open(path, flags, *args, **options):
    if flags & (os.O_WRONLY | os.O_RDWR):
        _check(os.fspath(path))
    return _open(path, flags, *args, **options)


os.write, os.open = write, open
"""


class FullDisk:
    """`environment` is that of the run. `elsewhere` tells whether there is space outside of the session directory."""

    def __init__(self, sandbox: Sandbox, *, elsewhere: bool = True) -> None:
        self._flag = sandbox.home / "the disk is full"
        hooks = sandbox.home / "hooks"
        hooks.mkdir()
        roots = (str(sandbox.sessions),) if elsewhere else (str(sandbox.home), f"{sandbox.runtime}/swarmtui/spools")
        (hooks / "sitecustomize.py").write_text(_HOOK.format(flag=str(self._flag), roots=roots))
        self.environment = {"PYTHONPATH": f"{hooks}:{sandbox.environment['PYTHONPATH']}"}

    def fill(self) -> None:
        self._flag.touch()

    def free(self) -> None:
        self._flag.unlink(missing_ok=True)


_SAVED = re.compile(r"(\d+)(?: of (\d+))? finished requests? (?:is|are) saved")


def claimed(text: str) -> tuple[int, int] | None:
    """Return the figures of "12 finished requests are saved" or "12 of 30 …"; None if nothing is claimed."""
    found = _SAVED.search(text)
    return (int(found[1]), int(found[2] or found[1])) if found else None


def spools(sandbox: Sandbox) -> list[Path]:
    roots = (sandbox.runtime / "swarmtui", sandbox.home / ".local" / "state" / "swarmtui")
    # Not by a pattern: a directory may be removed while it is read.
    found = (Path(at, name) for root in roots for at, _, names in os.walk(root / "spools") for name in names)
    return sorted(path for path in found if path.match("spool-*.jsonl"))
