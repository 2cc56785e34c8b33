"""Run modules of swarmtui in forks of a process that has imported them: most of their start is imports.

So are scripts of tests that stand in for a server: most of them end by executing the simulator.

A fork has the streams, the environment, the session and the signals of the process that it replaces, and is shown below
/proc as that. What differs is that modules are imported before the environment is set.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import thread
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from swarmtui import http_client

_FORKED = (
    "swarmtui", "swarmtui.session_process", "swarmtui.loadgen.worker", "swarmtui.sessions.check_answers",
    "swarmtui.sim", "swarmtui.experiments.server_guardian",
)  # fmt: skip
_KEPT: list[object] = []
_EXECV = os.execv

# Room for the command line and the environment of a fork; a process cannot get more than it was started with.
ROOM = "/" * 2_000
ENVIRONMENT_ROOM = {"ROOM": "/" * 30_000}


class ForkingPopen(subprocess.Popen[Any]):
    """`subprocess.Popen`, which forks where the command is one of these modules or a script."""

    def __init__(self, args: Any, **options: Any) -> None:
        if not isinstance(args, str) and _can_be_forked(args):
            environment = dict(os.environ) if options.get("env") is None else options["env"]
            prepare = options.get("preexec_fn")
            options["preexec_fn"] = partial(_become_child, args, environment, options.get("pass_fds", ()), prepare)
        super().__init__(args, **options)


def _can_be_forked(command: Sequence[str]) -> bool:
    match command:
        case [sys.executable, "-m", module, *_] | [sys.executable, "-P", "-m", module, *_]:
            return module in _FORKED
    return _script(command) is not None


def _script(command: Sequence[str]) -> str | None:
    """Return the script of Python that a command runs, by its name or by its first line."""
    match command:
        case [sys.executable, str(path), *_] if path.endswith(".py"):
            return path
        case [str(path), *_] if Path(path).is_absolute() and path != sys.executable:
            with suppress(OSError), Path(path).open("rb") as file:
                return path if file.readline().strip() == b"#!" + os.fsencode(sys.executable) else None
    return None


def import_packages(names: Collection[str]) -> None:
    for name in names:
        package = importlib.import_module(f"swarmtui.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"swarmtui.{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def become(command: Sequence[str], environment: dict[str, str], kept: Collection[int]) -> NoReturn:
    """Run a module in this fork, as if it had been started by the command; `kept` are the files that it inherits.

    Nothing of the process that was forked is destroyed: the numbers of its files are those of others now.
    """
    gc.freeze()
    gc.enable()
    atexit._clear()
    thread._threads_queues.clear()  # type: ignore[attr-defined]  # a fork has no other threads
    _forget_event_loop()
    _reset_signals()
    for path in list(Path("/proc/self/fd").iterdir()):
        if int(path.name) > 2 and int(path.name) not in kept:
            with suppress(OSError):  # the listing itself
                os.close(int(path.name))
    _set_environment(command, environment)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    subprocess.Popen = ForkingPopen  # type: ignore[assignment, misc]
    os.execv = _execute  # type: ignore[assignment]
    script = _script(command)
    sys.orig_argv, sys.argv = [*command], [*command[command.index(script) if script else command.index("-m") + 1 :]]
    name = sys.argv[0]
    _follow_path(environment.get("PYTHONPATH", ""))
    try:
        if script:
            runpy.run_path(name, run_name="__main__")
        else:
            if not hasattr(sys.modules[name], "__path__"):
                del sys.modules[name]  # runpy would warn
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _exit_with(ended.code)
    _exit_with(0)


def _execute(path: str, command: list[str]) -> NoReturn:
    """`os.execv`, which stays in this fork where the command is one of these modules or a script."""
    if _can_be_forked(command):
        become(command, dict(os.environ), ())
    _EXECV(path, command)


def _become_child(
    command: Sequence[str], environment: dict[str, str], kept: Collection[int], prepare: Callable[[], None] | None
) -> NoReturn:
    try:
        if prepare is not None:
            prepare()
        become(command, environment, kept)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        raise


def _set_environment(command: Sequence[str], environment: dict[str, str]) -> None:
    """Take an environment, and show it and the command below /proc: tests find their processes there."""
    os.environ.clear()
    os.environ.update(environment)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[45:49])
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    values = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    room, more = arg_end - arg_start, env_end - env_start
    ctypes.memmove(arg_start, words[:room].rjust(room, b"/"), room)  # a path may begin with any number of slashes
    ctypes.memmove(env_start, values[:more].ljust(more, b"\0"), more)


def _follow_path(folders: str) -> None:
    """Search these folders first, and run the `sitecustomize` in them, as a new interpreter would."""
    if added := [folder for folder in folders.split(":") if folder and folder not in sys.path]:
        sys.path[:0] = added
    if any((Path(folder) / "sitecustomize.py").exists() for folder in folders.split(":")):
        sys.modules.pop("sitecustomize", None)  # the process that was forked may have run it, too
        importlib.import_module("sitecustomize")


def _exit_with(code: object) -> NoReturn:
    """End as the interpreter does, without destroying each module: that would copy the memory of all of them."""
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def _forget_event_loop() -> None:
    """The thread of the HTTP client was not forked. Its loop is kept: destroying it would change that of the parent."""
    if http_client._start_event_loop.cache_info().currsize:
        _KEPT.append(http_client._start_event_loop())
        http_client._start_event_loop.cache_clear()


def _reset_signals() -> None:
    """Signals that were ignored stay ignored; those that were handled do not."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
