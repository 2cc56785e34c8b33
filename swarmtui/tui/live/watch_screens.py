"""Live screens that cannot be steered: a replayed session, and the run of a tune."""

from __future__ import annotations

from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.keys import Action, relabel
from swarmtui.tui.live.header import ReplayClock
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import LiveModel


class WatchScreen(LiveScreen):
    """The run of a tune."""

    key_context = "watch"
    _is_own_run = False

    def _handle_end(self, live: LiveModel) -> None:
        """Do nothing: the tune reports the result."""


class ReplayScreen(LiveScreen):
    """A replayed session: play, pause, change the speed and seek."""

    key_context = "replay"
    _is_own_run = False
    is_replay = True

    def __init__(self, source: ReplaySource) -> None:
        super().__init__(source)
        self._replay = source

    def _replay_clock(self) -> ReplayClock:
        replay = self._replay
        return ReplayClock(replay.at_s, replay.length_s, replay.speed, replay.playing)

    def actions(self) -> list[Action]:
        replay = self._replay
        return relabel(super().actions(), {"play": "pause" if replay.playing else "again" if replay.at_end else "play"})

    def action_play(self) -> None:
        self._replay.toggle()

    def action_faster(self) -> None:
        self._replay.change_speed(1)

    def action_slower(self) -> None:
        self._replay.change_speed(-1)

    def action_seek(self, by_s: int) -> None:
        self._replay.seek(self._replay.at_s + by_s)
