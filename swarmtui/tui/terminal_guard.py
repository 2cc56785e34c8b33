"""A small process beside the app: where that dies without a word, people get their terminal back all the same."""

from __future__ import annotations

import os
import signal
import sys
import termios

# Colours, keyboard modes, focus, paste, mouse, cursor, and the screen that was there before.
_BACK = b"\x1b[0m\x1b[<u\x1b[?1004l\x1b[?2004l\x1b[?1000l\x1b[?1003l\x1b[?25h\x1b[?1049l"
_WORDS = b"\r\nswarmtui: the screen was killed; a run that was on goes on: swarmtui attach\r\n"
_DEAF_TO = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN,
)  # fmt: skip


class Guard:
    """To be made before anything is imported that starts threads, and dismissed when the app has left by itself."""

    def __init__(self) -> None:
        saved = termios.tcgetattr(sys.stdin.fileno())
        end, self._alive = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            try:
                _watch(end, saved)
            finally:
                os._exit(0)
        os.close(end)

    def dismiss(self) -> None:
        os.write(self._alive, b".")
        os.close(self._alive)
        os.waitpid(self._pid, 0)


def _watch(end: int, saved: list[object]) -> None:
    """Until the other end is closed: by the app itself, which says so before, or by its death."""
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, end)
    os.closerange(end + 1, 1024)
    if os.read(end, 1):
        return
    os.write(1, _BACK)
    termios.tcsetattr(0, termios.TCSANOW, saved)  # type: ignore[arg-type]
    os.write(2, _WORDS)
