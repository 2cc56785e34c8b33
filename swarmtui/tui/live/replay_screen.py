"""A run that is over: time can be held, hurried and turned back."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from swarmtui.tui.frame_source import Past
from swarmtui.tui.keys import bindings
from swarmtui.tui.live import header_view
from swarmtui.tui.live.screen import LiveScreen


class ReplayScreen(LiveScreen):
    where = "replay"
    _past = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(self, source: Past) -> None:
        super().__init__(source)
        self._time = source

    @property
    def _is_over(self) -> bool:
        return True

    def on_unmount(self) -> None:
        self._time.close()

    def _clock(self) -> header_view.Clock:
        past = self._time
        return header_view.Clock(past.at_s, past.length_s, past.speed, past.playing)

    def action_play(self) -> None:
        self._time.toggle()

    def action_faster(self) -> None:
        self._time.faster(1)

    def action_slower(self) -> None:
        self._time.faster(-1)

    def action_seek(self, by_s: int) -> None:
        self._time.seek(self._time.at_s + by_s)
