"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
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
