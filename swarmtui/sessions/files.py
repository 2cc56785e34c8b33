"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

# What a file system says that knows no files without a name.
_NAMES_NEEDED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def write_whole(path: Path, content: bytes) -> None:
    write_parts(path, (content,))


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Readers see the old file or the new one, also after a power cut; only its owner may read it.

    Where the file system can, it has no name until it is whole, so that whoever is killed while writing leaves nothing.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fd = _open(temporary)
        with os.fdopen(fd, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(fd)
            if not temporary.exists():
                # Only with a directory given is the link followed to the file that it stands for.
                os.link(f"/proc/self/fd/{fd}", temporary.name, dst_dir_fd=directory)
        temporary.replace(path)
        os.fsync(directory)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(directory)


def _open(temporary: Path) -> int:
    try:
        return os.open(temporary.parent, os.O_WRONLY | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in _NAMES_NEEDED:
            raise
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def sessions_root() -> Path:
    """The user's own data directory, or where XDG_DATA_HOME says."""
    from platformdirs import user_data_dir  # lazily: a command that reads no session need not wait for it

    return Path(user_data_dir("swarmtui")) / "sessions"


def config_path(directory: Path | None = None) -> Path:
    if directory is None:
        from platformdirs import user_config_dir

        directory = Path(user_config_dir("swarmtui"))
    return directory / "config.toml"


def new_id(now: datetime) -> str:
    """Sorts by time; in UTC, so that a change of the clocks changes no order."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def is_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None
