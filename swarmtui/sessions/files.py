"""Locate session and configuration files, name sessions, and write files atomically."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

# Errors of a file system without unnamed files (O_TMPFILE).
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def sessions_root() -> Path:
    """Return the sessions directory in the user's data directory, or in XDG_DATA_HOME."""
    from platformdirs import user_data_dir  # lazily: not every command reads sessions

    return Path(user_data_dir("swarmtui")) / "sessions"


def config_path(directory: Path | None = None) -> Path:
    if directory is None:
        from platformdirs import user_config_dir

        directory = Path(user_config_dir("swarmtui"))
    return directory / "config.toml"


def new_session_id(now: datetime) -> str:
    """Return an id that sorts by time; in UTC, so daylight saving does not change the order."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def is_session_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def write_file(path: Path, content: bytes) -> None:
    write_parts(path, (content,))


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Replace a file atomically, readable by its owner only, so that readers see the old or the new one.

    Where the file system allows, the new file has no name until it is complete: a killed writer leaves nothing behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fd = _open_temporary(temporary)
        with os.fdopen(fd, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(fd)
            if not temporary.exists():
                # Python follows the /proc link to the open file only if dst_dir_fd is given.
                os.link(f"/proc/self/fd/{fd}", temporary.name, dst_dir_fd=directory)
        temporary.replace(path)
        os.fsync(directory)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(directory)


def _open_temporary(temporary: Path) -> int:
    try:
        return os.open(temporary.parent, os.O_WRONLY | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
