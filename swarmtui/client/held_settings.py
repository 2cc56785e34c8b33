"""Change settings of this machine for a tune, such as the power limit of the GPUs that serve an endpoint.

What was changed is kept on disk, so that it is restored whatever is killed.

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
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec

from swarmtui.files import make_private_directory, state_directory
from swarmtui.model.base import BadInput, SettingFailed, Stored
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.telemetry.gpu.power_limits import (
    PowerLimit,
    PowerProblem,
    check_permission,
    check_watts,
    read_power_limits,
    restore_power_limit,
    set_power_limit,
)
from swarmtui.text import sanitize

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Lines, and bytes that are searched for them.
_TAIL = 3, 4096
# Limits to try, as shares of the default, and what they are rounded to.
_SHARES, _STEP_W = (0.85, 0.75, 0.65, 0.55, 0.45), 5


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
        return restore_file(self.path)

    def close(self) -> None:
        os.close(self.fd)


def restore_file(path: Path, *, run_commands: bool = True) -> tuple[str, ...]:
    """Restore what a file holds, the latest change first, and remove it if nothing failed; return a line for each.

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
    return tuple(lines)


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
                yield from restore_file(path, run_commands=False)
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
            raise SettingFailed(f"`{words[0]}` did not end within {within_s:g} s", last_lines(output, *_TAIL)) from None
        if code:
            ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            raise SettingFailed(f"`{words[0]}` {ended}", last_lines(output, *_TAIL))


def last_lines(output: IO[bytes], most: int, size: int, redact: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return the last lines of what a program printed, of its last `size` bytes; empty ones are left out."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    lines = (sanitize(line) for line in redact(output.read().decode(errors="replace")).splitlines())
    return tuple([line for line in lines if line][-most:])


def _restore_power(held: HeldPower, ours: tuple[float, ...]) -> tuple[str, bool]:
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


class ServerPower:
    """The power limits of the GPUs of one server, which must be running.

    Each change is written to `held` first.
    """

    def __init__(self, url: str, chosen: Sequence[int], held: HeldSettings) -> None:
        self._held, self._limits = held, _serving(url, chosen, read_power_limits())

    def set(self, watts: float) -> None:
        for limit in self._limits:
            check_watts(limit, watts)
        for limit in self._limits:
            held = HeldPower(uuid=limit.uuid, index=limit.index, before_w=limit.watts, set_w=watts)
            self._held.add(held)
            set_power_limit(limit, watts)


def check_power(watts: Sequence[float], chosen: Sequence[int] = (), *, key: str = "knob.watts") -> None:
    """Refuse, before anything is started, limits that no GPU here takes or that this user must not set."""
    try:
        limits = _named(chosen, read_power_limits())
        for value in watts:
            problems = [problem for limit in limits if (problem := _range_problem(limit, value))]
            if len(problems) == len(limits):  # with several kinds of GPUs, another may be that of the server
                raise problems[0]
        for limit in limits:
            check_permission(limit)
    except PowerProblem as problem:
        advice = f"; run: {shlex.join(('sudo', '-E', *sys.orig_argv))}" if problem.code == "permission" else ""
        raise BadInput(f"{problem}{advice}", key=key) from None


def choose_watts() -> tuple[int, ...]:
    """Return limits below the default to try, the highest first, that all GPUs here take and this user may set."""
    try:
        limits = read_power_limits()
        for limit in limits:
            check_permission(limit)
    except PowerProblem as problem:
        raise BadInput(str(problem), key="--power") from None
    highest, lowest = min(limit.default_w for limit in limits), max(limit.min_w for limit in limits)
    found = dict.fromkeys(max(round(share * highest / _STEP_W) * _STEP_W, ceil(lowest)) for share in _SHARES)
    return tuple(watts for watts in found if watts < highest)


def _range_problem(limit: PowerLimit, watts: float) -> PowerProblem | None:
    try:
        check_watts(limit, watts)
    except PowerProblem as problem:
        return problem
    return None


def _named(chosen: Sequence[int], limits: Sequence[PowerLimit]) -> Sequence[PowerLimit]:
    known = {limit.index: limit for limit in limits}
    if missing := [index for index in chosen if index not in known]:
        raise PowerProblem("no_gpu", f"there is no GPU {missing[0]} whose power limit can be set")
    return [known[index] for index in chosen] if chosen else limits


def _serving(url: str, chosen: Sequence[int], limits: Sequence[PowerLimit]) -> Sequence[PowerLimit]:
    """Return the GPUs that are named, else those on which the server computes, else the only one."""
    if chosen:
        return _named(chosen, limits)
    from swarmtui.telemetry.discovery import listeners_at, with_gpus
    from swarmtui.telemetry.gpu.readers import read_gpus

    gpus, _ = read_gpus()
    root = f"http://127.0.0.1:{urlsplit(url).port}"
    listener = listeners_at([root]).get(root)
    server = DiscoveredServer(url=root, reachable=True, pid=listener.pid if listener else None)
    names = with_gpus([server], gpus)[0].gpus
    used = {gpu.part_of or gpu.uuid for gpu in gpus if gpu.uuid in names}
    found = [limit for limit in limits if limit.uuid in used] or limits
    if not used and len(limits) > 1:
        raise PowerProblem(
            "no_gpu", f"which of the {len(limits)} GPUs the server uses is not known; name them: gpus = [0]"
        )
    return found
