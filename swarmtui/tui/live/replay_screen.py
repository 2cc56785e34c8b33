"""The screen of a replayed session: play, pause, change the speed and seek."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.keys import bindings
from swarmtui.tui.live.header import ReplayClock
from swarmtui.tui.live.screen import LiveScreen


class ReplayScreen(LiveScreen):
    key_context = "replay"
    _is_replay = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(self, source: ReplaySource) -> None:
        super().__init__(source)
        self._replay = source

    @property
    def _is_over(self) -> bool:
        return True

    def on_unmount(self) -> None:
        self._replay.close()

    def _replay_clock(self) -> ReplayClock:
        replay = self._replay
        return ReplayClock(replay.at_s, replay.length_s, replay.speed, replay.playing)

    def action_play(self) -> None:
        self._replay.toggle()

    def action_faster(self) -> None:
        self._replay.change_speed(1)

    def action_slower(self) -> None:
        self._replay.change_speed(-1)

    def action_seek(self, by_s: int) -> None:
        self._replay.seek(self._replay.at_s + by_s)
