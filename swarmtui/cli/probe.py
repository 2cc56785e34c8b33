"""`swarmtui probe`: a discarded warm-up and one timed run, once or by the clock, and where it stands in its history."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from swarmtui.analysis.compare.probe_history import Probe, history
from swarmtui.cli.follow import DONE, STOPPED, UNUSABLE, drive
from swarmtui.client.spawn import Started
from swarmtui.model.run_request import Order
from swarmtui.sessions.export.figures import amount
from swarmtui.sessions.probes import probes_by_target


def probe(order: Callable[[], Order], start: Callable[[], Started], every_s: float | None, quiet: bool) -> int:
    """By the clock: the next one begins `every_s` after the last began; a server that is away is tried again."""
    due = time.monotonic()
    try:
        while True:
            code = _once(order(), start(), quiet)
            if every_s is None or code not in (DONE, UNUSABLE):
                return code
            due = max(due + every_s, time.monotonic())
            _sleep_until(due)
    except KeyboardInterrupt:
        return STOPPED


def _sleep_until(due: float) -> None:
    while (left := due - time.monotonic()) > 0:
        time.sleep(min(left, 60.0))


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Once: what is pressed after it would come in the middle of leaving."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _once(order: Order, started: Started, quiet: bool) -> int:
    ended, code = drive(order, started, quiet)
    # Between two probes there is nothing to stop in order.
    signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    if code == DONE:
        sys.stdout.write(_line(Path(order.session_root), Path(ended.directory).name))
        sys.stdout.flush()
    return code


def _line(root: Path, name: str) -> str:
    """`2026-11-15T01:44:55Z 76.9 tok/s, engine 77.1, TTFT 120 ms; 7-day median …`"""
    for probes in probes_by_target(root).values():
        latest = next((found for found in probes if found.id == name), None)
        if latest is not None:
            return f"{latest.created} {_told(latest)}; {history(probes).sentence}\n"
    return f"{name}: nothing was measured\n"


def _told(latest: Probe) -> str:
    parts = [f"{amount(latest.tps)} tok/s"]
    if latest.engine_tps is not None:
        parts.append(f"engine {amount(latest.engine_tps)}")
    if latest.ttft_s is not None:
        parts.append(f"TTFT {amount(1e3 * latest.ttft_s, 3)} ms")
    return ", ".join(parts)


def install_hint(words: list[str], every_s: float) -> str:
    """A systemd timer and a cron line that do the same by themselves."""
    command = shlex.join(words)
    minutes = max(1, round(every_s / 60))
    when = f"*/{minutes} * * * *" if minutes < 60 else f"0 */{max(1, round(minutes / 60))} * * *"
    return f"""\
# As a systemd timer of the user: two files, then `systemctl --user enable --now swarmtui-probe.timer`
# ~/.config/systemd/user/swarmtui-probe.service
[Unit]
Description=swarmtui probe

[Service]
Type=oneshot
ExecStart={command.replace("%", "%%")}

# ~/.config/systemd/user/swarmtui-probe.timer
[Unit]
Description=swarmtui probe, again and again

[Timer]
OnBootSec=2min
OnUnitActiveSec={minutes}min

[Install]
WantedBy=timers.target

# Or a line for `crontab -e`:
{when} {command.replace("%", chr(92) + "%")}
"""
