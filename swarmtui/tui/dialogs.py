"""Dialogs (quit while something runs, save a session, theme), help, the command palette, and a too small terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList, Static

from swarmtui.report.colours import HUES
from swarmtui.tui.base_screens import HelpTopic, Page, Pager
from swarmtui.tui.input_line import TextField
from swarmtui.tui.keys import GROUPS, Action
from swarmtui.tui.lines import Line, LineWidget, cell_width, ljust, wrap
from swarmtui.tui.live.panels import PANELS
from swarmtui.tui.pick_list import PickItem, PickList
from swarmtui.tui.themes import SWARM, THEMES, keep_theme

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_SAMPLES = ("title", *HUES, "dim", "bold", "selected")
_QUIT_CHOICES = {
    "run": (
        "A run is in progress. How to quit?",
        "s  stop, save and quit (requests in flight get 5 s)",
        "d  quit, the run continues; swarmtui attach rejoins it",
        "back to the run (x stops it and shows the result)",
    ),
    "tune": (
        "A tune is in progress. How to quit?",
        "s  stop and quit; finished configurations are kept",
        "d  quit, the tune continues; the same command shows it",
        "back to the tune",
    ),
}


class QuitDialog(ModalScreen[str]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "stop and save", show=False),
        Binding("d", "choose('detach')", "detach", show=False),
        Binding("escape", "choose('back')", "back", show=False),
    ]

    def __init__(self, running: Literal["run", "tune"] = "run") -> None:
        super().__init__()
        self._texts = _QUIT_CHOICES[running]

    def compose(self) -> ComposeResult:
        question, stop, detach, back = self._texts
        with Vertical(classes="box"):
            yield Static(question, markup=False)
            yield PickList([PickItem("stop", stop), PickItem("detach", detach), PickItem("back", f"esc  {back}")])

    def on_option_list_option_selected(self) -> None:
        self.dismiss(self.query_one(PickList).picked)

    def action_choose(self, choice: str) -> None:
        self.dismiss(choice)


class SessionDetails(NamedTuple):
    """What the save dialog changes; `directory` is the one that contains the session's directory."""

    label: str
    note: str
    directory: str


class SaveDialog(ModalScreen[SessionDetails | None]):
    """Edits the label, the note and the location of a session, during the run or after it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel", show=False),
        Binding("f5,ctrl+s", "save", "save", show=False),
        # With priority over the field, so that keys typed at once after Tab reach the next field.
        Binding("tab", "app.focus_next", "next", show=False, priority=True),
        Binding("shift+tab", "app.focus_previous", "previous", show=False, priority=True),
    ]

    def __init__(self, details: SessionDetails) -> None:
        super().__init__()
        self._details = details

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Label: a name for this session", markup=False)
            yield TextField(self._details.label, id="label", compact=True)
            yield Static("Note: a comment on this session", markup=False)
            yield TextField(self._details.note, id="note", compact=True)
            yield Static("Directory", markup=False)
            yield TextField(self._details.directory, id="directory", compact=True)
            yield Static("", markup=False, id="directory-problem")
            yield Static("tab: next · enter: save · esc: cancel", markup=False, classes="hint")

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "directory":
            self.query_one("#directory-problem", Static).update(self._problem(event.value))

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        label, note, directory = (self.query_one(f"#{name}", Input).value.strip() for name in SessionDetails._fields)
        if not self._problem(directory):
            self.dismiss(SessionDetails(label, note, str(Path(directory).expanduser())))

    def _problem(self, directory: str) -> str:
        """An unchanged directory needs no check."""
        return "" if directory.strip() == self._details.directory else directory_problem(directory)

    def action_cancel(self) -> None:
        self.dismiss(None)


def directory_problem(text: str) -> str:
    """Return why no session can be saved there; empty if it can be, as far as is known without trying."""
    path = Path(text.strip()).expanduser()
    if not text.strip() or not path.is_absolute():
        return "✖ must be an absolute path or start with ~"
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        return f"✖ {nearest} is not a directory"
    return "" if os.access(nearest, os.W_OK) else f"✖ {nearest} is not writable"


class ThemeSample(LineWidget):
    """Words in the styles of the theme."""

    def draw(self, width: int, height: int) -> list[Line]:
        return [
            [(f" {name}", name) for name in _SAMPLES[: len(HUES) + 1]],
            [(f" {name}", name) for name in _SAMPLES[len(HUES) + 1 :]],
        ]


class ThemeDialog(ModalScreen[None]):
    """Chooses a theme: the screen behind it shows the one under the cursor."""

    app: SwarmApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel", show=False),
        Binding("t", "next", "next", show=False),
    ]

    def compose(self) -> ComposeResult:
        self._before = self.app.theme
        others = sorted(name for name in self.app.available_themes if name not in THEMES)
        known = self.app.available_themes
        texts = THEMES | {name: "dark" if known[name].dark else "light" for name in others}
        with Vertical(classes="box", id="theme-box"):
            yield Static("Theme", markup=False)
            items = PickList(PickItem(name, name, text) for name, text in texts.items())
            items.pick(self._before)
            yield items
            yield ThemeSample()
            yield Static("", markup=False, classes="hint", id="theme-hint")
            yield Static("enter: use it from now on · esc: as before", markup=False, classes="hint")

    def on_mount(self) -> None:
        self._show_theme()

    @on(OptionList.OptionHighlighted)
    def _show_theme(self) -> None:
        self.app.theme = self.query_one(PickList).picked
        configured = self.app.config.theme
        hint = "" if configured == SWARM.name else f"until you quit: config.toml has {configured}"
        self.query_one("#theme-hint", Static).update(hint)

    def action_next(self) -> None:
        self.query_one(PickList).action_move(1)

    @on(OptionList.OptionSelected)
    def _use(self) -> None:
        keep_theme(self.app.theme)
        self.dismiss()

    def action_cancel(self) -> None:
        self.app.theme = self._before
        self.dismiss()


class Palette(CommandPalette):
    """The command palette with a cursor that does not blink: 1.5 KB per second over SSH."""

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False


class TooSmallScreen(Screen[None]):
    """Covers the app while the terminal is too small for any of its screens."""

    app: SwarmApp

    def __init__(self, smallest: Size) -> None:
        super().__init__()
        self._smallest = smallest

    def compose(self) -> ComposeResult:
        yield Static(self._text(), markup=False)

    def on_resize(self) -> None:
        self.query_one(Static).update(self._text())

    def _text(self) -> str:
        size, smallest = self.app.size, self._smallest
        text = f"{size.width}×{size.height} is too small;\n{smallest.width}×{smallest.height} is needed."
        return f"{text}\nThe run continues." if self.app.running_id else text


# help

_KEYS = 12
_NAMES = 18
_LABEL = 16
_RESULT = 7  # the key of its panel
_ANSWER_TITLE = "The words of an answer"
_NO_TOPIC = HelpTopic()

# The signs of a comparison.
_CHANGE_SIGNS: tuple[tuple[str, str], ...] = (
    ("▲ ▼", "better, or worse: the change is larger than what chance does"),
    (
        "△ ▽",
        "likely better, or worse: repeats of one server seldom differ by as much, but one each does not decide",
    ),
    ("?", "not sure yet: it may be chance; four runs of both, or longer searches, decide"),
    ("=", "the same, as far as that many runs can show"),
    (
        "8 → 12 agents",
        "compared by how far repeats of one search end from each other: about a sixth of the agents, a tenth after a "
        "longer search; or by how far the levels of both are from the limit: then the ranges, which say where "
        "the limit may be, can overlap",
    ),
)
# Those of the curves of several sessions.
_CURVE_SIGNS: tuple[tuple[str, str], ...] = (
    (
        "● ◆",
        "the levels of the baseline, and of the session that is compared with it; levels close to each other are "
        "averaged, and a line through a point is its 95 % interval",
    ),
    ("▸ on a curve", "the level to choose: the most agents that keep the SLO, or the best one without an SLO"),
    ("▼ on a curve", "the first level past it, which misses the SLO; without one, the cliff"),
)

# The words of an answer, and of its comparison with another one.
_ANSWER: tuple[tuple[str, str], ...] = (
    ("SLO", "what is fast enough: a limit for the first token and for the tok/s of each agent, and how many of the "
     "requests must keep it"),
    ("kept, missed", "enough requests of a level kept the SLO, or too few did"),
    ("not sure", "a level had too few requests to decide between kept and missed, or something made the server look "
     "slower, or it was so close to a limit that another minute may be otherwise"),
    ("20 agents", "the most agents at once that keep the SLO, in another minute, too"),
    ("(18–23)", "the range of that number: 18 agents keep the SLO and 24 miss it, in another run of the next minutes, "
     "too; it is wider than the levels where they were close to a limit"),
    ("20+, 20 or more", "20 agents are shown to keep the SLO, and how many more do is not known: no level was missed, "
     "or only while something slowed the server down"),
    ("? 20", "something makes the measurement doubtful: quality says what"),
    ("80 % sure", "each end of the range is wrong in at most one of five searches"),
    ("may differ by 3", "searches of one unchanged server can end this many agents apart, as servers are not "
     "the same every minute: more has to change before it counts"),
    *((f"{signs} (a change)", meaning) for signs, meaning in _CHANGE_SIGNS),
    ("N", "searches for the number of agents: it doubles them until the SLO is missed, then halves the gap"),
)  # fmt: skip

# The ids of figures, how they are named, what they mean, and the keys of the panels that show them; those of the levels
# in the order of their columns.
_FIGURES: tuple[tuple[str, str, str, tuple[int, ...]], ...] = (
    ("load", "C", "concurrency: the number of streams, each with one request in flight", (1, 2, 4, 5)),
    ("load served", "rate, done/s", "requests per second that begin, whatever the server does, and that end (open "
     "loop)", (4,)),
    ("output", "output tok/s", "output tokens of all streams in the last second", (2, 5)),
    ("n errors", "n, err", "requests of a level that ended; those that failed", (4,)),
    ("slo", "SLO met", "requests of a level that kept the hardest limit of the SLO", (4,)),
    ("steady wall", "tok/s", "output tok/s of a level: of all requests while C were in flight (steady); of a barrier, "
     "a swarm or an open loop, from the first request sent to the last token (wall)", (1, 4)),
    ("half_width", "±", "half-width of the 95 % interval of tok/s", (1, 4)),
    ("baseline change", "baseline, change", "the same figure of the session that is compared with, and the change "
     "since", (4,)),
    ("primary side", "primary, side", "output tok/s of the primary task, and of the side tasks", (4,)),
    ("stream", "per agent", "output tok/s of one agent while it writes, over the last 10 s; at a level: tokens after "
     "the first chunk / their time", (2, 4, 5)),
    ("ttft", "TTFT", "time to first token: first content, reasoning or tool delta - request sent; not the role chunk; "
     "median, with “(10 s)” and “now” of the last 10 s", (1, 2, 4, 5)),
    ("ttft_p90", "p90", "the TTFT that 90 % of the requests of a level had at most; of 29 requests or more", (4,)),
    ("room", "spare", "in a search for the number of agents: what is left to the nearest limit of the SLO, 27 % with a "
     "first token after 1.46 s of 2 s; below 0 % it was missed; tok/s count as time per token", (4,)),
    ("tpot e2e", "TPOT, e2e", "time between tokens of one answer (mean); time to the end of an answer (median)", (4,)),
    ("send_delay", "send delay", "how much later than planned requests were sent: p99 or maximum", (4,)),
    ("passed", "pass", "answers that passed their check", (4,)),
    ("jobs_h", "jobs/h", "recorded agent sessions that are played to their end in an hour", (4,)),
    ("hit max_hit", "hit rate, at most", "prompt tokens from the prefix cache, and as many as it could have had", (4,)),
    ("in_flight", "in flight", "mean number of requests in flight: sum of request times / window", (4,)),
    ("slowdown", "slowdown", "1 - per agent(C) / per agent(1)", (4,)),
    ("scaling", "scaling", "tok/s(C) / tok/s(1)", (4,)),
    ("speed_up wall_speedup", "speed-up", "wall time of the same tasks one after the other / wall time at C", (4,)),
    ("waiting", "waiting", "agents without a first token", (2, 5)),
    ("queued", "queued", "requests in the queue of the server, as it reports them; of a finished level the mean",
     (2, 5)),
    ("", "░ ▒ ▓ █", "heat map: tok/s of a stream as usual, below 85 %, below 70 % and below 50 % of the median", (2,)),
    ("", "~", "tokens counted as chunks: an estimate, not suitable for publication", (1, 4)),
    ("", "tokens/J", "output tok/s now / power of the server's GPUs now; sampled power lags by about 1 s", (3,)),
    ("", "● · ? ✖", "a check that passed, has a remark, makes a result not sure, or shows that figures are wrong",
     (6,)),
)  # fmt: skip

# The signs of levels, in the line of the plan, the curve and the table.
_SIGNS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("▸", "the level to choose: the most agents that keep the SLO; without one, the lowest C with 95 % of the most "
     "tok/s before a cliff. While a search runs: at least this many agents are shown to keep it", (1, 4)),
    ("▼", "the first level past it, which misses the SLO; without one, the cliff: three times the TTFT for less than "
     "half of the ideal gain in tok/s", (1, 4)),
    ("✓", "the SLO is kept; without one, the level is measured", (4,)),
    ("✖", "the SLO is missed", (4,)),
    ("?", "not sure: too few requests, visits that differ, or something made the server look slower: panel 6 says what",
     (1, 4)),
    ("✓? ✖?", "likely kept, or likely missed: more requests or the levels that follow decide it, or it is so close to "
     "a limit that another minute may be otherwise", (4,)),
    ("!", "a dip: missed, although more agents keep it", (4,)),
    ("○", "the level that is measured now: its figures are those so far", (1, 4)),
    ("◇", "a level that ended early: it is not compared with the others; in a curve also one with too few requests to "
     "stand for the level", (1, 4)),
)  # fmt: skip


def panel_topic(key: int | None, pointed: str = "") -> HelpTopic:
    """Explain the figures and signs of a panel, first the `pointed` one, and the words of the result."""
    first = tuple((name, meaning) for ids, name, meaning, _ in _FIGURES if pointed in ids.split())
    if key == _RESULT:
        return HelpTopic(_ANSWER_TITLE, (*first, *_ANSWER))
    of_panel = [*((name, meaning) for _, name, meaning, panels in _FIGURES if key in panels)]
    of_panel += [(name, meaning) for name, meaning, panels in _SIGNS if key in panels]
    rows = (*first, *(row for row in of_panel if row not in first))
    title = f"[{key}] {PANELS[key].label}" if key in PANELS else "Figures"
    return HelpTopic(title, rows) if rows else _NO_TOPIC


def change_topic(*, with_curves: bool = False) -> HelpTopic:
    """Explain the signs of changes, and those of the curves if they are shown."""
    return HelpTopic("The signs of a change", (*_CHANGE_SIGNS, *(_CURVE_SIGNS if with_curves else ())))


class HelpScreen(Pager):
    page_title = "help"

    def __init__(self, actions: Sequence[Action], topic: HelpTopic | None = None) -> None:
        super().__init__()
        self._actions, self._topic = actions, topic or _NO_TOPIC

    def update_panels(self) -> None:
        self.query_one(Page).show_made(lambda width: help_lines(self._actions, width, self._topic))


def help_lines(actions: Sequence[Action], width: int, topic: HelpTopic = _NO_TOPIC) -> list[Line]:
    """Explain the topic, the keys, first those of the screen with the details, and what the topic has left out.

    Long lines are wrapped.
    """
    lines, details = _meanings(topic.title, topic.rows, width), _meanings("", topic.details, width)
    for group in GROUPS:
        members = [action for action in actions if action.group == group]
        if not members:
            continue
        lines += [[], [(f" {group}", "title")]]
        for action in members:
            names: Line = [(f"  {ljust(action.shown, _KEYS)}", "bold"), (ljust(action.label, _LABEL), "")]
            lines += _beside(names, action.tooltip, width)
        lines, details = [*lines, *details], []
    explained = {meaning for _, meaning in topic.rows}
    for title, rows in (
        (_ANSWER_TITLE, _ANSWER),
        ("Figures", [(name, meaning) for _, name, meaning, _ in _FIGURES]),
        ("The signs of levels", [(name, meaning) for name, meaning, _ in _SIGNS]),
    ):
        lines += _meanings(title, [row for row in rows if row[1] not in explained], width)
    note = 'To change keys, add [keymap] to config.toml with the names of the actions, such as more = "plus"'
    return [*lines[1:], [], *([(f" {text}", "dim")] for text in wrap(note, width - 2))]


def _meanings(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[Line]:
    lines: list[Line] = [[], *([[(f" {title}", "title")]] if title else [])] if rows else []
    for name, meaning in rows:
        beside = name if cell_width(name) < _NAMES else ""
        lines += [[(f"  {name}", "bold")]] if not beside else []
        lines += _beside([(f"  {ljust(beside, _NAMES)}", "bold")], meaning, width)
    return lines


def _beside(names: Line, meaning: str, width: int) -> list[Line]:
    """Return names with their meaning beside them, in as many lines as it needs."""
    indent = sum(cell_width(text) for text, _ in names)
    first, *more = wrap(meaning, max(8, width - indent - 1))
    return [[*names, (first, "dim")], *([(" " * indent, ""), (text, "dim")] for text in more)]
