"""The dialog that chooses a theme: the screen behind it shows the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from swarmtui.report.colours import HUES
from swarmtui.tui.lines import Line, LineWidget
from swarmtui.tui.pick_list import PickList
from swarmtui.tui.themes import SWARM, THEMES, keep_theme

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_SAMPLES = ("title", *HUES, "dim", "bold", "selected")


class ThemeSample(LineWidget):
    """Words in the styles of the theme."""

    def draw(self, width: int, height: int) -> list[Line]:
        return [
            [(f" {name}", name) for name in _SAMPLES[: len(HUES) + 1]],
            [(f" {name}", name) for name in _SAMPLES[len(HUES) + 1 :]],
        ]


class ThemeDialog(ModalScreen[None]):
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
        width = max(map(len, texts))
        with Vertical(classes="box", id="theme-box"):
            yield Static("Theme", markup=False)
            items = PickList([(name, f"{name:<{width}}  {text}") for name, text in texts.items()])
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
