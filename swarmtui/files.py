"""Say where files are, and read and create them without trusting them: only regular ones, up to a size limit.

Errors are OSError, also for what is not a file: callers describe it by its `strerror`.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

MAX_SETTINGS = 16 << 20
MAX_DATA = 2 << 30
MAX_JOURNAL = 16 << 30
# Longer lines of a journal are damaged: the longest text of a request is bounded.
MAX_LINE = 64 << 20
_UNKNOWN_SIZE = 64 << 10
# Errors of a file system without unnamed files (O_TMPFILE).
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def open_regular(path: Path | str, limit: int, flags: int = os.O_RDONLY) -> int:
    """Open a regular file that is not larger than `limit`; a pipe or a device is refused, and not waited for."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if found.st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {limit >> 20:,} MB", str(path))
    except OSError:
        os.close(fd)
        raise
    return fd


def read_file(path: Path | str, limit: int = MAX_SETTINGS) -> bytes:
    with os.fdopen(open_regular(path, limit), "rb") as file:
        # `read` allocates what it is asked for, which may be more than the host has. Files below /proc have no size.
        size = os.fstat(file.fileno()).st_size or _UNKNOWN_SIZE
        return file.read(min(size, limit))


def read_lines(path: Path | str, limit: int = MAX_JOURNAL, longest: int = MAX_LINE) -> Iterator[bytes | None]:
    """Yield one line after the other, with its line break; None for a line that is too long."""
    with os.fdopen(open_regular(path, limit), "rb") as file:
        while line := file.readline(longest):
            if len(line) < longest or line.endswith(b"\n"):
                yield line
                continue
            while (rest := file.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield None


def open_without_links(path: Path | str, flags: int) -> int:
    """Open a file of the user's own; neither it nor its directory may be a link, which someone may have put there."""
    directory, name = os.path.split(path)
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def append_whole(path: Path | str, data: bytes, *, sync: bool = False) -> None:
    """Append to a file that only its owner can read; after an OSError it is as it was before."""
    fd = open_without_links(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(fd).st_size
        try:
            while data:
                data = data[os.write(fd, data) :]
            if sync:
                os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def write_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    write_parts(path, (content,), sync=sync)


def write_parts(path: Path, parts: Iterable[bytes], *, sync: bool = True) -> None:
    """Replace a file atomically, readable by its owner only, so that readers see the old or the new one.

    Where the file system allows, the new file has no name until it is complete: a killed writer leaves nothing behind.
    Without `sync`, it may be lost or empty after a crash of the machine.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fd = _open_temporary(temporary)
        with os.fdopen(fd, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            if sync:
                os.fsync(fd)
            if not temporary.exists():
                # Python follows the /proc link to the open file only if dst_dir_fd is given.
                os.link(f"/proc/self/fd/{fd}", temporary.name, dst_dir_fd=directory)
        temporary.replace(path)
        if sync:
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


def runtime_directory() -> Path:
    """Return where files of running sessions are: below the user's runtime directory or, without one, below /tmp."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "swarmtui" if base else Path("/tmp") / f"swarmtui-{os.getuid()}"


def state_directory() -> Path:
    """Return where swarmtui keeps what outlives its processes and is no session."""
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui"))


def sessions_root() -> Path:
    """Return the sessions directory in the user's data directory, or in XDG_DATA_HOME."""
    from platformdirs import user_data_dir  # lazily: not every command reads sessions

    return Path(user_data_dir("swarmtui")) / "sessions"


def config_path(directory: Path | None = None) -> Path:
    if directory is None:
        from platformdirs import user_config_dir

        directory = Path(user_config_dir("swarmtui"))
    return directory / "config.toml"


def is_private_directory(path: Path) -> bool:
    """Return whether only the user can access it; a link to a directory is refused."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents for the user alone, whatever the umask."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
    else:
        path.chmod(0o700)


def raise_open_file_limit() -> None:
    """Allow this process as many open files and sockets as the system permits: the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
