"""Live screens that cannot be steered: a replayed session, the result of a saved one, and the run of a tune."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from swarmtui.numbers import local_time
from swarmtui.text import sanitize
from swarmtui.tui.frame_source import ReplaySource, SavedSource
from swarmtui.tui.keys import Action, relabel
from swarmtui.tui.live.header import HeaderView, ReplayClock
from swarmtui.tui.live.screen import LiveScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.textual_patches import run_in_background


class WatchScreen(LiveScreen):
    """The run of a tune."""

    key_context = "watch"
    _is_own_run = False

    def _handle_end(self, live: LiveModel) -> None:
        """Do nothing: the tune reports the result."""


class ReplayScreen(LiveScreen):
    """A replayed session: play, pause, change the speed and seek."""

    key_context = "replay"
    _is_own_run = _is_of_now = False
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


class SavedScreen(LiveScreen):
    """The result of a saved session: run it again, replay it, compare it or export it."""

    key_context = "result"
    _is_own_run = _is_of_now = False

    def __init__(self, source: SavedSource) -> None:
        super().__init__(source)
        self._saved = source

    @property
    def _directory(self) -> Path:
        return Path(self._saved.live.directory)

    def _handle_end(self, live: LiveModel) -> None:
        """Do nothing: the end was reported when it happened."""

    def _header_view(self) -> HeaderView:
        created = local_time(self._saved.summary.session.created, "%Y-%m-%d %H:%M")
        since = tuple(map(sanitize, self._saved.since))
        return super()._header_view()._replace(clock=(f"saved {created}",), notice=since)

    def action_replay(self) -> None:
        work = partial(self.app.open_replay, self._directory.parent, self._directory.name)
        run_in_background(self, work, group="open")

    def action_again(self) -> None:
        run_in_background(self, partial(self.app.repeat_saved, self._saved.summary), group="open")

    def action_find_capacity(self) -> None:
        run_in_background(self, partial(self.app.repeat_saved, self._saved.summary, surer=True), group="open")
