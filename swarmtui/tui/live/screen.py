"""The live screen: panels that show frames, shared by running, replayed and tuned sessions."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.events import Click

from swarmtui.analysis.history import history_point
from swarmtui.model.client_protocol import WatchTails
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.baseline import Baseline, changed_flags, compare_levels, find_baseline, record_effect
from swarmtui.tui.frame_source import FrameSource
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import ACTIONS, Action, in_footer, relabel
from swarmtui.tui.lines import LineWidget, Movable
from swarmtui.tui.live.curve import CurvePanel, curve_view
from swarmtui.tui.live.gpus import GpusPanel, GpusView
from swarmtui.tui.live.header import HeaderPanel, ReplayClock, TilesPanel, header_view, tiles
from swarmtui.tui.live.history import HistoryPanel, HistoryStrip, history_view, strip_view
from swarmtui.tui.live.layout import CollapsedPanels, collapse_panels, stack_streams
from swarmtui.tui.live.levels import LevelsPanel, levels_view
from swarmtui.tui.live.quality import QualityPanel, quality_view
from swarmtui.tui.live.result import ResultPanel, result_view
from swarmtui.tui.live.streams import (
    STREAM_ORDERS,
    StreamOrder,
    StreamsPanel,
    is_heat_map,
    mixed_rates,
    primary_type,
    streams_view,
)
from swarmtui.tui.textual_patches import Row, run_in_background

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair
    from swarmtui.model.session import Level, Session
    from swarmtui.model.telemetry import DiscoveredServer
    from swarmtui.tui.live_model import LiveModel

_PANELS: tuple[type[LineWidget], ...] = (StreamsPanel, HistoryPanel, GpusPanel, LevelsPanel, CurvePanel, QualityPanel)
_RETRY_S = 0.1
# With this many streams, their panel is 8 lines high, and the levels below it at least 6.
_FEW_STREAMS, _FEW_STREAMS_HEIGHT = 6, 23


class LiveScreen(CursorScreen):
    """Base of the run, replay and watch screens, which differ in their keys."""

    # Otherwise Esc closes the screen, and with it the source.
    _is_own_run = True
    _is_replay = False

    def __init__(self, source: FrameSource) -> None:
        super().__init__()
        self.source = source
        self._order: StreamOrder = "agent"
        self._map_chosen: bool | None = None
        self._tails_watched: tuple[int, ...] = ()
        self._only_panel: type[LineWidget] | None = None
        self._frozen: LiveModel | None = None
        self._requested_c: int | None = None
        self._retry_pending = False
        self._baseline = Baseline()
        self._baseline_requested = self._end_handled = False
        self._comparison = ""
        self._pair: Pair | None = None
        self._compared: tuple[tuple[Level, ...], str] = ((), "")
        self._servers: tuple[DiscoveredServer, ...] = ()

    def compose(self) -> ComposeResult:
        yield HeaderPanel()
        yield TilesPanel()
        yield HistoryStrip()
        with Row(id="upper"):
            yield StreamsPanel()
            yield ResultPanel()
            yield HistoryPanel()
        with Row(id="lower"):
            yield LevelsPanel()
            yield GpusPanel()
            yield CurvePanel()
            yield QualityPanel()
        yield CollapsedPanels()
        yield InputLine()
        yield KeyFooter()

    def actions(self) -> list[Action]:
        """Return the actions of this moment."""
        every = self.app.keys.actions(self.key_context)
        back = self._back_label
        now = [action for action in every if action.available(self._has_ended) and (back or action.id != "back")]
        now = in_footer(now, "back", *(["heat_map"] if self._is_map else []))
        labels = {"back": back} | ({"heat_map": "rows"} if self._is_map else {})
        return relabel(now, labels | ({"freeze": "unfreeze"} if self._frozen is not None else {}))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let keys with two actions have the one for this moment."""
        return all(known.available(self._has_ended) for known in ACTIONS if known.id == action)

    def on_mount(self) -> None:
        for panel in self.query(LineWidget).exclude("KeyFooter"):
            panel.update_view = self._update_panel
        self.source.open(self.data_changed)

    def on_unmount(self) -> None:
        if not self._is_own_run:
            self.source.close()

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
        if not self._baseline_requested and live.session is not None and live.frame is not None:
            self._baseline_requested = True
            run_in_background(self, partial(self._find_baseline, live.directory))
        if live.frame is not None and live.frame.servers != self._servers:
            self._servers = live.frame.servers
            self._compare_flags()
        self._compare_new_levels(live)
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
    def _shown(self) -> LiveModel:
        """The state to show: the present one, or that at which the display was frozen."""
        return self._frozen or self.source.live

    @property
    def _has_ended(self) -> bool:
        """Whether the shown moment is after the end, which a replay may leave again."""
        live = self._shown
        return live.ended is not None or (live.frame is not None and live.frame.status == "ended")

    @property
    def _levels_fit_below(self) -> bool:
        """Whether a small screen has room for the levels below the streams."""
        frame = self._shown.frame
        if frame is None or frame.load in ("open", "sessions") or self._has_ended or self._only_panel is not None:
            return False
        return frame.c <= _FEW_STREAMS and self.app.size.height >= _FEW_STREAMS_HEIGHT

    @property
    def _is_map(self) -> bool:
        return is_heat_map(self._shown.frame, self._map_chosen)

    def update_panels(self) -> None:
        self.set_class(self._has_ended, "-ended")
        self.set_class(self._levels_fit_below, "-few")
        for panel in self.query(LineWidget):
            if (panel.is_on_screen and panel.size) or panel.has_class("-empty"):
                self._update_panel(panel)
        single_panel = self._only_panel is not None
        collapse_panels(self, ended=self._has_ended, single_panel=single_panel)
        # There are no panels while the app closes.
        for streams in self.query(StreamsPanel):
            stack_streams(self, streams, ended=self._has_ended, single_panel=single_panel)
            if self._frozen is None:
                self._watch_tails(self._visible_streams(streams))

    def _visible_streams(self, streams: StreamsPanel) -> tuple[int, ...]:
        """The agents whose text is shown."""
        if not (self.app.stream_text and self.is_active and streams.is_on_screen and streams.view):
            return ()
        return tuple(sorted(line.agent for line in streams.view.shown))

    def _watch_tails(self, agents: tuple[int, ...]) -> None:
        """Ask for the text of the streams that are visible."""
        if agents != self._tails_watched:
            self._tails_watched = agents
            self.source.send(WatchTails(agents))

    def _update_panel(self, panel: LineWidget) -> None:
        """Show the current view for the panel's size."""
        live = self._shown
        frame, session = live.frame, live.session
        t0_ns = session.t0_ns if session else 0
        levels = frame.levels if frame else ()
        tasks = frame.tasks if frame else ()
        provisional = live.provisional
        match panel:
            case HeaderPanel():
                notices = (self._comparison, self._server_notice())
                view = header_view(session, frame, live.ended, self._replay_clock(), *notices)
                panel.show(view._replace(frozen=self._frozen is not None))
            case TilesPanel():
                panel.show(tiles(frame, self._requested_c, mixed_rates(session, frame, live.stream_rates)))
            case HistoryStrip():
                panel.show(strip_view(live.points, t0_ns, panel.columns, self._has_ended))
            case StreamsPanel():
                self._update_streams(panel)
            case HistoryPanel():
                whole_session = self._has_ended or self._only_panel is HistoryPanel
                now = history_point(frame) if frame else None
                history = history_view(live.points, t0_ns, panel.columns, whole_session, self._has_ended, now)
                # The C of an open loop is the number of agents in reserve.
                panel.show(history._replace(marks=()) if frame is not None and frame.load == "open" else history)
            case GpusPanel():
                telemetry = frame.telemetry if frame else None
                panel.show(GpusView(telemetry, dict(live.power), dict(live.memory), self._is_replay))
            case LevelsPanel():
                panel.show_made(levels_view, levels, self._pair, tasks, self._no_level, provisional)
            case ResultPanel():
                self._update_result(panel)
            case CurvePanel():
                baseline, slots = (self._baseline.levels, self._baseline.name), frame.slots if frame else None
                panel.show_made(curve_view, levels, *baseline, self._no_curve, provisional, slots)
            case KeyFooter():
                panel.show(self.actions(), ended=self._has_ended and not self._is_replay)
            case QualityPanel():
                panel.show(quality_view(frame, self._is_replay))

    def _update_streams(self, panel: StreamsPanel) -> None:
        panel.as_map = self._is_map
        panel.scroll_to_cursor()
        live = self._shown
        panel.show(
            streams_view(
                live.frame,
                live.stream_rates,
                self._order,
                self.filter_text,
                panel.first,
                panel.rows,
                primary_type(live.session),
                as_map=panel.as_map,
                with_text=self.app.stream_text,
            )
        )

    def _update_result(self, panel: ResultPanel) -> None:
        live = self._shown
        frame = live.frame
        levels, tasks = (frame.levels, frame.tasks) if frame else ((), ())
        table = levels_view(levels, self._pair, tasks, provisional=live.provisional)
        comparison = self._comparison or (f"compared with {sanitize(self._baseline.name)}" if self._pair else "")
        panel.show_result(result_view(frame, live.ended, table, comparison, self._server_notice(), self.actions()))

    @property
    def _no_level(self) -> str:
        """Why the table of levels is empty."""
        return "no level was measured" if self._has_ended else "no level yet: the first one is running"

    @property
    def _no_curve(self) -> str:
        return "a curve needs two levels"

    def _replay_clock(self) -> ReplayClock | None:
        return None

    def _server_notice(self) -> str:
        return ""

    # the baseline

    async def _find_baseline(self, directory: str) -> None:
        session = self.source.live.session
        if session is not None and directory:
            self._baseline = await asyncio.to_thread(find_baseline, Path(directory).parent, session)
            self._compare_flags()
            # After the end, and in a paused replay, no other frame follows.
            self.data_changed()

    def _compare_flags(self) -> None:
        self._comparison = changed_flags(self._baseline, self._servers) if not self._is_replay else ""

    def _compare_new_levels(self, live: LiveModel) -> None:
        """Compare in a thread: with many runs the statistics take a while."""
        key = (live.frame.levels if live.frame else (), self._baseline.name)
        if key != self._compared and live.session is not None and self._baseline.summary is not None:
            self._compared = key
            work = partial(self._compare_levels, live.session, key[0])
            run_in_background(self, work, group="compare")

    async def _compare_levels(self, session: Session, levels: tuple[Level, ...]) -> None:
        self._pair = await asyncio.to_thread(compare_levels, self._baseline, session, levels)
        if self._frozen is None:
            self.update_in_front()

    def _handle_end(self, live: LiveModel) -> None:
        """Compare the session with its baseline."""
        if self._end_handled or live.ended is None:
            return
        self._end_handled = True
        if live.session and live.session.previous and live.ended.directory:
            work = partial(self._record_effect, live.ended.directory, live.session.previous)
            run_in_background(self, work)
        self.app.run_ended(live.ended)

    async def _record_effect(self, directory: str, previous: str) -> None:
        self._comparison = await asyncio.to_thread(record_effect, Path(directory), previous) or self._comparison
        self.update_panels()

    # keys

    def movable(self) -> Movable:
        result = self.query_one(ResultPanel)
        return result if result.is_on_screen else self.query_one(StreamsPanel)

    def on_click(self, event: Click) -> None:
        """Show only the panel that was clicked, or all again; rows of a panel handle their clicks themselves."""
        kind = next((number for number, kind in enumerate(_PANELS, 1) if isinstance(event.widget, kind)), None)
        if kind is not None:
            self.action_panel(kind)

    def action_panel(self, number: int) -> None:
        kind = _PANELS[number - 1]
        self._show_only(None if self._only_panel is kind else kind)

    def _show_only(self, kind: type[LineWidget] | None) -> None:
        self._only_panel = kind
        self.set_class(self._levels_fit_below, "-few")
        self.set_class(kind is not None, "-only")
        for panel in _PANELS:
            self.query_one(panel).set_class(panel is kind, "-this")
        for row in self.query("#upper, #lower"):
            row.set_class(kind is not None and self.query_one(kind).parent is row, "-this")
        self.update_panels()

    def action_back(self) -> None:
        """Clear the filter, else show all panels, else close the screen unless a run is in progress."""
        if self.filter_text:
            self.set_filter("")
        elif self._only_panel is not None:
            self._show_only(None)
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
        if self._only_panel is not None:
            return "all panels"
        return "back" if len(self.app.screen_stack) > 1 and not self._is_in_progress else ""

    @property
    def _is_in_progress(self) -> bool:
        return self._is_own_run and self.source.live.ended is None

    def _back_from_first_screen(self) -> None:
        self.app.toast("this is the first screen; q quits")

    def action_sort(self) -> None:
        position = STREAM_ORDERS.index(self._order) + 1
        self._order = STREAM_ORDERS[position % len(STREAM_ORDERS)]
        self.update_panels()

    def action_text(self) -> None:
        self.app.stream_text = not self.app.stream_text
        self.app.toast(f"text of the streams: {'on' if self.app.stream_text else 'off'}")
        self.update_panels()

    def action_heat_map(self) -> None:
        self._map_chosen = not self._is_map
        self.update_panels()

    def action_beside(self, by: int) -> None:
        """Move along a line of the heat map."""
        streams = self.query_one(StreamsPanel)
        if streams.as_map:
            streams.move_by_streams(by)

    def action_filter(self) -> None:
        self.ask_filter("filter streams:")

    def action_open_stream(self) -> None:
        streams = self.query_one(StreamsPanel)
        if not streams.is_on_screen:
            self.app.toast("press 1 for the streams, then Enter opens one")
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

    def action_checklist(self) -> None:
        if self.source.live.directory:
            directory = Path(self.source.live.directory)
            self.app.open_screen("checklist", directory.parent, directory.name)
        else:
            self.app.toast("nothing to check yet: the session has not started")

    def action_compare_baseline(self) -> None:
        """Compare this session with the baseline that the curve shows."""
        if self._measured is None:
            self.app.toast("nothing to compare: no level is complete")
        elif self._baseline.summary is None:
            self.app.toast("no earlier session with this model and workload; L lists all sessions")
        else:
            root, baseline = Path(self.source.live.directory).parent, self._baseline.summary.session.id
            work = partial(self.app.open_comparison, root, (baseline, self._measured.id))
            run_in_background(self, work, group="comparison")

    def action_baseline(self) -> None:
        """Compare the next runs with this session, until another one is marked."""
        session = self._measured
        if session is None:
            self.app.toast("no baseline yet: no level is complete")
        else:
            self.app.baseline = session.id
            self.app.toast(f"baseline: {session.label or session.id}; the next runs are compared with it")
