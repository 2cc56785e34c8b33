"""Settings of this machine that a tune has changed, kept on disk so that they are restored whatever is killed.

Each start of a server has a file: one line per change, written before the change is made. The tune, the guardian of
the server and its watcher hold one lock of it between them; each of them can restore. If all three were killed, the
lock is free, and the next start of swarmtui restores.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from swarmtui.files import make_private_directory, state_directory
from swarmtui.model.base import SettingFailed, Stored
from swarmtui.text import sanitize

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TAIL, _TAIL_BYTES = 3, 4096


class HeldBoot(Stored, frozen=True, kw_only=True, tag="boot"):
    """The first line: limits do not outlive a boot of the machine."""

    boot: str


class HeldPower(Stored, frozen=True, kw_only=True, tag="power"):
    uuid: str
    index: int
    before_w: float
    set_w: float


class HeldCommand(Stored, frozen=True, kw_only=True, tag="command"):
    """A command that undoes what the user's own command changed."""

    name: str
    restore: tuple[str, ...]
    directory: str | None = None
    within_s: float = 30.0


_decode = msgspec.json.Decoder(HeldBoot | HeldPower | HeldCommand).decode


class Restored(NamedTuple):
    """What was restored, or could not be: one line for each setting."""

    lines: tuple[str, ...]
    complete: bool


class HeldSettings:
    """The file of one start of a server; `fd` holds its lock, and is passed on to the guardian."""

    def __init__(self, directory: Path | None = None) -> None:
        directory = directory or state_directory() / "held"
        make_private_directory(directory)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        # Locked before others can see it.
        hidden, self.path = directory / f".{name}", directory / f"{name}.jsonl"
        self.fd = os.open(hidden, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        hidden.rename(self.path)
        self.add(HeldBoot(boot=_boot_id()))

    def add(self, held: HeldBoot | HeldPower | HeldCommand) -> None:
        """Write down a change that is about to be made."""
        os.write(self.fd, msgspec.json.encode(held) + b"\n")

    def restore(self) -> tuple[str, ...]:
        """Restore everything; the file stays if something could not be restored."""
        return restore_file(self.path).lines

    def close(self) -> None:
        os.close(self.fd)


def restore_file(path: Path, *, run_commands: bool = True) -> Restored:
    """Restore what a file holds, the latest change first, and remove it if nothing failed.

    Without `run_commands`, commands are only named: much later, the user should decide.
    """
    held = list(_read(path))
    powers = [one for one in held if isinstance(one, HeldPower)]
    lines, complete = [], True
    for one in {one.uuid: one for one in reversed(powers)}.values():  # with the limit before the first change
        ours = tuple(other.set_w for other in powers if other.uuid == one.uuid)
        text, done = _restore_power(one, ours)
        lines += [text] if text else []
        complete &= done
    for command in dict.fromkeys(one for one in reversed(held) if isinstance(one, HeldCommand)):
        shown = shlex.join(command.restore)
        if not run_commands:
            lines.append(f"{command.name} was left changed; to restore it, run: {shown}")
            continue
        try:
            run_command(command.restore, command.within_s, directory=command.directory)
            lines.append(f"{command.name} restored")
        except SettingFailed as error:
            lines.append(f"{command.name} could not be restored: {error}; run: {shown}")
    if complete:
        path.unlink(missing_ok=True)
    return Restored(tuple(lines), complete)


def restore_left(directory: Path) -> Iterator[str]:
    """Restore what processes that were killed have left changed, and say so, one line for each setting."""
    for path in sorted(directory.glob("*.jsonl")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # a tune is running
        else:
            first = next(_read(path), None)
            if isinstance(first, HeldBoot) and first.boot == _boot_id():
                yield from restore_file(path, run_commands=False).lines
            else:
                path.unlink(missing_ok=True)
        finally:
            os.close(fd)


def run_command(
    words: Sequence[str], within_s: float, *, directory: str | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run a command of the user without a shell; it and what it started are killed after the time limit."""
    # A file, not a pipe: what the command leaves running may keep it open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, cwd=directory, env=env,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise SettingFailed(f"`{words[0]}` could not be started: {error.strerror}") from None
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise SettingFailed(f"`{words[0]}` did not end within {within_s:g} s", _last_lines(output)) from None
        if code:
            ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            raise SettingFailed(f"`{words[0]}` {ended}", _last_lines(output))


def _last_lines(output: IO[bytes]) -> list[str]:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = [sanitize(line) for line in output.read().decode(errors="replace").splitlines()]
    return [line for line in lines if line][-_TAIL:]


def _restore_power(held: HeldPower, ours: tuple[float, ...]) -> tuple[str, bool]:
    from swarmtui.telemetry.gpu.power_limits import PowerProblem, restore_power_limit

    try:
        replaced = restore_power_limit(held.uuid, held.index, held.before_w, ours)
    except PowerProblem as error:
        command = f"sudo nvidia-smi -i {held.uuid} -pl {held.before_w:g}"
        return f"the power limit of GPU {held.index} could not be restored: {error}; run: {command}", False
    if replaced is None:
        return "", True
    return f"power limit of GPU {held.index} restored: {replaced:g} W → {held.before_w:g} W", True


def _read(path: Path) -> Iterator[HeldBoot | HeldPower | HeldCommand]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(msgspec.MsgspecError):  # a line that was not written to its end
            yield _decode(line)


def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
