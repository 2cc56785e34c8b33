"""Measure the cost of the app: bytes to the terminal, CPU, response to keys and time to first paint.

python -m tests.bench.terminal                 # C=64 and C=1000, and C=64 read at 20 KB/s
python -m tests.bench.terminal --c 64 --seconds 30
python -m tests.bench.terminal --c 64 --keys m # the streams as lines with text, not as a heat map
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from functools import cache
from pathlib import Path

import swarmtui
from swarmtui.client.session_client import SessionClient, start_session
from swarmtui.model.client_protocol import Frame, Hello, Stop, Subscribe
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest

_TICKS = os.sysconf("SC_CLK_TCK")


class AppScreen:
    """The app in a pseudo-terminal, read without limit or at `limit` bytes per second."""

    def __init__(
        self,
        words: list[str],
        limit: int | None,
        columns: int,
        rows: int,
        environment: dict[str, str] | None = None,
        program: tuple[str, ...] = (sys.executable, "-m", "swarmtui"),
    ) -> None:
        self.started = time.monotonic()
        self.process, self.master = _spawn([*program, *words], columns, rows, environment or {})
        self._limit = limit
        self._budget_from = self.started
        self._taken = 0
        self.seconds: dict[int, int] = {}
        self.output = b""

    def read(self, until: float, pattern: bytes | None = None) -> float | None:
        """Read until a time, or until `pattern` has appeared; return the time at which it did."""
        while (now := time.monotonic()) < until:
            if not select.select([self.master], [], [], min(0.02, until - now))[0]:
                continue
            size = 65536
            if self._limit is not None:
                allowed = int((now - self._budget_from) * self._limit) - self._taken
                if allowed <= 0:
                    time.sleep(0.01)
                    continue
                size = min(size, allowed)
                if allowed > self._limit // 4:
                    # Bytes that were not read are not saved up for later.
                    self._taken += allowed - self._limit // 4
                    size = min(size, self._limit // 4)
            try:
                data = os.read(self.master, size)
            except OSError:
                return None
            self._taken += len(data)
            second = int(time.monotonic() - self.started)
            self.seconds[second] = self.seconds.get(second, 0) + len(data)
            self.output = (self.output + data)[-20_000:]
            if pattern is not None and pattern in self.output:
                return time.monotonic()
        return None

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def hang_up(self) -> None:
        """Close the terminal."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def end(self) -> None:
        """End the app if it is still running, and discard its last output."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        while self.process.poll() is None and self.master >= 0 and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    os.read(self.master, 65536)
                except OSError:
                    break
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(5)
        self.hang_up()


def _spawn(words: list[str], columns: int, rows: int, more: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    # As over SSH, with compiled bytecode and the size of the pseudo-terminal.
    unset = ("COLORTERM", "NO_COLOR", "PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    _compile()
    process = subprocess.Popen(
        # A signal that this process ignores, such as SIGHUP under nohup, would stay ignored in the app.
        ["setsid", "--ctty", "env", "--default-signal=HUP,INT,QUIT,TERM", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm-256color"} | more,
    )
    os.close(theirs)
    return process, ours


@cache
def _compile() -> None:
    """Compile the package, as an installer does."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", *swarmtui.__path__], check=True)


def run_swarm(c: int, root: Path) -> tuple[SessionClient, str]:
    """Start a run with `c` streams; return when all of them are in flight."""
    endpoint = f"sim:b70-swarm?slots={max(64, c)}&speed=4&budget={max(2048, 2 * c)}"
    request = RunRequest(
        endpoints=(endpoint,),
        workload="coding",
        plan=Plan(goal="manual", load=Closed(levels=(c,), warmup=1)),
        session_root=str(root),
    )
    client = start_session(request, Subscribe(hz=2.0))
    session_id = ""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        match client.receive(1.0):
            case Hello(session=session):
                session_id = session.id
            case Frame(in_flight=in_flight, status="running") if in_flight >= c and session_id:
                return client, session_id
    raise SystemExit("the run did not reach its number of streams")


def measure(
    c: int, seconds: float, limit: int | None, columns: int = 120, rows: int = 40, keys_first: str = ""
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        client, session_id = run_swarm(c, Path(folder))
        _compile()
        screen = AppScreen(["attach", session_id], limit, columns, rows)
        try:
            painted = screen.read(screen.started + 10, b"agents")
            screen.read(time.monotonic() + 3)
            screen.press(keys_first.encode())
            if c > rows:
                screen.press(b"\x1b[6~")  # page down: scrolled
            cpu, start = screen.cpu_s(), time.monotonic()
            first = int(start - screen.started) + 1
            screen.read(start + seconds)
            share = (screen.cpu_s() - cpu) / (time.monotonic() - start)
            rates = [screen.seconds.get(second, 0) for second in range(first, first + int(seconds) - 1)]
            keys = [_key_latency_s(screen, phase) for phase in (0.0, 0.07, 0.13, 0.19, 0.23)]
        finally:
            screen.end()
            client.send(Stop(grace_s=0.0))
            client.close()
    mean = sum(rates) / max(1, len(rates)) / 1000
    shown = "–" if painted is None else f"{painted - screen.started:.2f}"
    lag = "never" if None in keys else f"{max(key for key in keys if key is not None):.2f}"
    print(
        f"C={c:<5} {columns}×{rows} reader {'free' if limit is None else f'{limit // 1000} KB/s':8}"
        f" mean {mean:6.1f} KB/s  worst second {max(rates, default=0) / 1000:6.1f} KB/s"
        f"  CPU {share * 100:5.1f} %  slowest key {lag} s  first paint {shown} s"
    )


def _key_latency_s(screen: AppScreen, phase: float) -> float | None:
    """The time from pressing space to the word on the screen."""
    screen.read(time.monotonic() + 0.6 + phase)
    screen.output = b""
    pressed = time.monotonic()
    screen.press(b" ")
    shown = screen.read(pressed + 3, b"FROZEN")
    screen.press(b" ")
    return None if shown is None else shown - pressed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--c", type=int)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--limit", type=int, help="bytes per second that the terminal accepts")
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--keys", default="", help="keys to press before measuring")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    cases = [(options.c, options.limit)] if options.c else [(64, None), (64, 20_000), (1000, None)]
    for c, limit in cases:
        measure(c, options.seconds, limit, columns, rows, options.keys)


if __name__ == "__main__":
    main()
