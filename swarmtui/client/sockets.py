"""Locate the Unix sockets of running sessions, in a directory that only the user can access."""

from __future__ import annotations

from pathlib import Path


def socket_directory() -> Path:
    """Return the runtime directory; it is created if necessary, and must belong to the user alone."""
    # Imported late: processes are started early, before other imports.
    from swarmtui.files import is_private_directory, make_private_directory, runtime_directory
    from swarmtui.model.schema import BadInput

    path = runtime_directory()
    try:
        make_private_directory(path)
    except OSError as error:
        raise BadInput(f"cannot create the socket directory: {error.strerror}", key=str(path)) from None
    if not is_private_directory(path):
        raise BadInput("must belong to you alone (mode 0700); remove it, or set XDG_RUNTIME_DIR", key=str(path))
    return path


def error_log() -> Path:
    """The file for internal errors of session processes."""
    return socket_directory() / "errors.log"


def socket_path(session_id: str) -> Path:
    return socket_directory() / f"{session_id}.sock"
