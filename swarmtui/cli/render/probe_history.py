"""Render probes as text: one line per probe, their history with a bar chart, and timers that repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from swarmtui.analysis.compare.probe_history import ProbeHistory, ProbeResult, probe_history
from swarmtui.cli.render.table import align_table, wrap
from swarmtui.numbers import MISSING, percent, seconds, significant
from swarmtui.sessions.probes import probes_by_target
from swarmtui.text import sanitize

_BAR = 24
_SHOWN = 40
_STEPS = "▏▎▍▌▋▊▉█"


def probe_line(root: Path, session: str) -> str:
    """`2026-11-15T01:44:55Z 76.9 tok/s, engine 77.1, TTFT 120 ms; 7 days before: median …`"""
    for probes in probes_by_target(root).values():
        latest = next((probe for probe in probes if probe.id == session), None)
        if latest is not None and latest.runs:
            return f"{latest.created} {_describe_probe(latest)}; {probe_history(probes).sentence}"
    return f"{session}: no rate was measured"


def _describe_probe(probe: ProbeResult) -> str:
    wall = " (whole request: the response arrived in one piece)" if probe.wall else ""
    parts = [f"{significant(probe.tps)} tok/s{wall}"]
    if probe.engine_tps is not None:
        parts.append(f"engine {significant(probe.engine_tps)}")
    if probe.ttft_s is not None:
        parts.append(f"TTFT {seconds(probe.ttft_s)}")
    return ", ".join(parts)


def history_text(histories: Mapping[str, ProbeHistory]) -> str:
    if not histories:
        return "no probes yet: run `swarmtui probe --endpoint URL`\n"
    return "\n\n".join(_history(target, history) for target, history in histories.items()) + "\n"


def _history(target: str, history: ProbeHistory) -> str:
    if not history.probes:
        return f"{sanitize(target)}\n\nno probe measured a rate"
    rates = [probe.tps or 0.0 for probe in history.probes]
    shown = list(zip(history.probes, rates, history.rolling, strict=True))[-_SHOWN:]
    low, high = min(rate for _, rate, _ in shown), max(rate for _, rate, _ in shown)
    floor = low - 0.25 * (high - low) if high > low else 0.0
    rows = [
        [
            probe.created,
            significant(rate),
            significant(probe.engine_tps),
            MISSING if probe.ttft_s is None else significant(1e3 * probe.ttft_s, 3),
            significant(median),
            _bar((rate - floor) / ((high - floor) or 1.0)),
        ]
        for probe, rate, median in shown
    ]
    titles = ["when", "tok/s", "engine", "TTFT ms", "rolling median", f"tok/s from {significant(floor, 3)}"]
    table = align_table(titles, rows, right=[False, True, True, True, True, False])
    spread = f"range {significant(history.low)} to {significant(history.high)} tok/s"
    for name, cv in (("between probes", history.cv_between), ("within a probe", history.cv_within)):
        spread += "" if cv is None else f"; CV {name} {percent(cv, 1)}"
    more = len(history.probes) - len(shown)
    cut = [f"{more} earlier probes not shown"] if more else []
    return "\n".join([sanitize(target), "", *table, "", *cut, *wrap(spread), *wrap(history.sentence)])


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(1.0, share)) * _BAR * 8)
    rest = _STEPS[eighths % 8 - 1] if eighths % 8 else ""
    return "█" * (eighths // 8) + rest or _STEPS[0]


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
