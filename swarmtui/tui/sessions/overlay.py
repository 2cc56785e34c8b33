"""Curves of several sessions over each other, each with a sign of its own."""

from __future__ import annotations

from math import log2

from swarmtui.tui.lines import Line, heading, left
from swarmtui.tui.plot import Axis, Plot, Trace, short
from swarmtui.tui.sessions.compare_view import Overlaid, OverlayView

_SIGNS = "●◆▲■○✚"
_INKS = ("first", "second", "bad", "dim")


class Overlay(Plot):
    view: OverlayView | None = None

    def show(self, view: OverlayView) -> None:
        self.view = view
        if not view.empty:
            self.load()
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        lines = [heading("", "compare", f"{view.shown} against {view.varied}" if view else "", width)]
        if view is None or view.empty or self.plotext is None:
            return [*lines, [(f" {(view.empty or 'drawing …') if view else ''}", "dim")]]
        drawn = [(curve, _SIGNS[k % 6], _INKS[k % 4]) for k, curve in enumerate(view.curves) if curve.at]
        lines.append(_legend(drawn, width))
        if height < 7 or width < 24:
            return lines
        top = max(value for curve, _, _ in drawn for value in curve.values) * 1.05 or 1.0
        places = [top * part / 3 for part in range(4)]
        traces = [Trace([log2(at) for at in curve.at], curve.values, ink, sign) for curve, sign, ink in drawn]
        axis = Axis("left", 0, top, [(place, short(place)) for place in places])
        levels = sorted({at for curve, _, _ in drawn for at in curve.at})
        return [*lines, *self.plotted(width, height - 2, traces, [axis], [(log2(at), f"{at:g}") for at in levels])]


def _legend(drawn: list[tuple[Overlaid, str, str]], width: int) -> Line:
    room = max(8, width // len(drawn) - 1)
    return [(left(f" {sign} {curve.name}", room), ink) for curve, sign, ink in drawn]
