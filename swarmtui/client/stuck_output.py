"""Exit although nobody reads the output: a write to a full pipe or a stopped terminal blocks, and no signal ends it."""

from __future__ import annotations

import os
import select
import signal
import threading
import time

# The exit code of a command that was stopped.
STOPPED = 4


def exit_if_stuck(outputs: tuple[int, ...] = (1, 2), after_s: float = 1.0) -> None:
    """End this process as soon as one of its outputs has accepted nothing for this time."""
    for output in outputs:
        threading.Thread(target=_watch, args=(output, after_s), daemon=True).start()


def ignore_signals_unless_stuck() -> None:
    """Ignore SIGINT and SIGTERM, unless they come while an output is stuck."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: exit_if_stuck())


def _watch(output: int, after_s: float) -> None:
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    while poll.poll(1e3 * after_s):
        time.sleep(after_s / 10)
    os._exit(STOPPED)
