"""Write a systemd timer and a cron line that run a probe at an interval."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def install_hint_text(command: Sequence[str], every_s: float) -> str:
    """A systemd timer and a cron line that run a probe at an interval."""
    line = shlex.join(command)
    minutes = max(1, round(every_s / 60))
    when = f"*/{minutes} * * * *" if minutes < 60 else f"0 */{max(1, round(minutes / 60))} * * *"
    return f"""\
# As a systemd user timer: create these two files, then `systemctl --user enable --now swarmtui-probe.timer`
# ~/.config/systemd/user/swarmtui-probe.service
[Unit]
Description=swarmtui probe

[Service]
Type=oneshot
ExecStart={line.replace("%", "%%")}

# ~/.config/systemd/user/swarmtui-probe.timer
[Unit]
Description=swarmtui probe at an interval

[Timer]
OnBootSec=2min
OnUnitActiveSec={minutes}min

[Install]
WantedBy=timers.target

# Or a line for `crontab -e`:
{when} {line.replace("%", chr(92) + "%")}
"""
