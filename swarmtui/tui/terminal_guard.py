"""Restore the terminal from a small child process if the app is killed without a chance to do so itself."""

from __future__ import annotations

import os
import signal
import sys
import termios

# Reset colours, keyboard modes, focus, paste and mouse reports; show the cursor; leave the alternate screen.
_RESTORE = b"\x1b[0m\x1b[<u\x1b[?1004l\x1b[?2004l\x1b[?1000l\x1b[?1006l\x1b[?25h\x1b[?1049l"
_MESSAGE = b"\r\nswarmtui: the app was killed; a run in progress continues: swarmtui attach\r\n"
_IGNORED_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN,
)  # fmt: skip


class TerminalGuard:
    """Create it before importing anything that starts threads; dismiss it when the app has exited normally."""

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
    """Wait until the app writes a byte, which means that it has exited normally, or dies."""
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, end)
    os.closerange(end + 1, 1024)
    if os.read(end, 1):
        return
    os.write(1, _RESTORE)
    termios.tcsetattr(0, termios.TCSANOW, saved)  # type: ignore[arg-type]
    os.write(2, _MESSAGE)
