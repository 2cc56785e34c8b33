"""Memory, watts and clocks of each GPU."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Panel, heading, left, right, wrapped
from swarmtui.tui.live.machine_view import Gauge, GpusView
from swarmtui.tui.numbers import bar

_TEXT = 15
_TRAIL = (12, 60)


class Gpus(Panel[GpusView]):
    @property
    def trail(self) -> int:
        """Readings that there is room for beside the bar."""
        least, most = _TRAIL
        return min(most, max(least, (self.size.width - 6 - _TEXT) // 3))

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [heading("3", "GPUs", "", width)]
        lines = [heading("3", "GPUs", "SIMULATED" if any(gpu.simulated for gpu in view.gpus) else "", width)]
        if not view.gpus:
            lines += [[(f" {line}", "dim")] for line in wrapped(view.empty, max(8, width - 2))]
        for gpu in view.gpus:
            mark = "  SIMULATED" if gpu.simulated and "SIMULATED" not in gpu.title else ""
            lines.append([(f" {gpu.title}", "bold"), (mark, "second")])
            lines += [_gauge(gauge, width, style) for gauge, style in ((gpu.memory, "first"), (gpu.power, "second"))]
            lines.append([(f" {gpu.facts}", "dim"), (f" · {gpu.throttle}" if gpu.throttle else "", gpu.throttle_mood)])
        if view.server:
            lines += [[(f" {line}", "dim")] for line in wrapped(view.server, max(8, width - 2))]
        return lines


def _gauge(gauge: Gauge, width: int, style: str) -> Line:
    """Without a limit there is nothing to be full of: then only the trail is drawn."""
    room = width - 6 - _TEXT
    wide = len(gauge.spark) + 1
    trail = wide if gauge.share is None or room >= wide + 9 else 0
    full, rest = bar(gauge.share, max(0, room - trail)) if gauge.share is not None else (" " * max(0, room - trail), "")
    return [
        (f" {gauge.label} ", "dim"),
        (full, style),
        (rest, "empty"),
        (left(f" {gauge.spark}", trail) if trail else "", style),
        (right(gauge.text, _TEXT), ""),
    ]
