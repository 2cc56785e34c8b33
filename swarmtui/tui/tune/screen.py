"""The screen of a tune: its configurations as they are measured, the leaderboard, Pareto fronts and flag effects."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from textual.app import ComposeResult
from textual.containers import Horizontal

from swarmtui.analysis.tuning.outcome import TuneOutcome
from swarmtui.client.session_client import attach
from swarmtui.experiments.auto_plan import parse_configuration, read_outcome, tune_budget
from swarmtui.experiments.grid import all_configurations, latest
from swarmtui.experiments.store import read_steering, read_tune, request_stop, write_steering
from swarmtui.files import MAX_JOURNAL, open_regular
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Subscribe
from swarmtui.model.tuning import Flags, Start, Tune, TuneSteering, configuration_key, format_flags
from swarmtui.processes.exits import redact_given
from swarmtui.report.table import Sentence
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import KeyFooter, Page, Pager, PanelScreen
from swarmtui.tui.chart_panel import ChartPanel
from swarmtui.tui.frame_source import LiveSource
from swarmtui.tui.input_line import InputLine
from swarmtui.tui.keys import Action, in_footer
from swarmtui.tui.live.header import HeaderPanel
from swarmtui.tui.table_list import TableList
from swarmtui.tui.tables import block_lines
from swarmtui.tui.textual_patches import run_in_background
from swarmtui.tui.tune.view import TuneView, log_sentences, tune_view

_RELOAD_S = 0.5
# From this height on, what was found is below the configurations.
_TWO_ROWS = 34
# The lines of the header and the footer, and of a table around its rows: the frame and the titles of the columns.
_OTHER_LINES, _AROUND_ROWS = 4, 3
# The rows of an automatic tune, which has as many configurations as it tries.
_USUAL_ROWS = 12
# The least lines of what was found, and of the chart, which is behind its key if it has fewer.
_LEAST_FOUND, _LEAST_CHART = 18, 8
_FRAMES_HZ = 2.0
_LOG_BYTES = 64 << 10
_STEERING = ("pin", "veto", "add_configuration", "stop_after", "more_time")
# What one key press adds to the budget.
_MORE_S = 900.0


class TradeOffPanel(ChartPanel):
    key, title = 2, "trade-off"


class TuneScreen(PanelScreen):
    """Reads the files that the tune process writes, twice per second."""

    key_context = "tune"
    shared = (1, 2, 3, 4)

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._tune: Tune | None = None
        self._outcome: TuneOutcome | None = None
        self._steering = TuneSteering()
        self._problem = ""
        self._live: LiveSource | None = None
        self._session = ""
        self._best_first = False
        self._rows = _USUAL_ROWS

    def compose(self) -> ComposeResult:
        yield HeaderPanel()
        yield TableList("configurations", key=1, id="configurations")
        yield TradeOffPanel()
        with Horizontal(id="findings"):
            yield TableList(
                "leaderboard", key=3, with_cursor=False, empty="no finished configuration yet", id="leaderboard"
            )
            yield Page("result", key=4, id="result")
        yield InputLine()
        yield KeyFooter()

    @property
    def is_narrow(self) -> bool:
        return super().is_narrow or self.app.size.height < _TWO_ROWS

    def sharing(self) -> Sequence[int]:
        """Show the chart in place of the configurations, while its key is chosen, if it has no lines of its own."""
        return super().sharing() or (() if self._found_lines else self.shared[:2])

    @property
    def _upper_lines(self) -> int:
        """The lines of the configurations: all of them, if these are not more than two fifths."""
        return min(self._rows + _AROUND_ROWS, self.app.size.height * 2 // 5)

    @property
    def _found_lines(self) -> int:
        """The lines of what was found; 0 if the chart would have too few of the others."""
        room = self.app.size.height - _OTHER_LINES - self._upper_lines
        lines = max(_LEAST_FOUND, min(self._rows + _AROUND_ROWS, room * 2 // 3))
        return lines if room - lines >= _LEAST_CHART else 0

    def on_mount(self) -> None:
        self.arrange_panels()
        run_in_background(self, self._follow)

    def on_unmount(self) -> None:
        self._disconnect()

    async def _follow(self) -> None:
        while True:
            try:
                self._tune = await asyncio.to_thread(read_tune, self._directory)
                if self._tune is not None and self._tune.definition.auto is not None:
                    self._outcome = await asyncio.to_thread(read_outcome, self._directory)
                    self._steering = await asyncio.to_thread(read_steering, self._directory)
                self._problem = ""
                self._fit_rows()
            except BadInput as problem:
                self._problem = sanitize(str(problem))
            self._connect()
            self.update_in_front()
            if self._tune is not None and self._tune.status.ended:
                self.app.tune_ended()
            await asyncio.sleep(_RELOAD_S)

    def _fit_rows(self) -> None:
        """Arrange the panels for the grid, which does not change: they do not move while it is measured."""
        if self._tune is not None and self._tune.definition.auto is None:
            rows = len(all_configurations(self._tune.definition))
            if rows != self._rows:
                self._rows = rows
                self.arrange_panels()

    def _connect(self) -> None:
        """Attach to the session of the current configuration for its live figures."""
        status = self._tune.status if self._tune and not self._tune.status.ended else None
        session = status.session if status and status.phase in ("warming up", "running") else ""
        if session != self._session:
            self._disconnect()
            self._session = session
            if session:
                try:
                    self._live = LiveSource(attach(session, Subscribe(hz=_FRAMES_HZ)))
                except BadInput:
                    self._session = ""  # it has ended since then, or is not listening yet
                else:
                    self._live.open(lambda: None)

    def _disconnect(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None

    def update_panels(self) -> None:
        view = self._view()
        if view is None:
            return
        header = view.header._replace(notice=(self._problem,), notice_style="bad") if self._problem else view.header
        self.query_one(HeaderPanel).show(header)
        self._list("configurations").show(view.configurations.table.part, view.configurations.keys, view.note)
        self._list("leaderboard").show(view.leaderboard.table.part, view.leaderboard.keys)
        self.query_one(TradeOffPanel).show(view.chart)
        self.query_one(KeyFooter).show(self.actions())
        result = self.query_one("#result", Page)
        result.title = view.result_title
        result.show_blocks(view.findings or (Sentence(view.no_findings, "detail"),))

    def _view(self) -> TuneView | None:
        if self._tune is None:
            return None
        frame = self._live.live.frame if self._live else None
        return tune_view(self._tune, frame, time.time(), self._best_first, self._outcome, self._steering)

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self.update_panels)

    # keys

    def _list(self, id: str) -> TableList:
        return self.query_one(f"#{id}", TableList)

    def _current_list(self) -> TableList:
        leaders = self._list("leaderboard")
        return leaders if leaders.in_focus else self._list("configurations")

    def arrange_panels(self) -> None:
        """Give panels their lines, and the leaderboard a cursor while it is in focus: Enter opens the selected row."""
        upper, found = (0, 0) if self.is_narrow or self.only_panel else (self._upper_lines, self._found_lines)
        for id, lines in (("#configurations", upper), ("TradeOffPanel", 0 if found else upper), ("#findings", found)):
            self.query_one(id).styles.height = lines or None
        super().arrange_panels()
        self._list("leaderboard").with_cursor = self._list("leaderboard").in_focus

    def action_sort(self) -> None:
        self._best_first = not self._best_first
        self.update_panels()

    def action_copy_command(self) -> None:
        """Copy the command that starts the first configuration, through the terminal."""
        view = self._view()
        if view is None or not view.command:
            self.app.toast("no finished configuration yet")
            return
        self.app.copy_to_clipboard(view.command)
        self.app.toast(f"copied, if this terminal allows it: {view.command}")

    def actions(self) -> list[Action]:
        """Name the keys that steer an automatic tune, before those that only look at it."""
        if self._tune is not None and self._tune.status.ended:
            return [action for action in super().actions() if action.id not in ("stop_tune", "leave_tune")]
        if self._tune is None or self._tune.definition.auto is None:
            return super().actions()
        actions = in_footer(super().actions(), *_STEERING)
        return sorted(actions, key=lambda action: (action.id != "open") + (action.id not in (*_STEERING, "open")))

    # an automatic tune is steered by a file that its process reads before each start

    def _steer(self, said: str, **changes: object) -> None:
        tune = self._tune
        if tune is None or tune.definition.auto is None:
            self.app.toast("only for an automatic tune")
            return
        with self.app.toasting():
            steering = msgspec.structs.replace(read_steering(self._directory), **changes)
            write_steering(self._directory, steering)
            self._steering = steering
            self.app.toast(f"{said}; the same command continues the tune" if tune.status.ended else said)
            self.update_panels()

    def _selected_flags(self) -> Flags:
        key = self._current_list().selected
        return msgspec.json.decode(key, type=Flags) if key else {}

    def action_pin(self) -> None:
        """Keep the flags of the selected configuration; those that are pinned, or of the command, remove all pins."""
        flags = self._selected_flags()
        pins = read_steering(self._directory).pins
        if not flags and not pins:
            self.app.toast("the command has no flags to pin: select another configuration")
            return
        flags = {} if flags == pins else flags
        said = f"pinned: {format_flags(flags)}" if flags else "nothing is pinned any more"
        self._steer(f"{said}; it applies from the next start on", pins=flags)

    def action_veto(self) -> None:
        flags = self._selected_flags()
        if not flags:
            self.app.toast("the command itself cannot be vetoed")
            return
        vetoes = read_steering(self._directory).vetoes
        kept = tuple(veto for veto in vetoes if veto != flags)
        said = f"vetoed: {format_flags(flags)}" if len(kept) == len(vetoes) else f"allowed again: {format_flags(flags)}"
        self._steer(said, vetoes=(*kept, flags) if len(kept) == len(vetoes) else kept)

    def action_add_configuration(self) -> None:
        tune = self._tune
        if tune is None or tune.definition.auto is None:
            self.app.toast("only for an automatic tune")
            return
        read = partial(parse_configuration, tune.definition)
        self.query_one(InputLine).ask("try next", "", read, partial(self._add, read))

    def _add(self, read: Callable[[str], Flags], text: str | None) -> None:
        if text is not None:
            flags, steering = read(text), read_steering(self._directory)
            said = f"{format_flags(flags)} is started next"
            if fixed := {name: value for name, value in steering.pins.items() if flags.get(name, value) != value}:
                said = f"{format_flags(fixed)} is pinned; p on it removes the pin"
            elif any(start.flags == flags for start in self._tune.starts) if self._tune else False:
                said = f"{format_flags(flags)} was started before"
            self._steer(said, added=(*steering.added, flags))

    def action_stop_after(self) -> None:
        tune = self._tune
        if tune is not None and read_steering(self._directory).stop_after is not None:
            self._steer("the tune continues", stop_after=None)
        elif tune is not None:
            self._steer("the tune stops after this start; the same command resumes it", stop_after=len(tune.starts) + 1)

    def action_more_time(self) -> None:
        tune = self._tune
        if tune is not None and tune.definition.auto is not None:
            budget_s = tune_budget(tune.definition, read_steering(self._directory)) + _MORE_S
            self._steer(f"the budget is {budget_s / 60:g} min", budget_s=budget_s)

    def action_back(self) -> None:
        if self.restore_panels():
            return
        if self._is_first:
            self.reset_choice()
        else:
            self.dismiss()

    @property
    def _is_first(self) -> bool:
        """Whether the app was started for this tune, rather than opened from the list of tunes."""
        return self.app.screen_stack[0] is self

    def action_leave_tune(self) -> None:
        if self._is_first:
            self.app.detach()
        else:
            self.dismiss()

    def action_stop_tune(self) -> None:
        if self._tune is None or self._tune.status.ended:
            self.app.toast("the tune is not running")
        elif self._is_first:
            self.app.action_leave()
        else:
            self.app.open_screen("quit", "tune", callback=self._stop_confirmed)

    def _stop_confirmed(self, choice: str | None) -> None:
        if choice == "stop" and self._tune is not None:
            request_stop(self._tune.status)
            self.app.toast("stopping the server of this configuration …")
        elif choice == "detach":
            self.dismiss()

    def action_open(self) -> None:
        """Open the live screen or server log of the current configuration, or the replay or error of a finished one."""
        key, tune = self._current_list().selected, self._tune
        if tune is None or not key:
            return
        status = tune.status
        row = next((row for row in latest(tune.starts) if configuration_key(row.flags) == key), None)
        if not status.ended and status.flags is not None and configuration_key(status.flags) == key:
            if self._session:
                self._watch(self._session)
            else:
                self.app.open_screen("server_log", Path(status.log))
        elif row is None:
            self.app.toast("not measured yet")
        elif row.state == "broken":
            self.app.open_screen("failure", row)
        else:
            replay = partial(self.app.open_replay, self._directory.parent.parent, row.session)
            run_in_background(self, replay, group="replay")

    def _watch(self, session: str) -> None:
        with self.app.toasting():
            client = attach(session, Subscribe(hz=self.app.hz, rows=True))
            self.app.open_screen("tune_watch", LiveSource(client))


class ServerLogScreen(Pager):
    """Follows the output of the server."""

    page_title, follow = "server log", True

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def on_mount(self) -> None:
        self.set_interval(_RELOAD_S, self.update_in_front)

    def update_panels(self) -> None:
        self.query_one(Page).show(block_lines(log_sentences(_tail(self._log)), self.app.size.width))


class FailureScreen(Pager):
    page_title = "failed"

    def __init__(self, row: Start) -> None:
        super().__init__()
        self._row = row

    def update_panels(self) -> None:
        blocks = (Sentence(self._row.reason, "failed"), Sentence(""), *log_sentences(self._row.log))
        self.query_one(Page).show(block_lines(blocks, self.app.size.width))


def _tail(path: Path) -> list[str]:
    try:
        with os.fdopen(open_regular(path, MAX_JOURNAL), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            # The server may print the keys that it was given.
            return redact_given(log.read().decode(errors="replace")).splitlines()
    except OSError:
        return []
