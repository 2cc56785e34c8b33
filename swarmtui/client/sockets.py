"""Locate the Unix sockets of running sessions, in a directory that only the user can access."""

from __future__ import annotations

import os
from pathlib import Path


def socket_directory() -> Path:
    """Return a directory below the user's runtime directory or, without one, below /tmp."""
    # Imported late: processes are started early, before other imports.
    from swarmtui.files import make_private_directory
    from swarmtui.model.schema import BadInput

    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "swarmtui" if base else Path("/tmp") / f"swarmtui-{os.getuid()}"
    try:
        make_private_directory(path)
        found = path.lstat()
    except OSError as error:
        raise BadInput(f"cannot create the socket directory: {error.strerror}", key=str(path)) from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BadInput("must belong to you alone (mode 0700); remove it, or set XDG_RUNTIME_DIR", key=str(path))
    return path


def error_log() -> Path:
    """The file for internal errors of session processes."""
    return socket_directory() / "errors.log"


def socket_path(session_id: str) -> Path:
    return socket_directory() / f"{session_id}.sock"
