"""Where running sessions can be met: one Unix socket each, in a directory that only this user can enter."""

from __future__ import annotations

import os
from pathlib import Path


def socket_directory() -> Path:
    """The user's runtime directory, else one under /tmp that must be ours alone."""
    # Here and not above: who starts a process early should not wait for this.
    from swarmtui.model.schema import BadInput

    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "swarmtui" if base else Path("/tmp") / f"swarmtui-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise BadInput(f"no place for sockets: {error.strerror}", key=str(path)) from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BadInput("must belong to you alone (mode 0700); remove it, or set XDG_RUNTIME_DIR", key=str(path))
    return path


def error_log() -> Path:
    """Where a conductor writes what should never happen."""
    return socket_directory() / "errors.log"


def socket_path(session_id: str) -> Path:
    return socket_directory() / f"{session_id}.sock"
