"""The live screen: panels that show frames, shared by running, replayed and tuned sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.events import Click

from swarmtui.model.client_protocol import WatchTails
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import HelpTopic, KeyFooter, PanelScreen
from swarmtui.tui.baseline import toggle_baseline
from swarmtui.tui.frame_source import FrameSource
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import ACTIONS, Action, in_footer, relabel
from swarmtui.tui.lines import LineWidget, Movable
from swarmtui.tui.live.comparison import LiveComparison
from swarmtui.tui.live.header import HeaderPanel, HeaderView, ReplayClock, header_view
from swarmtui.tui.live.layout import LiveLayout, RegionLayout, live_layout
from swarmtui.tui.live.live_panel import LiveData, LivePanel, StreamOrder, load_panels
from swarmtui.tui.live.now import NowPanel
from swarmtui.tui.live.result import ResultPanel, ended_rows
from swarmtui.tui.live.streams import STREAM_ORDERS, StreamsPanel, default_order, is_heat_map
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.model.session import Session
    from swarmtui.tui.live_model import LiveModel

_RETRY_S = 0.1
# The footer has room for a flag of this length, but not for a command.
_MAX_LABEL = 24


class LiveScreen(PanelScreen):
    """Base of the run, replay and watch screens, which differ in their keys."""

    # Otherwise Esc closes the screen, and with it the source.
    _is_own_run = True
    is_replay = False
    # Whether its server is running now: what changed of it is news.
    _is_of_now = True

    def __init__(self, source: FrameSource) -> None:
        super().__init__()
        self.source = source
        self._order_chosen: StreamOrder | None = None
        self._map_chosen: bool | None = None
        self._tails_watched: tuple[int, ...] = ()
        self._regions = RegionLayout()
        # Whether a panel was chosen after the end: what was chosen before gives way to the result.
        self._chosen_ended = False
        self._frozen: LiveModel | None = None
        self._requested_c: int | None = None
        self._retry_pending = False
        self._end_handled = False
        self.comparison = LiveComparison(
            self, self.data_changed, names_flags=self._is_of_now, records=not self.is_replay
        )

    @property
    def layout(self) -> RegionLayout:
        return self._regions

    def compose(self) -> ComposeResult:
        yield HeaderPanel()
        panels = [NowPanel(), *(panel() for panel in load_panels())]
        self._fit_regions()
        self.choose_visible(panels)
        yield from panels
        yield InputLine()
        yield KeyFooter()

    def actions(self) -> list[Action]:
        """Return the actions of this moment."""
        every = self.app.keys.actions(self.key_context)
        back = self._back_label
        now = [action for action in every if action.available(self.has_ended) and (back or action.id != "back")]
        command = self.shown.next_command(self.comparison.pair)
        surer = self._may_be_surer
        missing = (
            "" if command else "copy_command",
            "" if self.comparison.baseline.compared_id else "compare_baseline",
            "find_capacity" if self.key_context == "result" and not surer else "",
        )
        now = [action for action in now if action.id not in missing]
        now = in_footer(now, "back", *(name for panel in self.panels if panel.in_focus for name in panel.actions))
        labels = {"back": back} | ({"heat_map": "rows"} if self.is_map else {})
        labels |= {"find_capacity": "surer search"} if surer else {}
        if command:
            is_short = len(command) <= _MAX_LABEL
            labels["copy_command"] = f"copy {sanitize(command)}" if is_short else "copy what to try"
        return relabel(now, labels | ({"freeze": "unfreeze"} if self._frozen is not None else {}))

    @property
    def _may_be_surer(self) -> bool:
        """Whether a quick search has ended: the same one without a limit of its time says more."""
        session = self.source.live.session
        return self.has_ended and session is not None and session.plan.is_quick

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let keys with two actions have the one for this moment."""
        return all(known.available(self.has_ended) for known in ACTIONS if known.id == action)

    def on_mount(self) -> None:
        self.source.open(self.data_changed)

    def on_unmount(self) -> None:
        if not self._is_own_run:
            self.source.close()

    def on_resize(self) -> None:
        self.update_panels()

    def on_screen_resume(self) -> None:
        self.update_panels()

    def on_screen_suspend(self) -> None:
        self._watch_tails(())

    # data

    def data_changed(self) -> None:
        """Update the panels; if the terminal has not taken the last output yet, retry later."""
        live = self.source.live
        if self._requested_c is not None and live.frame is not None and live.frame.c == self._requested_c:
            self._requested_c = None
        if live.ended is not None:
            self._handle_end(live)
        self.comparison.follow(live)
        if self.app.output_pending:
            if not self._retry_pending:
                self._retry_pending = True
                self.set_timer(_RETRY_S, self._retry)
            return
        if self._frozen is None:
            self.update_in_front()

    def _retry(self) -> None:
        self._retry_pending = False
        self.data_changed()

    @property
    def shown(self) -> LiveModel:
        """The state to show: the present one, or that at which the display was frozen."""
        return self._frozen or self.source.live

    @property
    def has_ended(self) -> bool:
        """Whether the shown moment is after the end, which a replay may leave again."""
        live = self.shown
        return live.ended is not None or (live.frame is not None and live.frame.status == "ended")

    @property
    def is_map(self) -> bool:
        return is_heat_map(self.shown.frame, self._map_chosen)

    @property
    def order(self) -> StreamOrder:
        return self._order_chosen or default_order(as_map=self.is_map)

    def update_panels(self) -> None:
        is_same = self._fit_regions()
        panels = self.panels
        self.choose_visible(panels)
        if not is_same:
            # A part is refreshed, not the screen: Textual forgets the places only in what contains it.
            for part in panels[:1]:
                part.refresh(layout=True)
        data = self.live_data()
        # There are no children while the app closes. A query would look at all widgets, with every frame.
        for child in self.children:
            match child:
                case HeaderPanel():
                    child.show(self._header_view())
                case KeyFooter():
                    child.show(self.actions(), ended=self.has_ended and not self.is_replay)
                case LivePanel() if child.display and child.size:
                    child.update_from(data)
            if isinstance(child, StreamsPanel) and self._frozen is None:
                self._watch_tails(child.agents_shown if self.app.stream_text and self.is_active else ())

    @property
    def panels(self) -> Sequence[LivePanel]:
        return [child for child in self.children if isinstance(child, LivePanel)]

    def _fit_regions(self) -> bool:
        """Give the result the rows of its sentences; False if a region changes."""
        ended, before = ended_rows(self.live_data(), *self.app.size) if self.has_ended else None, self.regions
        self._regions.ended = ended
        return self.regions == before

    @property
    def regions(self) -> LiveLayout:
        return live_layout(*self.app.size, self._regions.ended)

    def sharing(self) -> Sequence[int]:
        """Return the panels without a region of their own, after the owner of the region that they share."""
        layout = self.regions
        sharing = [panel for panel in load_panels() if layout.place_of(panel.place) == layout.shared]
        return [panel.key for panel in sorted(sharing, key=lambda panel: panel.place != layout.shared)]

    def chosen(self) -> int | None:
        return super().chosen() if self._chosen_ended or not self.has_ended else None

    def is_covered(self, panel: LineWidget, shared: int | None) -> bool:
        """The result has the numbers, too: they give way to it where there is little room."""
        return isinstance(panel, NowPanel) and self.regions.region(panel.place) is None

    def first_focus(self, visible: Sequence[int]) -> int | None:
        first = self.chosen() or (ResultPanel.key if self.has_ended else self.sharing()[0])
        return first if first in visible else self.only_panel

    def choose(self, key: int) -> None:
        super().choose(key)
        self._chosen_ended = self.has_ended

    def arrange_panels(self) -> None:
        self._regions.alone = self.only_panel is not None
        self.update_panels()
        self.refresh(layout=True)

    def _header_view(self) -> HeaderView:
        live = self.shown
        about = (self._replay_clock(), self.comparison.text, self._server_notice(), self._requested_c)
        view = header_view(live.session, live.frame, live.ended, *about)
        return view._replace(frozen=self._frozen is not None)

    def _watch_tails(self, agents: tuple[int, ...]) -> None:
        """Ask for the text of the streams that are visible."""
        if agents != self._tails_watched:
            self._tails_watched = agents
            self.source.send(WatchTails(agents))

    def live_data(self) -> LiveData:
        """Return what the panels show."""
        return LiveData(
            shown=self.shown,
            has_ended=self.has_ended,
            is_replay=self.is_replay,
            only_panel=self.only_panel,
            order=self.order,
            filter_text=self.filter_text,
            is_map=self.is_map,
            baseline=self.comparison.baseline,
            pair=self.comparison.pair,
            level_hint=self._level_hint(),
            comparison=self.comparison.text,
            requested_c=self._requested_c,
            again_key=next((one.shown for one in self.app.keys.actions(self.key_context) if one.id == "again"), ""),
        )

    def _level_hint(self) -> str:
        """Say how levels come about, where they do not by themselves."""
        return ""

    def _replay_clock(self) -> ReplayClock | None:
        return None

    def _server_notice(self) -> tuple[str, ...]:
        return ()

    # the end

    def _handle_end(self, live: LiveModel) -> None:
        """Show the result, also if another panel was alone, and compare the session with its baseline."""
        if self._end_handled or live.ended is None:
            return
        self._end_handled = True
        if self.only_panel not in (None, ResultPanel.key):
            self._focused = None
            self.restore_panels()
        if live.session and live.session.previous and live.ended.directory:
            self.comparison.record(live.ended.directory)
        self.app.run_ended(live.ended)

    # keys

    def help_topic(self) -> HelpTopic:
        """Explain the figure under the mouse pointer, then the panel in focus or the words of the result."""
        from swarmtui.tui.dialogs import panel_topic

        at = self.app.mouse_position
        below = (panel for panel in self.panels if panel.display and panel.region.contains_point(at))
        pointed = next((panel.figure_at(*(at - panel.region.offset)) for panel in below), "")
        return panel_topic(next((panel.key for panel in self.panels if panel.in_focus), None), pointed)

    def movable(self) -> Movable:
        """The panel in focus if it can be moved, else the result or the agents."""
        movable = [panel for panel in self.panels if isinstance(panel, Movable) and panel.display]
        movable.sort(key=lambda panel: (not panel.in_focus, -panel.key))
        return movable[0] if movable else self.query_one(StreamsPanel)

    def on_click(self, event: Click) -> None:
        """Go to the panel that was clicked; a double click shows it alone, or all again."""
        if event.chain > 1 and isinstance(event.widget, LivePanel) and event.widget.key:
            self.only_panel = None if self.only_panel == event.widget.key else event.widget.key
        super().on_click(event)

    def action_back(self) -> None:
        """Undo what was last chosen, else close the screen unless a run is in progress.

        During a run Esc leads nowhere else, so that it first removes a message, which covers figures.
        """
        if self._is_in_progress and self.app.remove_toast():
            return
        if self.filter_text:
            self.set_filter("")
        elif self.restore_panels() or (self.has_ended and self.reset_choice()):
            pass
        elif not self._is_in_progress and len(self.app.screen_stack) > 1:
            self.source.close()
            self.dismiss()
        else:
            self._back_from_first_screen()

    @property
    def _back_label(self) -> str:
        """Return the label of Esc in the footer; empty if it does nothing."""
        if self.filter_text:
            return "clear filter"
        if self.only_panel is not None:
            return "all panels"
        return "back" if len(self.app.screen_stack) > 1 and not self._is_in_progress else self._first_back_label

    @property
    def _first_back_label(self) -> str:
        """Return the label of Esc where it cannot close the screen."""
        return "back" if self.chosen() is not None else ""

    @property
    def _is_in_progress(self) -> bool:
        return self._is_own_run and self.source.live.ended is None

    def _back_from_first_screen(self) -> None:
        if not self.reset_choice():
            self.app.toast("this is the first screen; q quits")

    def action_sort(self) -> None:
        position = STREAM_ORDERS.index(self.order) + 1
        self._order_chosen = STREAM_ORDERS[position % len(STREAM_ORDERS)]
        self.update_panels()

    def action_text(self) -> None:
        self.app.stream_text = not self.app.stream_text
        self.app.toast(f"text of the agents: {'on' if self.app.stream_text else 'off'}")
        self.update_panels()

    def action_heat_map(self) -> None:
        self._map_chosen = not self.is_map
        self.update_panels()

    def action_beside(self, by: int) -> None:
        """Move along a line of the heat map."""
        streams = self.query_one(StreamsPanel)
        if streams.as_map:
            streams.move_by_streams(by)

    def action_filter(self) -> None:
        self.ask_filter("filter agents:")

    def action_open_stream(self) -> None:
        streams = self.query_one(StreamsPanel)
        if not streams.display:
            self.app.toast("press 2 for the agents, then Enter opens one")
        elif (agent := streams.selected) is not None:
            self.app.open_screen("stream", self.source, agent)

    def action_freeze(self) -> None:
        self._frozen = self.source.live.snapshot() if self._frozen is None else None
        self.update_panels()

    @property
    def _measured(self) -> Session | None:
        """The session, as soon as a level of it is complete."""
        live = self.source.live
        return live.session if live.frame is not None and live.frame.levels else None

    def action_export(self) -> None:
        if self._measured is None:
            self.app.toast("nothing to export yet: no level is complete")
        else:
            directory = Path(self.source.live.directory)
            self.app.open_screen("export", directory.parent, [directory.name])

    def action_share(self) -> None:
        if self._measured is None:
            self.app.toast("nothing to share: no level is complete")
        else:
            directory = Path(self.source.live.directory)
            self.app.open_screen("share", directory.parent, directory.name)

    def action_checklist(self) -> None:
        if self.source.live.directory:
            directory = Path(self.source.live.directory)
            self.app.open_screen("checklist", directory.parent, directory.name)
        else:
            self.app.toast("nothing to check yet: the session has not started")

    def action_compare_baseline(self) -> None:
        """Compare this session with the baseline that the curve shows, else with the one that the list would choose."""
        baseline = self.comparison.baseline
        if self._measured is None:
            self.app.toast("nothing to compare: no level is complete")
        elif not baseline.compared_id:
            self.app.toast("no other session with this model and workload; L lists all sessions")
        else:
            root, ids = Path(self.source.live.directory).parent, [baseline.compared_id, self._measured.id]
            work = partial(self.app.open_comparison, root, ids if baseline.summary else sorted(ids))
            run_in_background(self, work, group="comparison")

    def action_copy_command(self) -> None:
        command = self.shown.next_command(self.comparison.pair)
        if command:
            self.app.copy_to_clipboard(command)
        self.app.toast(f"copied: {command}" if command else "there is no command to copy")

    def action_baseline(self) -> None:
        session = self._measured
        self.app.toast(
            toggle_baseline(self.app.session_root, session) if session else "no baseline yet: no level is complete"
        )
