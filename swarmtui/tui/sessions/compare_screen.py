"""The screen that compares sessions: the answer, their curves, the change of each level as a bar, and all figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from swarmtui.numbers import local_time
from swarmtui.report.charts import PICTURE, SessionData, comparison_charts
from swarmtui.report.table import Code, Sentence
from swarmtui.text import brief_flags, sanitize
from swarmtui.tui.base_screens import HelpTopic, KeyFooter, Page, PanelScreen
from swarmtui.tui.chart_panel import ChartPanel, ChartView
from swarmtui.tui.keys import Action, in_footer, relabel
from swarmtui.tui.lines import Line
from swarmtui.tui.live.header import session_titles
from swarmtui.tui.live.result import ResultRow, large_lines
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.tables import STYLES, block_lines
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Comparison
    from swarmtui.model.session import Summary
    from swarmtui.report.chart import Chart

# With fewer columns, the unit of the large figure is below it: beside it, the sentences would have too little room.
_UNIT_BESIDE = 100
# With fewer rows, output and first token are two pictures.
_BOTH_CHARTS = 34
# What a picture shows, in the footer.
_PICTURES = {
    "throughput": "output", "ttft": "first token", "stream": "per agent", "pareto": "Pareto",
    "pareto_jobs": "Pareto of jobs", "contention": "slowdown", "degradation": "degradation",
}  # fmt: skip
_NO_CHANGE = "no level can be compared"
# The changes that a narrow terminal shows at least, and the lines of their titles and frame.
_LEAST_LEVELS, _AROUND_LEVELS = 6, 3
# From this height on, the figures have a region below the changes, with these lines at least.
_ALL_PANELS, _LEAST_FIGURES = 36, 8
# The share of the lines that the answer of a wide terminal has at most.
_MOST_ANSWER = 0.45
# The lines of a panel with curves that can be told apart: eight, with the names, the axis and the frame.
_LEAST_CURVES = 12
# The hue of the sentence that says whether a change helped; without one, it is bold.
_HEADLINES: dict[Code | None, str] = {
    "faster": "good", "slower": "bad", "likely faster": "warn", "likely slower": "warn", "refused": "bad",
}  # fmt: skip


class OverlayPanel(ChartPanel):
    """The curves of several sessions."""

    key, title = 2, "curves"


class CompareScreen(PanelScreen):
    key_context = "compare"

    def __init__(
        self, root: Path, summaries: Sequence[Summary], names: dict[str, str], history: Sequence[Summary] = ()
    ) -> None:
        super().__init__()
        self._root = root
        self._summaries, self._names, self._history = list(summaries), timed_names(summaries, names), history
        self._baseline = 0
        self._figure = 0
        self._found: Comparison | None = None

    def compose(self) -> ComposeResult:
        yield Page("answer", key=1, id="compared")
        with Horizontal():
            yield OverlayPanel()
            with Vertical():
                yield Page("change", key=3, id="changes")
                yield Page("figures", key=4, id="figures")
        yield KeyFooter()

    def sharing(self) -> Sequence[int]:
        """The changes come first: with the answer, they are what a comparison is for."""
        if self.is_narrow:
            return (3, 2, 4)
        return () if self.app.size.height >= _ALL_PANELS else (3, 4)

    def first_focus(self, visible: Sequence[int]) -> int | None:
        """Return what scrolls: most answers are shown whole."""
        return 3 if 3 in visible else super().first_focus(visible)

    def actions(self) -> list[Action]:
        curves = any(panel.display for panel in self.query(OverlayPanel))
        actions = [action for action in super().actions() if curves or action.id != "next_figure"]
        pictures = self._pictures()
        if pictures:
            following = pictures[(self._figure + 1) % len(pictures)][0].name
            show = "" if self.is_narrow else "show "
            actions = relabel(actions, {"next_figure": f"{show}{_PICTURES[following]}"})
        # A narrow footer has no room for the export beside the key of the curves, which are not visible at first.
        if self.is_narrow:
            return actions if curves else in_footer(actions, f"panel({OverlayPanel.key})", "sessions")
        return in_footer(actions, "export", "sessions")

    def help_topic(self) -> HelpTopic:
        """Explain the signs that are shown."""
        from swarmtui.tui.dialogs import change_topic

        return change_topic(with_curves=any(panel.display for panel in self.query(OverlayPanel)))

    def on_mount(self) -> None:
        self.arrange_panels()
        self.update_panels()

    def update_panels(self) -> None:
        from swarmtui.analysis.compare.sessions import compare
        from swarmtui.report.changes import change_tables
        from swarmtui.report.comparison import figure_blocks

        found = self._found = compare(self._summaries, self._baseline, history=self._history)
        answer, changes, figures = (self.query_one(f"#{id}", Page) for id in ("compared", "changes", "figures"))
        first = self._summaries[self._baseline].session.id
        before = self._names.get(first, first)
        with_what = [f"compared with {name}" for name in (before, brief_flags(before))]
        what = session_titles(self._newest.session, labelled=False)
        answer.notes = (*(f"{title} · {name}" for name in with_what for title in what), *with_what)
        answer.show_made(partial(comparison_lines, found, self._names))
        bars = [table for pair in found.pairs for table in change_tables(pair)]
        changes.title = bars[0].title.lower() if bars else "change"
        shown = [bars[0]._replace(title=""), *bars[1:]] if bars else [Sentence(_NO_CHANGE, "detail")]
        changes.show_blocks(shown)
        others = [self._names.get(pair.b, pair.b) for pair in found.pairs]
        sides = [Sentence(f"A: {before} · B: {others[0]}", "detail")] if len(others) == 1 else []
        figures.show_blocks([*sides, *figure_blocks(found)])
        self.arrange_panels()

    def arrange_panels(self) -> None:
        self._fit_heights()
        super().arrange_panels()
        for panel in self.query(OverlayPanel):
            self._show_curves(panel)

    def _fit_heights(self) -> None:
        """Give answer and changes the lines that they have; on a narrow terminal six changes stay in view."""
        answer, changes = self.query_one("#compared", Page), self.query_one("#changes", Page)
        if self.only_panel is not None:
            answer.styles.height = changes.styles.height = None
            return
        (width, height), narrow = self.app.size, self.is_narrow
        room = height - 1
        below = 2 + len(changes.lines_for(changes.inner_size.width or width - 2))
        wanted = 2 + len(answer.lines_for(width - 2))
        least = min(below, _LEAST_LEVELS + _AROUND_LEVELS)
        if narrow and self.chosen() == OverlayPanel.key:
            least = _LEAST_CURVES
        most = room - least if narrow else round(room * _MOST_ANSWER)
        answer.styles.height = min(wanted, most)
        shares = changes.key in self.sharing()
        changes.styles.height = None if shares else min(below, room - min(wanted, most) - _LEAST_FIGURES)

    def _show_curves(self, panel: OverlayPanel) -> None:
        """Show the chosen picture; beside the title, what it is and what its signs mean."""
        from swarmtui.analysis.capacity.marks import summary_marks
        from swarmtui.report.levels import mark_names

        pictures = self._pictures()
        charts = pictures[self._figure % len(pictures)] if pictures else ()
        notes = [""]
        if charts:
            name = ", ".join(_PICTURES[chart.name] for chart in charts) if charts[0].name in PICTURE else ""
            marked = any(series.marks for series in charts[0].series)
            marks = [summary_marks(summary) for summary in self._summaries] if marked else []
            doubted = (one._replace(best=None) for one in marks if one.doubted)
            title = name or charts[0].title
            signs = [sign for sign in (*mark_names(*marks), mark_names(*doubted)[-1]) if sign]
            # Charts one above the other have their names as headings.
            notes = [*(f"{title} · {sign}" for sign in signs), *(signs[1:] if len(charts) > 1 else ()), title]
        panel.show(ChartView(charts, tuple(notes), "" if charts else "no session has a level"))

    def _pictures(self) -> list[tuple[Chart, ...]]:
        """Return the charts that have a curve per session, the baseline first; with room the main ones are one."""
        first = self._summaries[self._baseline]
        others = [summary for summary in self._summaries if summary is not first]
        ordered = [first, *others]
        names = (self._names.get(summary.session.id, summary.session.id) for summary in ordered)
        data = [SessionData(name, summary) for name, summary in zip(names, ordered, strict=True)]
        charts = comparison_charts(data)
        if self.app.size.height < _BOTH_CHARTS and self.only_panel is None:
            return [(chart,) for chart in charts]
        main = tuple(chart for chart in charts if chart.name in PICTURE)
        return [*([main] if main else []), *((chart,) for chart in charts if chart.name not in PICTURE)]

    def action_next_baseline(self) -> None:
        self._baseline = (self._baseline + 1) % len(self._summaries)
        for page in self.query(Page):
            page.scroll_to_line(0)
        self.update_panels()
        first = self._summaries[self._baseline].session.id
        done = "swapped: " if len(self._summaries) == 2 else ""
        self.app.toast(f"{done}compared with {sanitize(self._names.get(first, first))} now")

    def action_export(self) -> None:
        self.app.open_screen("export", self._root, [summary.session.id for summary in self._summaries])

    def action_next_figure(self) -> None:
        self._figure += 1
        self.arrange_panels()

    @property
    def _newest(self) -> Summary:
        return max(self._summaries, key=lambda summary: summary.session.id)

    def action_again(self) -> None:
        # By the app, as the workers of this screen end with it.
        run_in_background(self.app, partial(self._run_again, "again"))

    def action_find_capacity(self) -> None:
        run_in_background(self.app, partial(self._run_again, "find_capacity"))

    async def _run_again(self, action: Literal["again", "find_capacity"]) -> None:
        """Repeat the newest session: on its result below this screen, which knows its credentials, else as saved."""
        newest, app = self._newest, self.app
        below = app.screen_stack[-2]
        session = below.source.live.session if isinstance(below, RunScreen) else None
        if session and session.id == newest.session.id and (action == "again" or session.plan.is_quick):
            await app.pop_screen()
            await app.run_action(f"screen.{action}")
        else:
            await app.repeat_saved(newest, surer=action == "find_capacity")


def timed_names(summaries: Sequence[Summary], names: dict[str, str]) -> dict[str, str]:
    """Name a session by its time where only its id tells it apart, with the date unless all are of today."""
    created = {summary.session.id: summary.session.created for summary in summaries}
    today = local_time(time.time(), "%Y-%m-%d")
    same_day = all(local_time(at, "%Y-%m-%d") == today for at in created.values())
    for form in ("%H:%M", "%H:%M:%S") if same_day else ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"):
        times = {id: local_time(at, form) for id, at in created.items()}
        if len({*times.values()}) == len(times) and all(times.values()):
            return {id: name.replace(id, times.get(id, id)) for id, name in names.items()}
    return names


def comparison_lines(found: Comparison, names: dict[str, str], width: int) -> list[Line]:
    """Draw the answer of each pair: what it changed, large, and the sentences beside it."""
    from swarmtui.report.comparison import answer_lines, large_change, unlike_text

    lines: list[Line] = []
    for pair in found.pairs:
        if len(found.pairs) > 1:
            lines.append([(f" {names.get(pair.b, pair.b)}", "title")])
        if unlike := unlike_text(pair):
            lines += block_lines([Sentence(unlike, "note")], width)
        number, unit, code = large_change(pair)
        rows = [
            ResultRow(line.name if at else "", line.signed, "" if at else _HEADLINES.get(code, "bold"))
            for at, line in enumerate(answer_lines(pair, in_app=True))
        ]
        lines += large_lines(number, unit if width >= _UNIT_BESIDE else f"\n{unit}", rows, width, STYLES.get(code, ""))
    return lines
