"""Exit codes, the crash report of an internal error, and how to exit when nobody reads the output."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import asyncio

    from swarmtui.model.redaction import Secrets

DONE, MISSED, BAD_INPUT, UNUSABLE, STOPPED = range(5)
# An internal error of swarmtui, as in sysexits.h.
FAULT = 70


def write_crash_report(error: BaseException) -> str:
    """Write the traceback to a file that only the user can read.

    Return where it is, to be appended to a message; empty if it cannot be written.
    """
    import traceback

    from swarmtui.files import make_private_directory, state_directory, write_file

    path = state_directory() / "crash.txt"
    try:
        make_private_directory(path.parent)
        text = redact_given("".join(traceback.format_exception(error)))
        write_file(path, text.encode(errors="backslashreplace"))
    except OSError:
        return ""
    return f"; details: {path}"


def redact_given(text: str) -> str:
    """Redact what this process was given and must not write: values of its environment, headers, parts of URLs."""
    from swarmtui.model.redaction import Redactor, Secrets, is_secret_name

    words = sys.argv[1:]
    named = {name: value for name, value in os.environ.items() if is_secret_name(name) or name in words}
    headers = {f"{word} key": word.partition("=")[2] for option, word in pairwise(words) if option == "--header"}
    urls = {word: word for word in words if "://" in word}
    return Redactor(Secrets(headers=named | headers, urls=urls)).redact(text)


def redact_stderr(secrets: Secrets) -> None:
    """Redact whatever this process writes to its standard error from now on, such as tracebacks."""
    sys.stderr = _RedactedStream(sys.stderr, secrets)


class _RedactedStream(io.TextIOBase):
    def __init__(self, stream: TextIO, secrets: Secrets) -> None:
        from swarmtui.model.redaction import Redactor

        self._stream, self._redact = stream, Redactor(secrets).redact

    def write(self, text: str) -> int:
        self._stream.write(self._redact(text))
        self._stream.flush()
        return len(text)

    def fileno(self) -> int:
        return self._stream.fileno()


def exit_if_stuck(outputs: tuple[int, ...] = (1, 2), after_s: float = 1.0) -> None:
    """End this process as soon as one of its outputs has accepted nothing for this time.

    A write to a full pipe or to a stopped terminal blocks, and no signal ends it.
    """
    for output in outputs:
        threading.Thread(target=_watch, args=(output, after_s), daemon=True).start()


def ignore_signals_unless_stuck() -> None:
    """Ignore SIGINT and SIGTERM, unless they come while an output is stuck."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: exit_if_stuck())


def set_at_end_of_stdin(event: asyncio.Event) -> None:
    """Set an event of the running loop when the standard input ends, at once if it was never open."""
    import asyncio  # lazily: not every process has a loop

    loop = asyncio.get_running_loop()

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1 << 16):
                pass
        with suppress(RuntimeError):  # the loop was closed by a signal
            loop.call_soon_threadsafe(event.set)

    # In a thread, because epoll does not support files.
    threading.Thread(target=wait, daemon=True).start()


def _watch(output: int, after_s: float) -> None:
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    while poll.poll(1e3 * after_s):
        time.sleep(after_s / 10)
    os._exit(STOPPED)
