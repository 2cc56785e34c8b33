"""The history of probes as text: a list, a small chart, and what it says."""

from __future__ import annotations

from collections.abc import Mapping

from swarmtui.analysis.compare.probe_history import History
from swarmtui.cli.render.table import aligned, wrapped
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.text import plain

_BAR = 24
_SHOWN = 40
_STEPS = "▏▎▍▌▋▊▉█"


def history_text(found: Mapping[str, History]) -> str:
    if not found:
        return "no probe yet: `swarmtui probe --endpoint …` makes the first\n"
    return "\n\n".join(_one(target, history) for target, history in found.items()) + "\n"


def _one(target: str, found: History) -> str:
    rates = [probe.tps or 0.0 for probe in found.probes]
    shown = list(zip(found.probes, rates, found.rolling, strict=True))[-_SHOWN:]
    low, high = min(rate for _, rate, _ in shown), max(rate for _, rate, _ in shown)
    floor = low - 0.25 * (high - low) if high > low else 0.0
    rows = [
        [
            probe.created,
            amount(rate),
            amount(probe.engine_tps),
            NOTHING if probe.ttft_s is None else amount(1e3 * probe.ttft_s, 3),
            amount(middle),
            _bar((rate - floor) / ((high - floor) or 1.0)),
        ]
        for probe, rate, middle in shown
    ]
    titles = ["when", "tok/s", "engine", "TTFT ms", "median", f"tok/s from {amount(floor, 3)}"]
    table = aligned(titles, rows, right=[False, True, True, True, True, False])
    spread = f"range {amount(found.low)} to {amount(found.high)} tok/s"
    for name, cv in (("between probes", found.cv_between), ("within a probe", found.cv_within)):
        spread += "" if cv is None else f"; CV {name} {100 * cv:.1f} %"
    more = len(found.probes) - len(shown)
    cut = [f"{more} earlier ones are not shown"] if more else []
    return "\n".join([plain(target), "", *table, "", *cut, *wrapped(spread), *wrapped(found.sentence)])


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(1.0, share)) * _BAR * 8)
    rest = _STEPS[eighths % 8 - 1] if eighths % 8 else ""
    return "█" * (eighths // 8) + rest or _STEPS[0]
